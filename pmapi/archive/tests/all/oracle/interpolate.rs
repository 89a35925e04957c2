//! Interpolation compared with libpcp, from random origins by random steps in both directions.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use pcp_archive::{Archive, Interpolated, Interpolation, Metadata, Rule};
use pcp_pdu::event::Stamp;
use pcp_pdu::result::RawValue;
use pmapi::{Inst, OptionWord as _, PmId, Semantics, Type};
use testkit::{Pcp, Version};

use super::{Ours, archives, micro, oracle, put};

/// Origin, milliseconds between fetches, and number of fetches.
pub(super) struct Grid {
    pub(super) origin: Stamp,
    pub(super) delta: i32,
    pub(super) count: usize,
}

const SECOND: i64 = 1_000_000_000;

/// Generator of random numbers with a fixed seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Returns grids that cover all of an archive, parts of it, and the times before and after it.
fn grids(archive: &Archive, seed: u64) -> Vec<Grid> {
    let (start, end) = (archive.label().start, archive.end().unwrap());
    let span = (end.seconds - start.seconds).clamp(1, 1 << 30) * 1000;
    let mut random = Random(seed);
    let stamp = |milli: i64, micro: i64| {
        let nano = i64::from(start.nanoseconds / 1000 * 1000) + milli * 1_000_000 + micro * 1000;
        Stamp { seconds: start.seconds + nano.div_euclid(SECOND), nanoseconds: nano.rem_euclid(SECOND) as u32 }
    };
    let mut grids = vec![
        Grid { origin: stamp(0, 0), delta: (span / 12) as i32, count: 14 },
        Grid { origin: stamp(span, 0), delta: -(span / 12) as i32, count: 14 },
        Grid { origin: stamp(0, 0), delta: 1000, count: 8 },
        Grid { origin: stamp(span, 0), delta: -1000, count: 8 },
    ];
    for _ in 0..12 {
        let origin = stamp(random.below(span as u64 + 1000) as i64 - 500, random.below(1000) as i64);
        let steps = [7300, 60_000, 100, 1 + random.below(span as u64 / 3) as i32];
        let delta = steps[random.below(4) as usize].min(1 << 29);
        let delta = if random.below(2) == 0 { delta } else { -delta };
        grids.push(Grid { origin, delta, count: 6 });
    }
    grids
}

