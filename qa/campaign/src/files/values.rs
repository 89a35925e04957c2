//! Damaged files of memory mapped values (mmv(5)).

use std::fs;

use mmv::Registry;
use mmv::format::{HEADER_LEN, INDOM_LEN, LABEL_LEN, STRING_LEN, TOC_LEN, VALUE_LEN};

use super::{Format, damaged};
use crate::Outcome;
use crate::job::Job;
use crate::rng::Rng;

/// Generator of files, by damage to valid ones.
#[derive(Debug)]
pub(crate) struct Values {
    good: Vec<Vec<u8>>,
}

/// Offsets in the header: magic, version, generations, sections, flags, process, cluster.
const HEADER: [usize; 8] = [0, 4, 8, 16, 24, 28, 32, 36];

impl Values {
    pub(crate) fn new(job: &Job) -> Outcome<Values> {
        let dir = job.dir("good")?;
        let mut good = vec![version_1()];
        for (name, instances) in [("small", 0), ("middle", 4), ("large", 60)] {
            let registry = Registry::builder(name).directory(&dir).persistent().build()?;
            registry.counter("count").help("A counter").label("of", "a stranger").register()?.add(7);
            registry.text("text").long_help("A text").register()?.set("some words");
            registry.metric::<mmv::Gauge>("level").register()?.set(0.5);
            registry.timer("time").register()?;
            if instances > 0 {
                let names: Vec<String> = (0..instances).map(|n| format!("instance {n}")).collect();
                let indom =
                    registry.indom("rows").help("Rows").instances(names.iter().map(String::as_str)).register()?;
                indom.label_instance("instance 1", "row", 1)?;
                for metric in ["a", "b", "c"] {
                    let family = registry.counter(metric).over(&indom)?;
                    names.iter().try_for_each(|name| family.instance(name).map(|row| row.add(1)))?;
                }
            }
            registry.try_start()?;
            registry.flush();
            good.push(fs::read(registry.path().ok_or("no path")?)?);
        }
        Ok(Values { good })
    }
}

/// Returns a file of version 1, which `pcp-mmv` does not write: two metrics, one of them with two instances.
fn version_1() -> Vec<u8> {
    let mut file = vec![0; 40 + 5 * 16];
    file.splice(0..4, *b"MMV\0");
    put32(&mut file, 4, 1);
    put64(&mut file, 8, 9);
    put64(&mut file, 16, 9);
    put32(&mut file, 24, 5);
    let sections = [(1, 1, INDOM_LEN), (2, 2, 80), (3, 2, 104), (4, 3, VALUE_LEN), (5, 1, STRING_LEN)];
    let mut starts = [0; 5];
    for (n, (kind, count, size)) in sections.into_iter().enumerate() {
        let start = file.len();
        let at = HEADER_LEN + n * TOC_LEN;
        put32(&mut file, at, kind);
        put32(&mut file, at + 4, count);
        put64(&mut file, at + 8, start as u64);
        file.resize(start + count as usize * size, 0);
        if let Some(place) = starts.get_mut(n) {
            *place = start;
        }
    }
    let [indom, instance, metric, value, string] = starts;
    put32(&mut file, indom, 1);
    put32(&mut file, indom + 4, 2);
    put64(&mut file, indom + 8, instance as u64);
    for n in 0..2 {
        let at = instance + n * 80;
        put64(&mut file, at, indom as u64);
        put32(&mut file, at + 12, n as u32);
        put(&mut file, at + 16, if n == 0 { b"zero" } else { b"one" });
        let at = metric + n * 104;
        put(&mut file, at, if n == 0 { b"single" } else { b"rows" });
        put32(&mut file, at + 64, n as u32 + 1);
        put32(&mut file, at + 68, 3);
        put32(&mut file, at + 72, 1);
        put32(&mut file, at + 80, if n == 0 { u32::MAX } else { 1 });
        put64(&mut file, at + 88, string as u64);
    }
    for n in 0..3 {
        let at = value + n * VALUE_LEN;
        put64(&mut file, at, 5);
        put64(&mut file, at + 16, (metric + if n == 0 { 0 } else { 104 }) as u64);
        put64(&mut file, at + 24, if n == 0 { 0 } else { instance + (n - 1) * 80 } as u64);
    }
    put(&mut file, string, b"help");
    file
}

pub(super) fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = file.get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len())) {
        place.copy_from_slice(bytes);
    }
}

pub(super) fn put32(file: &mut [u8], at: usize, word: u32) {
    put(file, at, &word.to_ne_bytes());
}

