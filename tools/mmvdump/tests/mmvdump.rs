//! The command: its text compared with PCP's mmvdump, its JSON, and its complaints about missing and invalid files.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

use mmv::{Counter, Family, Gauge, Registry};
use serde_json::{Value, json};

fn ours(args: &[&str], tmp_dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mmvdump")).args(args).env("PCP_TMP_DIR", tmp_dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file with values, instances and labels, under the name that mmvdump reads by default.
fn file(tmp_dir: &Path) -> String {
    let dir = tmp_dir.join("mmv");
    fs::create_dir_all(&dir).unwrap();
    let registry = Registry::builder("test").directory(&dir).cluster(9).persistent().build().unwrap();
    let indom = registry.indom("i").serial(4).numbered([(3, "three")]).help("things").register().unwrap();
    let family: Family<Gauge<i32>> = registry.metric("g").item(2).help("one").over(&indom).unwrap();
    family.instance("three").unwrap().set(-3);
    let counter: Counter = registry.counter("c").item(1).label("a", [1, 2]).note("n", "note").register().unwrap();
    counter.add(42);
    registry.text("t").item(5).register().unwrap().set("some \"words\"");
    registry.gauge("nan").item(6).register().unwrap().set(f64::NAN);
    registry.try_start().unwrap();
    dir.join("test").to_str().unwrap().to_owned()
}

#[test]
fn json() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path());
    let output = ours(&["--json", &path], dir.path());
    assert!(output.status.success());
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["file"], path);
    assert_eq!((&shown["version"], &shown["cluster"], &shown["flags"]), (&json!(3), &json!(9), &json!([])));
    let things = json!({
        "serial": 4, "oneline": "things", "help": null, "instances": [{"id": 3, "name": "three"}],
    });
    assert_eq!(shown["indoms"], json!([things]));
    let gauge = json!({
        "name": "g", "item": 2, "type": "i32", "semantics": "instant", "units": "", "indom": 4,
        "oneline": "one", "help": null, "values": [{"instance": 3, "value": -3}],
    });
    assert_eq!(shown["metrics"][0], gauge);
    assert_eq!(shown["metrics"][1]["values"], json!([{"value": 42}]));
    assert_eq!(shown["metrics"][2]["values"], json!([{"value": "some \"words\""}]));
    assert_eq!(shown["metrics"][3]["values"], json!([{"value": null}]));
    let labels = json!([
        {"level": "item", "identity": 1, "optional": false, "labels": {"a": [1, 2]}},
        {"level": "item", "identity": 1, "optional": true, "labels": {"n": "note"}},
    ]);
    assert_eq!(shown["labels"], labels);
    assert_eq!(shown["problems"], json!([]));
}

#[test]
fn json_of_what_is_not_valid() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[0] = b'x';
    fs::write(&path, &bytes).unwrap();
    let output = ours(&["--json", &path], dir.path());
    assert!(!output.status.success());
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown, json!({"file": path, "error": "begins with \"xMV\\\\x00\", not with \"MMV\""}));
}

#[test]
fn usage() {
    let dir = tempfile::tempdir().unwrap();
    let output = ours(&["a", "b"], dir.path());
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(text(&output.stderr).contains("Usage: mmvdump"));
    assert!(ours(&["--help"], dir.path()).status.success());
}

fn theirs(args: &[&str], tmp_dir: &Path) -> Output {
    Command::new("/usr/lib/pcp/pmdas/mmv/mmvdump").args(args).env("PCP_TMP_DIR", tmp_dir).output().unwrap()
}

#[test]
#[ignore = "needs PCP"]
fn the_same_as_pcps() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let strange = dir.path().join(std::ffi::OsStr::from_bytes(b"strange name"));
    fs::copy(file(dir.path()), &strange).unwrap();
    let directory = dir.path().join("mmv");
    for path in [&missing, &empty, &strange, &directory] {
        let args = [path.to_str().unwrap()];
        assert_eq!(ours(&args, dir.path()), theirs(&args, dir.path()), "{path:?}");
    }
    // $PCP_TMP_DIR/mmv/test
    let output = ours(&[], dir.path());
    assert!(output.status.success());
    assert_eq!(output, theirs(&[], dir.path()));
}

#[test]
fn what_is_no_file_of_values_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let output = ours(&[fifo.to_str().unwrap()], dir.path());
    let complaint = text(&output.stderr);
    assert!(!output.status.success() && complaint.contains("Invalid argument"), "{complaint}");
}

#[test]
fn json_has_no_control_character() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a\u{9b}\u{7f}\u{1b}");
    fs::write(&path, "").unwrap();
    fs::write(&path, [0; 50]).unwrap();
    let shown = text(&ours(&["--json", path.to_str().unwrap()], dir.path()).stdout);
    assert!(shown.lines().all(|line| line.chars().all(|c| !c.is_control())), "{shown}");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["file"], path.to_str().unwrap());
}

#[test]
fn json_steers_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("test").directory(dir.path()).persistent().build().unwrap();
    registry.text("t").register().unwrap().set("a\u{202e}b\u{9b}c\u{2066}\x7f");
    registry.try_start().unwrap();
    let output = ours(&["--json", dir.path().join("test").to_str().unwrap()], dir.path());
    let shown = text(&output.stdout);
    assert!(shown.contains(r"a\u202eb\u009bc\u2066\u007f"), "{shown}");
    assert!(serde_json::from_str::<Value>(&shown).is_ok());
}

/// A shell makes arguments of the names of files, which strangers may have chosen.
#[test]
fn arguments_steer_no_terminal() {
    for arguments in [["a", "\x1b[2Jb\u{9b}c"], ["a", "--\x1b[2Jb\u{9b}c"], ["--json", "\x1b[2Jb\u{9b}c"]] {
        let said = testkit::on_terminal(env!("CARGO_BIN_EXE_mmvdump"), arguments);
        assert!(said.contains(r"b\u{9b}c") && !said.contains('\x1b'), "{said:?}");
    }
    // A pipe may lead to a log.
    let said = text(&ours(&["a", "--b\u{202e}\u{2028}c"], Path::new("/")).stderr);
    assert!(said.contains(r"--b\u{202e}\u{2028}c"), "{said:?}");
}

#[test]
fn names_of_a_file_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("test").directory(dir.path()).persistent().build().unwrap();
    registry.text("t").register().unwrap().set("été 漢字 🦀 a\u{202e}b\u{2028}c\u{200b}d\u{ad}");
    registry.try_start().unwrap();
    let path = dir.path().join("test");
    let said = testkit::on_terminal(env!("CARGO_BIN_EXE_mmvdump"), [path.to_str().unwrap()]);
    let shown = r#"= "été 漢字 🦀 a\xe2\x80\xaeb\xe2\x80\xa8c\xe2\x80\x8bd\xc2\xad""#;
    assert!(said.contains(shown), "{said}");
}

#[test]
fn a_name_may_begin_with_a_hyphen_and_a_second_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::rename(file(dir.path()), dir.path().join("-test")).unwrap();
    let run = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_mmvdump")).args(args).current_dir(dir.path()).output();
    for args in [&["-test"][..], &["--", "-test"], &["--json", "-test"]] {
        let output = run(args).unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("-test"), "{args:?}: {output:?}");
    }
    let output = run(&["-nosuch"]).unwrap();
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(1), "-nosuch: No such file or directory\n")
    );
    assert_eq!(run(&["-test", "-test"]).unwrap().status.code(), Some(1));
}
