//! Each template compiles, its tests pass, and it satisfies the rules of `dbpmda check`.
//!
//! The target folder is that of the workspace, in which most dependencies are compiled already. Nothing holds its lock
//! while tests run.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pcp_pdu::metadata::{Subject, TextKind};

/// Each template with the name of an agent. The names are as long as the one in the files, so that the lines stay as
/// rustfmt has formatted them.
const AGENTS: [(&str, &str); 5] = [
    ("simple", "firstone"),
    ("table", "secondly"),
    ("background", "thirdone"),
    ("dynamic", "fourthly"),
    ("events", "fifthone"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Returns a command that compiles without the network, in the target folder of the workspace.
fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env("CARGO_NET_OFFLINE", "true").env("CARGO_INCREMENTAL", "0");
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env_remove("RUSTFLAGS");
    command.env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
    command
}

fn pmda(dir: &Path, arguments: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_cargo-pmda"), dir).arg("pmda").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Returns the output of a command that succeeds.
fn succeeds(output: Output) -> String {
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    text
}

#[test]
// Slow: the package of each template is compiled.
fn each_template_compiles_is_tested_and_keeps_the_rules() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = root();
    for (template, name) in AGENTS {
        succeeds(pmda(scratch.path(), &["new", name, "-t", template, "--path", root.to_str().unwrap()]));
        let dir = scratch.path().join(name);
        // The versions of the dependencies are those of the repository, which are on this machine.
        fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
        assert_formatted(&dir);

        let tested = succeeds(command(env!("CARGO"), &dir).args(["test", "--lib"]).output().unwrap());
        assert!(tested.contains("2 passed; 0 failed") && !tested.contains("warning"), "{template}: {tested}");
        let mut check = vec!["check", "--store", "--limit", "60", "--timeout", "60"];
        if template == "events" {
            // A log that is on every host.
            check.extend(["--", "--file", "/etc/passwd"]);
        }
        let checked = succeeds(pmda(&dir, &check));
        assert!(!checked.contains("warning"), "{template}: {checked}");
        let names = succeeds(pmda(&dir, &["pmns"]));
        assert!(names.contains(&format!("{name} {{\n")), "{names}");
        assert!(succeeds(pmda(&dir, &["helptext"])).contains(&format!("@ {name}.")));
        shows_values(&dir, name);
    }
    options_of_the_agent_and_mistakes(&scratch.path().join(AGENTS[0].1), AGENTS[0].1);
}

/// The port of PCP's agent jbd2 has its metrics, and answers that it has no values yet.
#[test]
#[ignore = "needs PCP"]
// Slow: a package is compiled.
fn a_port_has_the_metrics_of_the_original() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = root();
    succeeds(pmda(scratch.path(), &["new", "porty", "--from", "jbd2", "--path", root.to_str().unwrap()]));
    let dir = scratch.path().join("porty");
    fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock")).unwrap();
    let tested = succeeds(command(env!("CARGO"), &dir).args(["test"]).output().unwrap());
    assert!(tested.contains("1 passed; 0 failed") && !tested.contains("warning"), "{tested}");

    let names = pmda(&dir, &["pmns"]);
    assert!(names.status.success(), "{names:?}");
    let file = scratch.path().join("names");
    fs::write(&file, names.stdout).unwrap();
    let load = |path: &Path| pmns::Loader::new().load(path).unwrap();
    let (ours, original) = (load(&file), pmapi::Config::load().pmdas_dir().join("jbd2"));
    let theirs = load(&original.join("root_jbd2"));
    let start = |program: &Path| {
        let mut command = Command::new(program);
        command.current_dir(scratch.path()).args(["-l", "log"]);
        pcp_collector::Launch::pipe(command).start().unwrap()
    };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut agents = (start(&original.join("pmdajbd2")), start(&target.join("debug/pmdaporty")));
    let mut metrics = 0;
    for theirs in theirs.root().leaves() {
        let ours = ours.lookup(&theirs.path().replace("jbd2.", "porty.")).unwrap();
        let theirs = theirs.pmid().unwrap();
        let (old, new) = (agents.0.desc(theirs).unwrap(), agents.1.desc(ours).unwrap());
        assert_eq!(
            (old.pmid.item(), old.ty, old.semantics, old.units),
            (ours.item(), new.ty, new.semantics, new.units)
        );
        assert_eq!(old.indom.map(|indom| indom.serial()), new.indom.map(|indom| indom.serial()));
        for kind in [TextKind::OneLine, TextKind::Help] {
            let [old, new] = [
                agents.0.text(Subject::Metric(theirs), kind).unwrap_or_default(),
                agents.1.text(Subject::Metric(ours), kind).unwrap_or_default(),
            ];
            assert_eq!(old.trim_end(), new.trim_end());
        }
        let answer = agents.1.value(ours).unwrap_err();
        assert_eq!(answer.code(), pmapi::Error::APPVERSION);
        metrics += 1;
    }
    assert_eq!(metrics, ours.root().leaves().count());
}

