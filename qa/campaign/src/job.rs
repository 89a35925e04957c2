//! A job: one part of a campaign. It runs in a separate process, which sends inputs to an agent and reports failures.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::patience::scaled;
use crate::rng::Rng;
use crate::{Outcome, procs};

/// How much a job does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Rounds until the time is over.
    Time(Duration),
    /// Rounds until the number of inputs is reached.
    Inputs(u64),
    /// One round, to repeat a failure.
    Once,
}

/// Instructions from the campaign to a job.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Name of the form `stage:what:how`.
    pub(crate) name: String,
    pub(crate) seed: u64,
    /// Number of the first round.
    pub(crate) from: u64,
    pub(crate) pace: Pace,
    /// Directory of everything that the job writes.
    pub(crate) dir: PathBuf,
    /// First of ten TCP ports that the job may use.
    pub(crate) port: u16,
    /// Directory of the agents' binaries and shared objects.
    pub(crate) bin: PathBuf,
}

/// A running job.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) order: Order,
    start: Instant,
    round: u64,
    /// Rounds so far, for the thread of [`Job::watch`].
    rounds: Arc<AtomicU64>,
    inputs: u64,
    failures: u64,
    longest: Duration,
    /// Largest memory of the agent so far, in KiB.
    memory: u64,
    /// Whether too large logs have been reported as a failure. Otherwise every later round would report them again.
    flooded: bool,
    /// Whether too large memory has been reported as a failure.
    swollen: bool,
}

/// Duration after which a round counts as hanging, shorter than the campaign waits for the job.
const HANG: Duration = Duration::from_secs(50);
/// Number of failures after which a job stops.
const MOST_FAILURES: u64 = 10;
/// Allowed bytes of logs, independent of time.
const LOG_AT_ONCE: u64 = 512 << 10;
/// Additional bytes of logs that are allowed for each second of the job.
const LOG_A_SECOND: u64 = 32 << 10;

impl Job {
    pub(crate) fn new(order: Order) -> Job {
        let round = order.from;
        Job {
            order,
            start: Instant::now(),
            round,
            rounds: Arc::default(),
            inputs: 0,
            failures: 0,
            longest: Duration::ZERO,
            memory: 0,
            flooded: false,
            swollen: false,
        }
    }

    /// Starts a thread that ends the process when a round hangs, after reporting that as a failure.
    pub(crate) fn watch(&self) {
        let (rounds, order) = (Arc::clone(&self.rounds), self.order.clone());
        thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            loop {
                thread::sleep(Duration::from_secs(1));
                let now = rounds.load(Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > scaled(HANG) {
                    let Order { name, seed, from, .. } = &order;
                    let round = from + now.saturating_sub(1);
                    println!(
                        "fail {name} round {round}: hangs [repeat: --stage {name} --job-seed {seed} --round {round}]"
                    );
                    println!("done failures=1");
                    std::process::exit(0);
                }
            }
        });
    }

    /// Starts the next round. Returns its number and its random numbers, which depend only on seed and round; `None` at
    /// the end of the job.
    pub(crate) fn next_round(&mut self) -> Option<(u64, Rng)> {
        let done = match self.order.pace {
            Pace::Time(time) => self.start.elapsed() >= time,
            Pace::Inputs(inputs) => self.inputs >= inputs,
            Pace::Once => self.round > self.order.from,
        };
        if done || self.failures >= MOST_FAILURES {
            return None;
        }
        let round = self.round;
        self.round += 1;
        self.rounds.fetch_add(1, Relaxed);
        Some((round, Rng::of(self.order.seed, round)))
    }

    /// Counts inputs that the agent has received.
    pub(crate) fn tried(&mut self, inputs: u64) {
        self.inputs += inputs;
    }

    /// Returns the number of inputs so far.
    pub(crate) fn inputs(&self) -> u64 {
        self.inputs
    }

    /// Records the duration of a request, for the maximum in the report.
    pub(crate) fn took(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
    }

    /// Counts and prints a failure, with the options that repeat it.
    pub(crate) fn fail(&mut self, what: impl Display) {
        self.failures += 1;
        let Order { name, seed, .. } = &self.order;
        let what = what.to_string().replace('\n', " | ");
        println!(
            "fail {name} round {}: {what} [repeat: --stage {name} --job-seed {seed} --round {}]",
            self.last_round(),
            self.last_round()
        );
    }

    fn last_round(&self) -> u64 {
        self.round.saturating_sub(1)
    }

    /// Reports an error as a failure.
    pub(crate) fn expect<T>(&mut self, what: &str, outcome: Outcome<T>) -> Option<T> {
        outcome.inspect_err(|e| self.fail(format_args!("{what}: {e}"))).ok()
    }

    /// Checks the largest memory of a process so far against `limit`, in KiB.
    pub(crate) fn check_memory(&mut self, pid: u32, limit: u64) {
        if let Some(most) = procs::most_memory(pid) {
            self.memory = self.memory.max(most);
            if most > limit && !self.swollen {
                self.swollen = true;
                self.fail(format_args!("{} KiB of memory, {limit} are the limit", most));
            }
        }
    }

    /// Checks that the logs in a directory have not grown faster than the limits of lines allow.
    pub(crate) fn check_log(&mut self, dir: &Path) {
        let bytes = procs::bytes_of(dir, ".log");
        let limit = LOG_AT_ONCE + LOG_A_SECOND * self.start.elapsed().as_secs();
        if bytes > limit && !self.flooded {
            self.flooded = true;
            self.fail(format_args!("{bytes} bytes of log after {:?}, {limit} are the limit", self.start.elapsed()));
        }
        if self.flooded {
            // Truncation frees memory, because the sandbox keeps files in memory.
            for file in fs::read_dir(dir).into_iter().flatten().flatten() {
                let _ = fs::File::options().write(true).truncate(true).open(file.path());
            }
        }
    }

    /// Creates a directory below that of the job.
    pub(crate) fn dir(&self, name: &str) -> Outcome<PathBuf> {
        let dir = self.order.dir.join(name);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Prints the last line of the job's output, which the campaign parses.
    pub(crate) fn report(&self) {
        println!(
            "done inputs={} failures={} seconds={:.3} memory={} longest_us={} rounds={}",
            self.inputs,
            self.failures,
            self.start.elapsed().as_secs_f64(),
            self.memory,
            self.longest.as_micros(),
            self.round - self.order.from,
        );
    }
}
