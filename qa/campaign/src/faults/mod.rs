//! Stage `faults`: killed and stopped processes, full disks, lack of descriptors and memory, jumping clocks, vanishing
//! directories.

mod apps;
mod clock;
mod collector;
mod directories;
mod disk;
mod limits;
mod links;
mod restart;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::honest::Honest;
use crate::host::{Host, Kind, Scene};
use crate::job::Job;
use crate::pdus;
use crate::probe::Probe;
use crate::spec::Spec;

pub(crate) use apps::{App, run_app};

/// Returns the reason why a part of the stage cannot run on this machine, or `None` if it can.
pub(crate) fn impossible(what: &str) -> Option<&'static str> {
    match what {
        "pmcd" if !collector::is_possible() => Some("PCP is not installed"),
        "disk:btrfs" if !disk::is_possible() => Some("there is no mkfs.btrfs, or no file system btrfs"),
        "clock" if !clock::is_possible() => Some("libfaketime is not installed"),
        _ => None,
    }
}

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str, how: &str) -> Outcome {
    match what {
        "restart" => restart::run(job, Spec::of(how).ok_or("no such agent")?),
        "apps" => apps::run(job),
        "limits" => limits::run(job, Spec::of(how).ok_or("no such agent")?),
        "disk" => disk::run(job, how),
        "directories" => directories::run(job),
        "links" => links::run(job),
        "clock" => clock::run(job),
        "pmcd" => collector::run(job),
        _ => Err(format!("no stage faults:{what}").into()),
    }
}

/// An agent over a pipe, and its probes.
struct Bench {
    spec: &'static Spec,
    host: Box<dyn Host>,
    probes: Vec<Probe>,
}

impl Bench {
    /// Starts the agent. The caller passes `honest` for the first agent trace of a job, to record the honest points.
    /// Later agents read the same points.
    fn start(job: &Job, spec: &'static Spec, scene: &Scene, honest: Option<&Honest>) -> Outcome<Bench> {
        let mut host = pdus::start(job, spec, Kind::Pipe, scene, honest)?;
        let probes = pdus::probes(spec, &mut *host)?;
        Ok(Bench { spec, host, probes })
    }

    /// Checks the answers to all probes, and the honest application's values.
    fn check(&mut self, honest: &Honest) -> Outcome {
        self.probes.iter().try_for_each(|probe| probe.ask(&mut *self.host))?;
        honest.check(self.spec, &mut *self.host)
    }

    /// Repeats [`Bench::check`] until it succeeds, because the agent may notice a change only at a later request.
    fn settles(&mut self, honest: &Honest, patience: Duration) -> Outcome {
        let begin = Instant::now();
        loop {
            match self.check(honest) {
                Err(_) if begin.elapsed() < patience && crate::procs::runs(self.host.pid()) => {
                    sleep(Duration::from_millis(5));
                }
                outcome => return outcome,
            }
        }
    }

    /// Calls [`Bench::check`], and records its duration.
    fn timed(&mut self, job: &mut Job, honest: &Honest) -> Outcome {
        let start = Instant::now();
        let outcome = self.check(honest);
        job.took(start.elapsed());
        outcome
    }
}
