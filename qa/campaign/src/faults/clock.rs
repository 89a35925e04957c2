//! A clock that jumps backwards and forwards by up to 95 years, made with libfaketime (a package of Debian).

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mmv::Registry;
use pmapi::Type;

use crate::Outcome;
use crate::honest::Honest;
use crate::host::{Host, Scene, Streams, command};
use crate::job::Job;
use crate::pdus::probes;
use crate::probe::{Answer, Probe};
use crate::spec::Spec;

/// Returns the path of libfaketime on Debian, if it is installed.
fn library() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib").ok()?.flatten().map(|dir| dir.path().join("faketime/libfaketime.so.1"));
    found.into_iter().find(|path| path.exists())
}

/// Returns whether libfaketime is installed.
pub(crate) fn is_possible() -> bool {
    library().is_some()
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let honest = Honest::new(&scene)?;
    let time = scene.dir().join("time");
    let library = library().ok_or("there is no libfaketime")?;
    fs::write(&time, "+0")?;
    let mut agents = Vec::new();
    for name in ["mmv", "trace", "simple"] {
        let spec = Spec::of(name).ok_or("no such agent")?;
        let mut command = command(spec, &job.order.bin, &scene);
        command.env("LD_PRELOAD", &library).env("FAKETIME_TIMESTAMP_FILE", &time);
        command.env("FAKETIME_NO_CACHE", "1").env("DONT_FAKE_MONOTONIC", "1");
        let mut host: Box<dyn Host> = Box::new(Streams::over_pipes(spec, command, &scene)?);
        if name == "trace" {
            let port = Answer::Number(Type::U32, scene.trace_port.into());
            Probe::default().fetch(spec.pmid(0, 14), port)?.ask(&mut *host)?;
            honest.mark()?;
        }
        let known = probes(spec, &mut *host)?;
        agents.push((spec, host, known));
    }
    let mut registry: Option<Registry> = None;
    while let Some((round, mut rng)) = job.next_round() {
        let seconds = (rng.odd_number() % 3_000_000_000) as i64 * if rng.one_in(2) { 1 } else { -1 };
        // No system's clock is before 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() as i64;
        fs::write(&time, format!("{:+}", seconds.max(1 - now)))?;
        drop(registry.take());
        // The agent must notice a new file, even if the directory's time of modification is wrong.
        let another = Registry::builder("other").directory(scene.mmv()).cluster(11).build()?;
        another.counter("count").item(1).register()?.add(round);
        another.try_start()?;
        registry = Some(another);
        job.tried(1);
        let outcome = agents.iter_mut().try_for_each(|(spec, host, known)| {
            known.iter().try_for_each(|probe| probe.ask(&mut **host))?;
            if spec.name == "mmv" {
                Probe::default().fetch(spec.pmid(11, 1), Answer::Number(Type::U64, round as f64))?.ask(&mut **host)?;
            }
            honest.check(spec, &mut **host)
        });
        job.expect(&format!("with a clock that is {seconds} s off"), outcome);
        for (spec, host, _) in &agents {
            job.check_memory(host.pid(), spec.memory);
        }
        job.took(Duration::ZERO);
    }
    drop(registry);
    job.check_log(&scene.logs());
    Ok(())
}
