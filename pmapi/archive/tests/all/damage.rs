//! Damage to real archives: cuts and mutations of small archives of PCP's tests lead to an error with its position, or
//! to fewer values. Nothing panics, and the memory is bounded by that of the files.
//!
//! `DAMAGE=N` makes N times as many cuts, at most all, and N times as many mutations. `DAMAGE=1000` makes every cut and
//! 10^6 mutations, which takes half an hour with a release build. `SEED=N` makes other mutations.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use pcp_archive::{Archive, ArchiveError, Direction, Interpolation};
use pcp_pdu::profile::Profile;
use pmapi::PmId;
use testkit::Pcp;

/// Number of archives, and the largest size of the files of each in bytes.
const ARCHIVES: usize = 20;
const SMALL: u64 = 40_000;

/// Memory that reading may need besides twice the size of the files, in bytes: buffers, and tables of a damaged record.
const MEMORY: u64 = 1 << 20;

fn number(variable: &str) -> u64 {
    std::env::var(variable).map_or(1, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number")))
}

fn factor() -> usize {
    number("DAMAGE") as usize
}

/// Files of the archives, each with its name.
fn archives() -> Vec<Vec<(String, Vec<u8>)>> {
    let dir = Pcp::required().testsuite().join("archives");
    let mut found = Vec::new();
    let entries = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut bases: Vec<String> = entries.filter_map(|name| Some(name.strip_suffix(".meta")?.to_owned())).collect();
    bases.sort();
    for base in bases {
        let files: Option<Vec<_>> = [".meta", ".0", ".index"]
            .into_iter()
            .map(|suffix| Some((format!("x{suffix}"), fs::read(dir.join(base.clone() + suffix)).ok()?)))
            .collect();
        let is_small =
            |files: &Vec<(String, Vec<u8>)>| files.iter().map(|file| file.1.len() as u64).sum::<u64>() < SMALL;
        let files = files.filter(is_small).filter(|_| Archive::open(dir.join(&base)).is_ok());
        found.extend(files);
    }
    // Archives of all kinds, not only the first ones.
    let step = found.len() / ARCHIVES;
    assert!(step > 0, "only {} small archives", found.len());
    found.into_iter().step_by(step).take(ARCHIVES).collect()
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn write(&self, files: &[(String, Vec<u8>)]) -> PathBuf {
        files.iter().for_each(|(name, bytes)| fs::write(self.0.path().join(name), bytes).unwrap());
        self.0.path().join("x")
    }
}

/// Reads an archive in every way, and returns the number of values.
fn read(path: &Path) -> Result<usize, ArchiveError> {
    let archive = Archive::open(path)?;
    let meta = archive.metadata();
    let mut names = meta.instance_names();
    let end = archive.end()?;
    for indom in meta.indoms() {
        _ = (meta.instances_ever(indom).unwrap().len(), names.instances(indom, end).map(|all| all.len()));
    }
    for record in meta.label_records() {
        record.sets().for_each(|set| _ = set.label_set());
    }
    let pmids: Vec<PmId> = meta.descs().map(|(pmid, _)| pmid).collect();
    let (mut cursor, profile, mut count) = (archive.cursor(), Profile::default(), 0);
    let mut first = Ok(());
    while let Some(record) = cursor.forward().unwrap_or_else(|e| {
        first = Err(e);
        None
    }) {
        count += record.values.iter().map(|set| set.values().count()).sum::<usize>();
    }
    cursor.seek(end);
    while let Ok(Some(fetched)) = cursor.fetch(Direction::Backward, &pmids, &profile) {
        fetched.sets().iter().for_each(|set| _ = set.values().count());
    }
    let span = end.seconds.saturating_sub(archive.label().start.seconds);
    for step in [span / 10, -span / 10] {
        let mut values = archive.interpolator(&pmids, &profile, Interpolation::new());
        values.seek(if step > 0 { archive.label().start } else { end }, step.saturating_mul(1_000_000_000));
        for _ in 0..12 {
            match values.fetch() {
                Ok(Some(sample)) => sample.sets().for_each(|set| _ = set.values().len()),
                Ok(None) => (),
                Err(_) => break,
            }
        }
    }
    first.map(|()| count)
}

/// Results of reading damaged archives.
#[derive(Default)]
struct Findings {
    count: usize,
    errors: usize,
    /// Largest memory besides twice the size of the files, in bytes.
    memory: u64,
}

impl Findings {
    /// Reads a damaged archive.
    fn check(&mut self, dir: &Dir, files: &[(String, Vec<u8>)], what: &dyn Fn() -> String) {
        let path = dir.write(files);
        let mut result = Ok(0);
        let used = allocation_counter::measure(|| result = read(&path)).bytes_max;
        let len: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
        let more = used.saturating_sub(2 * len as u64);
        assert!(more < MEMORY, "{}: {used} bytes for {len}", what());
        if let Err(e) = &result {
            let text = e.to_string();
            assert!(text.contains("/x") && text.contains(": "), "{}: {text}", what());
        }
        self.count += 1;
        self.errors += usize::from(result.is_err());
        self.memory = self.memory.max(more);
    }

    fn print(&self, what: &str) {
        let Findings { count, errors, memory } = self;
        println!("{count} {what}, {errors} errors, at most {memory} bytes besides twice the files");
    }
}

#[test]
#[ignore = "needs PCP"]
fn cuts() {
    let dir = Dir(tempfile::tempdir().unwrap());
    let mut findings = Findings::default();
    for whole in archives() {
        for nth in 0..whole.len() {
            let len = whole[nth].1.len();
            // Offsets that are an odd number of bytes apart, so that all kinds of fields are hit.
            let step = ((len / 20 + 7) / factor()) | 1;
            for cut in (0..len).step_by(step) {
                let mut files = whole.clone();
                files[nth].1.truncate(cut);
                findings.check(&dir, &files, &|| format!("{} cut at {cut}", files[nth].0));
            }
        }
    }
    findings.print("cuts");
    assert!(findings.errors > findings.count / 2 && findings.count > 500);
}

#[test]
#[ignore = "needs PCP"]
// Slow: every byte of an archive is changed.
fn mutations() {
    let dir = Dir(tempfile::tempdir().unwrap());
    let archives = archives();
    let count = 1000 * factor();
    let (mut seed, mut findings) = (number("SEED"), Findings::default());
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % limit
    };
    for round in 0..count {
        let mut files = archives[below(archives.len())].clone();
        let nth = below(files.len());
        let bytes = &mut files[nth].1;
        for _ in 0..1 + below(4) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = below(256) as u8,
                1 => bytes[at] ^= 1 << below(8),
                // Lengths and counts.
                _ => {
                    let at = at / 4 * 4;
                    let word = [0, 1, u32::MAX, 0x7fff_ffff, below(1 << 20) as u32][below(5)].to_be_bytes();
                    bytes.iter_mut().skip(at).zip(word).for_each(|(byte, new)| *byte = new);
                }
            }
        }
        findings.check(&dir, &files, &|| format!("mutation {round}"));
    }
    findings.print("mutations");
    assert!(findings.errors > 0);
}
