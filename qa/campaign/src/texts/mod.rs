//! Stage `texts`: damaged configurations, help, name spaces and instance caches.

pub(crate) mod damage;
mod expressions;
#[path = "../../../fuzz/properties/help.rs"]
mod help;
#[path = "../../../fuzz/properties/pmns.rs"]
mod names;
mod reloads;

use std::fs;
use std::time::Instant;

use pcp_pdu::Pdu;
use pcp_pdu::instance::InstanceReq;
use pmapi::Config;

use crate::Outcome;
use crate::host::{self, Kind, Scene};
use crate::job::Job;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;

/// Number of texts in a round.
const ROUND: u64 = 256;

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    match what {
        "config" => return reloads::run(job),
        "cache" => return caches(job),
        _ => {}
    }
    while let Some((_, mut rng)) = job.next_round() {
        for _ in 0..ROUND {
            let start = Instant::now();
            let outcome = match what {
                "expressions" => expressions::try_one(&mut rng),
                "help" => try_help(&mut rng),
                "names" => try_names(&mut rng),
                "settings" => try_settings(&mut rng),
                _ => Err(format!("no stage texts:{what}").into()),
            };
            job.took(start.elapsed());
            if let Err(e) = outcome {
                job.fail(e);
            }
        }
        job.tried(ROUND);
        job.check_memory(std::process::id(), MEMORY);
    }
    Ok(())
}

/// Limit of the job's own memory, in KiB.
const MEMORY: u64 = 256 << 10;

const HELP: &str = "# a comment\n@ m.one One line\nHelp of several\nlines.\n\n@ m.two Another\n@ 12.3 A domain\nOf instances.\n\
                    @ SYMBOL.1 Another domain\ntext \\\nthat goes on\n";

/// Damages a help source, and the compiled files.
fn try_help(rng: &mut Rng) -> Outcome {
    let mut text = HELP.as_bytes().to_vec();
    damage::damage(rng, &mut text);
    let Some(files) = help::compiles(&text)? else { return Ok(()) };
    let (mut dir, mut pag) = (files.dir, files.pag);
    for _ in 0..rng.below(4) {
        let file = if rng.one_in(3) { &mut pag } else { &mut dir };
        let at = 4 * rng.below(file.len() / 4);
        let word = rng.odd_number() as u32;
        if let Some(place) = file.get_mut(at..at + 4) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
    }
    help::opens(dir, pag)
}

const NAMES: &str = "#define D 60\nroot {\n  disk\n  mem D:1:2\n  dyn D:*:*\n}\ndisk {\n  dev\n  all D:0:1 /* a comment */\n}\n\
                     disk.dev {\n  read D:0:4\n  write D:0:5\n}\n";

/// Damages a name space.
fn try_names(rng: &mut Rng) -> Outcome {
    let mut text = NAMES.as_bytes().to_vec();
    damage::damage(rng, &mut text);
    names::check(&text)
}

/// Damages a `pcp.conf`. Every text must give directories.
fn try_settings(rng: &mut Rng) -> Outcome {
    let mut text =
        b"# pcp.conf\nPCP_TMP_DIR=/var/tmp\nPCP_USER=pcp\nPCP_RUN_DIR=\"/run/pcp\"\nPCP_VERSION=6.0.3\n".to_vec();
    damage::damage(rng, &mut text);
    let config = Config::new(&text, []);
    drop((config.tmp_dir(), config.run_dir(), config.user(), config.var("PCP_VERSION").is_some()));
    Ok(())
}

/// Starts agent simple with damaged instance caches and configurations.
fn caches(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let spec = Spec::of("simple").ok_or("no agent simple")?;
    let cache = scene.dir().join("var/config/pmda/253.1");
    let good = b"2 0 2147483647\n0 1700000000 sec\n1 1700000000 min\n7 1700000000 [00ff] hour\n".to_vec();
    let mut request = Vec::new();
    InstanceReq { indom: Some(spec.indom(1)), inst: None, name: None }.encode(&mut request, 1)?;
    while let Some((_, mut rng)) = job.next_round() {
        for _ in 0..64 {
            let mut text = good.clone();
            damage::damage(&mut rng, &mut text);
            fs::write(&cache, &text)?;
            let mut conf = b"sec,min,hour\n".to_vec();
            if rng.one_in(2) {
                damage::damage(&mut rng, &mut conf);
            }
            fs::write(scene.dir().join("pmdas/simple/simple.conf"), &conf)?;
            let start = Instant::now();
            let mut agent = host::start(spec, Kind::Local, job, &scene)?;
            let outcome = agent.exchange(&request, 1, &mut |header, bytes| match Pdu::decode(header, bytes)? {
                Pdu::Instance(instances) => {
                    let mut all: Vec<_> = instances.iter().collect();
                    let count = all.len();
                    all.sort_unstable_by_key(|(inst, _)| inst.map(|inst| inst.word()));
                    all.dedup_by_key(|(inst, _)| *inst);
                    if all.len() == count { Ok(()) } else { Err("two instances have one number".into()) }
                }
                other => Err(format!("{other:?} in place of instances").into()),
            });
            let fetched =
                Probe::default().fetch(spec.pmid(0, 0), Answer::Number(pmapi::Type::U32, 1.0))?.ask(&mut *agent);
            job.took(start.elapsed());
            job.expect("agent with a damaged cache", outcome.and(fetched));
        }
        job.tried(128);
        job.check_memory(std::process::id(), MEMORY);
    }
    let left = fs::read_dir(scene.dir().join("var/config/pmda"))?.flatten().count();
    // These are the cache, the cache of the other instance domain, and up to eight damaged files that the agent keeps.
    if left > 10 {
        job.fail(format_args!("{left} files beside the caches"));
    }
    Ok(())
}
