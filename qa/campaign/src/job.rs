//! One part of a campaign: a process of its own, which feeds one agent, counts, and says what went wrong.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::rng::Rng;
use crate::{Outcome, procs};

/// How much a job does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// As many rounds as there is time for.
    Time(Duration),
    /// As many rounds as it takes for so many inputs.
    Inputs(u64),
    /// One round: the one that is to be repeated.
    Once,
}

/// What the parent of a job tells it.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// `stage:what:how`.
    pub(crate) name: String,
    pub(crate) seed: u64,
    /// The first round.
    pub(crate) from: u64,
    pub(crate) pace: Pace,
    /// Everything that the job writes is below.
    pub(crate) dir: PathBuf,
    /// The first of ten ports that are free for it.
    pub(crate) port: u16,
    /// Where the agents' binaries and shared objects are.
    pub(crate) bin: PathBuf,
}

/// A job that runs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) order: Order,
    start: Instant,
    round: u64,
    /// For the thread that watches.
    rounds: Arc<AtomicU64>,
    inputs: u64,
    failures: u64,
    longest: Duration,
    /// The most memory of the agent, in KiB.
    memory: u64,
    /// Failures of these kinds are reported once: what is too much stays too much.
    flooded: bool,
    swollen: bool,
}

/// A round that takes so long never ends.
const HANG: Duration = Duration::from_secs(60);
/// A job gives up after so many failures.
const MOST_FAILURES: u64 = 10;
/// What a log may have grown to at any time, and in each second on average.
const LOG_AT_ONCE: u64 = 512 << 10;
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

    /// Ends the process when a round takes so long that it will never end, after a failure that says which.
    pub(crate) fn watch(&self) {
        let (rounds, order) = (Arc::clone(&self.rounds), self.order.clone());
        thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            loop {
                thread::sleep(Duration::from_secs(1));
                let now = rounds.load(Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > HANG {
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

    /// Starts the next round: its number, and its random numbers, which depend on nothing else. `None` when the job
    /// has done enough.
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

    /// Counts inputs that were tried.
    pub(crate) fn tried(&mut self, inputs: u64) {
        self.inputs += inputs;
    }

    /// Inputs so far.
    pub(crate) fn inputs(&self) -> u64 {
        self.inputs
    }

    /// Takes note of the time that a request took. pmcd gives up after 5 s.
    pub(crate) fn took(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
    }

    /// Reports a failure, and how to repeat it.
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

    /// Checks memory, in KiB, against a limit.
    pub(crate) fn check_memory(&mut self, pid: u32, limit: u64) {
        if let Some(most) = procs::most_memory(pid) {
            self.memory = self.memory.max(most);
            if most > limit && !self.swollen {
                self.swollen = true;
                self.fail(format_args!("{} KiB of memory, {limit} are the limit", most));
            }
        }
    }

    /// Checks that logs have not grown beyond what their limits of lines allow.
    pub(crate) fn check_log(&mut self, dir: &Path) {
        let bytes = procs::bytes_of(dir, ".log");
        let limit = LOG_AT_ONCE + LOG_A_SECOND * self.start.elapsed().as_secs();
        if bytes > limit && !self.flooded {
            self.flooded = true;
            self.fail(format_args!("{bytes} bytes of log after {:?}, {limit} are the limit", self.start.elapsed()));
        }
        if self.flooded {
            // The file system is in memory.
            for file in fs::read_dir(dir).into_iter().flatten().flatten() {
                let _ = fs::File::options().write(true).truncate(true).open(file.path());
            }
        }
    }

    /// A directory of the job, which is made.
    pub(crate) fn dir(&self, name: &str) -> Outcome<PathBuf> {
        let dir = self.order.dir.join(name);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// The last line of a job, which its parent reads.
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
