//! The program's output without a terminal, and the end of its agents.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

fn viewer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pcp-agents"));
    // Without pcp.conf, the PCP of this machine has no effect. Neither have its applications, which may be thousands.
    command
        .env("PCP_CONF", "/nonexistent/pcp.conf")
        .env("PCP_TMP_DIR", env!("CARGO_TARGET_TMPDIR"))
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    viewer(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Returns whether a process is running. A zombie is not.
fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

#[test]
fn two_samples_of_all_agents() {
    let output = run(&["-t", "0.1"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.starts_with("# sample ")).count(), 2);
    let simple = ["simple.numfetch", "simple.color", "simple.time.user", "simple.time.sys", "simple.now"];
    let others = ["trivial.time", "derived.color.total", "showcase.counter.u64", "mmv.control.files"];
    for metric in simple.into_iter().chain(others) {
        assert_eq!(text.lines().filter(|line| *line == metric).count(), 1, "{metric} in the second sample");
        assert_eq!(text.lines().filter(|line| line.starts_with(&format!("{metric} ["))).count(), 1, "{metric}");
    }
    // The agents know the client, so that its metrics have values.
    assert!(text.contains(&format!("showcase.client.uid\n    value {}\n", geteuid())), "{text}");
    assert!(!text.contains("Missing metric value(s)"), "{text}");
    assert!(text.contains("    inst [1 or \"green\"] value 101\n"), "{text}");
    assert!(text.contains("    inst [1 or \"green\"] value 102  (+1)\n"), "{text}");
    assert!(text.contains("    Data Type: 64-bit unsigned int  InDom: PM_INDOM_NULL 0xffffffff\n"), "{text}");
}

#[test]
fn json_lines() {
    let output = run(&["--json", "-t", "0.1", "-s", "3", "simple"]);
    assert!(output.status.success(), "{output:?}");
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let metrics: BTreeSet<_> = lines.iter().map(|line| line["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics.len(), 5);
    assert_eq!(lines.len(), 15);
    let colors: Vec<_> = lines.iter().filter(|line| line["metric"] == "simple.color").collect();
    assert_eq!(colors[2]["values"][1], serde_json::json!({ "inst": 1, "instance": "green", "value": 103 }));
    assert_eq!(colors[2]["pmid"], "253.0.1");
    assert_eq!((&colors[0]["type"], &colors[0]["semantics"]), (&"32".into(), &"instant".into()));
}

/// Agent `derived` has its own agent `simple`, whose colors step with each fetch. All values of a sample are those of one
/// fetch, whose number is among them.
#[test]
fn derived_is_computed_from_one_sample() {
    let mut child = viewer(&["--json", "-t", "0.05", "-s", "0", "derived"]);
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut sample, mut seen): (Vec<Value>, usize) = (Vec::new(), 0);
    let start = Instant::now();
    for line in lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()) {
        if sample.first().is_some_and(|first| first["sample"] != line["sample"]) {
            seen += usize::from(is_of_one_fetch(&sample));
            assert!(start.elapsed() < Duration::from_secs(60), "{sample:?}");
            sample.clear();
        }
        if seen == 5 {
            break;
        }
        sample.push(line);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Checks the derived metrics of a sample. Returns whether it has all values: at the start there are none, and a rate needs
/// two samples.
fn is_of_one_fetch(sample: &[Value]) -> bool {
    let line = |metric: &str| sample.iter().find(|line| line["metric"] == metric);
    let values = |metric: &str| -> Vec<(String, f64)> {
        let values = line(metric).and_then(|line| line["values"].as_array()).into_iter().flatten();
        let instance = |value: &Value| value["instance"].as_str().unwrap_or_default().to_owned();
        values.map(|value| (instance(value), value["value"].as_f64().unwrap())).collect()
    };
    let one = |metric: &str| values(metric).first().map(|(_, value)| *value);
    let Some(next) = one("derived.fetch.next") else { return false };
    let color = |(name, start): (&str, f64)| (name.to_owned(), (start + next - 1.0) % 256.0);
    let colors: Vec<(String, f64)> = [("red", 0.0), ("green", 100.0), ("blue", 200.0)].into_iter().map(color).collect();
    let total: f64 = colors.iter().map(|(_, color)| color).sum();
    let each = |f: &dyn Fn(f64) -> f64| -> Vec<(String, f64)> {
        colors.iter().map(|(name, color)| (name.clone(), f(*color))).collect()
    };
    assert_eq!(one("derived.color.total"), Some(total));
    assert_eq!(values("derived.color.double"), each(&|color| color * 2.0));
    // serde_json reads a number to within one unit in the last place.
    for (share, expected) in values("derived.color.share").into_iter().zip(each(&|color| 100.0 * color / total)) {
        assert!(share.0 == expected.0 && (share.1 - expected.1).abs() < 1e-9, "{share:?} {expected:?}");
    }
    // The time between two fetches may have any length.
    assert!(one("derived.fetch.rate").is_none_or(|rate| rate > 0.0), "{:?}", line("derived.fetch.rate"));
    let desc = line("derived.fetch.rate").unwrap();
    assert_eq!((&desc["type"], &desc["semantics"]), (&"DOUBLE".into(), &"instant".into()));
    assert_eq!((&desc["help"], &desc["units"]), (&"Fetches in a second".into(), &"/ sec".into()));
    one("derived.fetch.rate").is_some()
}

#[test]
fn a_reader_that_goes_away() {
    let mut viewer = viewer(&["-t", "0.02", "-s", "0", "trivial", "simple"]);
    let mut child = viewer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("# sample 1, "));
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn an_agent_that_dies_is_shown_and_the_other_goes_on() {
    let mut child =
        viewer(&["--json", "-t", "0.05", "-s", "0", "trivial", "simple"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    lines.by_ref().find(|line| line.contains("simple.now")).unwrap();
    let agents = children(child.id());
    assert_eq!(agents.len(), 2);
    let is_simple = |pid: &&u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        words.split(|b| *b == 0).any(|word| word == b"simple")
    };
    let simple = *agents.iter().find(is_simple).unwrap();
    kill(Pid::from_raw(simple as i32), Signal::SIGKILL).unwrap();

    let failed = lines.by_ref().find(|line| line.contains("\"error\"")).unwrap();
    let failed: Value = serde_json::from_str(&failed).unwrap();
    assert_eq!(failed["agent"], "simple");
    let error = failed["error"].as_str().unwrap();
    assert!(error.starts_with("the agent has closed the connection (signal: 9 (SIGKILL))"), "{error}");
    lines.by_ref().find(|line| line.contains("trivial.time")).unwrap();

    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(agents.into_iter().all(|pid| !runs(pid)));
}

#[test]
fn agents_end_with_a_viewer_that_is_killed() {
    // The program cannot remove its directory when it is killed.
    let dir = tempfile::tempdir().unwrap();
    let mut viewer = viewer(&["-t", "0.05", "-s", "0", "trivial", "simple", "derived"]);
    let mut child = viewer.env("TMPDIR", dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0; 100]).unwrap();
    let mut agents = children(child.id());
    assert_eq!(agents.len(), 3);
    // Agent `derived` has two children: its own agent, and a process that ends this agent.
    agents.extend(agents.clone().into_iter().flat_map(children));
    assert_eq!(agents.len(), 5);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    while agents.iter().any(|pid| runs(*pid)) {
        std::thread::yield_now();
    }
}

#[test]
fn commands_that_are_no_agents() {
    let dir = tempfile::tempdir().unwrap();
    let pmns = dir.path().join("pmns");
    std::fs::write(&pmns, "root {\n    x 7:0:0\n}\n").unwrap();
    let pmns = pmns.to_str().unwrap();
    let output = run(&["--pmns", pmns, "--", "sh", "-c", "echo no such thing >&2; exit 5"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("# sh: the agent has ended at once: exit status: 5; its log: no such thing\n"), "{text}");
    let output = run(&["--pmns", pmns, "--", "/nonexistent/agent"]);
    assert!(stdout(&output).contains("# agent: \"/nonexistent/agent\": No such file or directory"), "{output:?}");
}

/// The program itself, as agent `trivial`, serves as an agent of this framework.
#[test]
fn an_agent_that_writes_its_names() {
    let output = run(&["-s", "1", "--", env!("CARGO_BIN_EXE_pcp-agents"), "agent", "trivial", "-l", "-"]);
    assert!(output.status.success(), "{output:?}");
    assert!(stdout(&output).contains("\ntrivial.time [Seconds since 1970]\n"), "{output:?}");
}

#[test]
fn mistakes_on_the_command_line() {
    let stderr = |arguments: &[&str]| {
        let output = run(arguments);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(stderr(&["complex"]).contains("possible values: trivial, simple"));
    // Compiled without its feature, the program says how to get the agent.
    if !cfg!(feature = "trace") {
        assert!(stderr(&["trace"]).contains("built without agent trace: build it with --features trace"));
    }
    assert!(stderr(&["replay"]).contains("--replay BASE shows a recording"));
    assert!(stderr(&["-t", "soon"]).contains("invalid value 'soon'"));
    assert!(stderr(&["-t", "0"]).contains("less than 10 milliseconds"));
    assert!(stderr(&["-t", "-1"]).contains("invalid value '-1' for '--interval <TIME>': not a time such as"));
    assert!(stderr(&["-s", "-1"]).contains("invalid value '-1' for '--samples <N>': not a number from 0"));
    assert_eq!(
        stderr(&["--", "true", "x"]),
        "pcp-agents: true is not an agent of this framework: give its names with --pmns FILE\n"
    );
    // An agent says itself why it does not begin.
    let own = |arguments: &[&str]| {
        let agent = ["--", env!("CARGO_BIN_EXE_pcp-agents"), "agent"];
        run(&[&agent[..], arguments].concat())
    };
    let said = own(&["simple", "--nosuch"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.starts_with("pcp-agents: pmdasimple: unexpected argument '--nosuch' found"), "{said}");
    let failed =
        stderr(&["--", "sh", "-c", "echo; echo first; echo second >&2; echo third >&2; echo Usage: x >&2; exit 4"]);
    assert_eq!(failed, "pcp-agents: second; third\n");
    let unknown = stderr(&["--", "sh", "-c", "echo unknown option $0 >&2; exit 1"]);
    assert_eq!(unknown, "pcp-agents: sh is not an agent of this framework: give its names with --pmns FILE\n");
    let killed = stderr(&["--", "sh", "-c", "kill -9 $$"]);
    assert!(killed.ends_with("give its names with --pmns FILE (signal: 9 (SIGKILL))\n"), "{killed}");
    let help = own(&["simple", "--help"]);
    assert!(help.status.success() && stdout(&help).contains("Usage: pmdasimple"), "{help:?}");
    assert_eq!(stderr(&["--", "/no/agent"]), "pcp-agents: /no/agent: No such file or directory (os error 2)\n");
    let missing = stderr(&["--pmns", "/nonexistent/root", "--", "x"]);
    assert_eq!(missing, "pcp-agents: /nonexistent/root: No such file or directory (os error 2)\n");
}
