//! Command lines of PCP's commands and ours: what is an option, an argument of an option, and an operand.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const THEIRS: &str = "/usr/lib/pcp/bin";

const ROOT: &str = "root {\n\ta\n}\na {\n\tb\t1:2:3\n\tc\t1:2:4\n}\n";
const HELP: &str = "@ a.b one line\ntext\n";
const MORE_HELP: &str = "@ a.c one line\ntext\n";

/// Runs a command in a new directory, whose files have names that begin with `-` too.
fn start(program: &Path, words: &[&str], posix: bool) -> (Output, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["root", "-n", "-x", "--"] {
        fs::write(dir.path().join(name), ROOT).unwrap();
    }
    for (name, text) in [("h", HELP), ("-h", MORE_HELP), ("-", MORE_HELP)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let pmid = "1.2.3".parse::<pmapi::PmId>().unwrap();
    let entry = pcp_help::Entry::new("a.b", pmid, "one line", "text");
    pcp_help::compile(&[entry]).unwrap().write(&dir.path().join("compiled")).unwrap();
    let mut command = Command::new(program);
    command.args(words).current_dir(dir.path()).stdin(Stdio::null());
    command.env("PMNS_DEFAULT", "root").env("PCP_DERIVED_CONFIG", "").env("PCP_DIR", "");
    if posix {
        command.env("POSIXLY_CORRECT", "1");
    }
    (command.output().unwrap(), dir)
}

/// Returns the exit code, the output, the first line of the messages, and the files after a success. PCP's newhelp
/// leaves half a file behind.
fn run(program: &Path, words: &[&str], posix: bool) -> String {
    let (output, dir) = start(program, words, posix);
    let name = program.file_name().unwrap().to_str().unwrap();
    let text = |bytes: &[u8]| testkit::without_usage_words(&String::from_utf8_lossy(bytes));
    // glibc's getopt prints the command as it was called.
    let stderr = text(&output.stderr).replace(program.to_str().unwrap(), name);
    // PCP's pmnsadd is a script: its shell and pmnsmerge name themselves.
    let first = if name == "pmnsadd" { "" } else { stderr.lines().next().unwrap_or_default() };
    let files = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|_| output.status.success());
    let files: BTreeMap<_, _> = files
        .map(|path| (path.file_name().unwrap().to_owned(), fs::read(path).unwrap().escape_ascii().to_string()))
        .collect();
    format!("{:?}\n{}\n{first}\n{files:#?}", output.status.code(), text(&output.stdout))
}

fn ours(name: &str) -> PathBuf {
    match name {
        "chkhelp" => env!("CARGO_BIN_EXE_chkhelp"),
        "newhelp" => env!("CARGO_BIN_EXE_newhelp"),
        "pmnsadd" => env!("CARGO_BIN_EXE_pmnsadd"),
        "pmnsdel" => env!("CARGO_BIN_EXE_pmnsdel"),
        "pmnsmerge" => env!("CARGO_BIN_EXE_pmnsmerge"),
        "pmgenmap" => env!("CARGO_BIN_EXE_pmgenmap"),
        other => panic!("{other}"),
    }
    .into()
}

fn split(line: &str) -> (&str, Vec<&str>) {
    let mut words = line.split(' ').map(|word| if word == "''" { "" } else { word });
    (words.next().unwrap(), words.collect())
}

