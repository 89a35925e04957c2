//! An agent without free descriptors or memory for some time, and directories that disappear and reappear.

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
use crate::patience::scaled;
use crate::pdus::{Valid, ask_valid};
use crate::procs;
use crate::rng::Rng;
use crate::spec::Spec;

use super::Bench;

/// Longest time that an agent may need to recover from a fault.
const SOON: Duration = Duration::from_secs(3);

pub(super) fn run(job: &mut Job, spec: &'static Spec) -> Outcome {
    let scene = Scene::new(job)?.with(spec, &job.order.bin)?;
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
            // A failed allocation may end the agent. pmcd would restart it.
            bench = Bench::start(job, spec, &scene, None)?;
        } else {
            job.expect("during a fault", outcome);
        }
        let settled = bench.settles(&honest, scaled(SOON));
        let settled = settled.map_err(|e| format!("{e}; its log: {}", procs::tail(&scene.log(spec.name), 8)).into());
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

/// Changes a limit of a running process, as its own user: in a container root may lack the permission.
fn limit(pid: u32, what: &str, soft: &str) -> Outcome {
    let (user, group) = procs::user(pid).ok_or("the agent has ended")?;
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &pid.to_string(), &format!("--{what}={soft}:")]).uid(user).gid(group);
    let output = prlimit.output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

/// Lets the agent answer requests and find a new file while it cannot open anything.
fn no_descriptors(rng: &mut Rng, scene: &Scene, bench: &mut Bench, valid: &mut Valid) -> Outcome {
    let pid = bench.host.pid();
    // With this limit all allowed descriptors are in use, except for two at most.
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

/// Lets the agent answer requests while its address space can grow by less than 1 MiB.
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

/// Removes the directory of MMV files for some time, and restores it with its files.
fn no_directory(scene: &Scene, bench: &mut Bench, honest: &Honest) -> Outcome {
    let (dir, away) = (scene.mmv(), scene.mmv().with_file_name("away"));
    fs::rename(&dir, &away)?;
    // Without files the agent still has its own metrics.
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
    without.and_then(|()| bench.settles(honest, scaled(SOON)))
}
