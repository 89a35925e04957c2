//! Comparison of newhelp, chkhelp and lookups with those of the installed PCP, on the help text of its agents.

#![allow(clippy::unwrap_used)]

use help::{Compiled, Entry, Target};
use pmapi::{InDom, PmId};
use std::fmt::Write as _;
use std::fs;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const AGENTS: &str = "/var/lib/pcp/pmdas";
const THEIRS: &str = "/usr/lib/pcp/bin";

/// Returns the directories of the agents that have a certain file.
fn agents_with(file: &str) -> Vec<PathBuf> {
    let dirs = fs::read_dir(AGENTS).unwrap().map(|entry| entry.unwrap().path());
    let mut dirs: Vec<_> = dirs.filter(|dir| dir.join(file).is_file()).collect();
    dirs.sort();
    assert!(!dirs.is_empty());
    dirs
}

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
        (output.status, stdout, testkit::without_usage_words(&String::from_utf8(output.stderr).unwrap()))
    });
    assert_eq!(ours, theirs, "{name} {args:?}");
}

#[test]
#[ignore = "needs PCP"]
fn sources_of_agents_compile_to_the_same_files() {
    let tmp = tempfile::tempdir().unwrap();
    let base = |name: &str| tmp.path().join(name).to_string_lossy().into_owned();
    let mut compared = 0;
    for agent in agents_with("help") {
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

/// Returns the results of lookups in compiled files, by this crate and by `tests/support/oracle.c`, for every target in
/// the files and for some others.
fn lookups(tmp: &Path, base: &Path) -> (String, String) {
    let oracle = tmp.join("oracle");
    if !oracle.exists() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/oracle.c");
        let gcc = Command::new("gcc").arg("-o").arg(&oracle).args([source, "-lpcp_pmda", "-lpcp"]).status().unwrap();
        assert!(gcc.success());
    }
    let help = Compiled::open(base).unwrap();
    let (mut ids, mut ours) = (String::new(), String::new());
    for target in help.targets() {
        let (Target::Metric(pmid), Target::InDom(indom)) = (match target {
            Target::Metric(pmid) => (target, Target::InDom(InDom::from_word(pmid.word()).unwrap())),
            Target::InDom(indom) => (Target::Metric(PmId::from_word(indom.word()).unwrap()), target),
        }) else {
            unreachable!();
        };
        writeln!(ids, "m {}\ni {}\nm {}", pmid.word(), indom.word(), pmid.word() ^ 0x10_0000).unwrap();
        let absent = PmId::from_word(pmid.word() ^ 0x10_0000).unwrap();
        for target in [pmid.into(), indom.into(), absent.into()] {
            let [oneline, text] = [help.oneline(target), help.text(target)].map(|text| match text {
                Some(text) => format!("+{}", String::from_utf8_lossy(text).replace('\n', "\\n")),
                None => "-".into(),
            });
            writeln!(ours, "{oneline}\t{text}").unwrap();
        }
    }
    let theirs = run(&oracle, tmp, &[&base.to_string_lossy()], ids.as_bytes()).stdout;
    (ours, String::from_utf8_lossy(&theirs).into_owned())
}

#[test]
#[ignore = "needs PCP"]
fn lookups_in_files_of_agents() {
    let tmp = tempfile::tempdir().unwrap();
    let mut found = 0;
    for agent in agents_with("help.dir") {
        let (ours, theirs) = lookups(tmp.path(), &agent.join("help"));
        assert_eq!(ours, theirs, "{}", agent.display());
        found += ours.lines().filter(|line| line.starts_with('+')).count();
    }
    assert!(found > 1_000, "only {found} texts");
}

#[test]
#[ignore = "needs PCP"]
fn c_reads_our_files() {
    let tmp = tempfile::tempdir().unwrap();
    // Texts that exceed the limits of PCP's newhelp, of several domains, with metrics and instance domains mixed.
    let entries: Vec<Entry> = (0..3_000_u32)
        .map(|n| {
            let word = ((n % 7 + 1) << 22) + n * 1_001;
            let target = match n % 3 {
                0 => Target::InDom(InDom::from_word(word).unwrap()),
                _ => Target::Metric(PmId::from_word(word).unwrap()),
            };
            let text = "a line of some length\n\n".repeat(n as usize % 500);
            Entry::new(target.to_string(), target, "x".repeat(n as usize % 300), text)
        })
        .collect();
    let base = tmp.path().join("help");
    help::compile(&entries).unwrap().write(&base).unwrap();
    let (ours, theirs) = lookups(tmp.path(), &base);
    assert!(ours == theirs);
    assert!(ours.lines().count() == 9_000);
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
        &["--version"],
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