/// Command lines, words separated by blanks. The word `''` is empty.
const LINES: &[&str] = &[
    // Arguments that begin with `-`.
    "newhelp -o -out -n root h",
    "newhelp -o --out -n root h",
    "newhelp -o -- -n root h",
    "newhelp -o - -n root h",
    "newhelp -o -n -n root h",
    "newhelp --output -out h",
    "newhelp --output=-out h",
    "newhelp -o-out h",
    "newhelp -n - -o out h",
    "newhelp -n -nosuch h",
    "newhelp -n '' h",
    "newhelp -v -n root h",
    "newhelp -v -2 h",
    "newhelp -v -- h",
    "newhelp -D -o out h",
    "chkhelp -v -n compiled",
    "chkhelp -D -n compiled",
    "pmnsdel -D -n a.b",
    "pmnsmerge -D -f root out",
    "pmnsadd -n -x -n",
    // Arguments without a space, and bundles.
    "newhelp -nroot -oout h",
    "newhelp -Vnroot -oout h",
    "newhelp -Vv2 -oout h",
    "newhelp -Vv2n root -o out h",
    "newhelp -VVV -oout h",
    "newhelp -Vzo out h",
    "newhelp -Dappl0 -oout h",
    "chkhelp -OHnroot compiled a.b",
    "chkhelp -Onroot compiled a.b",
    "chkhelp -ip compiled",
    "chkhelp -ipn root compiled",
    "chkhelp -Dappl0 -Dpdu compiled",
    "pmnsdel -nroot a.b",
    "pmnsdel -dnroot a.b",
    "pmnsmerge -vvaf root out",
    "pmnsmerge -vvx root out",
    "pmnsadd -nroot -x",
    // `--`, and `-`.
    "newhelp -o out -- -h",
    "newhelp -o out -h",
    "newhelp -- -h",
    "newhelp -- h -h",
    "newhelp -",
    "newhelp -o out - h",
    "newhelp -o out --",
    "newhelp -- --",
    "chkhelp -- --compiled a.b",
    "chkhelp --compiled a.b",
    "chkhelp --",
    "chkhelp - a.b",
    "chkhelp -O -- compiled a.b",
    "chkhelp -O compiled -- -x",
    "pmnsdel -- -x",
    "pmnsdel -- a.b",
    "pmnsdel -",
    "pmnsdel --",
    "pmnsmerge root - out",
    "pmnsmerge root -",
    "pmnsadd --",
    "pmgenmap -- h",
    "pmgenmap -?",
    "pmgenmap h h",
    "pmgenmap -x -x",
    // Options behind operands.
    "newhelp h -o out",
    "newhelp h -o out -",
    "newhelp h -z",
    "newhelp h -n nosuch",
    "chkhelp compiled a.b -O",
    "chkhelp compiled -H a.b -n root",
    "chkhelp compiled -p",
    "pmnsdel a.b -z",
    "pmnsdel a.b -d a.c",
    "pmnsmerge root -x -v out",
    "pmnsmerge root out -f",
    "pmnsadd -x -n root",
    "pmnsadd root -n -x",
    "pmnsadd root -d",
    // Missing and unwanted arguments.
    "newhelp -n",
    "newhelp -Vn",
    "newhelp -o out h -v",
    "newhelp --namespace",
    "newhelp --out",
    "newhelp --verbose=1 h",
    "newhelp --verb=1 h",
    "newhelp --verb -o out h",
    "newhelp --nosuch=1 h",
    "newhelp --nosuch h",
    "newhelp --ver h",
    "newhelp --ver=2 h",
    "newhelp --ve",
    "newhelp --v",
    "newhelp --help",
    "newhelp --he",
    "newhelp -? h",
    "chkhelp -n",
    "chkhelp -On",
    "chkhelp -z compiled",
    "chkhelp --exists compiled",
    "chkhelp -D",
    "chkhelp",
    "chkhelp -ep compiled a.b",
    "pmnsdel -n",
    "pmnsdel --namespace",
    "pmnsdel --dupok a.b",
    "pmnsdel ''",
    "pmnsdel",
    "pmnsmerge -D",
    "pmnsmerge --debug",
    "pmnsmerge --no root out",
    "pmnsmerge --d root out",
    "pmnsmerge --f root out",
    "pmnsmerge -1 root out",
    "pmnsadd -n",
    "pmnsadd -z root",
    "pmnsadd",
    // Numbers.
    "newhelp -v x -o out h",
    "newhelp -v 2x -o out h",
    "newhelp -v 02 -o out h",
    "newhelp -v +2 -o out h",
    "newhelp -v 0x2 -o out h",
    "newhelp -v 2.0 -o out h",
    "newhelp -v 4294967298 -o out h",
    "newhelp -v 99999999999999999999 -o out h",
    "newhelp -v '' -o out h",
    "newhelp -v + -o out h",
    "newhelp -v 3 -v 2 -o out h",
    "newhelp -v 2 -v 3 -o out h",
    "newhelp -v2 -o out h",
    "newhelp --version=x -o out h",
    "newhelp --version 2 -o out h",
    "chkhelp -v x compiled",
    "chkhelp -v '' compiled",
    "chkhelp -v 02 compiled",
    "chkhelp -v 3 -v 2 compiled",
    "chkhelp -v2 -O compiled a.b",
    // The last of several arguments counts.
    "newhelp -n nosuch -n root -o out1 -o out2 h",
    "pmnsdel -n nosuch -n root a.b",
];

