//! A replay of several archives, some of which are damaged.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use pcp_archive::Create;
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, PmId, Semantics, Type, Units};

/// Writes a value every ten seconds from `start` to `start` + 50.
fn write(base: &Path, start: i64) {
    let pmid = PmId::from_word(253 << 22 | 1).unwrap();
    let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Instant, units: Units::NONE };
    let mut writer = Create::new("host").create(base).unwrap();
    writer.metric(&desc.into(), &[b"a.x"]).unwrap();
    let mut values = ResultWriter::new();
    for time in (start..=start + 50).step_by(10) {
        values.begin();
        values.begin_set(Some(pmid));
        values.push(None, Type::U32, Atom::U32(time as u32)).unwrap();
        values.end_set(Ok(()));
        writer.values(Stamp { seconds: time, nanoseconds: 0 }, &mut values).unwrap();
    }
    writer.finish().unwrap();
}

/// Returns the exit code, the shown values, and the lines on standard error.
fn view(archive: &Path) -> (Option<i32>, Vec<u32>, Vec<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcp-view"));
    let output = command.args(["--plain", "-s", "0", "-t", "10", "--replay"]).arg(archive).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let values = text(&output.stdout)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("value ")?.split(' ').next()?.parse().ok())
        .collect();
    (output.status.code(), values, text(&output.stderr).lines().map(str::to_owned).collect())
}

#[test]
fn damage_ends_its_archive_only() {
    let dir = tempfile::tempdir().unwrap();
    for (name, start) in [("a", 1000), ("b", 1100), ("c", 1200)] {
        write(&dir.path().join(name), start);
    }
    let all = |starts: &[u32]| starts.iter().flat_map(|start| (*start..=start + 50).step_by(10)).collect::<Vec<_>>();
    // The first sample is one step after the start.
    assert_eq!(view(dir.path()), (Some(0), all(&[1000, 1100, 1200])[1..].to_vec(), vec![]));
    let meta = dir.path().join("b.meta");
    let bytes = std::fs::read(&meta).unwrap();
    std::fs::write(&meta, b"").unwrap();
    let (code, values, said) = view(dir.path());
    assert_eq!((code, values), (Some(0), all(&[1000, 1200])[1..].to_vec()));
    assert!(said.len() == 1 && said[0].contains("b.meta: ") && said[0].ends_with("the archive is skipped"), "{said:?}");
    std::fs::write(&meta, bytes).unwrap();
    // The last record of the second archive is damaged.
    let volume = dir.path().join("b.0");
    let mut bytes = std::fs::read(&volume).unwrap();
    let at = bytes.len() - 2;
    bytes[at] ^= 1;
    std::fs::write(&volume, bytes).unwrap();
    let (code, values, said) = view(dir.path());
    let is_kept = |value: &u32| *value != 1150;
    assert_eq!((code, values), (Some(0), all(&[1000, 1100, 1200])[1..].iter().copied().filter(is_kept).collect()));
    assert!(said.len() == 1 && said[0].contains("b.0: byte "), "{said:?}");
    for name in ["a.meta", "b.meta", "c.meta"] {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    let (code, values, said) = view(dir.path());
    assert_eq!((code, values.len()), (Some(1), 0));
    assert!(said[0].contains("none of the 3 archives can be opened"), "{said:?}");
}