pub(super) fn put64(file: &mut [u8], at: usize, word: u64) {
    put(file, at, &word.to_ne_bytes());
}

pub(super) fn get32(file: &[u8], at: usize) -> usize {
    file.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize)
}

pub(super) fn get64(file: &[u8], at: usize) -> u64 {
    file.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

/// Returns the offset of a random entry of the table of contents.
fn entry(rng: &mut Rng, file: &[u8]) -> usize {
    HEADER_LEN + TOC_LEN * rng.below(get32(file, 24).min(8))
}

/// Returns the length of the records of a section, in bytes.
fn record_len(file: &[u8], kind: usize) -> usize {
    let first = get32(file, 4) == 1;
    match kind {
        1 => INDOM_LEN,
        2 if first => 80,
        2 => 24,
        3 if first => 104,
        3 => 48,
        4 => VALUE_LEN,
        5 => STRING_LEN,
        _ => LABEL_LEN,
    }
}

/// Returns an invalid offset, or a valid one of another record.
fn offset(rng: &mut Rng, file: &[u8]) -> u64 {
    let len = file.len() as u64;
    match rng.below(6) {
        0 => len,
        1 => len.wrapping_sub(1 + rng.below(300) as u64),
        2 => rng.below(file.len()) as u64,
        3 => get64(file, entry(rng, file) + 8),
        _ => rng.odd_number(),
    }
}

impl Format for Values {
    fn make(&mut self, rng: &mut Rng, _: usize, out: &mut Vec<u8>) -> u64 {
        let good = self.good.get(rng.below(self.good.len())).map(Vec::as_slice).unwrap_or_default();
        out.clear();
        out.extend_from_slice(good);
        if rng.one_in(12) {
            // A valid file with another generation number.
            let generation = 1 + rng.next() / 2;
            put64(out, 8, generation);
            put64(out, 16, generation);
            return out.len() as u64;
        }
        damaged(rng, out, damage)
    }
}

fn damage(rng: &mut Rng, file: &mut Vec<u8>, len: &mut Option<u64>) {
    match rng.below(16) {
        0 => {
            let at = rng.pick(&HEADER);
            put32(file, at, rng.odd_number() as u32);
        }
        1 => {
            // A cluster of other applications, valid flags, a process that does not exist.
            put32(file, 36, rng.below(4097) as u32);
            put32(file, 28, rng.below(16) as u32);
            put32(file, 32, rng.odd_number() as u32);
        }
        2 => {
            let at = entry(rng, file);
            put32(file, at, rng.below(8) as u32);
        }
        3 => {
            let at = entry(rng, file) + 4;
            let count = if rng.one_in(2) { (get32(file, at) as u32).wrapping_mul(2) } else { rng.odd_number() as u32 };
            put32(file, at, count);
        }
        4 => {
            let at = entry(rng, file) + 8;
            let to = offset(rng, file);
            put64(file, at, to);
        }
        5..=9 => record(rng, file),
        10 => file.truncate(rng.below(file.len() + 1)),
        11 => {
            for _ in 0..=rng.below(16) {
                let at = rng.below(file.len());
                put(file, at, &[rng.word() as u8]);
            }
        }
        12 => file.resize(file.len() + rng.below(9000), rng.word() as u8),
        13 => {
            // More records than the content has bytes for: the file ends with a hole.
            let (at, most) = (entry(rng, file), 1 << (12 + rng.below(15)));
            let count = most / record_len(file, get32(file, at));
            put32(file, at + 4, count as u32);
            *len = Some((file.len() + most) as u64);
        }
        14 => {
            let put_at = file.len().saturating_sub(STRING_LEN);
            put(file, put_at, &[rng.pick(b"\x1b]0;\n"); STRING_LEN]);
        }
        _ => *len = Some(1 << (12 + rng.below(16))),
    }
}

/// Changes a random word of a random record to a number or an offset.
fn record(rng: &mut Rng, file: &mut [u8]) {
    let at = entry(rng, file);
    let size = record_len(file, get32(file, at));
    let start = get64(file, at + 8) as usize;
    let record = start.saturating_add(size * rng.below(get32(file, at + 4).min(4096)));
    let word = record.saturating_add(4 * rng.below(size / 4));
    if rng.one_in(2) {
        let to = offset(rng, file);
        put64(file, word & !7, to);
    } else {
        put32(file, word, rng.odd_number() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_version_1_is_good() {
        let file = mmv_reader::File::parse(version_1()).unwrap();
        assert_eq!((file.metrics().len(), file.indoms().len()), (2, 1));
        assert_eq!(file.problems().count(), 0, "{:?}", file.problems());
    }
}
