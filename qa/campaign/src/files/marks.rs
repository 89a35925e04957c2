//! Damaged event records of processes that trace through shared memory (`trace::shared_memory`).

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use trace::shared_memory::{Directory, Process, format::ring_name};
use trace::{Fields, Options, Tag, Trace, Transport};

use super::{Format, damaged};
use crate::Outcome;
use crate::job::Job;
use crate::procs::Guarded;
use crate::rng::Rng;
use crate::users::{FIRST, USERS};

/// Generator of files, by damage to a valid one.
#[derive(Debug)]
pub(crate) struct Marks {
    good: Vec<u8>,
    sums: Vec<u8>,
    /// A process of each stranger, identified in the header of its files by process identifier and start time.
    processes: Vec<(Guarded, [u64; 2])>,
    made: usize,
}

/// Number of files after which a user's process is replaced. The agent reads a file until its process has ended.
const RENEWED: usize = 1000;
const PAGE: usize = 4096;
/// Word of the header: process identifier. The next word is the time of start.
const PID: usize = 2;
/// Word of the header: end of the blocks, in bytes.
const END: usize = 4;
/// Word of the header: not zero after the process has written its last trace event.
const ENDED: usize = 6;
/// Number of words of the header.
const HEADER: usize = 8;
/// Number of words of a block's header.
const BLOCK: usize = 5;

impl Marks {
    pub(crate) fn new(job: &Job) -> Outcome<Marks> {
        let base = job.dir("good")?;
        let path = base.join("run/1");
        // A process only writes if an agent has created the directory.
        let agent = Directory::open(path.clone(), &base)?;
        let options = Options::default().directory(path.clone()).ring_len(PAGE);
        let trace = Trace::new(options.transport(Transport::SharedMemory));
        let tags: Vec<Tag> = ["s0", "s1", "s2", "s3"].iter().map(|name| Tag::new(name)).collect::<Result<_, _>>()?;
        let mut fields = Fields::new();
        fields.add("who", "a stranger");
        for tag in &tags {
            trace.transact(tag, Duration::from_millis(5));
            trace.point_with(tag, &fields);
            trace.observe(tag, 0.5);
            trace.counter(tag, 5.0);
        }
        let names = fs::read_dir(agent.files())?.map(|entry| Ok(entry?.file_name()));
        let names: Vec<_> = names.collect::<std::io::Result<_>>()?;
        let name = names.iter().find(|name| names.contains(&ring_name(name))).ok_or("no file of marks")?;
        let good = fs::read(agent.files().join(ring_name(name)))?;
        let sums = fs::read(agent.files().join(name))?;
        drop((trace, agent));
        let processes = (0..USERS).map(sleeper).collect::<Outcome<_>>()?;
        Ok(Marks { good, sums, processes, made: 0 })
    }
}

/// Starts a process of a stranger, which only sleeps.
fn sleeper(user: usize) -> Outcome<(Guarded, [u64; 2])> {
    let id = FIRST + user as u32;
    let mut command = Command::new("sleep");
    command.arg("100000").uid(id).gid(id).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = Guarded::spawn(&mut command)?;
    let process = Process::find(child.pid()).ok_or("a process that has just been started is gone")?;
    Ok((child, [process.pid.into(), process.start]))
}

fn set(file: &mut [u8], word: usize, value: u64) {
    if let Some(place) = file.get_mut(word.saturating_mul(8)..).and_then(|rest| rest.get_mut(..8)) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn get(file: &[u8], word: usize) -> u64 {
    file.get(word.saturating_mul(8)..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Returns the index of the first word of a random block.
fn block(rng: &mut Rng, file: &[u8]) -> usize {
    let mut starts = Vec::new();
    let mut at = PAGE / 8;
    while at < file.len() / 8 && starts.len() < 64 {
        starts.push(at);
        at = at.saturating_add((get(file, at + 1) as usize / 8).max(PAGE / 8));
    }
    rng.pick(&starts)
}

impl Format for Marks {
    fn make(&mut self, rng: &mut Rng, user: usize, out: &mut Vec<u8>) -> u64 {
        self.made += 1;
        if self.made.is_multiple_of(RENEWED)
            && let Some(process) = self.processes.get_mut(user)
            && let Ok(another) = sleeper(user)
        {
            *process = another;
        }
        out.clear();
        out.extend_from_slice(&self.good);
        if let Some((_, process)) = self.processes.get(user).filter(|_| !rng.one_in(8)) {
            process.iter().zip(PID..).for_each(|(word, at)| set(out, at, *word));
        }
        // The agent reads a file with this flag once, and removes it.
        if !rng.one_in(16) {
            set(out, ENDED, 1);
        }
        if rng.one_in(12) {
            return out.len() as u64;
        }
        damaged(rng, out, damage)
    }

    fn sums(&self) -> Option<&[u8]> {
        Some(&self.sums)
    }
}

fn damage(rng: &mut Rng, file: &mut Vec<u8>, len: &mut Option<u64>) {
    match rng.below(12) {
        0 => set(file, rng.below(HEADER), rng.odd_number()),
        1 => set(file, END, PAGE as u64 * rng.below(40_000) as u64),
        2 | 3 => {
            let at = block(rng, file) + rng.below(BLOCK);
            let value = match rng.below(4) {
                0 => PAGE as u64 * (1 + rng.below(5000) as u64),
                1 => rng.below(300) as u64,
                _ => rng.odd_number(),
            };
            set(file, at, value);
        }
        4..=6 => {
            // A cell of a ring: tags that do not exist, times in the future, values that are not numbers.
            let at = block(rng, file) + 8 + rng.below(200);
            let value = match rng.below(4) {
                0 => f64::NAN.to_bits(),
                1 => f64::INFINITY.to_bits(),
                _ => rng.odd_number(),
            };
            set(file, at, value);
        }
        7 => file.truncate(8 * rng.below(file.len() / 8 + 1)),
        8 => {
            for _ in 0..=rng.below(16) {
                let at = rng.below(file.len());
                if let Some(byte) = file.get_mut(at) {
                    *byte = rng.word() as u8;
                }
            }
        }
        9 => {
            // Repeats blocks: more lanes than a process needs.
            let from = block(rng, file) * 8;
            let piece = file.get(from..).unwrap_or_default().to_vec();
            for _ in 0..rng.below(6) {
                file.extend_from_slice(&piece);
            }
            let end = file.len() as u64;
            set(file, END, end);
        }
        10 => {
            // Control characters in fields.
            let at = block(rng, file) * 8 + 64 + 256 * rng.below(8) + 2;
            if let Some(place) = file.get_mut(at..at + 9) {
                place.copy_from_slice(b"\x1b[2J\nx\0\xff ");
            }
        }
        _ => {
            // Appends a hole, in which the blocks continue according to the header.
            let end = file.len() as u64 + PAGE as u64 * rng.below(16_384) as u64;
            set(file, END, end);
            *len = Some(end);
        }
    }
}
