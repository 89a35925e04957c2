//! Archives of PCP's tests with changed labels and volumes: output compared with PCP's pmdumplog.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use testkit::{Pcp, Version};

const OURS: &str = env!("CARGO_BIN_EXE_pmdumplog");

/// Offset of the volume's number in a label of version 2, and of the feature bits in one of version 3.
const VOLUME_V2: usize = 20;
const FEATURES_V3: usize = 28;
/// Length of the label of version 2.
const LABEL_V2: usize = 132;

/// Copies an archive with a change to the contents of each file, which gets the file's suffix.
fn copy(name: &str, dir: &Path, change: impl Fn(&str, &mut Vec<u8>)) {
    let archives = Pcp::required().testsuite().join("archives");
    let mut count = 0;
    for entry in archives.read_dir().unwrap().map(Result::unwrap) {
        let file = entry.file_name().into_string().unwrap();
        let Some(suffix) = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')) else { continue };
        let mut bytes = std::fs::read(entry.path()).unwrap();
        change(suffix, &mut bytes);
        std::fs::write(dir.join(format!("x.{suffix}")), bytes).unwrap();
        count += 1;
    }
    assert!(count > 2, "{name}");
}

/// Compares output, error and exit code, and returns the output and the error.
fn compare(dir: &Path, options: &[&str]) -> (String, String) {
    // With a long path, libpcp 6.0.3 compares uninitialized memory with a volume's label, and then skips it or not.
    let run = |program: &str| {
        let output = Command::new(program).args(options).arg("x").current_dir(dir).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("PCP archive log", "PCP archive");
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (ours, mut theirs) = (run(OURS), run("pmdumplog"));
    // PCP 6.3.8 and 7.2.1 do not print the warning, although their pmdumplog has it.
    if Pcp::required().version() >= Version(6, 3, 0) && ours.2.ends_with(UNSUPPORTED) {
        theirs.2 += &format!("pmdumplog: {UNSUPPORTED}");
    }
    assert_eq!(ours, theirs, "{options:?}");
    (ours.1, ours.2)
}

const UNSUPPORTED: &str = "Warning: unsupported feature bits, other errors may follow ...\n";

#[test]
#[ignore = "needs PCP"]
fn unknown_features() {
    for (bits, shown) in [(0x8001_u32, " [unknown: bit_15 bit_00]\n"), (0x8000_0000, "features: 0x80000000\n")] {
        let dir = tempfile::tempdir().unwrap();
        copy("omnibus_v3", dir.path(), |_, bytes| {
            bytes[FEATURES_V3..FEATURES_V3 + 4].copy_from_slice(&bits.to_be_bytes());
        });
        let (out, said) = compare(dir.path(), &["-z", "-L"]);
        assert!(out.contains(shown), "{out}");
        assert_eq!(said.contains("unsupported feature bits"), bits == 0x8001, "{said}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn numbers_of_volumes() {
    let dir = tempfile::tempdir().unwrap();
    copy("ok-mv-bar", dir.path(), |suffix, bytes| {
        if matches!(suffix, "1" | "3") {
            bytes[VOLUME_V2 + 3] = 77;
        }
    });
    let (out, said) = compare(dir.path(), &["-z", "-m"]);
    assert!(said.is_empty() && out.contains(" metric"), "{out}{said}");
}

#[test]
#[ignore = "needs PCP"]
fn volumes_that_are_empty_or_of_another_version() {
    let other = std::fs::read(Pcp::required().testsuite().join("archives/omnibus_v3.0")).unwrap();
    for (len, is_other) in [(0, false), (LABEL_V2, false), (LABEL_V2 / 2, false), (0, true)] {
        let dir = tempfile::tempdir().unwrap();
        copy("ok-mv-bar", dir.path(), |suffix, bytes| match suffix {
            "2" if is_other => bytes.clone_from(&other),
            "2" => bytes.truncate(len),
            _ => (),
        });
        let (out, said) = compare(dir.path(), &["-z", "-m"]);
        assert!(out.contains(" metric"), "{out}");
        assert_eq!(!said.is_empty(), is_other, "{len} {said}");
        if is_other {
            let checked = Command::new(OURS).arg("--check").arg(dir.path().join("x")).output().unwrap();
            let said =
                String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
            assert!(said.contains("a volume of version 3, the first is of version 2"), "{said}");
        }
    }
}