pub(super) fn libpcp(oracle: &Path, step: usize, profile: &str, archive: &Path, grids: &[Grid]) -> Vec<u8> {
    let mut child = Command::new(oracle)
        .args(["interp", &step.to_string(), profile])
        .arg(archive)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for Grid { origin, delta, count } in grids {
        writeln!(input, "{} {} {delta} {count}", origin.seconds, origin.nanoseconds / 1000).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {}", archive.display(), String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn shown(out: &mut Vec<u8>, inst: Option<Inst>, value: RawValue<'_>) {
    let text = match value {
        RawValue::InSitu(word) => format!("{word:08x}"),
        RawValue::Block(code, payload) => match Type::from_code(code.into()).unwrap() {
            Type::I64 | Type::U64 | Type::Double => format!("{:016x}", u64::from_be_bytes(payload.try_into().unwrap())),
            Type::Float => format!("{:08x}", u32::from_be_bytes(payload.try_into().unwrap())),
            _ => format!("{code}:{}:{}", payload.len(), payload.iter().map(|b| u32::from(*b)).sum::<u32>()),
        },
    };
    put(out, &format!("  {} {text}", inst.word() as i32), b"");
}

fn print(out: &mut Vec<u8>, sample: Interpolated<'_>) {
    put(out, &format!("fetch {}", micro(sample.time)), b"");
    for set in sample.sets() {
        let count = set.error().map_or(set.values().len() as i32, pmapi::Error::code);
        if count != 0 {
            put(out, &format!(" {} {count}", set.pmid().word()), b"");
        }
        set.values().for_each(|(inst, value)| shown(out, inst, value));
    }
}

pub(super) fn ours(archive: &Archive, step: usize, profile: &str, grids: &[Grid]) -> Vec<u8> {
    let ours = Ours::new(archive);
    let (wanted, profile) = (ours.wanted(step), ours.profile(profile));
    let mut out = ours.out;
    // The rule of the installed libpcp.
    let rule = if Pcp::required().version() < Version(6, 3, 2) { Rule::Before632 } else { Rule::Since632 };
    let mut values = archive.interpolator(&wanted, &profile, Interpolation::new().rule(rule));
    for Grid { origin, delta, count } in grids {
        put(&mut out, &format!("origin {} {delta}", micro(*origin)), b"");
        values.seek(*origin, i64::from(*delta) * 1_000_000);
        for _ in 0..*count {
            match values.fetch() {
                Ok(Some(sample)) => print(&mut out, sample),
                Ok(None) => put(&mut out, &format!("error {}", pmapi::Error::EOL.code()), b""),
                Err(e) => put(&mut out, &format!("error {}", e.code().code()), b""),
            }
        }
    }
    out
}

/// Archives with 64-bit values in blocks of another type: libpcp does not swap their bytes, and computes with the wrong
/// numbers.
const SWAPPED: [&str; 3] = ["bozo.client_v2", "960624.08.17_v2", "babylon.pmview_v2"];

/// Archives with a damaged record that only one of the two libraries reads. libpcp looks for a next value that a
/// discrete metric does not need; ours reads the first record after the time.
const DAMAGED: [&str; 2] = ["binning", "pcp-mpstat3"];

/// Archives with a `<mark>` that libpcp ignores on its way to the origin of a backward grid. It then returns discrete
/// values from before the `<mark>`.
const MARKED: [&str; 2] = ["19970807.09.54", "19970807.09.59"];

/// Results of the comparison.
#[derive(Default)]
struct Findings {
    values: usize,
    crashes: usize,
    /// Values that differ for a known reason.
    known: usize,
    differences: Vec<String>,
}

impl Findings {
    /// Compares the values of each grid, and records the differences.
    fn compare(&mut self, what: &str, meta: &Metadata, ours: &[u8], theirs: &[u8]) {
        let grids = |bytes| String::from_utf8_lossy(bytes).split("origin ").map(str::to_owned).collect::<Vec<_>>();
        let (ours, theirs): (Vec<String>, Vec<String>) = (grids(ours), grids(theirs));
        assert_eq!(ours.len(), theirs.len(), "{what}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            // The step and the profile are behind the path.
            let archive = what.rsplitn(3, ' ').last().unwrap_or_default();
            let has_failed = [ours, theirs].iter().any(|grid| grid.contains("\nerror -12373"));
            let is_damaged = DAMAGED.iter().any(|name| archive.ends_with(name)) && has_failed;
            let is_swapped = SWAPPED.iter().any(|name| archive.ends_with(name));
            let is_backward = ours.lines().next().is_some_and(|grid| grid.contains(" -"));
            let is_marked = MARKED.iter().any(|name| archive.ends_with(name)) && is_backward;
            if is_damaged || is_marked {
                self.known += 1;
            } else if let Some(difference) = self.grid(meta, ours, theirs, is_swapped) {
                // Before libpcp has read the last one of several archives, it may return a sample after the end.
                let is_end = difference.contains("ours Some(\"error -12370\")");
                if is_end && (archive.contains("/multi") || archive.contains(',')) {
                    self.known += 1;
                    continue;
                }
                let grid = ours.lines().next().unwrap_or_default();
                self.differences.push(format!("{what}: {grid}: {difference}"));
            }
        }
    }

    fn grid(&mut self, meta: &Metadata, ours: &str, theirs: &str, is_swapped: bool) -> Option<String> {
        let (mut fetch, mut set) = ("", "");
        let (mut a, mut b) = (ours.lines(), theirs.lines());
        let has_crashed = theirs.ends_with("crash\n");
        self.crashes += usize::from(has_crashed);
        loop {
            let (left, right) = (a.next(), b.next());
            if left != right {
                let end = b.next();
                if has_crashed && (right.is_none() || end.is_none() || (end == Some("crash") && b.next().is_none())) {
                    return None;
                }
                if is_known(meta, set, left?, right.unwrap_or_default(), is_swapped) {
                    self.known += 1;
                    // Goes back to the line after this one: later lines were read only to detect a crash.
                    b = theirs.lines();
                    b.nth(ours.lines().count() - a.clone().count() - 1);
                    continue;
                }
                return Some(format!("{fetch}, set{set}: ours {left:?}, libpcp's {right:?}"));
            }
            match left? {
                line if line.starts_with("fetch") => (fetch, set) = (line, ""),
                line if line.starts_with("  ") => self.values += 1,
                line => set = line,
            }
        }
    }
}

/// Returns whether two values differ in a way that README documents.
fn is_known(meta: &Metadata, set: &str, ours: &str, theirs: &str, is_swapped: bool) -> bool {
    let pmid = set.split_whitespace().next().and_then(|word| PmId::from_word(word.parse().ok()?));
    let Some(desc) = pmid.and_then(|pmid| meta.desc(pmid).ok()) else { return false };
    let value = |line: &str| Some(u64::from_str_radix(line.strip_prefix("  ")?.split_once(' ')?.1, 16).ok());
    let (Some(Some(ours)), Some(Some(theirs))) = (value(ours), value(theirs)) else { return false };
    match desc.ty {
        // Differences beyond 31 bits overflow in libpcp.
        Type::I32 => desc.semantics == Semantics::Counter && theirs == 0x8000_0000,
        // Numbers beyond 63 bits are negative for libpcp.
        Type::I64 | Type::U64 => is_swapped || ours >= 1 << 63 || theirs >= 1 << 63,
        _ => false,
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: all archives of the test suite.
fn interpolation_as_in_libpcp_of_the_testsuite() {
    let dir = tempfile::tempdir().unwrap();
    let oracle = oracle(dir.path());
    let (mut findings, mut fetches) = (Findings::default(), 0);
    for (nth, path) in archives().into_iter().enumerate() {
        let archive = Archive::open(&path).unwrap();
        for (step, profile) in [(1, "all"), (7, "even")] {
            let grids = grids(&archive, nth as u64 * 2 + step as u64);
            let theirs = libpcp(&oracle, step, profile, &path, &grids);
            let found = ours(&archive, step, profile, &grids);
            fetches += grids.iter().map(|grid| grid.count).sum::<usize>();
            findings.compare(&format!("{} {step} {profile}", path.display()), archive.metadata(), &found, &theirs);
        }
    }
    let Findings { values, crashes, known, differences } = findings;
    println!("{fetches} fetches, {values} equal values, {known} known differences, {crashes} crashes of libpcp");
    assert!(differences.is_empty(), "{} grids differ: {}", differences.len(), differences.join("\n"));
    assert!(values > 400_000 && known < 2000 && crashes < 100);
}
