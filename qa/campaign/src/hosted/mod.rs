//! Stage `hosted`: an agent in C that does harm, as a shared object behind `pmda-host`.
//!
//! A round starts the host and does one kind of harm. The host must answer the request in time, with a valid answer unless
//! the agent has overwritten memory or answers in two processes. An agent that is not ready must soon be ready again, with
//! its right value. When the host ends, no process may be left.

mod agent;

use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{SIGKILL, kill};
use nix::unistd::Pid;
use pcp_collector::Error;

use crate::job::Job;
use crate::patience::scaled;
use crate::rng::Rng;
use crate::{Outcome, procs};

use agent::{Answer, Hosted, Objects};

/// Numbers of the harms in `bad.c`, by the job that does them.
const HARMS: [(&str, Range<usize>); 5] =
    [("ends", 0..6), ("hangs", 6..11), ("writes", 11..17), ("leaks", 17..20), ("forks", 20..25)];
/// The job of damaged answers.
const NONSENSE: &str = "nonsense";
/// Number of damaged results.
const RESULTS: usize = 17;
/// Number of the harm that forks, and returns in both processes.
const TWIN: usize = 23;
/// Number of the harm that ends the process within 2 ms, at any point of its work.
const ENDS_LATER: usize = 5;
/// Time after which such a process has ended.
const LATER: Duration = Duration::from_millis(50);
/// Number of the harm that hangs only for a time: the agent returns by itself.
const LATE: usize = 9;
/// Longest time for an answer. The host waits 0.3 s; the machine may be slow.
const PROMPT: Duration = Duration::from_secs(5);
/// Largest memory of the proxy, in KiB.
const MEMORY: u64 = 64 << 10;

/// Returns the jobs of the stage.
pub(crate) fn jobs() -> impl Iterator<Item = &'static str> {
    HARMS.iter().map(|(name, _)| *name).chain([NONSENSE])
}

/// Returns why the stage cannot run on this machine; `None` if it can.
pub(crate) fn impossible() -> Option<&'static str> {
    (!agent::is_possible()).then_some("there is no gcc, or there are no headers of libpcp_pmda")
}

/// Runs a job of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    let harms = HARMS.iter().find(|(name, _)| *name == what).map(|(_, harms)| harms.clone());
    if harms.is_none() && what != NONSENSE {
        return Err(format!("no stage hosted:{what}").into());
    }
    let objects = Objects::new(job)?;
    while let Some((round, mut rng)) = job.next_round() {
        let mut hosted = objects.start()?;
        let outcome = harm(job, &mut rng, harms.clone(), &mut hosted);
        job.expect("an agent that does harm", outcome);
        job.check_memory(hosted.pid(), MEMORY);
        job.expect("end of the host", hosted.end());
        job.expect("processes that are left", gone(&objects));
        if round % 64 == 0 {
            job.check_log(&objects.logs());
        }
    }
    Ok(())
}

/// Does harm, and checks that the agent serves again afterwards.
fn harm(job: &mut Job, rng: &mut Rng, harms: Option<Range<usize>>, hosted: &mut Hosted) -> Outcome {
    hosted.is_right()?;
    hosted.set_amount(rng.word() & 0x7fff_ffff)?;
    let kind = harms.map(|harms| harms.start + rng.below(harms.len()));
    let start = Instant::now();
    let answer = match kind {
        Some(kind) => hosted.fetch(2, kind as u16)?,
        None => match rng.below(6) {
            0 => hosted.desc()?,
            1 => hosted.text()?,
            2 => hosted.instances()?,
            _ => hosted.fetch(3, rng.below(RESULTS) as u16)?,
        },
    };
    let took = start.elapsed();
    job.tried(1);
    job.took(took);
    let what = kind.map_or(NONSENSE.to_owned(), |kind| format!("harm {kind}"));
    // The bytes of the answer may be anything.
    let may_break = kind.is_some_and(|kind| HARMS[2].1.contains(&kind) || kind == TWIN);
    if may_break && matches!(answer, Answer::Broken(_)) {
        return Ok(());
    }
    let ends_later = kind == Some(ENDS_LATER);
    if took > scaled(PROMPT) {
        return Err(format!("{what}: {took:?} until the answer, {:?} are the limit", scaled(PROMPT)).into());
    }
    match answer {
        Answer::Broken(e) => return Err(format!("{what}: the connection ends: {e}").into()),
        Answer::Given | Answer::Refused => {}
    }
    // The host waits 30 s for an agent that hangs, and half a second before it starts one again.
    let hangs = kind.is_some_and(|kind| HARMS[1].1.contains(&kind) && kind != LATE);
    if hangs || !rng.one_in(4) {
        return Ok(());
    }
    let outcome = if ends_later { is_right_later(hosted) } else { hosted.is_right() };
    match outcome {
        Err(_) if may_break => Ok(()),
        outcome => outcome.map_err(|e| format!("{what}: not right afterwards: {e}").into()),
    }
}

/// Checks that the agent serves again after its process has ended at some time.
fn is_right_later(hosted: &mut Hosted) -> Outcome {
    sleep(scaled(LATER));
    // The first request may be refused.
    match hosted.is_right() {
        Err(e) if matches!(e.downcast_ref(), Some(Error::NotReady)) => hosted.is_right(),
        outcome => outcome,
    }
}

/// Waits until no process of the agent runs.
fn gone(objects: &Objects) -> Outcome {
    let begin = Instant::now();
    loop {
        let left = procs::with_argument(&objects.object());
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > scaled(PROMPT) {
            left.iter().for_each(|pid| _ = kill(Pid::from_raw(*pid as i32), SIGKILL));
            return Err(format!("processes {left:?} go on").into());
        }
        sleep(Duration::from_millis(5));
    }
}
