//! Comparison of pmnsmerge, pmnsadd and pmnsdel with those of the installed PCP: files, output and exit codes.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const THEIRS: &str = "/usr/lib/pcp/bin";

const FILES: &[(&str, &str)] = &[
    ("null", "root {\n}\n"),
    ("one", "root {\n  one\n  two 1:1:2\n}\none {\n  a 1:1:1\n  deep\n}\none.deep { b 1:2:1 }\n"),
    ("two", "#define _DATESTAMP 20020101\nroot { three one new 9:9:9 }\nthree { c 1:2:1 }\none { a 1:1:5 d 4:*:* }\n"),
    ("old", "#define\t_DATESTAMP  19990101 \nroot { old 1:1:1 }\n"),
    ("dup", "root {\n  x 1:1:1\n  y 1:1:1\n}\n"),
    ("bad", "root {\n  x 1:1:1 2:2:2\n}\n"),
    ("twice", "root {\n  x 1:1:1\n  y\n  x\n}\n"),
    ("split", "root {\n  x\n}\n"),
    ("lost", "root {\n}\nx {\n}\ny.z {\n}\n"),
    ("cpp", "#ifdef A\nroot {\n}\n"),
    ("include", "#include \"nosuch\"\n"),
    ("agent", "/*\n * some agent\n */\nfoo.bar {\n  m1 7:1:1\n  sub\n}\n\nfoo.bar.sub {\n  m2 7:1:2\n}\n"),
    ("agent2", "foo {\n  m3 7:1:3\n}\n"),
    ("agent3", "root {\n  one\n  dyn 8:*:*\n}\none {\n  a 1:1:9\n}\n"),
    ("bare", "  dyn\t8:*:*\n  m1 7:1:1\n"),
    ("empty", ""),
    ("agent4", "foo {\n  m4\n"),
    ("stars", " # 9 \"other\"\nroot {\n  x 253\n  y 7:*:*\n  z 510 a 1:1:1\n}\n"),
    ("over", "\t # 9 \"other\"\nroot {\n  x 511\n}\n"),
    ("agent5", "foo {\n  m4 5000:1:1\n}\n"),
];

/// Runs a script and returns, for each of its commands, the output, the exit status and the files afterwards.
fn play(programs: Option<&Path>, script: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        fs::write(dir.path().join(name), text).unwrap();
    }
    script.lines().map(|line| play_line(programs, dir.path(), line)).collect()
}

fn play_line(programs: Option<&Path>, dir: &Path, line: &str) -> String {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap();
    let program = match (programs, name) {
        (_, "cp") => "/bin/cp".into(),
        (_, "chmod") => "/bin/chmod".into(),
        (Some(programs), _) => programs.join(name),
        (None, "pmnsmerge") => env!("CARGO_BIN_EXE_pmnsmerge").into(),
        (None, "pmnsadd") => env!("CARGO_BIN_EXE_pmnsadd").into(),
        (None, _) => env!("CARGO_BIN_EXE_pmnsdel").into(),
    };
    let mut command = Command::new(program);
    // With an empty PCP_DIR PCP's pmnsadd finds pcp.env and pmnsmerge below /.
    command.args(words).current_dir(dir).env("PCP_DIR", "").env("PMNS_DEFAULT", "default").stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes| {
        // The usage of pmnsdel lists this option since PCP 7.
        let text = testkit::without_usage_words(&String::from_utf8(bytes).unwrap()).replace("-D DBG, --debug=DBG ", "");
        // PCP's pmnsadd is a script that runs pmnsmerge, whose messages begin with its own name.
        if name == "pmnsadd" { text.replace("pmnsmerge: ", "pmnsadd: ") } else { text }
    };
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let mode = entry.metadata().unwrap().permissions().mode();
        let content = fs::read_to_string(entry.path()).unwrap();
        files.insert(entry.file_name(), format!("{mode:o} {content}"));
    }
    for (name, text) in FILES {
        if files.get(std::ffi::OsStr::new(name)).is_some_and(|file| *file == format!("100644 {text}")) {
            files.remove(std::ffi::OsStr::new(name));
        }
    }
    format!("{line}\n{}\n{}\n{}\n{files:#?}", output.status, text(output.stdout), text(output.stderr))
}

