//! Option `--check`, over an agent that it starts itself. No PCP is needed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_pmdaderived");

/// Runs `--check` on a directory of files. Returns the exit code, and the output with paths relative to the directory.
fn check(files: &[(&str, &str)], options: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config");
    fs::create_dir(&config).unwrap();
    // The agent of the operands is `pmdaderived` too, without a pmcd: its operands are the metrics about itself.
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let command = format!("['{BINARY}', '-d', '405', '-c', '/dev/null', '-l', '{LOG}', '-U', '{user}']");
    let agent = format!("agent = {{ domain = 405, command = {command} }}");
    for (name, text) in files {
        fs::write(
            config.join(name),
            text.replace("AGENT", &agent.replace(LOG, &format!("{}/log", dir.path().display()))),
        )
        .unwrap();
    }
    // Leaves out the name space of a pmcd on this host.
    let mut check = Command::new(BINARY);
    check.arg("--check").arg(&config).args(options).env("PMNS_DEFAULT", "/dev/null");
    let output = check.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text.replace(&format!("{}/", config.display()), ""))
}
const LOG: &str = "LOG";

/// A file's name, and so its errors, may have any characters.
#[test]
fn texts_of_the_configuration_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("\x1b[2J.toml"), "[group.a]\nodd = 1\n").unwrap();
    // script(1) gives the command a terminal.
    let mut terminal = Command::new("script");
    terminal.args(["-qec", "\"$BINARY\" --check \"$DIR\"", "/dev/null"]).stdin(std::process::Stdio::null());
    let output =
        terminal.env("BINARY", BINARY).env("DIR", dir.path()).env("PMNS_DEFAULT", "/dev/null").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(r"\u{1b}[2J.toml") && !text.contains('\x1b'), "{text:?}");
}

/// An agent is a program, which a user who may write the file or replace it would choose.
#[test]
fn files_that_others_may_write_start_no_agents() {
    let dir = tempfile::tempdir().unwrap();
    let (config, started) = (dir.path().join("config"), dir.path().join("started"));
    fs::create_dir(&config).unwrap();
    let file = config.join("a.toml");
    let text = format!(
        "[group.a.metric]\nx = 'a.b'\n[group.a]\nagent = {{ domain = 7, command = ['touch', '{}'] }}\n",
        started.display()
    );
    fs::write(&file, text).unwrap();
    let allow = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let run = || {
        let mut check = Command::new(BINARY);
        let output = check.arg("--check").arg(&config).env("PMNS_DEFAULT", "/dev/null").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for (path, mode, normal, reason) in [
        (&file, 0o646, 0o644, "other users may write to it (mode 646)"),
        (&config, 0o757, 0o755, "config is not safe: other users may write to it (mode 757)"),
    ] {
        allow(path, mode);
        let text = run();
        assert!(text.contains("this file may start no agents") && text.contains(reason), "{text}");
        assert!(!started.exists());
        allow(path, normal);
    }
    run();
    assert!(started.exists());
}

const GOOD: &str = "
[group.own]
AGENT
[group.own.metric]
five = 'derived.control.reload + 5'
ten = { expr = 'derived.five * 2', name = 'deep.ten', oneline = 'ten' }
twenty = 'deep.ten + ten'
words = 'derived.control.message'
";

#[test]
fn what_is_good() {
    let (code, text) = check(&[("a.toml", GOOD)], &[]);
    let expected = "\
derived.five
    Data Type: 32-bit unsigned int  InDom: PM_INDOM_NULL 0xffffffff
    Semantics: discrete  Units: none
deep.ten
    Data Type: 32-bit unsigned int  InDom: PM_INDOM_NULL 0xffffffff
    Semantics: discrete  Units: none
derived.twenty
    Data Type: 32-bit unsigned int  InDom: PM_INDOM_NULL 0xffffffff
    Semantics: discrete  Units: none
derived.words
    Data Type: string  InDom: 405.1 0x65400001
    Semantics: discrete  Units: none
";
    assert_eq!((code, text.as_str()), (Some(0), expected));
    let (code, text) = check(&[("a.toml", GOOD)], &["--tsv", "--samples", "1"]);
    let expected = "\
five\tOK\ttype=32-bit unsigned int indom=NULL sem=discrete units=none\t{\"\"=5}
ten\tOK\ttype=32-bit unsigned int indom=NULL sem=discrete units=none\t{\"\"=10}
twenty\tOK\ttype=32-bit unsigned int indom=NULL sem=discrete units=none\t{\"\"=20}
words\tOK\ttype=string indom=SET sem=discrete units=none\t{}
";
    assert_eq!((code, text.as_str()), (Some(0), expected));
}

const BAD: &str = "
[group.own]
AGENT
[group.own.metric]
a = 'derived.b + 1'
b = 'derived.control.reload * c'
c = 'scalar(a)'
d = 'derived.d'
unknown = 'derived.control.nothing'
";

#[test]
fn what_is_bad() {
    let (code, text) = check(&[("a.conf", "syntax = 1 +\n"), ("b.toml", BAD), ("c.toml", "nonsense = 1\n")], &[]);
    let expected = "\
[a.conf:1] Error: pmRegisterDerived(syntax, ...) syntax error
 1 +
   ^
Arithmetic expression expected to follow PLUS
[b.toml:5] Semantic error: derived metric a: definition refers to itself: a -> b -> c -> a
[b.toml:6] Semantic error: derived metric b: definition refers to itself: b -> c -> a -> b
[b.toml:7] Semantic error: derived metric c: definition refers to itself: c -> a -> b -> c
[b.toml:8] Semantic error: derived metric d: definition refers to itself: d -> d
[b.toml:9] Semantic error: derived metric unknown: operand derived.control.nothing: Unknown operand metric
[c.toml:1] Error: unknown key \"nonsense\"; the known keys are metric, group
nonsense = 1
^
";
    assert_eq!((code, text.as_str()), (Some(1), expected));
    let (code, text) = check(&[("a.conf", "syntax = 1 +\n"), ("b.toml", BAD)], &["--tsv"]);
    let expected = "\
syntax\tERR\tsyntax\tcol 3: Arithmetic expression expected to follow PLUS
a\tERR\tsemantic\tdefinition refers to itself: a -> b -> c -> a
b\tERR\tsemantic\tdefinition refers to itself: b -> c -> a -> b
c\tERR\tsemantic\tdefinition refers to itself: c -> a -> b -> c
d\tERR\tsemantic\tdefinition refers to itself: d -> d
unknown\tERR\tsemantic\toperand derived.control.nothing: Unknown operand metric
";
    assert_eq!((code, text.as_str()), (Some(1), expected));
}

#[test]
fn a_host_that_is_not_there() {
    let (code, text) = check(&[("a.conf", "x = hinv.ncpu\n")], &["--host", "unix:///nowhere"]);
    assert_eq!((code, text.as_str()), (Some(1), "unix:///nowhere: Connection refused\n"));
    let (code, text) = check(&[], &["--host", "unix:///nowhere"]);
    assert_eq!((code, text.as_str()), (Some(0), ""));
}

#[test]
fn times_are_neither_zero_nor_for_ever() {
    for option in ["-t", "--agent-timeout"] {
        for (time, expected) in [("0", "must not be zero"), ("9e17", "longer than 366 days")] {
            let output = Command::new(BINARY).args(["--check", "/dev/null", option, time]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && text.contains(expected), "{text}");
        }
    }
}
