//! Comparison of newhelp and chkhelp with those of the installed PCP, on the help text of its agents.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const AGENTS: &str = "/var/lib/pcp/pmdas";
const THEIRS: &str = "/usr/lib/pcp/bin";

/// Returns an agent's help source as `pmdaproc.sh` passes it to newhelp: with the number of the domain in place of its
/// symbol.
fn source(agent: &Path) -> Vec<u8> {
    let text = String::from_utf8_lossy(&fs::read(agent.join("help")).unwrap()).into_owned();
    let domain = fs::read_to_string(agent.join("domain.h")).unwrap_or_default();
    let mut define = domain.lines().find_map(|line| line.strip_prefix("#define ")).unwrap_or("").split_whitespace();
    let (Some(symbol), Some(number)) = (define.next(), define.next()) else {
        return text.into();
    };
    text.replace(&format!("\n@ {symbol}."), &format!("\n@ {number}.")).into()
}

fn run(program: &Path, dir: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    // Without the derived metrics that PCP's configuration adds to every name space.
    let mut command = Command::new(program);
    command.args(args).env("PCP_DERIVED_CONFIG", "").current_dir(dir).stdin(file).output().unwrap()
}

fn both(name: &str) -> [PathBuf; 2] {
    let ours = if name == "newhelp" { env!("CARGO_BIN_EXE_newhelp") } else { env!("CARGO_BIN_EXE_chkhelp") };
    [Path::new(THEIRS).join(name), ours.into()]
}

/// Runs PCP's command and ours, and compares output and exit status.
fn assert_same(name: &str, dir: &Path, args: &[&str], input: &[u8]) {
    let [theirs, ours] = both(name).map(|program| {
        let output = run(&program, dir, args, input);
        // libpcp adds these two metrics to every name space.
        let stdout = String::from_utf8(output.stdout).unwrap().replace("\nevent.flags\nevent.missed\n", "\n");
        let stderr = testkit::without_usage_words(&String::from_utf8(output.stderr).unwrap());
        // The usage of newhelp lists this option since PCP 7.
        (output.status, stdout, stderr.replace("-D DBG, --debug=DBG ", ""))
    });
    assert_eq!(ours, theirs, "{name} {args:?}");
}

#[test]
#[ignore = "needs PCP"]
fn sources_of_agents_compile_to_the_same_files() {
    let tmp = tempfile::tempdir().unwrap();
    let base = |name: &str| tmp.path().join(name).to_string_lossy().into_owned();
    let mut compared = 0;
    for agent in testkit::agents_with("help") {
        if !agent.join("root").is_file() {
            continue;
        }
        let source = source(&agent);
        let [theirs, ours] = both("newhelp");
        let theirs = run(&theirs, &agent, &["-V", "-n", "root", "-o", &base("theirs")], &source);
        let ours = run(&ours, &agent, &["-V", "-n", "root", "-o", &base("ours")], &source);
        let said = String::from_utf8_lossy(&theirs.stderr);
        if said.contains("long line split") || said.contains("entry truncated") {
            assert!(ours.status.code() < Some(2), "{}", agent.display());
            continue;
        }
        assert_eq!(String::from_utf8_lossy(&ours.stderr), said, "{}", agent.display());
        assert_eq!(ours.status, theirs.status, "{}", agent.display());
        for file in [".dir", ".pag"] {
            let content = |name: &str| fs::read(base(name) + file).unwrap();
            assert!(content("ours") == content("theirs"), "{file} of {}", agent.display());
        }
        compared += 1;
    }
    assert!(compared > 20, "only {compared} sources");
}

#[test]
#[ignore = "needs PCP"]
fn chkhelp_prints_the_same() {
    let sample = Path::new(AGENTS).join("sample");
    for shown in ["-O", "-H", "-OH", "-e"] {
        for chosen in [&["help"][..], &["-p", "help"], &["-i", "help"], &["-ip", "help"]] {
            assert_same("chkhelp", &sample, &[&["-n", "root", shown], chosen].concat(), b"");
        }
        for metric in ["sample.long.one", "sample.long", "sampledso.bin", "nosuch", "sample.bin.x", ""] {
            assert_same("chkhelp", &sample, &["-n", "root", shown, "help", metric, "sample.bin"], b"");
        }
    }
    for args in [
        &["-n", "root", "help"][..],
        &["-n", "root", "-D", "appl0", "help"],
        &["-n", "nosuch", "help"],
        &["nosuch"],
        &["root"],
        &["-v", "2", "-n", "root", "help", "sample.bin"],
        &["-v", "3", "help"],
        &["-v", "2x", "help"],
        &["-D", "nosuch", "help"],
        &["-p", "help", "sample.bin"],
        &["-ep"],
        &["-?", "help"],
        &[],
    ] {
        assert_same("chkhelp", &sample, args, b"");
    }
}

