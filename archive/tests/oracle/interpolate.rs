//! Interpolation compared with libpcp, from random origins by random steps in both directions.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use pcp_archive::{Archive, Interpolated, Interpolation, Rule};
use pcp_pdu::event::Stamp;
use pcp_pdu::result::RawValue;
use pmapi::{Inst, OptionWord as _, Type};
use testkit::Pcp;

use super::{Ours, archives, micro, oracle, put, same};

/// Origin, milliseconds between fetches, and number of fetches.
struct Grid {
    origin: Stamp,
    delta: i32,
    count: usize,
}

const SECOND: i64 = 1_000_000_000;

/// Source of numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Returns grids that cover all of an archive, parts of it, and what is before and after it.
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

fn libpcp(oracle: &Path, step: usize, profile: &str, archive: &Path, grids: &[Grid]) -> Vec<u8> {
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
    child.wait_with_output().unwrap().stdout
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

fn ours(archive: &Archive, step: usize, profile: &str, grids: &[Grid]) -> Vec<u8> {
    let ours = Ours::new(archive);
    let (wanted, profile) = (ours.wanted(step), ours.profile(profile));
    let mut out = ours.out;
    // The rule of the installed libpcp.
    let version = Pcp::required().config("PCP_VERSION").to_owned();
    let version: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    let rule = if version < vec![6, 3, 2] { Rule::Before632 } else { Rule::Since632 };
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

#[test]
#[ignore = "needs PCP"]
fn interpolation_as_in_libpcp_of_the_testsuite() {
    let dir = tempfile::tempdir().unwrap();
    let oracle = oracle(dir.path());
    let mut failed = Vec::new();
    let (mut fetches, mut values) = (0, 0);
    for (nth, path) in archives().into_iter().enumerate() {
        let archive = Archive::open(&path).unwrap();
        for (step, profile) in [(1, "all"), (7, "even")] {
            let grids = grids(&archive, nth as u64 * 2 + step as u64);
            let theirs = libpcp(&oracle, step, profile, &path, &grids);
            let found = ours(&archive, step, profile, &grids);
            fetches += grids.iter().map(|grid| grid.count).sum::<usize>();
            values += found.split(|b| *b == b'\n').filter(|line| line.starts_with(b"  ")).count();
            let what = format!("{} {step} {profile}", path.display());
            if let Err(e) = std::panic::catch_unwind(|| same(&found, &theirs, &what)) {
                failed.push(e.downcast_ref::<String>().cloned().unwrap_or_default());
            }
        }
    }
    println!("{fetches} fetches, {values} values");
    assert!(failed.is_empty(), "{} differ: {}", failed.len(), failed.join("\n"));
}
