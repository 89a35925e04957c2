//! Lists of archives, some of which are damaged: damage ends only the archive that it is in.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pcp_archive::{Archive, Create, Direction, Interpolation};
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Error, PmId, Semantics, Type, Units};

/// Length of a label of version 3.
const LABEL: usize = 808;

fn pmid() -> PmId {
    PmId::from_word(253 << 22 | 1).unwrap()
}

fn at(seconds: i64) -> Stamp {
    Stamp { seconds, nanoseconds: 0 }
}

/// Writes an archive with a value every 10 seconds from `start` to `start` + 50.
fn write(base: &Path, start: i64, host: &str) {
    let mut writer = Create::new(host).create(base).unwrap();
    let desc = Desc { pmid: pmid(), ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
    writer.metric(&desc.into(), &[b"a.b"]).unwrap();
    let mut values = ResultWriter::new();
    for time in (start..=start + 50).step_by(10) {
        values.begin();
        values.begin_set(Some(pmid()));
        values.push(None, Type::U32, Atom::U32(time as u32)).unwrap();
        values.end_set(Ok(()));
        writer.values(at(time), &mut values).unwrap();
    }
    writer.finish().unwrap();
}

/// A folder with archives that start at 100, 200 and 300.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, start) in [("x1", 100), ("x2", 200), ("x3", 300)] {
        write(&dir.path().join(name), start, "host");
    }
    dir
}

