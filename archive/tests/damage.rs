//! Damage to real archives: cuts and mutations of the small archives of PCP's tests end in an error that says where, or
//! in fewer values. Nothing panics, and the memory is bounded by that of the files.
//!
//! `DAMAGE=N` makes N times as many cuts, at most all, and N times as many mutations: `DAMAGE=1000` takes hours.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use pcp_archive::{Archive, ArchiveError, Direction, Interpolation};
use pcp_pdu::profile::Profile;
use pmapi::PmId;
use testkit::Pcp;

/// Number of archives, and the bytes that the files of each may have.
const ARCHIVES: usize = 20;
const SMALL: u64 = 40_000;

fn factor() -> usize {
    std::env::var("DAMAGE").map_or(1, |text| text.parse().expect("DAMAGE is a number"))
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

/// Reads all of an archive in every way; returns the number of values.
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

/// Reads a damaged archive; returns whether it has an error.
fn check(dir: &Dir, files: &[(String, Vec<u8>)], what: &dyn Fn() -> String) -> bool {
    let path = dir.write(files);
    let mut result = Ok(0);
    let used = allocation_counter::measure(|| result = read(&path)).bytes_max;
    let len: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(used < 40 * len as u64 + (8 << 20), "{}: {used} bytes for {len}", what());
    if let Err(e) = &result {
        let text = e.to_string();
        assert!(text.contains("/x") && text.contains(": "), "{}: {text}", what());
    }
    result.is_err()
}

#[test]
#[ignore = "needs PCP"]
fn cuts() {
    let dir = Dir(tempfile::tempdir().unwrap());
    let (mut cuts, mut errors) = (0, 0);
    for whole in archives() {
        for nth in 0..whole.len() {
            let len = whole[nth].1.len();
            // An odd number of bytes apart, so that all kinds of places are met.
            let step = ((len / 20 + 7) / factor()) | 1;
            for cut in (0..len).step_by(step) {
                let mut files = whole.clone();
                files[nth].1.truncate(cut);
                errors += usize::from(check(&dir, &files, &|| format!("{} cut at {cut}", files[nth].0)));
                cuts += 1;
            }
        }
    }
    println!("{cuts} cuts, {errors} errors");
    assert!(errors > cuts / 2 && cuts > 500);
}

#[test]
#[ignore = "needs PCP"]
fn mutations() {
    let dir = Dir(tempfile::tempdir().unwrap());
    let archives = archives();
    let count = 1000 * factor();
    let (mut seed, mut errors) = (1_u64, 0);
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
        errors += usize::from(check(&dir, &files, &|| format!("mutation {round}")));
    }
    println!("{count} mutations, {errors} errors");
    assert!(errors > 0);
}