/// The first sample has values, also of an agent that is not ready at once.
fn shows_values(dir: &Path, name: &str) {
    let shown = succeeds(pmda(dir, &["run", "--samples", "1", "--json"]));
    let metric = format!("\"metric\":\"{name}.");
    assert!(shown.lines().any(|line| line.contains(&metric) && line.contains("\"value\"")), "{name}: {shown}");
}

fn assert_formatted(dir: &Path) {
    let mut rustfmt = command("rustfmt", dir);
    rustfmt.args(["--check", "--edition", "2024", "--config", "max_width=100,use_small_heuristics=Default"]);
    succeeds(rustfmt.args(["src/lib.rs", "src/main.rs"]).output().unwrap());
}

fn options_of_the_agent_and_mistakes(dir: &Path, name: &str) {
    let shown = succeeds(pmda(dir, &["run", "-s", "1", "--", "--limit", "7"]));
    assert!(shown.contains("value 7"), "{shown}");
    for task in ["run", "check", "pmns", "helptext"] {
        let refused = pmda(dir, &[task, "--", "--limit", "x"]);
        let said = text(&refused);
        assert!(!refused.status.success());
        assert!(said.contains(&format!("cargo-pmda: pmda{name}: invalid value 'x' for '--limit <LIMIT>'")), "{said}");
    }
    for task in ["run", "check", "pmns"] {
        let said = succeeds(pmda(dir, &[task, "--", "--help"]));
        assert!(said.contains(&format!("Usage: pmda{name} [OPTIONS]")), "{task}: {said}");
    }
    assert!(text(&pmda(dir, &["run", "--bin", "x"])).contains("has no binary x"));

    let file = dir.join("src/lib.rs");
    let good = fs::read_to_string(&file).unwrap();
    // A metric without help breaks a rule.
    fs::write(&file, good.replacen(".help(", ".clone(); let _ = (", 1)).unwrap();
    let broken = pmda(dir, &["check", "--limit", "60", "--timeout", "60"]);
    let said = text(&broken);
    assert_eq!(broken.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("no-help: {name}.fetches")), "{said}");

    // An option of the framework.
    fs::write(
        &file,
        good.replace("#[arg(long, default_value_t = 1.0)]", "#[arg(long = \"log\", default_value_t = 1.0)]"),
    )
    .unwrap();
    let taken = pmda(dir, &["run"]);
    let said = text(&taken);
    assert!(!taken.status.success() && said.contains("'--log' is in use by both"), "{said}");

    threads_and_names(dir, name, &good);
    fs::write(&file, good + "not rust").unwrap();
    let broken = pmda(dir, &["run"]);
    let said = text(&broken);
    assert!(!broken.status.success() && said.contains(&format!("cargo could not build package pmda-{name}")), "{said}");
}

/// A check notices a thread that panics, and metrics whose names do not begin with that of the agent.
fn threads_and_names(dir: &Path, name: &str, good: &str) {
    let file = dir.join("src/lib.rs");
    let start = "let options = Options::from_arg_matches(setup.options())?;";
    assert!(good.contains(start));
    let spawn = "std::thread::spawn(|| panic!(\"in a thread\")).join().ok();";
    fs::write(&file, good.replace(start, &format!("{start} {spawn}"))).unwrap();
    let panicked = pmda(dir, &["check", "--limit", "60", "--timeout", "60"]);
    let said = text(&panicked);
    assert_eq!(panicked.status.code(), Some(1), "{said}");
    assert!(said.contains("\npanic: src/lib.rs:") || said.starts_with("panic: src/lib.rs:"), "{said}");
    assert!(said.contains(": in a thread\n") && said.contains(", 1 breach\n"), "{said}");
    assert!(said.contains("The agent's log:\n  [") && said.contains("Error: panic at src/lib.rs:"), "{said}");

    fs::write(&file, good.replace(&format!("\"{name}.fetches\""), "\"elsewhere.fetches\"")).unwrap();
    let elsewhere = pmda(dir, &["check", "--limit", "60", "--timeout", "60"]);
    let said = text(&elsewhere);
    let warning = format!("warning: elsewhere.fetches: the name does not begin with {name}. and may collide");
    assert!(elsewhere.status.success() && said.contains(&warning), "{said}");
    assert_eq!(said.matches("warning: ").count(), 1, "{said}");
    names_warnings_and_panics(dir, name, good, start);
}

