//! An agent that has no descriptors, or no memory, for some time; directories that vanish and come back.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use mmv::Registry;

use crate::Outcome;
use crate::honest::Honest;
use crate::host::{Scene, chown_to_pcp};
use crate::job::Job;
use crate::pdus::{Valid, ask_valid};
use crate::procs;
use crate::rng::Rng;
use crate::spec::Spec;

use super::Bench;

/// How soon everything has to be as before, once a fault is over.
const SOON: Duration = Duration::from_secs(3);

pub(super) fn run(job: &mut Job, spec: &'static Spec) -> Outcome {
    let scene = Scene::new(job)?;
    let scene = if spec.name == "derived" { scene.with_derived(&job.order.bin)? } else { scene };
    let honest = Honest::new(&scene)?;
    let mut bench = Bench::start(job, spec, &scene, Some(&honest))?;
    let mut valid = Valid::new(spec);
    while let Some((round, mut rng)) = job.next_round() {
        let memory = rng.one_in(4);
        let outcome = if memory {
            no_memory(&mut rng, &mut bench, &mut valid)
        } else {
            no_descriptors(&mut rng, &scene, &mut bench, &mut valid)
        };
        job.tried(1);
        if memory && !procs::runs(bench.host.pid()) {
            // An allocation that fails ends a process; pmcd starts another one.
            bench = Bench::start(job, spec, &scene, None)?;
        } else {
            job.expect("during a fault", outcome);
        }
        let settled = bench.settles(&honest, SOON);
        let lost = job.expect("after a fault", settled).is_none();
        if lost || rng.one_in(64) {
            drop(bench);
            bench = Bench::start(job, spec, &scene, None)?;
        }
        if spec.name == "mmv" && rng.one_in(4) {
            let outcome = no_directory(&scene, &mut bench, &honest);
            job.tried(1);
            job.expect("without the directory of files", outcome);
        }
        if round % 64 == 0 {
            job.check_memory(bench.host.pid(), spec.memory);
            job.check_log(&scene.logs());
        }
    }
    Ok(())
}

/// Changes a limit of a process that runs. Its own user may; root may not be allowed to, in a container.
fn limit(pid: u32, what: &str, soft: &str) -> Outcome {
    let (user, group) = procs::user(pid).ok_or("the agent has ended")?;
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &pid.to_string(), &format!("--{what}={soft}:")]).uid(user).gid(group);
    let output = prlimit.output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

/// Nothing can be opened while files come and requests are answered.
fn no_descriptors(rng: &mut Rng, scene: &Scene, bench: &mut Bench, valid: &mut Valid) -> Outcome {
    let pid = bench.host.pid();
    // As when all that are allowed are open.
    let highest = procs::highest_descriptor(pid).ok_or("the agent has ended")?;
    limit(pid, "nofile", &(highest + 1 + rng.below(3)).to_string())?;
    let outcome = (|| {
        let another = Registry::builder(&format!("other{}", rng.below(4))).directory(scene.mmv()).build()?;
        another.counter("count").register()?.inc();
        another.try_start()?;
        let count = 1 + rng.below(16);
        ask_valid(rng, &mut *bench.host, valid, count)
    })();
    limit(pid, "nofile", "2048")?;
    outcome
}

/// The address space cannot grow.
fn no_memory(rng: &mut Rng, bench: &mut Bench, valid: &mut Valid) -> Outcome {
    let pid = bench.host.pid();
    let size = procs::address_space(pid).ok_or("the agent has ended")?;
    limit(pid, "as", &((size << 10) + rng.below(1 << 20) as u64).to_string())?;
    let count = 1 + rng.below(32);
    let outcome = ask_valid(rng, &mut *bench.host, valid, count);
    if procs::runs(pid) {
        limit(pid, "as", &(2_u64 << 30).to_string())?;
    }
    outcome
}

/// The directory of files goes, and comes back with what was in it.
fn no_directory(scene: &Scene, bench: &mut Bench, honest: &Honest) -> Outcome {
    let (dir, away) = (scene.mmv(), scene.mmv().with_file_name("away"));
    fs::rename(&dir, &away)?;
    // Without files the agent has its own metrics.
    let without = bench.probes.last().map_or(Ok(()), |probe| match probe.ask(&mut *bench.host) {
        Err(_) if procs::runs(bench.host.pid()) => Ok(()),
        outcome => outcome,
    });
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, Permissions::from_mode(0o1777))?;
    chown_to_pcp(&dir)?;
    for file in fs::read_dir(&away)?.flatten() {
        fs::rename(file.path(), dir.join(file.file_name()))?;
    }
    fs::remove_dir(&away)?;
    without.and_then(|()| bench.settles(honest, SOON))
}
