//! pmgenmap compared with that of the installed PCP: output and exit code.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::Pcp;

const SPECIFICATIONS: &[&str] = &[
    "",
    "\n",
    "\n\n",
    "a {\n    b.c  D\n    e.f  G\n}\n",
    "a {\n}\n",
    "a {\nb.c D\n}",
    "# one\na {\nb C\n}\n",
    "# one\n# two words\n\na {\n  # inside\n  b C\n\n}\n# last\n",
    "# one\n#\n# three   of \t them\n",
    "#no blank\n",
    "a {\r\nb C\r\n}\r\n",
    "a {\nb C\na {\n",
    "a {\nb C\n",
    "a {\nb C D\n}\n",
    "b C\n",
    "a\n",
    "}\n",
    "a { b\n",
    "a {\n{ {\n}\n",
    "# open\nx y z\n",
    "a {\n# open\n",
    " \t \n",
    "a {\n} }\n}\n",
    "a{\n",
    "pmclient_init {\n    hinv.ncpu\t\t\tNUMCPU\n}\n\npmclient_sample {\n    kernel.all.load\tLOADAV\n}\n",
];

/// Runs a command in a directory, and returns its output and exit code, as those of a command `pmgenmap`.
fn run(program: &Path, dir: &Path, arguments: &[&str], input: &str) -> (String, Option<i32>) {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .env("PACKAGE_BUILD_DATE", "today")
        .env("LC_ALL", "C")
        .env_remove("PCP_DIR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments reads nothing.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

fn compare(dir: &Path, arguments: &[&str], input: &str) {
    let theirs = Pcp::required().path("PCP_BIN_DIR").join("pmgenmap");
    let ours = Path::new(env!("CARGO_BIN_EXE_pmgenmap"));
    let [ours, theirs] = [ours, &theirs].map(|program| run(program, dir, arguments, input));
    assert_eq!(ours, theirs, "{arguments:?} {input:?}");
}

#[test]
#[ignore = "needs PCP"]
fn as_pmgenmap() {
    let dir = tempfile::tempdir().unwrap();
    for text in SPECIFICATIONS {
        fs::write(dir.path().join("spec"), text).unwrap();
        compare(dir.path(), &["spec"], "");
        compare(dir.path(), &[], text);
    }
    for arguments in [&["nosuch"][..], &["a", "b"], &["-?"]] {
        compare(dir.path(), arguments, "");
    }
    let example = Pcp::required().path("PCP_DEMOS_DIR").join("pmclient/pmnsmap.spec");
    compare(dir.path(), &[], &fs::read_to_string(example).unwrap());
}

/// Random lines, built from words with a meaning in specifications.
#[test]
#[ignore = "needs PCP"]
// Slow: PCP's script runs for each of 150 specifications.
fn random_specifications() {
    const WORDS: [&str; 9] = ["a", "b.c", "{", "}", "#", "D", "\t", " ", "\r"];
    let dir = tempfile::tempdir().unwrap();
    let mut state = 7_u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..150 {
        let mut text = String::new();
        for _ in 0..next(8) {
            let shape = next(6);
            match shape {
                0 => text.push_str("a {"),
                1 => text.push('}'),
                2 => text.push_str(" b.c D"),
                _ => {
                    for _ in 0..next(4) {
                        text.push_str(WORDS[usize::try_from(next(9)).unwrap()]);
                        text.push_str(if next(3) == 0 { "" } else { " " });
                    }
                }
            }
            text.push('\n');
        }
        compare(dir.path(), &[], &text);
    }
}
