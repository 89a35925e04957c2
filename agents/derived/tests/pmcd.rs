//! The agent in the real pmcd, compared with what libpcp's clients make of the same configuration for themselves.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use testkit::{Agent, CAgent, Pcp, Pmcd};

const CONFIG: &str = "\
# Constants of agent sample.
plus = sample.long.one + sample.long.hundred
plus(oneline) = the sum of two
scaled.ratio = sample.double.bin / 100
bins = sample.bin - 7
bins(oneline) = bins, less
bins(helptext) = 'Each bin
less seven.'
one.of_them = sample.bin[bin-500]
some = matchinst(/bin-[12]00/, sample.bin)
highest = max(sample.bin)
guarded = sample.long.one < 5 ? sample.bin : sample.part_bin
words = sample.string.hullo
many = count(sample.hordes.one)
";

/// Derived from another one, which clients cannot.
const MORE: &str = "twice = plus * 2\n";
const BAD: &str = "wrong = sample.long.one +\nmissing = no.such.metric + 1\nitself = derived.control.samples + 1\n";

fn derived(config: &Path, sample: &CAgent) -> Pmcd {
    let binary = env!("CARGO_BIN_EXE_pmdaderived");
    let dir = tempfile::tempdir().unwrap();
    let pmda = dir.path().join("pmda");
    assert!(Command::new(binary).arg("--write-pmda").arg(&pmda).status().unwrap().success());
    let agent = Agent::new("derived", 404, binary).pmns(&pmda.join("pmns"));
    let agent = agent.args(["-c", config.to_str().unwrap(), "-t", "100msec", "-U", "root", "--notready"]).not_ready();
    let pmcd = Pcp::required().pmcd().pmdas_dir(sample.pmdas_dir());
    // An agent that dies stays away until pmcd restarts. Agents run in the directory of the logs.
    let pmcd = pmcd.env("PMCD_RESTART_AGENTS", "0");
    pmcd.env("PMCD_SOCKET", "../../pmcd.socket").agent(sample.agent()).agent(agent).start()
}

/// Waits until what a tool says has something in it.
fn until(pmcd: &Pmcd, arguments: &[&str], part: &str) -> String {
    let says = || pmcd.run("pminfo", arguments).text;
    (0..600)
        .find_map(|_| {
            let text = says();
            if !text.contains(part) {
                sleep(Duration::from_millis(50));
                return None;
            }
            Some(text)
        })
        .unwrap_or_else(|| panic!("{part:?} is not in\n{}\n{}\n{}", says(), pmcd.log("derived"), pmcd.log("pmcd")))
}

/// What pminfo shows of a metric, without identifiers.
fn comparable(text: &str) -> Vec<String> {
    let lines =
        text.lines().skip_while(|line| line.is_empty()).skip(1).map(|line| match line.split_once("  InDom: ") {
            Some((ty, indom)) => format!("{ty} {}", indom.starts_with("PM_INDOM_NULL")),
            None => line.to_owned(),
        });
    lines.collect()
}

#[test]
#[ignore = "needs PCP"]
fn as_clients_derive_it() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("conf");
    std::fs::write(&config, CONFIG).unwrap();
    let pmcd = derived(&config, &sample);
    until(&pmcd, &["-f", "derived.plus"], "value 101");
    let names: Vec<&str> = CONFIG.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.contains('(')).collect();
    assert_eq!(names.len(), 9);
    for name in names {
        for what in ["-d", "-f", "-T", "-t"] {
            let ours = pmcd.run("pminfo", [what, &format!("derived.{name}")]).text;
            let mut command = pcp.command("pminfo");
            command.args(["-h", &pmcd.host(), what, name]).env("PCP_DERIVED_CONFIG", &config);
            let theirs = pcp.run_command(command, "").text;
            // Without any text libpcp has an error.
            if !theirs.contains("One-line or help text is not available") {
                assert!(!theirs.contains("Unknown metric"), "{theirs}");
                assert_eq!(comparable(&ours), comparable(&theirs), "{what} {name}");
            }
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn changes_and_failures() {
    let pcp = Pcp::required();
    let sample = pcp.c_agent("sample");
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("conf");
    std::fs::write(&config, format!("{CONFIG}{MORE}{BAD}")).unwrap();
    let mut pmcd = derived(&config, &sample);
    until(&pmcd, &["-f", "derived.twice"], "value 202");
    let text = until(&pmcd, &["-f", "derived.control.message"], "no.such.metric");
    assert!(text.contains("wrong") && text.contains("expected to follow PLUS"), "{text}");
    assert!(text.contains("itself: operand derived.control.samples: Unknown operand metric"), "{text}");
    let item = |pmcd: &Pmcd| pmcd.run("pminfo", ["-m", "derived.many"]).ok();
    let before = item(&pmcd);

    // Another order, and one less: numbers stay.
    let named = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| !name.contains('(') && name != "plus");
    let reordered: Vec<&str> = CONFIG.lines().rev().filter(named).collect();
    std::fs::write(&config, reordered.join("\n") + "\nnew = 1 + sample.long.one\n").unwrap();
    pmcd.run("pmstore", ["derived.control.reload", "1"]);
    until(&pmcd, &["-f", "derived.new"], "value 2");
    assert_eq!(item(&pmcd), before);
    until(&pmcd, &["-f", "derived.plus"], "Unknown metric name");

    // The operands go and come back, the agent stays.
    pmcd.kill_agent("sample");
    let text = until(&pmcd, &["-f", "derived.new"], "Error");
    assert!(!text.contains("Unknown metric name"), "{text}");
    pmcd.restart();
    until(&pmcd, &["-f", "derived.new"], "value 2");
    assert_eq!(item(&pmcd), before);
    assert_eq!(pmcd.agent_status("derived"), 0);
}
