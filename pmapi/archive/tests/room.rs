//! A writer that cannot start a volume, or write to it, loses no record and leaves no empty volume.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use pcp_archive::{Archive, Create, Result, Version, Writer};
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Error, PmId, Semantics, Type, Units};

const EEXIST: Error = Error::from_errno(17);
const ENOSPC: Error = Error::from_errno(28);

fn at(seconds: i64) -> Stamp {
    Stamp { seconds, nanoseconds: 0 }
}

fn pmid() -> PmId {
    PmId::from_word(253 << 22 | 1).unwrap()
}

fn create(base: &Path, version: Version) -> Writer {
    let mut writer = Create::new("host").version(version).create(base).unwrap();
    let desc = Desc { pmid: pmid(), ty: Type::String, indom: None, semantics: Semantics::Discrete, units: Units::NONE };
    writer.metric(&desc.into(), &[b"a.text"]).unwrap();
    writer
}

/// Writes a record of two pages, the larger part of which is a text.
fn record(writer: &mut Writer, second: i64) -> Result {
    let mut values = ResultWriter::new();
    values.begin();
    values.begin_set(Some(pmid()));
    values.push(None, Type::String, Atom::String(&[b'x'; 8000])).unwrap();
    values.end_set(Ok(()));
    writer.values(at(second), &mut values)
}

/// Returns the seconds of all records.
fn seconds(base: &Path) -> Vec<i64> {
    let archive = Archive::open(base).unwrap();
    let (mut cursor, mut seconds) = (archive.cursor(), Vec::new());
    while let Some(record) = cursor.forward().unwrap() {
        seconds.push(record.time.seconds);
    }
    seconds
}

/// Checks that no volume is empty, and that the archive can be continued. Returns the number of volumes.
fn volumes(base: &Path) -> u32 {
    let path = |volume: u32| PathBuf::from(format!("{}.{volume}", base.display()));
    let count = (0..).find(|volume| !path(*volume).exists()).unwrap();
    for volume in 0..count {
        let len = path(volume).metadata().unwrap().len();
        assert!(len > 8000, "volume {volume} has {len} bytes");
    }
    assert_eq!(Writer::append(base).unwrap().volume(), count - 1);
    count
}

#[test]
fn a_volume_whose_name_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (base, other) = (dir.path().join("a"), dir.path().join("a.1"));
    std::fs::write(&other, "of another program").unwrap();
    let mut writer = create(&base, Version::V3);
    record(&mut writer, 1).unwrap();
    writer.next_volume();
    let failed = record(&mut writer, 2).unwrap_err();
    assert!(failed.code() == EEXIST && !failed.is_refusal(), "{failed:?}");
    // The last record begins a third volume.
    assert_eq!(record(&mut writer, 3).unwrap_err().code(), EEXIST);
    writer.next_volume();
    assert_eq!(record(&mut writer, 4).unwrap_err().code(), EEXIST);
    assert_eq!(writer.flush().unwrap_err().code(), EEXIST);
    assert_eq!(std::fs::read(&other).unwrap(), b"of another program");
    std::fs::remove_file(&other).unwrap();
    writer.finish().unwrap();
    assert_eq!((seconds(&base), volumes(&base)), (vec![1, 2, 3, 4], 3));
    assert_eq!(
        Archive::open(&base).unwrap().first().index().last().map(|entry| (entry.time, entry.volume)),
        Some((at(4), 2))
    );
}

#[test]
fn a_refused_record_starts_no_volume() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let mut writer = create(&base, Version::V3);
    record(&mut writer, 1).unwrap();
    writer.next_volume();
    let mut values = ResultWriter::new();
    values.begin();
    values.begin_set(PmId::from_word(253 << 22 | 2));
    values.end_set(Err(Error::VALUE));
    assert_eq!(writer.values(at(2), &mut values).unwrap_err().code(), Error::PMID_LOG);
    writer.finish().unwrap();
    assert_eq!((seconds(&base), volumes(&base)), (vec![1], 1));
}

#[test]
fn a_discarded_archive_has_no_pending_volume() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = create(&dir.path().join("a"), Version::V3);
    record(&mut writer, 1).unwrap();
    for second in 2..5 {
        writer.next_volume();
        record(&mut writer, second).unwrap();
    }
    std::fs::write(dir.path().join("a.4"), "of another program").unwrap();
    writer.next_volume();
    record(&mut writer, 5).unwrap_err();
    writer.discard().unwrap();
    let left = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["a.4"]);
}

const PAGE: usize = 4096;

/// Fills the file system except for a number of pages. Returns the file that fills it.
fn fill(disk: &Path, free: usize) -> PathBuf {
    let filler = disk.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    let mut len = 0;
    while std::io::Write::write_all(&mut file, &[1; PAGE]).is_ok() {
        len += PAGE;
    }
    file.set_len((len - free * PAGE) as u64).unwrap();
    filler
}

/// Writes records to new volumes while the file system becomes full, with room for `free` pages.
fn on_a_full_disk(disk: &Path, free: usize, version: Version, makes_room: bool) -> usize {
    let base = disk.join("a");
    let mut writer = create(&base, version);
    record(&mut writer, 1).unwrap();
    writer.flush().unwrap();
    let filler = fill(disk, free);
    let mut failures = 0;
    for second in 2..8 {
        if second % 3 != 1 {
            writer.next_volume();
        }
        if let Err(e) = record(&mut writer, second) {
            assert!(e.code() == ENOSPC && !e.is_refusal(), "{e:?}");
            failures += 1;
        }
    }
    if makes_room {
        std::fs::remove_file(&filler).unwrap();
        record(&mut writer, 8).unwrap();
        writer.finish().unwrap();
        assert_eq!((seconds(&base), volumes(&base)), ((1..9).collect(), 5), "{free} pages");
    } else {
        drop(writer);
        // The first records are there, in volumes that are not empty.
        let seconds = seconds(&base);
        assert!((1..8).take(seconds.len()).eq(seconds.iter().copied()), "{free} pages: {seconds:?}");
        volumes(&base);
    }
    for entry in std::fs::read_dir(disk).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    failures
}

#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn a_full_disk_costs_no_record() {
    const TEST: &str = "a_full_disk_costs_no_record";
    let Some(disk) = std::env::var_os("SMALL").map(PathBuf::from) else {
        // The test runs again in a mount namespace with a small file system.
        let dir = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=256k small \"$SMALL\" && exec \"$0\" --include-ignored --exact \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(TEST);
        assert!(command.env("SMALL", dir.path()).status().unwrap().success());
        return;
    };
    let mut failures = Vec::new();
    for free in 0..24 {
        for version in [Version::V2, Version::V3] {
            failures.push(on_a_full_disk(&disk, free, version, true));
            on_a_full_disk(&disk, free, version, false);
        }
    }
    assert!([0, 2, 3, 5, 6].iter().all(|count| failures.contains(count)), "{failures:?}");
}
