//! Stage `archives`: damaged archives of both versions, plain and compressed, read in every way in this process.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use pcp_archive::{ArchiveError, Check, Create, Direction, Interpolation, Options, Version};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::profile::Profile;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, InDom, Inst, LabelLevel, LabelSet, PmId, Semantics, Type, Units};

use crate::Outcome;
use crate::job::Job;
use crate::patience::scaled;
use crate::rng::Rng;

/// Number of damaged archives in a round.
const ROUND: u64 = 64;
/// Limit of the job's own memory, in KiB.
const MEMORY: u64 = 256 << 10;
/// Largest number of bytes of a decompressed file.
const DECOMPRESSED: u64 = 16 << 20;
/// Longest time for an archive. It is far above the usual time, which is a few milliseconds.
const LONGEST: Duration = Duration::from_secs(5);
/// Seconds of the first record.
const START: i64 = 1_700_000_000;

/// Names of an archive's files, and their bytes.
type Files = Vec<(String, Vec<u8>)>;

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    if what != "damage" {
        return Err(format!("no stage archives:{what}").into());
    }
    let dir = job.dir("archives")?;
    let originals =
        [Version::V2, Version::V3].map(|version| original(&dir, version)).into_iter().collect::<Outcome<Vec<_>>>()?;
    while let Some((_, mut rng)) = job.next_round() {
        for _ in 0..ROUND {
            let Some(whole) = originals.get(rng.below(originals.len())) else { continue };
            let mut files = whole.clone();
            damage(&mut rng, &mut files)?;
            files.iter().try_for_each(|(name, bytes)| fs::write(dir.join(name), bytes))?;
            let start = Instant::now();
            let outcome = read(&dir.join("x"), &mut rng);
            let took = start.elapsed();
            job.took(took);
            if took > scaled(LONGEST) {
                job.fail(format_args!("{took:?} for an archive"));
            }
            if let Err(e) = outcome {
                let text = e.to_string();
                if !text.contains(&*dir.to_string_lossy()) || !text.contains(": ") {
                    job.fail(format_args!("an error without file and reason: {text}"));
                }
            }
            files.iter().try_for_each(|(name, _)| fs::remove_file(dir.join(name)))?;
        }
        job.tried(ROUND);
        job.check_memory(std::process::id(), MEMORY);
    }
    Ok(())
}

/// Writes an archive with two metrics of each kind, labels, texts, gaps, and instances that come and go.
fn original(dir: &Path, version: Version) -> Outcome<Files> {
    let base = dir.join("original");
    let mut writer = Create::new("host").version(version).create(&base)?;
    let id = |item: u32| PmId::from_word(253 << 22 | item).ok_or("no PMID");
    let indom = InDom::from_word(253 << 22 | 1).ok_or("no instance domain")?;
    let metrics = [
        (1, Type::U32, None, Semantics::Counter),
        (2, Type::U64, Some(indom), Semantics::Counter),
        (3, Type::String, Some(indom), Semantics::Discrete),
        (4, Type::Double, None, Semantics::Instant),
    ];
    for (item, ty, indom, semantics) in metrics {
        let desc = Desc { pmid: id(item)?, ty, indom, semantics, units: Units::NONE };
        writer.metric(&desc.into(), &[format!("a.m{item}").as_bytes()])?;
        writer.text(Subject::Metric(id(item)?), TextKind::OneLine, b"a metric")?;
    }
    let mut values = ResultWriter::new();
    for nth in 0..24_u32 {
        let time = Stamp { seconds: START + i64::from(nth), nanoseconds: 500_000_000 };
        let names: Vec<(u32, String)> =
            (nth / 6..nth / 6 + 20).map(|inst| (inst, format!("instance {inst}"))).collect();
        let list: Vec<_> = names.iter().map(|(inst, name)| (Inst::new(*inst), name.as_bytes())).collect();
        writer.instances(time, indom, &list)?;
        writer.labels(time, (LabelLevel::Item, id(1)?.word()), &[(None, &LabelSet::single("nth", nth / 8)?)])?;
        if nth % 10 == 9 {
            writer.mark(time)?;
            continue;
        }
        values.begin();
        for (item, ty, of, _) in metrics {
            values.begin_set(Some(id(item)?));
            for inst in if of.is_some() { list.as_slice() } else { list.get(..1).unwrap_or_default() } {
                let text = format!("value {nth}");
                let atom = match ty {
                    Type::U32 => Atom::U32(nth * 1000),
                    Type::U64 => Atom::U64(u64::from(nth) << 33),
                    Type::Double => Atom::Double(f64::from(nth)),
                    _ => Atom::String(text.as_bytes()),
                };
                values.push(of.map(|_| inst.0), ty, atom)?;
            }
            values.end_set(Ok(()));
        }
        writer.values(time, &mut values)?;
    }
    writer.finish()?;
    let mut files = Files::new();
    for suffix in ["meta", "0", "index"] {
        let path = base.with_extension(suffix);
        files.push((format!("x.{suffix}"), fs::read(&path)?));
        fs::remove_file(path)?;
    }
    Ok(files)
}

