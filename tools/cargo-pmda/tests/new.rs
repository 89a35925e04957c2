//! `cargo pmda new` on the command line: what it creates, and what it refuses.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the command in a folder, on a host without PCP.
fn run(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-pmda"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PCP_")) {
        command.env_remove(name);
    }
    for name in ["PCP_VAR_DIR", "PCP_PMDAS_DIR", "PCP_PMCDCONF_PATH", "PCP_DIR", "PCP_CONF"] {
        command.env(name, "/nonexistent");
    }
    command.args(arguments).current_dir(dir).output().unwrap()
}

/// Returns the error of a command that fails.
fn refused(dir: &Path, arguments: &[&str]) -> String {
    let output = run(dir, arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn it_creates_a_package() {
    let dir = tempfile::tempdir().unwrap();
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    // Both as cargo starts it, and by itself.
    for (words, name, domain) in [(&["pmda", "new"][..], "one", 409), (&["new"], "two", 498)] {
        let output = run(dir.path(), &[words, &[name]].concat());
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("the agent {name} with domain {domain} in the folder {name}.")), "{said}");
        assert!(said.contains(&format!("change DOMAIN in {name}/src/lib.rs; cargo pmda install --domain N")), "{said}");
        let read = |file: &str| fs::read_to_string(dir.path().join(name).join(file)).unwrap();
        assert!(said.contains(&format!("Its crates are those of the clone {};", clone.display())), "{said}");
        let note =
            "# Of a clone of pcp-rs beside this package: if it is elsewhere, change this path and the one below.";
        let manifest = read("Cargo.toml");
        let start = format!("[dependencies]\n{note}\npcp-pmda = {{ path = \"../");
        let path = manifest.split_once(&start).unwrap().1.split_once('"').unwrap().0;
        let found = dir.path().join(name).join("..").join(path).canonicalize().unwrap();
        assert_eq!(found, clone.join("pmda").canonicalize().unwrap());
        assert!(!read("Cargo.toml").contains("[workspace]"));
        assert!(read("src/lib.rs").contains(&format!("const NAME: &'static str = \"{name}\";")));
        assert_eq!(read(".gitignore"), "/target\n*.log\n*.log.prev\n");
    }
    assert!(run(dir.path(), &["new", "three", "--domain", "444", "-t", "table"]).status.success());
    let agent = fs::read_to_string(dir.path().join("three/src/lib.rs")).unwrap();
    assert!(agent.contains("const DOMAIN: u16 = 444;") && agent.contains("Table"));
}

#[test]
fn agents_that_are_not_installed_yet_have_domains_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let domain = |folder: &Path, name: &str| {
        let output = run(folder, &["new", name]);
        assert!(output.status.success(), "{output:?}");
        let agent = fs::read_to_string(folder.join(name).join("src/lib.rs")).unwrap();
        agent.lines().find_map(|line| line.trim().strip_prefix("const DOMAIN: u16 = ")).unwrap().to_owned()
    };
    // By their names, these two have the same one.
    assert_eq!((domain(dir.path(), "my_simple"), domain(dir.path(), "till")), ("429;".to_owned(), "428;".to_owned()));
    let e = refused(dir.path(), &["new", "x", "--domain", "428"]);
    assert!(e.contains("domain 428 belongs to the agent in /") && e.ends_with("/till\n"), "{e}");
    // The members of a workspace are in its folders.
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("Cargo.toml"), "[workspace]\nmembers = [\"*/*\"]\n").unwrap();
    let [one, other] = ["one", "other"].map(|folder| workspace.path().join(folder));
    fs::create_dir(&one).unwrap();
    fs::create_dir(&other).unwrap();
    assert_eq!((domain(&one, "my_simple"), domain(&other, "till")), ("429;".to_owned(), "428;".to_owned()));
}

/// One who ports an agent of PCP wants its name and its domain.
#[test]
fn a_new_agent_may_replace_one_of_pcp() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, name, domain) in [
        (&["new", "zswap", "--replace"][..], "zswap", 125),
        (&["new", "my_linux", "--replace", "--domain", "60"], "my_linux", 60),
        (&["new", "nvidia", "--replace", "--domain", "400"], "nvidia", 400),
    ] {
        let output = run(dir.path(), arguments);
        assert!(output.status.success(), "{output:?}");
        let agent = fs::read_to_string(dir.path().join(name).join("src/lib.rs")).unwrap();
        assert!(agent.contains(&format!("const DOMAIN: u16 = {domain};")), "{name}: {agent}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("cargo pmda install --replace installs it in place of"), "{said}");
    }
    // The agent beside it stays.
    let e = refused(dir.path(), &["new", "other", "--replace", "--domain", "60"]);
    assert!(e.contains("domain 60 belongs to the agent in /") && e.ends_with("/my_linux\n"), "{e}");
}

