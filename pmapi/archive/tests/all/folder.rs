//! Directories with many archives.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use pcp_archive::{Archive, Create, Interpolation, Marks, Rule};
use pcp_pdu::event::Stamp;
use pcp_pdu::profile::Profile;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Error, PmId, Semantics, Type, Units};

fn write(base: &Path, second: i64) {
    let mut writer = Create::new("host").create(base).unwrap();
    let pmid = PmId::from_word(253 << 22 | 1).unwrap();
    let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
    writer.metric(&desc.into(), &[b"a.b"]).unwrap();
    let mut values = ResultWriter::new();
    values.begin();
    values.begin_set(Some(pmid));
    values.push(None, Type::U32, Atom::U32(second as u32)).unwrap();
    values.end_set(Ok(()));
    writer.values(Stamp { seconds: second, nanoseconds: 0 }, &mut values).unwrap();
}

fn times(archive: &Archive) -> Vec<i64> {
    let (mut cursor, mut found) = (archive.cursor(), Vec::new());
    while let Some(record) = cursor.forward().unwrap() {
        if !record.is_mark() {
            found.push(record.time.seconds);
        }
    }
    found
}

#[test]
fn all_archives_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    // The volume of the first has the base name of the second.
    for (name, second) in [("a", 300), ("a.0", 100), ("b.1.2", 200)] {
        write(&dir.path().join(name), second);
    }
    for second in 1000..1050 {
        write(&dir.path().join(format!("many{second}")), second);
    }
    std::fs::write(dir.path().join("other.0"), "no archive").unwrap();
    std::fs::create_dir(dir.path().join("inner")).unwrap();
    let expected: Vec<i64> = [100, 200, 300].into_iter().chain(1000..1050).collect();
    let archive = Archive::open(dir.path()).unwrap();
    assert_eq!((archive.parts().len(), times(&archive)), (53, expected.clone()));
    // A name that comes twice counts once.
    let twice = format!("{0},{0}/many1000,{0}", dir.path().display());
    assert_eq!(times(&Archive::open(twice).unwrap()), expected);
    write(&dir.path().join("z"), 200);
    assert_eq!(Archive::open(dir.path()).unwrap_err().code(), Error::LOGOVERLAP);
}

/// The time between two archives is a gap, whether a grid begins in it or crosses it.
#[test]
fn no_value_between_two_archives() {
    let dir = tempfile::tempdir().unwrap();
    for second in [100, 200, 300] {
        write(&dir.path().join(format!("at{second}")), second);
    }
    let archive = Archive::open(dir.path()).unwrap();
    let pmid = archive.metadata().names().pmid(b"a.b").unwrap();
    for rule in [Rule::Before632, Rule::Since632] {
        let rules = Interpolation::new().rule(rule);
        let count = |origin: i64, step: i64, fetches: usize, rules: Interpolation| {
            let mut values = archive.interpolator(&[pmid], &Profile::default(), rules);
            values.seek(Stamp { seconds: origin, nanoseconds: 0 }, step * 1_000_000_000);
            let each =
                (0..fetches).map(|_| values.fetch().unwrap().unwrap().sets().map(|set| set.values().len()).sum());
            each.collect::<Vec<usize>>()
        };
        assert_eq!(count(100, 50, 5, rules), [1, 0, 1, 0, 1]);
        assert_eq!(count(300, -50, 5, rules), [1, 0, 1, 0, 1]);
        assert_eq!(count(150, 50, 4, rules), [0, 1, 0, 1]);
        assert_eq!(count(250, -50, 4, rules), [0, 1, 0, 1]);
        let ignored = rules.marks(Marks::Ignored);
        assert_eq!(count(150, 50, 4, ignored), [1; 4]);
        assert_eq!(count(250, -50, 4, ignored), [1; 4]);
    }
}

/// A directory that contains itself by a link, and an archive whose files are links to themselves.
#[test]
fn links_in_circles() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), 5);
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop.meta")).unwrap();
    let archive = Archive::open(dir.path()).unwrap();
    assert_eq!((times(&archive), archive.take_skipped().len()), (vec![5], 1), "a directory is no metadata");
    std::fs::remove_file(dir.path().join("loop.meta")).unwrap();
    std::os::unix::fs::symlink(".", dir.path().join("again")).unwrap();
    assert_eq!(times(&Archive::open(dir.path().join("again/again")).unwrap()), [5]);
    for suffix in ["meta", "0", "index"] {
        let name = format!("c.{suffix}");
        std::os::unix::fs::symlink(&name, dir.path().join(&name)).unwrap();
    }
    assert!(Archive::open(dir.path().join("c")).is_err());
}
