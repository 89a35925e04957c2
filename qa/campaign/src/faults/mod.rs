//! Stage 5: faults. Processes are killed and stopped, disks are full, descriptors and memory are out, clocks jump.

mod apps;
mod clock;
mod collector;
mod disk;
mod limits;
mod restart;

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::honest::Honest;
use crate::host::{Host, Kind, Scene};
use crate::job::Job;
use crate::pdus::{self, Probe};
use crate::spec::Spec;

pub(crate) use apps::{App, run_app};

/// What of the stage cannot run here, and why.
pub(crate) fn impossible(what: &str) -> Option<&'static str> {
    match what {
        "pmcd" if !collector::is_possible() => Some("PCP is not installed"),
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
        "disk" => disk::run(job),
        "clock" => clock::run(job),
        "pmcd" => collector::run(job),
        _ => Err(format!("no stage faults:{what}").into()),
    }
}

/// An agent over a pipe, and what it has to show.
struct Bench {
    spec: &'static Spec,
    host: Box<dyn Host>,
    probes: Vec<Probe>,
}

impl Bench {
    /// Starts the agent; the first one marks what later ones find.
    fn start(job: &Job, spec: &'static Spec, scene: &Scene, honest: Option<&Honest>) -> Outcome<Bench> {
        let mut host = pdus::start(job, spec, Kind::Pipe, scene, honest)?;
        let probes = pdus::probes(spec, &mut *host)?;
        Ok(Bench { spec, host, probes })
    }

    /// Asks for everything that is known.
    fn check(&mut self, honest: &Honest) -> Outcome {
        self.probes.iter().try_for_each(|probe| probe.ask(&mut *self.host))?;
        honest.check(self.spec, &mut *self.host)
    }

    /// The same, until it is so: what has changed may need another look.
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

    /// Checks, and takes note of the time.
    fn timed(&mut self, job: &mut Job, honest: &Honest) -> Outcome {
        let start = Instant::now();
        let outcome = self.check(honest);
        job.took(start.elapsed());
        outcome
    }
}