fn edit(path: PathBuf, change: impl Fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Returns the times of all records, `0` for a mark, and the paths and reasons of what is left out.
fn read(archive: &Archive, direction: Direction) -> (Vec<i64>, Vec<String>) {
    let (mut cursor, mut found) = (archive.cursor(), Vec::new());
    cursor.seek(if direction == Direction::Forward { archive.label().start } else { archive.end().unwrap() });
    while let Some(record) = cursor.next(direction).unwrap() {
        found.push(if record.is_mark() { 0 } else { record.time.seconds });
    }
    (found, archive.take_skipped().iter().map(ToString::to_string).collect())
}

fn ten(start: i64) -> impl Iterator<Item = i64> {
    (start..=start + 50).step_by(10)
}

/// Each way to damage `x` so that it cannot be opened, with the reason.
type Damage = (&'static str, fn(&Path, &str));

fn remake(dir: &Path, file: String, bytes: &[u8]) {
    fs::write(dir.join(file), bytes).unwrap();
}

const UNOPENED: [Damage; 13] = [
    ("the file is empty", |dir, x| remake(dir, format!("{x}.meta"), b"")),
    ("the file is empty", |dir, x| remake(dir, format!("{x}.0"), b"")),
    ("the file is empty", |dir, x| remake(dir, format!("{x}.index"), b"")),
    ("label is cut", |dir, x| edit(dir.join(format!("{x}.meta")), |bytes| bytes.truncate(700))),
    ("magic number", |dir, x| edit(dir.join(format!("{x}.0")), |bytes| bytes[4] ^= 1)),
    ("nothing after the label", |dir, x| edit(dir.join(format!("{x}.0")), |bytes| bytes.truncate(LABEL))),
    ("label of", |dir, x| remake(dir, format!("{x}.index"), &[2; 2000])),
    ("metadata record of", |dir, x| edit(dir.join(format!("{x}.meta")), |bytes| bytes.truncate(bytes.len() - 3))),
    ("no volume", |dir, x| fs::remove_file(dir.join(format!("{x}.0"))).unwrap()),
    ("no metadata", |dir, x| fs::remove_file(dir.join(format!("{x}.meta"))).unwrap()),
    ("not a regular file", |dir, x| {
        fs::remove_file(dir.join(format!("{x}.meta"))).unwrap();
        fs::create_dir(dir.join(format!("{x}.meta"))).unwrap();
    }),
    ("No such file", |dir, x| {
        fs::remove_file(dir.join(format!("{x}.meta"))).unwrap();
        symlink("nowhere", dir.join(format!("{x}.meta"))).unwrap();
    }),
    ("x", |dir, x| {
        fs::remove_file(dir.join(format!("{x}.meta"))).unwrap();
        remake(dir, format!("{x}.meta.xz"), b"this is not what xz writes");
    }),
];

#[test]
fn a_damaged_archive_is_left_out() {
    for (reason, damage) in UNOPENED {
        for (name, left) in [("x1", [200, 300]), ("x2", [100, 300]), ("x3", [100, 200])] {
            let dir = folder();
            damage(dir.path(), name);
            let expected: Vec<i64> = ten(left[0]).chain([0]).chain(ten(left[1])).collect();
            let archive = Archive::open(dir.path()).unwrap();
            let (found, skipped) = read(&archive, Direction::Forward);
            assert_eq!(found, expected, "{name}: {reason}");
            let [line] = &*skipped else { panic!("{name}: {reason}: {skipped:?}") };
            assert!(line.contains(&format!("{}/{name}", dir.path().display())) && line.contains(reason), "{line}");
            // The same archives in a list, and backward.
            let bases: Vec<_> = ["x3", "x1", "x2"].map(|x| dir.path().join(x).display().to_string()).into();
            let (mut found, skipped) = read(&Archive::open(bases.join(",")).unwrap(), Direction::Backward);
            found.reverse();
            assert_eq!((found, skipped.len()), (expected, 1), "{name}: {reason}");
        }
    }
}

#[test]
fn other_names_of_a_list() {
    let dir = folder();
    fs::create_dir(dir.path().join("empty")).unwrap();
    for other in ["nothing", "empty", "no/such/directory"] {
        let list = format!("{0}/x1,{0}/{other}", dir.path().display());
        let archive = Archive::open(list).unwrap();
        assert_eq!((archive.parts().len(), archive.take_skipped().len()), (1, 1), "{other}");
        assert_eq!(archive.take_skipped(), []);
    }
    write(&dir.path().join("y"), 400, "another");
    assert_eq!(Archive::open(dir.path()).unwrap_err().code(), Error::LOGHOST);
    write(&dir.path().join("z"), 100, "host");
    let same = format!("{0}/x1,{0}/z", dir.path().display());
    assert_eq!(Archive::open(same).unwrap_err().code(), Error::LOGOVERLAP);
}

#[test]
fn nothing_but_damaged_archives() {
    let dir = folder();
    for name in ["x1", "x2", "x3"] {
        remake(dir.path(), format!("{name}.meta"), b"");
    }
    let error = Archive::open(dir.path()).unwrap_err();
    assert_eq!(error.code(), Error::LOGFILE);
    let text = error.to_string();
    assert!(text.contains("none of the 3 archives can be opened") && text.contains("x1.meta: "), "{text}");
    // A single archive has its own error.
    assert_eq!(Archive::open(dir.path().join("x2")).unwrap_err().code(), Error::NODATA);
    for name in ["x1.0", "x1.meta", "x1.index", "x3.0", "x3.meta", "x3.index"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert_eq!(Archive::open(dir.path()).unwrap_err().code(), Error::NODATA);
}

/// Flips a bit of the length of the record with a number.
fn damage_record(path: PathBuf, number: usize) {
    edit(path, |bytes| {
        let mut at = LABEL;
        for _ in 0..number {
            at += u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        }
        bytes[at + 1] ^= 4;
    });
}

#[test]
fn a_damaged_volume_ends_its_archive_only() {
    for (name, start) in [("x1", 100), ("x2", 200), ("x3", 300)] {
        let dir = folder();
        damage_record(dir.path().join(format!("{name}.0")), 3);
        let archive = Archive::open(dir.path()).unwrap();
        // The fourth record is damaged: forward the first three remain, backward also the last two.
        for (direction, lost) in [(Direction::Forward, [30, 50]), (Direction::Backward, [30, 30])] {
            let (mut found, skipped) = read(&archive, direction);
            if direction == Direction::Backward {
                found.reverse();
            }
            found.retain(|time| *time != 0);
            let is_kept = |time: &i64| !(start + lost[0]..=start + lost[1]).contains(time);
            let expected: Vec<i64> = ten(100).chain(ten(200)).chain(ten(300)).filter(is_kept).collect();
            assert_eq!(found, expected, "{name} {direction:?}");
            let is_new = direction == Direction::Forward;
            assert_eq!(skipped.len(), usize::from(is_new), "a warning once: {skipped:?}");
        }
        // After the damage there is no value until the next archive, in each mode.
        let mut cursor = archive.cursor();
        let profile = Profile::default();
        let mut fetched = Vec::new();
        while let Some(found) = cursor.fetch(Direction::Forward, &[pmid()], &profile).unwrap() {
            fetched.push(found.time.seconds);
        }
        let expected: Vec<i64> = ten(100).chain(ten(200)).chain(ten(300)).collect();
        let expected: Vec<i64> = expected.into_iter().filter(|t| !(start + 30..=start + 50).contains(t)).collect();
        assert_eq!(fetched, expected);
        let mut values = archive.interpolator(&[pmid()], &profile, Interpolation::new());
        values.seek(at(105), 10_000_000_000);
        let mut counts = Vec::new();
        while let Some(sample) = values.fetch().unwrap() {
            counts.push((sample.time.seconds, sample.sets().map(|set| set.values().len()).sum::<usize>()));
        }
        let is_known =
            |time: i64| expected.windows(2).any(|two| two[0] <= time && time <= two[1] && two[1] - two[0] == 10);
        for (time, count) in counts {
            assert_eq!(count, usize::from(is_known(time)), "{name} at {time}");
        }
    }
}

/// Whatever is damaged behind the third record, reading backward from any time finds the records before, behind a `<mark>`
/// if the time is beyond the damage.
#[test]
fn the_records_before_damage_are_found_from_every_time() {
    type Damage = fn(&mut Vec<u8>, usize);
    let damages: [(&str, Damage); 2] =
        [("cut", |bytes, at| bytes.truncate(at + 9)), ("garbage", |bytes, at| bytes[at..].fill(0xa5))];
    for (what, damage) in damages {
        for has_index in [true, false] {
            for (name, start) in [("x1", 100), ("x2", 200), ("x3", 300)] {
                let dir = folder();
                edit(dir.path().join(format!("{name}.0")), |bytes| {
                    let mut at = LABEL;
                    for _ in 0..3 {
                        at += u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
                    }
                    damage(bytes, at);
                });
                if !has_index {
                    fs::remove_file(dir.path().join(format!("{name}.index"))).unwrap();
                }
                let archive = Archive::open(dir.path()).unwrap();
                let last = start + 20;
                for time in start..start + 60 {
                    let mut cursor = archive.cursor();
                    cursor.seek(at(time));
                    let mut marks = 0;
                    let found = loop {
                        let record = cursor.backward().unwrap().unwrap();
                        if record.values.is_empty() {
                            marks += 1;
                            continue;
                        }
                        break record.time.seconds;
                    };
                    let expected = (time - (time - start) % 10).min(last);
                    assert_eq!(found, expected, "{what} of {name}, index {has_index}, from {time}");
                    assert_eq!(marks > 0, time > last, "{what} of {name}, index {has_index}, from {time}: {marks}");
                }
                let skipped = archive.take_skipped();
                assert_eq!(skipped.len(), 1, "{what} of {name}, index {has_index}: {skipped:?}");
            }
        }
    }
}

/// An archive without a complete record has no end, from which the gap to the next one would begin.
#[test]
fn a_volume_of_garbage() {
    for (name, left) in [("x1", [200, 300]), ("x2", [100, 300]), ("x3", [100, 200])] {
        let dir = folder();
        edit(dir.path().join(format!("{name}.0")), |bytes| bytes[LABEL..].fill(0xff));
        let archive = Archive::open(dir.path()).unwrap();
        assert_eq!(archive.end().unwrap(), at(left[1] + 50), "{name}");
        for direction in [Direction::Forward, Direction::Backward] {
            let (mut found, skipped) = read(&archive, direction);
            assert_eq!(skipped.len(), usize::from(direction == Direction::Forward), "{skipped:?}");
            found.retain(|time| *time != 0);
            found.sort_unstable();
            assert_eq!(found, ten(left[0]).chain(ten(left[1])).collect::<Vec<_>>(), "{name} {direction:?}");
        }
        for time in 90..360 {
            archive.is_gap(at(time)).unwrap();
        }
        assert_eq!(archive.take_skipped(), [], "each reading has taken the only warning");
    }
}

/// Archives that overlap are no damage: which values count would be a guess.
#[test]
fn an_overlap_is_an_error() {
    let dir = folder();
    write(&dir.path().join("y"), 130, "host");
    let archive = Archive::open(dir.path()).unwrap();
    let mut cursor = archive.cursor();
    let error = loop {
        match cursor.forward() {
            Ok(record) => assert!(record.is_some()),
            Err(e) => break e,
        }
    };
    assert_eq!((error.code(), archive.take_skipped().len()), (Error::LOGOVERLAP, 0));
}