fn assert_same(script: &str) {
    for (ours, theirs) in play(None, script).iter().zip(&play(Some(Path::new(THEIRS)), script)) {
        assert_eq!(ours, theirs);
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's command and ours run about 120 times each.
fn pmnsmerge() {
    for verbosity in ["", "-v ", "-vv ", "-a -v "] {
        for inputs in
            ["null", "one", "one two", "two one", "two old null one", "old two", "dup", "dup one", "null null"]
        {
            for unique in ["", "-x ", "--nodups "] {
                assert_same(&format!("pmnsmerge {verbosity}{unique}{inputs} out"));
            }
        }
    }
    for script in [
        "pmnsmerge one out\npmnsmerge two out\npmnsmerge -f two out\npmnsmerge --force one out out2",
        "pmnsmerge",
        "pmnsmerge one",
        "pmnsmerge -z one out",
        "pmnsmerge --nosuch one out",
        "pmnsmerge --force=1 one out",
        "pmnsmerge -D nosuch one out",
        "pmnsmerge -D",
        "pmnsmerge --debug",
        "pmnsmerge -? one out",
        "pmnsmerge --he",
        "pmnsmerge -d one out",
        "pmnsmerge --dupok -x dup out",
        "pmnsmerge nosuch out",
        "pmnsmerge one nosuch out",
        "pmnsmerge one /nosuch/out",
        "pmnsmerge one bad out",
        "pmnsmerge twice out",
        "pmnsmerge one split out",
        "pmnsmerge lost out",
        "pmnsmerge cpp out",
        "pmnsmerge include out",
        "pmnsmerge stars out",
        "pmnsmerge over out",
        "pmnsmerge one out -v -- two",
    ] {
        assert_same(script);
    }
}

#[test]
#[ignore = "needs PCP"]
fn pmnsdel() {
    for script in [
        "pmnsdel -n one two",
        "pmnsdel -n one one",
        "pmnsdel -n one one.a\npmnsdel -n one one.deep.b\npmnsdel -n one two\npmnsdel -n one two",
        "pmnsdel -n one two one.a one",
        "pmnsdel -n one two nosuch",
        "pmnsdel -n one one.nosuch",
        "pmnsdel -n one one.a.b",
        "pmnsdel --namespace=two new three",
        "chmod 600 one\npmnsdel -n one two",
        "cp one default\npmnsdel one.deep",
        "pmnsdel two",
        "pmnsdel",
        "pmnsdel -n",
        "pmnsdel --namespace",
        "pmnsdel -n one",
        "pmnsdel -d -n one two",
        "pmnsdel -? -n one two",
        "pmnsdel -n nosuch two",
        "pmnsdel -n bad x",
        "pmnsdel -n twice x",
    ] {
        assert_same(script);
    }
}

#[test]
#[ignore = "needs PCP"]
fn pmnsadd() {
    for script in [
        "pmnsadd -n one agent\npmnsadd -n one agent2\npmnsadd -n one agent\npmnsdel -n one foo",
        "pmnsadd -n null agent2\npmnsadd -n null agent\npmnsadd -n null agent3",
        "pmnsadd -n one agent3",
        "pmnsadd -n one bare",
        "pmnsadd -n one empty",
        "cp one default\npmnsadd agent",
        "pmnsadd",
        "pmnsadd -n one",
        "pmnsadd -n one agent agent2",
        "pmnsadd -d -n one agent",
        "pmnsadd -n one nosuch",
        "pmnsadd -?",
    ] {
        assert_same(script);
    }
}

/// Merges the name spaces that PCP installs, and adds the names of each of its agents.
#[test]
#[ignore = "needs PCP"]
// Slow: the name spaces of all installed agents.
fn installed_agents() {
    let roots = fs::read_dir("/usr/lib/pcp/pmns").unwrap().map(|entry| entry.unwrap().path());
    let mut roots: Vec<_> =
        roots.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("root_")).collect();
    roots.sort();
    let dir = tempfile::tempdir().unwrap();
    let run = |program: &Path, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(dir.path()).env("PCP_DIR", "").output().unwrap();
        (output.status, String::from_utf8(output.stderr).unwrap())
    };
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    let inputs: Vec<_> = roots.iter().map(|path| path.to_str().unwrap()).collect();
    for (program, out) in
        [(&*Path::new(THEIRS).join("pmnsmerge"), "theirs"), (env!("CARGO_BIN_EXE_pmnsmerge").as_ref(), "ours")]
    {
        assert!(run(program, &[&inputs[..], &[out]].concat()).0.success());
    }
    assert_eq!(read("ours"), read("theirs"));

    let mut added = 0;
    for agent in fs::read_dir("/var/lib/pcp/pmdas").unwrap().map(|entry| entry.unwrap().path()) {
        let (Ok(pmns), Ok(domain)) =
            (fs::read_to_string(agent.join("pmns")), fs::read_to_string(agent.join("domain.h")))
        else {
            continue;
        };
        let mut define = domain.lines().find_map(|line| line.strip_prefix("#define ")).unwrap().split_whitespace();
        let (symbol, number) = (define.next().unwrap().trim_start_matches("PMDA"), define.next().unwrap());
        fs::write(dir.path().join("names"), pmns.replace(&format!("{symbol}:"), &format!("{number}:"))).unwrap();
        fs::copy(dir.path().join("theirs"), dir.path().join("ours")).unwrap();
        let ours = run(env!("CARGO_BIN_EXE_pmnsadd").as_ref(), &["-n", "ours", "names"]);
        let theirs = run(&Path::new(THEIRS).join("pmnsadd"), &["-n", "theirs", "names"]);
        assert_eq!(ours, theirs, "{}", agent.display());
        assert_eq!(read("ours"), read("theirs"), "{}", agent.display());
        added += i32::from(ours.0.success());
    }
    assert!(added > 0, "no agent with a name space of its own is installed");
}