/// Names below a root of dynamic names have the PMID of that root, and chkhelp prints no names for it.
#[test]
#[ignore = "needs PCP"]
fn chkhelp_of_dynamic_names() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("root"), "root {\n  dyn 9:*:*\n  a 1:1:1\n  b 1:1:1\n}\n").unwrap();
    let source = b"@ dyn.x one\ntext\n@ a two\ntext\n";
    assert_same("newhelp", tmp.path(), &["-n", "root", "-o", "help"], source);
    for args in [&["-n", "root", "-p", "help"][..], &["-n", "root", "-O", "help", "dyn", "dyn.x", "a"]] {
        assert_same("chkhelp", tmp.path(), args, b"");
    }
}

#[test]
#[ignore = "needs PCP"]
fn newhelp_says_the_same() {
    let sample = Path::new(AGENTS).join("sample");
    let tmp = tempfile::tempdir().unwrap();
    let base = tmp.path().join("help").to_string_lossy().into_owned();
    for source in [
        "",
        "\n\n# comment\nno entry\n",
        "@ sample.bin one line\ntext\n# comment\n more \n\n\n",
        "@ nosuch.metric x\ntext\n@ sample x\n@ sample.bin ok\nx\n",
        "@ SAMPLE.1 x\ny\n@29.1    spaces before  \n\n\n text after blank lines\n",
        "@\ntext\n@  \n@ sample.bin\n@ sample.long.one one\n@ sample.long.ten  \ntext\n",
        "@ sample.bin a\nb\n@ sample.long.one a\nb\n@ sample.long.one c\nd\n",
        "@ 29.0.17 a\nb\n@ 29.17 c\nd\n@ 29.0.18\ttab\te\t\n",
        "@ sample.secret.foo.bar dynamic\nx\n@ mmv.x y\nz\n",
    ] {
        for verbose in [&["-V"][..], &[]] {
            let args = [&["-n", "root", "-o", &base], verbose].concat();
            assert_same("newhelp", &sample, &args, source.as_bytes());
            let [theirs, ours] = both("newhelp").map(|program| {
                run(&program, &sample, &args, source.as_bytes());
                [".dir", ".pag"].map(|suffix| fs::read(base.clone() + suffix).unwrap())
            });
            assert_eq!(ours, theirs, "{source}");
        }
    }
    for args in [
        &["-n", "root"][..],
        &["-n", "root", "nosuch"],
        &["-n", "nosuch", "-o", &base],
        &["-v", "3", "-o", &base],
        &["-v", "x", "-o", &base],
        &["-v", "", "-o", &base],
        &["-v"],
        &["-n", "root", "--version=2"],
        &["-D", "nosuch"],
        &["-z"],
        &["--nosuch"],
        &["-?"],
        &["-n", "root", "-o", "/nosuch/help"],
    ] {
        assert_same("newhelp", &sample, args, b"");
    }
}

#[test]
fn the_version_is_printed() {
    let commands = [
        env!("CARGO_BIN_EXE_chkhelp"),
        env!("CARGO_BIN_EXE_newhelp"),
        env!("CARGO_BIN_EXE_pmnsadd"),
        env!("CARGO_BIN_EXE_pmnsdel"),
        env!("CARGO_BIN_EXE_pmnsmerge"),
    ];
    for command in commands {
        let output = Command::new(command).arg("--version").output().unwrap();
        let name = Path::new(command).file_name().unwrap().to_str().unwrap();
        let expected = format!("{name} {}", env!("CARGO_PKG_VERSION"));
        assert!(output.status.success() && output.stdout.starts_with(expected.as_bytes()), "{name}: {output:?}");
    }
}
