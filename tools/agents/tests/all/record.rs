//! Records the shown metrics in an archive, and replays it.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use pcp_archive::{Archive, Check};
use pcp_pdu::metadata::TextKind;
use pmapi::LabelLevel;
use testkit::Pcp;

fn run(base: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcp-agents"));
    // Without pcp.conf, the PCP of this machine has no effect. Neither have its applications, which may be thousands.
    command.env("PCP_CONF", "/nonexistent/pcp.conf").env("PCP_TMP_DIR", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).arg(base).stdin(Stdio::null());
    command.output().unwrap()
}

fn text(output: &Output) -> &str {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap()
}

#[test]
fn what_is_shown_is_recorded_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let live = run(&base, &["simple", "showcase", "-t", "0.1", "-s", "5", "--record"]);
    let live = text(&live);
    let archive = Archive::open(&base).unwrap();
    let meta = archive.metadata();
    let color = meta.names().pmid(b"simple.color").unwrap();
    let desc = meta.desc(color).unwrap();
    assert_eq!(meta.text(color, TextKind::OneLine).unwrap(), b"Values that step up at every fetch");
    let mut instances = meta.instance_names();
    let names: Vec<_> = instances.instances(desc.indom.unwrap(), archive.end().unwrap()).unwrap();
    assert_eq!(names.iter().map(|i| i.name).collect::<Vec<_>>(), [&b"red"[..], b"green", b"blue"]);
    let end = archive.end().unwrap();
    for (level, ident) in [(LabelLevel::Domain, u32::from(color.domain().get())), (LabelLevel::Context, 0)] {
        assert!(meta.labels(level, ident, end).unwrap().is_some(), "{level:?}");
    }
    assert_eq!(Check::new().run(&base, |finding| println!("{finding}")), None);
    let mut cursor = archive.cursor();
    let mut records = 0;
    while cursor.forward().unwrap().is_some() {
        records += 1;
    }
    assert_eq!(records, 10, "5 samples of two agents");

    let last = |text: &str| {
        let sample = text.rsplit("# sample ").next().unwrap().to_owned();
        let mut lines: Vec<String> =
            sample.lines().skip(1).map(|line| line.split("  (").next().unwrap().into()).collect();
        lines.sort();
        lines
    };
    let replayed = run(&base, &["--replay"]);
    assert!(text(&replayed).contains("simple.color [Values that step up at every fetch]\n"));
    let replayed = run(&base, &["-t", "0.05", "-s", "0", "--replay"]);
    let (shown, replayed) = (last(live), last(text(&replayed)));
    // An archive cannot contain metrics without a descriptor.
    let missing: Vec<_> = shown.iter().filter(|line| !replayed.contains(line) && line.contains("value")).collect();
    assert!(missing.is_empty() && replayed.len() > 100, "{missing:?}");
    let again = run(&base, &["simple", "--record"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("--record needs the base name of new files"), "{again:?}");
    let none = run(&dir.path().join("none"), &["--replay"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("--replay needs an archive: its name"), "{none:?}");
    let other = run("/etc/passwd".as_ref(), &["--replay"]);
    assert!(String::from_utf8_lossy(&other.stderr).contains("--replay needs an archive: its name"), "{other:?}");
}

#[test]
#[ignore = "needs PCP"]
fn tools_read_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("a");
    let live = run(&base, &["-t", "0.1", "-s", "5", "--record"]);
    text(&live);
    let pcp = Pcp::required();
    let archive = base.to_str().unwrap();
    assert_eq!(pcp.run("pmlogcheck", [archive]).ok(), "");
    let info = pcp.run("pminfo", ["-a", archive, "-d", "-t", "-l", "-f", "simple.color"]).ok();
    assert!(info.contains("simple.color [Values that step up at every fetch]") && info.contains("\"green\""), "{info}");
    let dump = pcp.run("pmdumplog", ["-a", archive]).ok();
    assert!(dump.contains("simple.numfetch"), "{dump}");
    let values = pcp.run("pmval", ["-r", "-s", "3", "-a", archive, "simple.numfetch"]).ok();
    assert!(values.contains("samples:   3"), "{values}");
}
