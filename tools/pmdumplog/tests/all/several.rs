//! Several archives: lists, folders, and the name that the command is called by.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use pcp_archive::{Create, Version};
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, PmId, Semantics, Type, Units};

const OURS: &str = env!("CARGO_BIN_EXE_pmdumplog");

/// Writes an archive with two records of a metric, at `start` and ten seconds later.
fn write(base: &Path, start: i64) {
    let pmid = PmId::from_word(245 << 22 | 1).unwrap();
    let desc = Desc { pmid, ty: Type::U32, indom: None, semantics: Semantics::Counter, units: Units::NONE };
    let mut writer = Create::new("h").version(Version::V2).pid(7).create(base).unwrap();
    writer.metric(&desc.into(), &[b"a.x"]).unwrap();
    let mut values = ResultWriter::new();
    for time in [start, start + 10] {
        values.begin();
        values.begin_set(Some(pmid));
        values.push(None, Type::U32, Atom::U32(time as u32)).unwrap();
        values.end_set(Ok(()));
        writer.values(Stamp { seconds: time, nanoseconds: 0 }, &mut values).unwrap();
    }
    writer.finish().unwrap();
}

/// A folder with archives `x1` and `x2`.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    write(&dir.path().join("d/x1"), 100);
    write(&dir.path().join("d/x2"), 200);
    dir
}

/// Returns exit code, output and errors.
fn run(program: impl AsRef<std::ffi::OsStr>, dir: &Path, arguments: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(program);
    let output = command.args(arguments.split_whitespace()).current_dir(dir).env("TZ", "UTC").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The output of pmlogdump 7.2.1, except for `-a`'s warning.
#[test]
fn all_of_a_folder() {
    let dir = folder();
    let part = |name: &str, minute: u32, seconds: (u32, u32)| {
        format!(
            "--- archive d/{name} ---\nLog Label (Log Format Version 2)\nPerformance metrics from host h\n    \
             commencing Thu Jan  1 00:0{minute}:{}.000000 1970\n    ending     Thu Jan  1 00:0{minute}:{}.000000 1970\n\
             Archive timezone: UTC\nPID for pmlogger: 7\n",
            seconds.0, seconds.1
        )
    };
    let labels = part("x1", 1, (40, 50)) + &part("x2", 3, (20, 30));
    let head = "Note: multi-archive context with 2 archives\n";
    assert_eq!(run(OURS, dir.path(), "-L d"), (Some(0), head.to_owned() + &labels, String::new()));
    let first = "\n00:01:40.000000 1 metric\n    245.0.1 (a.x): value 100\n\n00:01:50.000000 1 metric\n    \
                 245.0.1 (a.x): value 110\n\n00:01:50.001000  <mark>\n";
    let second = "\n00:03:20.000000 1 metric\n    245.0.1 (a.x): value 200\n\n00:03:30.000000 1 metric\n    \
                  245.0.1 (a.x): value 210\n";
    for name in ["d", "d/x1,d/x2", "d/x2.meta,d/x1.0"] {
        assert_eq!(run(OURS, dir.path(), name), (Some(0), format!("{head}{first}{second}"), String::new()), "{name}");
    }
    let (code, out, said) = run(OURS, dir.path(), "-a d");
    let index = "Temporal Index\n\t\tLog Vol    end(meta)     end(log)\n";
    assert!(code == Some(0) && out.starts_with(&format!("{head}{labels}\nDescriptions for")), "{out}");
    assert_eq!(out.matches(index).count(), 2);
    assert!(out.contains(&format!("\n--- archive d/x2 ---\n{index}")), "{out}");
    assert!(
        !out.contains("value 110") && out.contains("value 200") && said.contains("the last archive only"),
        "{said}"
    );
    let (_, out, _) = run(OURS, dir.path(), "-r d");
    assert!(out.find("value 210") < out.find("value 100") && out.contains("value 100"), "{out}");
}

#[test]
fn damaged_archives_of_a_folder() {
    let dir = folder();
    write(&dir.path().join("d/x3"), 300);
    std::fs::write(dir.path().join("d/x2.meta"), b"").unwrap();
    let volume = dir.path().join("d/x1.0");
    let mut bytes = std::fs::read(&volume).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 0xff;
    bytes.truncate(at + 10);
    std::fs::write(&volume, bytes).unwrap();
    for option in ["-m", "-r"] {
        let (code, out, said) = run(OURS, dir.path(), &format!("{option} d"));
        let warnings: Vec<&str> = said.lines().collect();
        assert_eq!((code, warnings.len()), (Some(0), 2), "{said}");
        assert!(
            warnings[0].starts_with("pmdumplog: Warning: d/x2.meta: ") && warnings[1].contains("d/x1.0: "),
            "{said}"
        );
        assert!(out.contains("value 300") && out.contains("value 310") && !out.contains("value 200"), "{out}");
        assert!(out.contains("value 100"), "{option}: {out}");
    }
    for name in ["x1.meta", "x3.meta"] {
        std::fs::write(dir.path().join("d").join(name), b"").unwrap();
    }
    let (code, out, said) = run(OURS, dir.path(), "-m d");
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(said.starts_with("pmdumplog: Cannot open archive \"d\": "), "{said}");
}

/// Each archive is checked, wherever it stands.
#[test]
fn check_of_several_archives() {
    let dir = folder();
    write(&dir.path().join("bad"), 300);
    let index = dir.path().join("bad.meta");
    let bytes = std::fs::read(&index).unwrap();
    std::fs::write(&index, &bytes[..bytes.len() - 3]).unwrap();
    assert_eq!(run(OURS, dir.path(), "--check d/x1 d/x2"), (Some(0), String::new(), String::new()));
    assert_eq!(run(OURS, dir.path(), "--check d").0, Some(0));
    for names in ["d/x1 bad", "bad d/x1", "d/x1 d/x2,bad", "bad bad", "d bad d", "d/x1 nothing", "nothing"] {
        let (code, _, said) = run(OURS, dir.path(), &format!("--check {names}"));
        assert_eq!(code, Some(1), "{names}");
        let bad = if names.contains("nothing") { "nothing: " } else { "bad.meta" };
        assert!(said.lines().all(|line| line.contains(bad)) && !said.is_empty(), "{names}: {said}");
    }
    std::fs::rename(index, dir.path().join("d/x3.meta")).unwrap();
    std::fs::rename(dir.path().join("bad.0"), dir.path().join("d/x3.0")).unwrap();
    assert_eq!(run(OURS, dir.path(), "--check d/x1 d").0, Some(1));
}

#[test]
fn called_by_the_name_of_pcp_7() {
    let dir = folder();
    let link = dir.path().join("pmlogdump");
    symlink(OURS, &link).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for option in ["-V", "--version", "-l -V d", "--check -V"] {
        let (code, out, said) = run(&link, dir.path(), option);
        assert!(
            code == Some(0) && out.is_empty() && said.starts_with(&format!("pmlogdump version {version}")),
            "{said}"
        );
    }
    let (code, _, said) = run(&link, dir.path(), "nothing");
    assert_eq!((code, &*said), (Some(1), "pmlogdump: Cannot open archive \"nothing\": No such file or directory\n"));
    let (_, _, said) = run(&link, dir.path(), "");
    assert!(said.starts_with("Usage: pmlogdump [options] [archive [metricname ...]]\n\nOptions:\n  -a, "), "{said}");
}
