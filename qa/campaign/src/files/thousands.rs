//! Three strangers and an honest user, each with the largest allowed number of MMV files, while the agent is restarted.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mmv::Registry;
use pcp_pdu::Pdu;
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::names::{Node, Statuses, encode_names};
use pcp_pdu::profile::Profile;
use pmapi::{Atom, PmId, Type};

use super::values::{get32, get64, put64};
use super::{HONEST, timed};
use crate::Outcome;
use crate::host::{self, Host, Kind, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;
use crate::users::As;

/// Number of files of each user.
const FILES: usize = 1000;
/// Number of the honest user's files that are always exported, whatever files the others have.
const LEAST: usize = FILES / 2;
/// The strangers, by the first letter of their files' names, which sort before and after the honest ones.
const STRANGERS: [char; 3] = ['a', 'g', 'z'];
/// Number of files that strangers change in each round.
const CHANGES: usize = 60;
/// Longest duration of a request. After a change, a request must check the attributes of all files.
const PROMPT: Duration = Duration::from_millis(500);
/// Longest time until files are exported after room has become free.
const SOON: Duration = Duration::from_secs(10);

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let spec = Spec::of("mmv").ok_or("no agent mmv")?;
    let (file, value) = template(job)?;
    let put = |path: &Path, number: u64| {
        let mut bytes = file.clone();
        put64(&mut bytes, value, number);
        fs::write(path, bytes)
    };
    for n in 0..FILES {
        let path = scene.mmv().join(format!("h{n}"));
        put(&path, n as u64)?;
        nix::unistd::chown(&path, Some(nix::unistd::Uid::from_raw(HONEST)), None)?;
    }
    for user in 0..STRANGERS.len() {
        strangers(&scene, user, put)?;
    }
    while let Some((round, mut rng)) = job.next_round() {
        let mut agent = host::start(spec, Kind::Pipe, job, &scene)?;
        // The first answer comes after the agent has read all files.
        let outcome = exported(&mut *agent).and_then(at_least);
        job.expect("after a restart", outcome);
        let user = rng.below(STRANGERS.len());
        let outcome = promptly(job, &mut *agent).and_then(|()| {
            changes(&mut rng, &scene, user, put)?;
            promptly(job, &mut *agent)?;
            at_least(exported(&mut *agent)?)
        });
        job.expect("among changes", outcome);
        job.tried(((STRANGERS.len() + 1) * FILES + CHANGES) as u64);
        if round % 4 == 3 {
            (0..FILES).for_each(|n| _ = fs::remove_file(name(&scene, user, n)));
            job.expect("without the files of a stranger", all_come(&mut *agent));
            strangers(&scene, user, put)?;
        }
        job.check_memory(agent.pid(), spec.memory);
        job.check_log(&scene.logs());
    }
    Ok(())
}

/// Returns a file with one counter, and the offset of its value.
fn template(job: &Job) -> Outcome<(Vec<u8>, usize)> {
    let registry = Registry::builder("good").directory(job.dir("good")?).cluster(300).persistent().build()?;
    registry.counter("count").register()?;
    registry.try_start()?;
    let mut file = fs::read(registry.path().ok_or("no path")?)?;
    // Without a requested cluster, each file gets a different one.
    super::values::put32(&mut file, 36, 0);
    let values = (0..get32(&file, 24)).map(|n| 40 + 16 * n).find(|at| get32(&file, *at) == 4).ok_or("no values")?;
    let value = get64(&file, values + 8) as usize;
    Ok((file, value))
}

fn name(scene: &Scene, user: usize, n: usize) -> std::path::PathBuf {
    scene.mmv().join(format!("{}{n}", STRANGERS.get(user).copied().unwrap_or('x')))
}

/// Writes all files of a stranger.
fn strangers(scene: &Scene, user: usize, put: impl Fn(&Path, u64) -> std::io::Result<()>) -> Outcome {
    let _as = As::user(user);
    for n in 0..FILES {
        put(&name(scene, user, n), u64::MAX)?;
    }
    Ok(())
}

/// Rewrites, renames and removes some files of a stranger.
fn changes(rng: &mut Rng, scene: &Scene, user: usize, put: impl Fn(&Path, u64) -> std::io::Result<()>) -> Outcome {
    let _as = As::user(user);
    for _ in 0..CHANGES {
        let (one, other) = (name(scene, user, rng.below(FILES)), name(scene, user, rng.below(FILES)));
        match rng.below(4) {
            0 => _ = fs::rename(one, other),
            1 => _ = fs::remove_file(one),
            _ => put(&one, rng.next())?,
        }
    }
    Ok(())
}

/// Fetches an honest value. The answer must be prompt. The first request after changes reads the changed files.
fn promptly(job: &mut Job, agent: &mut dyn Host) -> Outcome {
    let (n, pmid) = *found(agent)?.first().ok_or("no honest file is exported")?;
    let probe = Probe::default().fetch(pmid, Answer::Number(Type::U64, n as f64))?;
    let times = [timed(agent, &probe)?, timed(agent, &probe)?, timed(agent, &probe)?];
    times.iter().for_each(|time| job.took(*time));
    if times.iter().all(|time| *time > scaled(PROMPT)) {
        Err(format!("requests take {times:?}").into())
    } else {
        Ok(())
    }
}

/// Waits until all honest files are exported.
fn all_come(agent: &mut dyn Host) -> Outcome {
    let begin = Instant::now();
    loop {
        match exported(agent)? {
            FILES => return Ok(()),
            number if begin.elapsed() > scaled(SOON) => {
                return Err(format!("{number} honest files are exported").into());
            }
            _ => {}
        }
    }
}

fn at_least(number: usize) -> Outcome {
    if number >= LEAST { Ok(()) } else { Err(format!("{number} honest files are exported").into()) }
}

/// Returns the numbers of the honest files that the agent exports, and the identifiers of their counters.
fn found(agent: &mut dyn Host) -> Outcome<Vec<(u64, PmId)>> {
    let mut request = Vec::new();
    for n in 0..FILES {
        let name = format!("mmv.h{n}.count");
        encode_names(&mut request, 1, Statuses::Omitted, [(Node::Leaf, name.as_bytes())])?;
    }
    let (mut found, mut number): (Vec<(u64, PmId)>, u64) = (Vec::new(), 0);
    agent.exchange(&request, FILES, &mut |header, bytes| {
        if let Pdu::Ids(ids) = Pdu::decode(header, bytes)? {
            found.extend(ids.pmids().flatten().map(|pmid| (number, pmid)));
        }
        number += 1;
        Ok(())
    })?;
    Ok(found)
}

/// Returns the number of honest files that the agent exports, after checking their values.
fn exported(agent: &mut dyn Host) -> Outcome<usize> {
    let found = found(agent)?;
    if found.is_empty() {
        return Ok(0);
    }
    let mut request = Vec::new();
    Profile::default().encode(&mut request, 1, 0)?;
    encode_fetch(&mut request, 1, 0, found.iter().map(|(_, pmid)| Some(*pmid)))?;
    agent.exchange(&request, 1, &mut |header, bytes| {
        let Pdu::Result(result) = Pdu::decode(header, bytes)? else { return Err("no values".into()) };
        for ((n, _), set) in found.iter().zip(result.sets()) {
            let value = set.values().next().map(|(_, value)| value.atom(Type::U64)).transpose()?;
            if value != Some(Atom::U64(*n)) {
                return Err(format!("mmv.h{n}.count is {value:?}").into());
            }
        }
        Ok(())
    })?;
    Ok(found.len())
}