/// Damages one file by a few random changes, before or after it is compressed.
fn damage(rng: &mut Rng, files: &mut Files) -> Outcome {
    let nth = rng.below(files.len());
    let Some((name, bytes)) = files.get_mut(nth) else { return Ok(()) };
    if !rng.one_in(8) {
        change(rng, bytes);
    }
    if rng.one_in(8) {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes)?;
        *bytes = to.finish()?;
        name.push_str(".gz");
        change(rng, bytes);
    } else if rng.one_in(16) {
        // Anything else that is no compressed file.
        name.push_str(rng.pick(&[".xz", ".Z", ".zst", ".bz2", ".lzma"]));
        if name.ends_with(".Z") {
            bytes.splice(..0, [0x1f, 0x9d, 0x90]);
        }
    }
    Ok(())
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len());
        let end = (at + rng.below(40)).min(bytes.len());
        match rng.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let copy: Vec<u8> = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, copy);
            }
            3 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.below(8)),
            // Lengths, counts and offsets.
            4..=6 => {
                let word = (rng.odd_number() as u32).to_be_bytes();
                bytes.iter_mut().skip(at / 4 * 4).zip(word).for_each(|(byte, new)| *byte = new);
            }
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.word() as u8),
        }
    }
}

/// Reads an archive in every way.
fn read(path: &Path, rng: &mut Rng) -> Result<(), ArchiveError> {
    Check::new().run(path, |_| ());
    let archive = Options::new().decompressed_limit(DECOMPRESSED).open(path)?;
    let meta = archive.metadata();
    let end = archive.end()?;
    let mut names = meta.instance_names();
    for indom in meta.indoms() {
        _ = (meta.instances_ever(indom).map(|all| all.len()), names.instances(indom, end).map(|all| all.len()));
    }
    meta.label_records().for_each(|record| record.sets().for_each(|set| _ = set.label_set()));
    let pmids: Vec<PmId> = meta.descs().map(|(pmid, _)| pmid).collect();
    let one: Vec<PmId> = pmids.get(rng.below(pmids.len())).copied().into_iter().collect();
    let (profile, mut cursor) = (Profile::default(), archive.cursor());
    let mut outcome = Ok(());
    while let Some(record) = cursor.forward().unwrap_or_else(|e| {
        outcome = Err(e);
        None
    }) {
        record.values.iter().for_each(|set| _ = set.values().count());
    }
    for direction in [Direction::Forward, Direction::Backward] {
        cursor.seek(if direction == Direction::Forward { archive.label().start } else { end });
        while let Ok(Some(fetched)) = cursor.fetch(direction, &one, &profile) {
            fetched.sets().iter().for_each(|set| _ = set.values().count());
        }
        let step = if direction == Direction::Forward { 700_000_000 } else { -700_000_000 };
        let mut values = archive.interpolator(&pmids, &profile, Interpolation::new());
        values.seek(if step > 0 { archive.label().start } else { end }, step);
        for _ in 0..40 {
            match values.fetch() {
                Ok(Some(sample)) => sample.sets().for_each(|set| _ = set.values().len()),
                _ => break,
            }
        }
    }
    outcome
}
