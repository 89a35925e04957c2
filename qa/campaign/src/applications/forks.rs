//! Applications that fork at any time: while other threads register metrics, and while they create the first registry
//! of the process. Parent and children must continue, and the parent's values must be exact.
#![allow(unsafe_code, reason = "fork(2)")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use mmv::Registry;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use pmapi::Type;

use super::end_round;
use crate::Outcome;
use crate::host::{self, Kind, Scene};
use crate::job::Job;
use crate::probe::{Answer, Probe};
use crate::procs::{Guarded, tail};
use crate::rng::Rng;
use crate::spec::Spec;

/// Cluster of the application's metrics, and the item of its counter.
const CLUSTER: u16 = 14;
const ITEM: u16 = 1;
/// Number of updates of the counter by the parent.
const UPDATES: u64 = 500;
/// Time after which a process counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// Options of the application that forks.
#[derive(Args, Debug)]
pub(crate) struct Forker {
    /// Directory of the memory mapped values
    #[arg(long)]
    mmv: PathBuf,
    #[arg(long)]
    seed: u64,
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let spec = Spec::of("mmv").ok_or("no agent mmv")?;
    let mut agent = host::start(spec, Kind::Pipe, job, &scene)?;
    let answer = Answer::Number(Type::U64, UPDATES as f64);
    let probe = Probe::default().fetch(spec.pmid(CLUSTER, ITEM), answer)?;
    let errors = scene.dir().join("forker.err");
    while let Some((_, mut rng)) = job.next_round() {
        let begin = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["forker", "--seed", &rng.next().to_string(), "--mmv"]).arg(scene.mmv());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&errors)?);
        let mut child = Guarded::spawn(&mut command)?;
        match child.ends_within(2 * PATIENCE) {
            Some(status) if status.success() => {}
            Some(status) => job.fail(format_args!("an application that forks: {status}: {}", tail(&errors, 3))),
            None => job.fail("an application that forks hangs"),
        }
        job.took(begin.elapsed());
        // The file outlives the process.
        let outcome = probe.ask(&mut *agent);
        job.expect("the values of an application that forks", outcome);
        end_round(job, &scene)?;
    }
    job.check_memory(agent.pid(), spec.memory);
    job.check_log(&scene.logs());
    Ok(())
}

/// Registers and counts in two threads while a third one forks.
pub(crate) fn run_forker(forker: &Forker) -> Outcome {
    let (begins, ended) = (AtomicU32::new(0), AtomicBool::new(false));
    let (dir, seed) = (forker.mmv.as_path(), forker.seed);
    // All threads begin at once: forks meet the first registry of the process.
    let begin = || {
        begins.fetch_add(1, Ordering::SeqCst);
        while begins.load(Ordering::SeqCst) < 3 {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        let forks = scope.spawn(|| {
            begin();
            fork_until(&ended, dir, seed)
        });
        let other = scope.spawn(|| {
            begin();
            count(dir, "other", CLUSTER + 1)
        });
        begin();
        let own = count(dir, "forks", CLUSTER);
        let other = other.join();
        ended.store(true, Ordering::Relaxed);
        let forks = forks.join();
        own?;
        other.map_err(|_| "a panic of a thread that counts")??;
        forks.map_err(|_| "a panic of the thread that forks")?
    })
}

/// Counts, and registers metrics meanwhile.
fn count(dir: &Path, name: &str, cluster: u16) -> Outcome {
    let registry = Registry::builder(name).directory(dir).cluster(cluster).persistent().build()?;
    let counter = registry.counter("count").item(ITEM).register()?;
    registry.try_start()?;
    for n in 0..UPDATES {
        if n % 25 == 0 {
            registry.counter(&format!("more{n}")).register()?.inc();
            registry.timer(&format!("time{n}")).register()?.observe(Duration::from_micros(n));
        }
        counter.inc();
    }
    registry.flush();
    Ok(())
}

/// Forks children one after the other, at random times. Each child exports a separate metric, and ends.
fn fork_until(ended: &AtomicBool, dir: &Path, seed: u64) -> Outcome {
    let mut rng = Rng::of(seed, 0);
    for n in 0..1000 {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        // SAFETY: the child does the same as children of applications. It uses no locks of other threads except those
        // of the library and of the allocator.
        match unsafe { fork() }? {
            ForkResult::Child => {
                let good = child(dir, n).is_ok();
                // SAFETY: the call is always safe, and skips the destructors of the parent.
                unsafe { nix::libc::_exit(i32::from(!good)) }
            }
            ForkResult::Parent { child } => ends(child)?,
        }
        thread::sleep(Duration::from_micros(rng.below(300) as u64));
    }
    Ok(())
}

fn child(dir: &Path, n: u32) -> Outcome {
    let registry = Registry::builder(&format!("child{n}")).directory(dir).build()?;
    registry.counter("count").register()?.inc();
    registry.try_start()?;
    registry.counter("late").register()?.inc();
    registry.flush();
    registry.stop();
    Ok(())
}

/// Waits for the end of a child.
pub(super) fn ends(child: Pid) -> Outcome {
    let begin = Instant::now();
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_micros(100)),
            WaitStatus::StillAlive => {
                nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL)?;
                waitpid(child, None)?;
                return Err("a child hangs".into());
            }
            WaitStatus::Exited(_, 0) => return Ok(()),
            status => return Err(format!("a child ends: {status:?}").into()),
        }
    }
}
