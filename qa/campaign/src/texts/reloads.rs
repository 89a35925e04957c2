//! Agent derived, which reloads damaged configurations repeatedly. One file of the configuration stays valid.

use std::fs;
use std::os::unix::fs::symlink;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pcp_pdu::handshake::{Attr, Attribute};
use pmapi::{Atom, Type};

use super::damage::{damage, lines};
use crate::Outcome;
use crate::host::{Host, Kind, PATIENCE, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::pdus::start;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;

const CPU: &str = include_str!("../../../../agents/derived/etc/cpu.conf");
const DISK: &str = include_str!("../../../../agents/derived/etc/disk.conf");
const TOML: &str = "[metric]\nidle = \"rate(a.b)\"\n[metric.io.size]\nexpr = \"delta(a.c) / delta(a.d)\"\nname = \"disk.dev.avgsz\"\n\
                    oneline = \"size\"\nlabels = { tier = \"storage\", n = 3 }\n[group.slow]\ninterval = \"30 sec\"\n\
                    [group.slow.metric]\nfull = \"max(filesys.full)\"\n[group.db1]\nhost = \"127.0.0.1\"\n\
                    [group.db1.metric]\n\"db1.load\" = \"kernel.all.load[1 minute]\"\n";
/// Number of files that change in a round.
const FILES: usize = 8;

/// Runs this part of the stage.
pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?.with_derived(&job.order.bin)?;
    let spec = Spec::of("derived").ok_or("no agent derived")?;
    let mut host = begin(job, spec, &scene)?;
    let dir = scene.derived();
    let reload = reload(spec)?;
    while let Some((round, mut rng)) = job.next_round() {
        clear(&dir)?;
        for _ in 0..FILES {
            replace(&mut rng, &dir)?;
        }
        let outcome = ask(job, &mut *host, &reload);
        job.tried(FILES as u64);
        if job.expect("round", outcome).is_none() {
            drop(host);
            host = begin(job, spec, &scene)?;
        }
        if round % 16 == 0 {
            job.check_memory(host.pid(), spec.memory);
            job.check_log(&scene.logs());
        }
    }
    job.check_memory(host.pid(), spec.memory);
    Ok(())
}

/// Starts the agent, and waits until it has bound its metrics.
fn begin(job: &Job, spec: &'static Spec, scene: &Scene) -> Outcome<Box<dyn Host>> {
    let mut host = start(job, spec, Kind::Pipe, scene, None)?;
    Probe::lookup_when_bound(&mut *host, "derived.twice")?;
    Ok(host)
}

/// Returns a store of root into `derived.control.reload`.
fn reload(spec: &Spec) -> Outcome<Probe> {
    let mut probe = Probe::default();
    Attr { attribute: Attribute::USERID, value: b"0" }.encode(&mut probe.pdus, 99)?;
    probe.store(spec.pmid(0, 8), Atom::U32(1))
}

/// Reloads the configuration, and waits for the metric of the valid file. The agent must answer requests in the
/// meantime.
fn ask(job: &mut Job, host: &mut dyn Host, reload: &Probe) -> Outcome {
    let begin = Instant::now();
    reload.ask(host)?;
    job.took(begin.elapsed());
    let begin = Instant::now();
    loop {
        let start = Instant::now();
        let outcome = Probe::lookup(host, "derived.twice")
            .and_then(|pmid| Probe::default().fetch(pmid, Answer::Number(Type::U32, 2e6))?.ask(host));
        job.took(start.elapsed());
        match outcome {
            Ok(()) => return Ok(()),
            Err(e) if begin.elapsed() > scaled(PATIENCE) => return Err(e),
            Err(_) => sleep(Duration::from_millis(1)),
        }
    }
}

/// Removes the files of the previous round, so that a round can be repeated alone.
fn clear(dir: &std::path::Path) -> Outcome {
    for file in fs::read_dir(dir)?.flatten().filter(|file| file.file_name() != "own.toml") {
        fs::remove_file(file.path()).or_else(|_| fs::remove_dir(file.path()))?;
    }
    Ok(())
}

/// Replaces a file of the configuration by a damaged one, or by something that is not a regular file.
fn replace(rng: &mut Rng, dir: &std::path::Path) -> Outcome {
    let suffix = if rng.one_in(3) { "toml" } else { "conf" };
    let path = dir.join(format!("s{}.{suffix}", rng.below(6)));
    let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
    match rng.below(24) {
        0 => symlink(".", &path)?,
        1 => mkfifo(&path, Mode::from_bits_truncate(0o644))?,
        2 => symlink("/dev/zero", &path)?,
        3 => fs::create_dir(&path)?,
        4 => {}
        _ => {
            let mut text = Vec::new();
            match (suffix, rng.below(2)) {
                ("toml", _) => text.extend_from_slice(TOML.as_bytes()),
                (_, 0) => lines(rng, CPU, &mut text),
                _ => lines(rng, DISK, &mut text),
            }
            damage(rng, &mut text);
            fs::write(&path, text)?;
        }
    }
    Ok(())
}