/// Before an agent in C is installed, only the source of its help is there.
#[test]
#[ignore = "needs PCP"]
fn a_port_has_the_help_of_an_agent_that_is_not_installed() {
    let dir = tempfile::tempdir().unwrap();
    // An agent in C reads the compiled help from the directory of agents.
    let new = |name: &str, pmdas: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-pmda"));
        command.args(["new", name, "--from", "mounts"]).env("PCP_PMDAS_DIR", dir.path().join(pmdas));
        let output = command.current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let source = fs::read_to_string(dir.path().join(name).join("src/lib.rs")).unwrap();
        (String::from_utf8(output.stdout).unwrap(), source)
    };
    // A copy without the compiled help, and one without any.
    let original = pmapi::Config::load().pmdas_dir().join("mounts");
    for name in ["one/mounts", "two/mounts"] {
        let copy = dir.path().join(name);
        fs::create_dir_all(&copy).unwrap();
        for file in ["pmdamounts", "domain.h", "root", "pmns", "help"] {
            fs::copy(original.join(file), copy.join(file)).unwrap();
        }
    }
    fs::remove_file(dir.path().join("two/mounts/help")).unwrap();
    let (said, source) = new("porty", "one");
    assert!(source.contains("units and help. The help is that of the original") && !said.contains("no help"), "{said}");
    let text = fs::read_to_string(dir.path().join("one/mounts/help")).unwrap();
    let mut metrics = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("@ ")) {
        let (name, oneline) = line.split_once(' ').unwrap();
        assert!(source.contains(&format!("{:?}", oneline.trim())), "{name}: {source}");
        metrics += 1;
    }
    assert!(metrics > 5);
    let (said, source) = new("bare", "two");
    assert!(said.contains("The original has no help"), "{said}");
    assert!(source.contains("//! Agent `bare`") && !source.contains(" help. The help is that"), "{source}");
    assert!(!source.contains(".help("), "{source}");
}

/// The first lines that an agent prints say what is wrong; its usage follows.
#[test]
fn an_agent_that_does_not_start_says_why() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let agent = dir.path().join("broken");
    fs::create_dir(&agent).unwrap();
    fs::write(agent.join("domain.h"), "#define BROKEN 499\n").unwrap();
    fs::write(agent.join("root"), "root {\n broken 499:0:0\n}\n").unwrap();
    let script = "#!/bin/sh\n(echo; echo 'no \\x1b server'; seq 2 12) >&2\nexit 1\n";
    fs::write(agent.join("pmdabroken"), script).unwrap();
    fs::set_permissions(agent.join("pmdabroken"), fs::Permissions::from_mode(0o755)).unwrap();
    let e = refused(dir.path(), &["new", "x", "--from", "broken"]);
    assert!(e.starts_with("The agent printed:\n  no ") && e.contains("\n  10\n  … 2 more lines\ncargo-pmda: "), "{e}");
    assert!(e.ends_with("; give the agent's options after --, or run its Install first\n"), "{e}");
    assert!(!e.contains('\u{1b}'), "{e}");

    // A script that fails when it is asked for its names, and prints why to standard output.
    fs::remove_file(agent.join("pmdabroken")).unwrap();
    fs::write(agent.join("pmdabroken.py"), "print('no module')\nraise SystemExit(1)\n").unwrap();
    let e = refused(dir.path(), &["new", "x", "--from", "broken"]);
    assert!(
        e.starts_with("The agent printed:\n  no module\ncargo-pmda: ") && e.contains("exit status: 1; give"),
        "{e}"
    );
    assert!(!dir.path().join("x").exists());
}

/// A package beside a workspace has one of its own, with a profile. A member has neither: cargo would refuse the one, and
/// ignore the other.
#[test]
fn cargo_accepts_the_package_and_the_workspace_around_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("agents")).unwrap();
    let manifest = "\u{feff}[workspace] # all\r\nresolver = \"3\"\r\nmembers = ['agents/*']\r\n";
    fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
    for (folder, name, is_member) in [("agents", "one", true), (".", "two", false)] {
        let output = run(&dir.path().join(folder), &["new", name]);
        assert!(output.status.success(), "{output:?}");
        let package = dir.path().join(folder).join(name);
        let text = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        assert_eq!(text.contains("[workspace]"), !is_member, "{text}");
        assert_eq!(
            text.contains("[profile.release]\nlto = true\ncodegen-units = 1\nstrip = true\n"),
            !is_member,
            "{text}"
        );
        for folder in [&package, dir.path()] {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(folder);
            let output = cargo.output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        }
    }
}

/// `--path` and the folders above are the caller's, but what is in them may be anybody's.
#[test]
fn what_is_no_manifest_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let clone = dir.path().join("clone");
    fs::create_dir_all(clone.join("pmda")).unwrap();
    let fifo = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fifo(&clone.join("pmda/Cargo.toml"));
    fifo(&dir.path().join("Cargo.toml"));
    let clone = clone.to_str().unwrap();
    let expected = format!("cargo-pmda: {clone}: not a clone of pcp-rs: it has no crate pcp-pmda\n");
    assert_eq!(refused(dir.path(), &["new", "x", "--path", clone]), expected);
    fs::remove_file(Path::new(clone).join("pmda/Cargo.toml")).unwrap();
    let large = fs::File::create(Path::new(clone).join("pmda/Cargo.toml")).unwrap();
    large.set_len(1 << 40).unwrap();
    assert_eq!(refused(dir.path(), &["new", "x", "--path", clone]), expected);
}

