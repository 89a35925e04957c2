//! The raw dump of files that are no archives.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const OURS: &str = env!("CARGO_BIN_EXE_pmdumplog");

fn dump(path: &Path) -> Output {
    Command::new(OURS).arg("-v").arg(path).stdin(Stdio::null()).output().unwrap()
}

/// Opening a FIFO would wait for a writer.
#[test]
fn a_fifo_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    for path in [path.as_path(), dir.path(), Path::new("/dev/zero")] {
        let output = dump(path);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains("Cannot open"), "{}: {text}", path.display());
    }
}

/// Each record of length 0 is a line of output, which must not be kept until the end.
#[test]
fn a_file_of_holes_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("holes");
    File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v 200000; \"$OURS\" -v \"$FILE\" | head -c 1000000"]);
    let output = shell.env("OURS", OURS).env("FILE", &path).output().unwrap();
    assert_eq!(output.stdout.len(), 1_000_000, "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(path).unwrap();
}
