//! The directories of agent trace that are removed, moved or replaced while it runs. The events of processes with open
//! files must still be counted, and processes that start later must find the agent again.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use pmapi::Type;
use trace::{Options, Tag, Trace, Transport};

use super::Bench;
use crate::Outcome;
use crate::honest::{Honest, instance_of};
use crate::host::{Host, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;

/// Longest time until a process finds the agent again, and until its events are counted.
const SOON: Duration = Duration::from_secs(5);
/// Tag of the processes that start after each fault.
const TAG: &str = "later";
/// Item of `trace.point.count`.
const POINTS: u16 = 6;

pub(super) fn run(job: &mut Job) -> Outcome {
    let spec = Spec::of("trace").ok_or("no agent trace")?;
    let scene = Scene::new(job)?;
    let mut honest = Honest::new(&scene)?;
    let mut bench = Bench::start(job, spec, &scene, Some(&honest))?;
    honest.go_on()?;
    let mut later = Later { scene: scene.clone(), tag: Tag::new(TAG)?, points: 0 };
    while let Some((round, mut rng)) = job.next_round() {
        let what = fault(&mut rng, &scene)?;
        job.tried(1);
        let begin = Instant::now();
        let outcome = later.mark().and_then(|()| later.counted(spec, &mut *bench.host));
        job.expect(&format!("a process after {what}"), outcome);
        job.took(begin.elapsed());
        let outcome = bench.settles(&honest, scaled(SOON));
        job.expect(&format!("the honest process after {what}"), outcome);
        remove(&scene.dir().join("away"))?;
        if round % 64 == 0 {
            job.check_memory(bench.host.pid(), spec.memory);
            job.check_log(&scene.logs());
            // A few may be those of the last faults, which the agent has not removed yet.
            let left = fs::read_dir(scene.dir().join("shm"))?.count();
            if left > 2 {
                job.fail(format_args!("{left} directories of files are left"));
            }
        }
    }
    Ok(())
}

/// Removes, moves or replaces one of the directories, or the file in the agent's. Returns a description of the fault.
fn fault(rng: &mut Rng, scene: &Scene) -> Outcome<String> {
    let own = scene.trace();
    let above = own.parent().ok_or("no parent")?.to_owned();
    let place = match rng.below(4) {
        0 => own.join("agent"),
        1 => own,
        2 => above,
        _ => scene.marks()?,
    };
    let away = scene.dir().join("away");
    let how = match rng.below(2) {
        0 => {
            remove(&place)?;
            "removed"
        }
        _ => {
            retry(&place, || fs::rename(&place, &away))?;
            "moved"
        }
    };
    let instead = match rng.below(6) {
        0 => File::create(&place).map(|_| "a file"),
        1 => symlink(&away, &place).map(|()| "a link"),
        2 => fs::create_dir(&place).map(|()| "a directory"),
        _ => Ok("nothing"),
    };
    // The agent may be faster, and has then created the directory or file again.
    let instead = instead.unwrap_or("nothing");
    sleep(Duration::from_millis(rng.below(30) as u64));
    // The agent cannot replace what others have put there.
    if instead != "nothing" {
        remove(&place)?;
    }
    Ok(format!("{} was {how}, with {instead} in its place", place.display()))
}

/// Removes a file or directory, if there is one.
fn remove(path: &Path) -> Outcome {
    retry(path, || {
        let directory = fs::symlink_metadata(path).is_ok_and(|about| about.is_dir());
        let removed = if directory { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
    })
}

/// Repeats an operation until it succeeds, because the agent may create files in a directory while it is removed, or may
/// not have created again what is to be moved.
fn retry(path: &Path, operation: impl Fn() -> io::Result<()>) -> Outcome {
    let begin = Instant::now();
    loop {
        match operation() {
            Err(e) if begin.elapsed() > scaled(SOON) => return Err(format!("{}: {e}", path.display()).into()),
            Err(_) => sleep(Duration::from_millis(1)),
            Ok(()) => return Ok(()),
        }
    }
}

/// Processes that start later.
struct Later {
    scene: Scene,
    tag: Tag,
    /// Points that must have been counted.
    points: u64,
}

impl Later {
    /// Records a point as a process that has just started, as soon as it finds the agent.
    fn mark(&mut self) -> Outcome {
        let begin = Instant::now();
        loop {
            let options = Options::default().directory(self.scene.trace()).ring_len(4096);
            let trace = Trace::new(options.transport(Transport::SharedMemory));
            trace.point(&self.tag);
            let status = trace.status();
            if status.missed == 0 && status.connected {
                self.points += 1;
                return Ok(());
            }
            if begin.elapsed() > scaled(SOON) {
                return Err(format!("it finds no agent: {status:?}").into());
            }
            sleep(Duration::from_millis(10));
        }
    }

    fn counted(&self, spec: &Spec, host: &mut dyn Host) -> Outcome {
        let begin = Instant::now();
        let indom = spec.indom(1);
        loop {
            let answer = Answer::Number(Type::U64, self.points as f64);
            let outcome = instance_of(indom, host, TAG)
                .and_then(|inst| Probe::default().fetch_one(spec.pmid(0, POINTS), indom, inst, answer)?.ask(host));
            match outcome {
                Err(_) if begin.elapsed() < scaled(SOON) => sleep(Duration::from_millis(10)),
                outcome => return outcome,
            }
        }
    }
}
