//! PCP's own test programs, with C's library and with this one: output and files are equal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use testkit::Pcp;

/// Programs of pcp-testsuite that call the library, each with the arguments of its runs.
const PROGRAMS: &[(&str, &[&[&str]])] = &[
    ("mmv_genstats", &[&["test"]]),
    ("mmv_help", &[&["test"]]),
    ("mmv_instances", &[&["cats"], &["dogs"], &["mice"], &["film"]]),
    ("mmv_nostats", &[&["test"]]),
    ("mmv_simple", &[&["test"], &[]]),
    ("mmv2_genstats", &[&["test"]]),
    ("mmv2_instances", &[&["cats2"], &["dogs2"], &["mice2"], &["film2"]]),
    ("mmv2_nostats", &[&["test"]]),
    ("mmv2_simple", &[&["test"], &[]]),
    ("mmv3_bad_labels", &[&[]]),
    ("mmv3_genstats", &[&["test"]]),
    ("mmv3_labels", &[&["test"]]),
    ("mmv3_nostats", &[&["test"]]),
    ("mmv3_simple", &[&["test"], &[]]),
];

/// The output of a program, and its files without generation numbers, process, and the bytes after labels.
type Done = (String, BTreeMap<String, Vec<u8>>);

fn run(program: &Path, arguments: &[&str], lib: Option<&Path>) -> Done {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mmv")).unwrap();
    // `qa/capi valgrind` runs the programs with this library under valgrind, which reports errors on standard error and by
    // the exit code.
    let under = env::var("UNDER").ok().filter(|_| lib.is_some()).unwrap_or_default();
    let mut words = under.split_whitespace().map(OsStr::new).chain([program.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(arguments).env("PCP_TMP_DIR", dir.path()).env_remove("LD_LIBRARY_PATH");
    lib.iter().for_each(|lib| _ = command.env("LD_LIBRARY_PATH", lib));
    let output = command.output().unwrap();
    let text = [&output.stdout[..], b"\n", &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).replace(dir.path().to_str().unwrap(), "DIR");
    let files = fs::read_dir(dir.path().join("mmv")).unwrap().map(|entry| entry.unwrap());
    let files = files.map(|entry| (entry.file_name().into_string().unwrap(), masked(fs::read(entry.path()).unwrap())));
    (format!("{text}{:?}", output.status), files.collect())
}

fn masked(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[8..24].fill(0);
    bytes[32..36].fill(0);
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let tocs: Vec<_> = (0..word(&bytes, 24)).map(|toc| 40 + 16 * toc).collect();
    let section = |bytes: &[u8], kind| {
        let toc = tocs.iter().find(|at| word(bytes, **at) == kind);
        toc.map_or((0, 0), |at| (word(bytes, at + 4), word(bytes, at + 8)))
    };
    let (labels, at) = section(&bytes, 6);
    for label in bytes[at..at + 256 * labels].chunks_exact_mut(256) {
        let end = 12 + label[12..].iter().position(|byte| *byte == 0).unwrap_or(244);
        label[end..].fill(0);
    }
    // Intervals have any length. A program sets a value of 32 bits from a variable of 32 bits and the bytes after it.
    let (values, at) = section(&bytes, 4);
    for value in (0..values).map(|i| at + 32 * i) {
        let metric = word(&bytes, value + 16);
        let ty = word(&bytes, metric + if word(&bytes, 4) == 1 { 68 } else { 12 });
        match ty {
            9 => bytes[value..value + 16].fill(0),
            0 | 1 | 4 => bytes[value + 4..value + 8].fill(0),
            _ => {}
        }
    }
    bytes
}

#[test]
#[ignore = "needs PCP"]
// Slow: programs in C are compiled.
fn programs_print_and_write_the_same() {
    let sources = Pcp::required().testsuite().join("src");
    let dir = tempfile::tempdir().unwrap();
    symlink(common::own_path(), dir.path().join("libpcp_mmv.so.1")).unwrap();
    let mut files = 0;
    for (name, runs) in PROGRAMS {
        let program = dir.path().join(name);
        let mut cc = Command::new("cc");
        cc.args(["-w", "-g", "-o"]).arg(&program).arg(sources.join(name).with_extension("c"));
        let output = cc.args(["-lpcp_mmv", "-lpcp"]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        for arguments in *runs {
            let (expected, done) = (run(&program, arguments, None), run(&program, arguments, Some(dir.path())));
            assert_eq!(done.0, expected.0, "{name} {arguments:?}");
            assert_eq!(
                done.1.keys().collect::<Vec<_>>(),
                expected.1.keys().collect::<Vec<_>>(),
                "{name} {arguments:?}"
            );
            assert!(done.1 == expected.1, "{name} {arguments:?}: another file");
            files += done.1.len();
        }
    }
    assert!(files > 10, "{files} files");
}