#[test]
fn it_refuses_with_one_sentence_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let rule = "an agent's name has lower-case letters, digits and _, and begins with a letter";
    for name in ["Hello", "9x", "a-b", "a.b", "../x", "/tmp/x", "", "ä", "a\u{1b}[2J", "self::x"] {
        let e = refused(dir.path(), &["new", name]);
        assert_eq!(e.lines().count(), 1, "{e}");
        assert!(e.contains(rule) && !e.contains('\u{1b}'), "{e}");
    }
    let replaceable = |what: &str| format!("{what}, which --replace lets the new agent replace");
    let long = "x".repeat(41);
    let checkout = dir.path().to_str().unwrap();
    for (arguments, expected) in [
        (&["linux"][..], replaceable("the name linux belongs to PCP's agent linux")),
        (&["simple"], replaceable("the name simple belongs to PCP's agent simple")),
        (&["nvidia"], replaceable("the name nvidia belongs to PCP's agent nvidia")),
        (&["kernel", "--replace"], "the name kernel belongs to metrics of PCP, kernel.*".to_owned()),
        (&["kernel"], "the name kernel belongs to metrics of PCP, kernel.*".to_owned()),
        (&["x", "--domain", "60"], replaceable("domain 60 belongs to PCP's agent linux")),
        (&[&long], format!("{long:?}: an agent's name has at most 40 characters")),
        (&["x", "--path", "/nonexistent"], "/nonexistent: No such file or directory (os error 2)".to_owned()),
        (
            &["linux", "--domain", "60", "--path", "/nonexistent"],
            replaceable("the name linux belongs to PCP's agent linux")
                + "; "
                + &replaceable("domain 60 belongs to PCP's agent linux")
                + "; /nonexistent: No such file or directory (os error 2)",
        ),
        (&["x", "--path", checkout], format!("{checkout}: not a clone of pcp-rs: it has no crate pcp-pmda")),
    ] {
        assert_eq!(refused(dir.path(), &[&["new"], arguments].concat()), format!("cargo-pmda: {expected}\n"));
    }
    for (arguments, expected) in [
        (&["new", "x", "--domain", "0"][..], "0 is not in 1..=510"),
        (&["new", "x", "--domain", "511"], "511 is not in 1..=510"),
        (&["new", "x", "--domain", "abc"], "invalid value 'abc' for '--domain <N>'"),
        (&["new", "x", "--template", "nope"], "[possible values: simple, table, background, events, dynamic]"),
        (&["new"], "<NAME>"),
        (&["new", "x", "y"], "unexpected argument 'y'"),
        (&["nonsense"], "unrecognized subcommand 'nonsense'"),
        (&["install"], "PCP is not installed (there is no /nonexistent/etc/pcp.env)"),
        (&["remove"], "PCP is not installed (there is no /nonexistent/etc/pcp.env)"),
        (&["run", "-t", "soon"], "invalid value 'soon' for '--interval <TIME>'"),
        (&["run"], "could not find `Cargo.toml`"),
        (&["helptext"], "cargo pmda --help lists the commands"),
        (&["help", "nonsense"], "unrecognized subcommand 'nonsense'"),
        (&["check", "--manifest-path", "/nonexistent"], "manifest path `/nonexistent` does not exist"),
        (&["check", "--limit", "soon"], "invalid value 'soon' for '--limit <SECONDS>'"),
        (&["check", "--limit=-1"], "invalid value '-1' for '--limit <SECONDS>'"),
        (&["check", "--timeout", "nan"], "invalid value 'nan' for '--timeout <SECONDS>'"),
        (&["pmns", "--release", "--profile", "dev"], "cannot be used with"),
        (&["install", "--dso", "--inet", "4000"], "cannot be used with"),
        (&["install", "--inet", "0"], "not a port from 1 to 65535"),
        (&["install", "--ipv6", "65536"], "not a port from 1 to 65535"),
    ] {
        let e = refused(dir.path(), arguments);
        assert!(e.contains(expected), "{arguments:?}: {e}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn help_is_that_of_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let said = |arguments: &[&str]| {
        let output = run(dir.path(), arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(said(&["pmda", "help"]), said(&["--help"]));
    for command in ["new", "run", "check", "install", "remove", "pmns", "helptext"] {
        let text = said(&["help", command]);
        assert_eq!(text, said(&[command, "--help"]));
        assert!(text.contains(&format!("Usage: cargo pmda {command} ")), "{text}");
    }
}

#[test]
fn it_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("hello")).unwrap();
    fs::write(dir.path().join("hello/mine"), "mine").unwrap();
    fs::write(dir.path().join("file"), "mine").unwrap();
    std::os::unix::fs::symlink("/nonexistent", dir.path().join("link")).unwrap();
    for name in ["hello", "file", "link"] {
        let expected = format!("cargo-pmda: {name} exists already, and nothing is overwritten\n");
        assert_eq!(refused(dir.path(), &["new", name]), expected);
    }
    assert_eq!(fs::read_dir(dir.path().join("hello")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), "mine");
}