#[test]
fn pmnsadd_changes_nothing_when_it_fails() {
    for (file, reason) in [
        ("agent5", "[agent5:2] Error Parsing ASCII PMNS: Illegal domain field in PMID"),
        ("agent4", "Cannot find definition for non-terminal node \"foo.m4\""),
        ("lost", "Disconnected subtree"),
        ("include", "Cannot open file for #include"),
    ] {
        let said = play(None, &format!("pmnsadd -n one {file}")).remove(0);
        assert!(said.contains(reason), "{said}");
        assert!(said.contains("exit status: 1\n"), "{said}");
        assert!(said.contains("No changes have been made to the PMNS file \"one\"\n"), "{said}");
        assert!(said.ends_with("{}"), "{said}");
    }
}

#[test]
fn the_name_of_a_file_is_no_text_of_the_name_space() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("root"), "root {\n}\n").unwrap();
    let file = "a\"\nfoo { evil 1:1:2 }\n# 1 \"";
    fs::write(dir.path().join(file), "foo {\nm 1:1:1\n}\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmnsadd"));
    assert!(command.args(["-n", "root", file]).current_dir(dir.path()).status().unwrap().success());
    let tree = pmns::Loader::new().load(&dir.path().join("root")).unwrap();
    assert_eq!(tree.root().leaves().map(pmns::Node::path).collect::<Vec<_>>(), ["foo.m"]);
}

#[test]
fn no_update_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("root"), "root {\n}\n").unwrap();
    let children: Vec<_> = (0..16)
        .map(|n| {
            fs::write(dir.path().join(format!("a{n}")), format!("a{n} {{\nm 1:1:{n}\n}}\n")).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_pmnsadd"));
            command.args(["-n", "root", &format!("a{n}")]).current_dir(dir.path()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let tree = pmns::Loader::new().load(&dir.path().join("root")).unwrap();
    assert_eq!(tree.root().leaves().count(), 16);
}

#[test]
fn a_link_in_the_place_of_a_name_space_is_not_followed() {
    let attacker = testkit::Attacker::swaps(["root.new", ".root.new", "merged"]);
    let dir = attacker.dir();
    fs::write(dir.join("one"), FILES[1].1).unwrap();
    for _ in 0..30 {
        // `root` may be a link now: the attacker can replace the temporary file by one before it is renamed.
        let _ = fs::remove_file(dir.join("root"));
        fs::write(dir.join("root"), FILES[1].1).unwrap();
        for (program, args) in [
            (env!("CARGO_BIN_EXE_pmnsdel"), &["-n", "root", "one"][..]),
            (env!("CARGO_BIN_EXE_pmnsmerge"), &["-f", "one", "merged"]),
        ] {
            // The commands may fail, because the attacker may remove files from its own directory.
            Command::new(program).args(args).current_dir(dir).stderr(Stdio::null()).status().unwrap();
        }
    }
    attacker.has_failed();
}

/// Commands do not wait for locks that any user can hold: on the directory, or on the name space itself.
#[test]
fn a_lock_of_a_stranger_delays_no_update() {
    use nix::fcntl::{Flock, FlockArg};
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::write(&root, FILES[1].1).unwrap();
    let _held = [dir.path(), &root]
        .map(|path| Flock::lock(fs::File::open(path).unwrap(), FlockArg::LockExclusive).map_err(|(_, e)| e).unwrap());
    let mut pmnsdel = Command::new(env!("CARGO_BIN_EXE_pmnsdel"));
    let mut child = pmnsdel.args(["-n", "root", "two"]).current_dir(dir.path()).spawn().unwrap();
    // Up to 30 s, for a busy machine.
    for _ in 0..300 {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success() && !fs::read_to_string(&root).unwrap().contains("two"));
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    child.kill().unwrap();
    panic!("pmnsdel waits for the lock");
}

#[test]
fn a_full_disk_leaves_the_old_name_space() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..200).map(|n| format!("name{n} 1:1:{n}\n")).collect();
    let text = format!("root {{\n{text}}}\n");
    fs::write(dir.path().join("root"), &text).unwrap();
    fs::write(dir.path().join("agent"), "foo {\nm 7:1:1\n}\n").unwrap();
    for command in ["pmnsdel -n root name0", "pmnsadd -n root agent"] {
        let (program, args) = command.split_once(' ').unwrap();
        let program = if program == "pmnsadd" { env!("CARGO_BIN_EXE_pmnsadd") } else { env!("CARGO_BIN_EXE_pmnsdel") };
        // A limit on the file size simulates a full disk: writes beyond it fail with an error.
        let mut sh = Command::new("sh");
        sh.args(["-c", "ulimit -f 1; trap '' XFSZ; exec \"$@\"", "sh", program]).args(args.split(' '));
        let output = sh.current_dir(dir.path()).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(dir.path().join("root")).unwrap(), text);
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["agent", "root"]);
    }
}