#[test]
#[ignore = "needs PCP"]
// Slow: each command line runs PCP's command and ours, twice.
fn options_and_operands_are_those_of_pcp() {
    let mut differing = Vec::new();
    for (line, posix) in LINES.iter().flat_map(|line| [(line, false), (line, true)]) {
        let (name, words) = split(line);
        let theirs = if name == "pmgenmap" { "/usr/bin".as_ref() } else { Path::new(THEIRS) };
        let [theirs, ours] = [theirs.join(name), ours(name)].map(|program| run(&program, &words, posix));
        if ours != theirs {
            differing.push(format!(
                "{line} ({})\n--- PCP's\n{theirs}\n--- ours\n{ours}\n",
                if posix { "POSIX" } else { "" }
            ));
        }
    }
    assert!(differing.is_empty(), "{} of {} differ:\n{}", differing.len(), 2 * LINES.len(), differing.join("\n"));
}

/// PCP's commands pass these names on to `pmcpp`, `grep` and `cat`, which take them for options.
#[test]
fn a_file_may_have_the_name_of_an_option() {
    for (line, made) in [
        ("newhelp -n -n h", "h.pag"),
        ("newhelp -n -- -o out h", "out.pag"),
        ("newhelp --namespace -x -o -out -- -h", "-out.pag"),
        ("pmnsmerge -- -n -x -out", "-out"),
    ] {
        let (name, words) = split(line);
        let (output, dir) = start(&ours(name), &words, false);
        assert!(output.status.success() && dir.path().join(made).exists(), "{line}: {output:?}");
    }
    for (line, file) in [("pmnsdel -n -n a.b", "-n"), ("pmnsdel a.b --namespace --", "--"), ("pmnsdel -n-x a.b", "-x")]
    {
        let (name, words) = split(line);
        let (output, dir) = start(&ours(name), &words, false);
        let left = fs::read_to_string(dir.path().join(file)).unwrap();
        assert!(output.status.success() && !left.contains("1:2:3") && left.contains("1:2:4"), "{line}: {left}");
    }
}

/// A FIFO without a writer, a device without end and a file of a terabyte are refused, wherever a file is read.
#[test]
// Slow: each command runs for each file.
fn what_is_no_file_is_refused_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let [fifo, huge] = ["fifo", "huge"].map(|name| dir.path().join(name));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    for suffix in [".dir", ".pag"] {
        nix::unistd::mkfifo(&dir.path().join(format!("fifo{suffix}")), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    fs::write(dir.path().join("root"), ROOT).unwrap();
    fs::write(dir.path().join("h"), HELP).unwrap();
    let run = |line: &str, variable: &str, value: &str| {
        let (name, words) = split(line);
        let mut command = Command::new("timeout");
        command.arg("30").arg(ours(name)).args(words).current_dir(dir.path()).stdin(Stdio::null());
        command.env("PMNS_DEFAULT", "root").env(variable, value).output().unwrap()
    };
    for file in ["fifo", "/dev/zero", "huge"] {
        for line in [
            "newhelp -n root -o out FILE",
            "newhelp -n FILE -o out h",
            "chkhelp FILE",
            "chkhelp -n FILE h",
            "pmnsmerge -f FILE out",
            "pmnsmerge -fa root FILE out",
            "pmnsadd -n root FILE",
            "pmnsadd -n FILE root",
            "pmnsdel -n FILE a.b",
            "pmgenmap FILE",
        ] {
            let output = run(&line.replace("FILE", file), "A", "");
            let code = output.status.code();
            assert!(code == Some(1) || code == Some(2), "{line} {file}: {output:?}");
        }
        let output = run("pmnsdel a.b", "PMNS_DEFAULT", file);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        // It counts as missing.
        assert!(run("newhelp -n root -o out h", "PCP_CONF", file).status.success(), "{file}");
    }
    let line = format!("{} -n root -o piped <(cat h)", ours("newhelp").display());
    let output = Command::new("bash").arg("-c").arg(line).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success() && dir.path().join("piped.pag").exists(), "{output:?}");
}