/// A check warns of another NAME, prints warnings in the log, and has the message of a panic in `new`.
fn names_warnings_and_panics(dir: &Path, name: &str, good: &str, start: &str) {
    let file = dir.join("src/lib.rs");
    let own = format!("const NAME: &'static str = \"{name}\"");
    assert!(good.contains(&own));
    let warn = format!("{start} pmda::tracing::warn!(\"/etc/x: not there\");");
    fs::write(&file, good.replace(&own, "const NAME: &'static str = \"another\"").replace(start, &warn)).unwrap();
    let another = pmda(dir, &["check", "--limit", "60", "--timeout", "60"]);
    let said = text(&another);
    let warning = format!("warning: the agent's NAME is another, and that of its program pmda{name}: ");
    assert!(another.status.success() && said.contains(&warning), "{said}");
    assert!(said.contains(&format!("warning: {name}.fetches: the name does not begin with another. and")), "{said}");
    assert!(
        said.contains("The agent's log has warnings:\n  [") && said.contains("Warning: /etc/x: not there\n"),
        "{said}"
    );

    fs::write(&file, good.replace(start, &format!("{start} assert_eq!(1, 2, \"no value\");"))).unwrap();
    for task in ["check", "run"] {
        let said = text(&pmda(dir, &[task]));
        assert!(said.contains(": the agent panicked at src/lib.rs:"), "{task}: {said}");
        assert!(said.contains(" failed: no value left: 1 right: 2\n"), "{task}: {said}");
    }
    // The view shows the panic of a metric, and not only that it failed.
    let limit = "            agent.limit\n";
    assert!(good.contains(limit));
    fs::write(&file, good.replace(limit, "assert!(agent.limit < 0.0, \"no limit\");agent.limit")).unwrap();
    let shown = succeeds(pmda(dir, &["run", "-s", "1"]));
    assert!(shown.contains("Error: the fetch panicked at src/lib.rs:") && shown.contains(": no limit\n"), "{shown}");
    trials(dir, &file, good, start);
    // Words that are no options, which the agent would ignore, and another domain, are not what Install may keep.
    fs::write(&file, good).unwrap();
    let domain = good.split("const DOMAIN: u16 = ").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    for (words, expected) in [
        (&["stray"][..], "unexpected argument \"stray\""),
        (&["-d", domain, "-d", "9"], "--domain is there twice; Install has"),
    ] {
        let refused = pmda(dir, &[&["check", "--"][..], words].concat());
        assert!(!refused.status.success() && text(&refused).contains(expected), "{}", text(&refused));
    }
}

/// A trial does not change the instance numbers of the installed PCP, and shows what `new` has logged before it failed.
fn trials(dir: &Path, file: &Path, good: &str, start: &str) {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir_all(host.path().join("config/pmda")).unwrap();
    let numbers = "let mut files = setup.cache(pmda::prelude::Serial::new(9)).whole_names().persistent(); \
                   files.store(\"x\", ())?; files.save()?; \
                   pmda::tracing::warn!(\"{} has numbers\", setup.config().var_dir().display());";
    fs::write(file, good.replace(start, &format!("{start} {numbers}"))).unwrap();
    for task in [&["check", "--limit", "60", "--timeout", "60"][..], &["run", "-s", "1"], &["pmns"], &["helptext"]] {
        let mut tried = command(env!("CARGO_BIN_EXE_cargo-pmda"), dir);
        let said = succeeds(tried.args(task).env("PCP_VAR_DIR", host.path()).output().unwrap());
        assert!(task[0] != "check" || said.contains("/var has numbers\n"), "{said}");
        assert_eq!(fs::read_dir(host.path().join("config/pmda")).unwrap().count(), 0, "{task:?}");
    }
    let hidden =
        "pmda::tracing::warn!(\"spool.conf: line 1: not DIR\"); if true { return Err(\"no directory\".into()); }";
    fs::write(file, good.replace(start, &format!("{start} {hidden}"))).unwrap();
    for task in ["check", "run", "pmns"] {
        let said = text(&pmda(dir, &[task]));
        assert!(
            said.contains("The agent's log:\n  [") && said.contains("Warning: spool.conf: line 1: not DIR\n"),
            "{said}"
        );
        assert!(said.contains(": no directory\n"), "{task}: {said}");
    }
}
