//! The agent in the real pmcd, over each transport, compared with the C agent.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use testkit::{Agent, CAgent, Pcp, Pmcd};

const DOMAIN: u16 = 253;

/// Copies the C agent's directory, so that a test may change `simple.conf`.
fn own_files(c: &CAgent) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    c.copy_to(dir.path());
    dir
}

fn ours(c: &CAgent) -> Agent {
    let help = c.help();
    let agent = Agent::new("simple", DOMAIN, env!("CARGO_BIN_EXE_pmdasimple")).pmns(&c.pmns());
    agent.args(["-h".as_ref(), help.as_os_str()])
}

fn start(pcp: &Pcp, agent: Agent, files: &Path) -> Pmcd {
    pcp.pmcd().pmdas_dir(files).agent(agent).start()
}

/// Returns what the tools print about the agent, apart from the values of clocks.
fn described(pmcd: &Pmcd) -> String {
    let mut text = String::new();
    for options in ["-d", "-m", "-t", "-T", "-I", "-l", "-f"] {
        text.push_str(&format!("{options}\n"));
        text.push_str(
            &pmcd.run("pminfo", [options, "simple.numfetch", "simple.color", "simple.time", "simple.now"]).text,
        );
    }
    text.push_str(&pmcd.run("pminfo", ["-f", "simple.color"]).text);
    text.push_str(&pmcd.run("pmprobe", ["-I", "simple"]).text);
    text.push_str(&pmcd.run("pmprobe", ["-v", "simple.color", "simple.numfetch"]).text);
    text.push_str(&pmcd.run("pmval", ["-s", "3", "-t", "0.05", "simple.color"]).text);
    for (metric, value) in [
        ("simple.numfetch", "42"),
        ("simple.numfetch", "-7"),
        ("simple.color", "255"),
        ("simple.color", "256"),
        ("simple.color", "-1"),
        ("simple.time.user", "1"),
        ("simple.now", "1"),
        ("simple.color", "red"),
    ] {
        text.push_str(&pmcd.run("pmstore", ["--", metric, value]).text);
        text.push_str(&pmcd.run("pminfo", ["-f", "simple.numfetch", "simple.color"]).text);
    }
    text.push_str(&pmcd.run("pmstore", ["-i", "green", "simple.color", "7"]).text);
    text.push_str(&pmcd.run("pmstore", ["-i", "pink", "simple.color", "7"]).text);
    let text = text.replace(&pmcd.host(), "HOST").replace(&format!(":{}", pmcd.port()), ":PORT");
    masked(&text)
}

/// Replaces values of the clock and of CPU time by N.
fn masked(text: &str) -> String {
    let mut metric = "";
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with("host: ") && !line.starts_with("samples: ")) {
        if line.starts_with("simple.") {
            metric = line.split_whitespace().next().unwrap_or_default();
        }
        let of_time = metric.starts_with("simple.time") || metric == "simple.now";
        let before_value = line.split_once(" value ").or_else(|| line.split_once(" old value"));
        let line = match before_value {
            Some((before, _)) if of_time => format!("{before} value N"),
            // pmval prints the time at the beginning of the line.
            _ if line.get(2..3) == Some(":") => line.split_once(' ').map_or(line, |(_, rest)| rest).trim().to_owned(),
            _ => line.to_owned(),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

fn first_difference(c: &str, ours: &str) -> String {
    let at = c.lines().zip(ours.lines()).position(|(a, b)| a != b).unwrap_or(0);
    let around = |text: &str| text.lines().skip(at.saturating_sub(4)).take(8).collect::<Vec<_>>().join("\n");
    format!("line {at}\n--- C\n{}\n--- ours\n{}", around(c), around(ours))
}

#[test]
#[ignore = "needs PCP"]
fn the_tools_cannot_tell_it_from_the_c_agent() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let files = own_files(&c);
    let by_c = described(&start(&pcp, c.agent(), files.path()));
    for (name, agent) in [("pipe", ours(&c)), ("unix", ours(&c).unix()), ("inet", ours(&c).inet())] {
        let ours = described(&start(&pcp, agent, files.path()));
        assert!(by_c == ours, "{name}: {}", first_difference(&by_c, &ours));
    }
    for part in ["\"units\":\"hour\"", "\"role\":\"testing\"", "new value=42", "Bad input to pmstore", "No permission"]
    {
        assert!(by_c.contains(part), "{part} is not in\n{by_c}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn it_survives_sighup_and_comes_back_after_restart_and_kill() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let files = own_files(&c);
    let mut pmcd = start(&pcp, ours(&c), files.path());
    let first = pmcd.agent_pid("simple").unwrap();
    pmcd.run("pmstore", ["simple.numfetch", "1000"]).ok();

    pmcd.sighup();
    assert_eq!(pmcd.agent_pid("simple"), Some(first));
    assert!(pmcd.run("pmprobe", ["-v", "simple.numfetch"]).ok().starts_with("simple.numfetch 1 10"));

    pmcd.kill_agent("simple");
    // The request that finds the agent dead fails, and makes pmcd restart the agent.
    pmcd.run("pmprobe", ["-v", "simple.numfetch"]);
    assert!(pmcd.run("pmprobe", ["-v", "simple.numfetch"]).ok().starts_with("simple.numfetch 1 "));
    let second = pmcd.agent_pid("simple").unwrap();
    assert_ne!(first, second);

    pmcd.restart();
    assert!(pmcd.run("pminfo", ["-f", "simple.color"]).ok().contains("inst [1 or \"green\"] value 101"));
    assert_ne!(pmcd.agent_pid("simple"), Some(second));
    let log = pmcd.log("simple");
    assert!(log.starts_with("Log for pmdasimple on "), "{log}");
    let previous = fs::read_to_string(pmcd.log_dir().join("simple.log.prev")).unwrap();
    assert!(previous.contains("\nLog finished "), "{previous}");
}

#[test]
#[ignore = "needs PCP"]
fn simple_conf_is_read_again_and_its_instances_keep_their_numbers() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let files = own_files(&c);
    // The agent runs as root, because the private pmcd's cache directory does not belong to the PCP user.
    let mut pmcd = start(&pcp, ours(&c).args(["-U", "root"]), files.path());
    let conf = files.path().join("simple/simple.conf");
    let instances = |pmcd: &Pmcd| {
        let text = pmcd.run("pmprobe", ["-I", "simple.now"]).ok();
        text.split_once(' ').unwrap().1.trim().to_owned()
    };
    assert_eq!(instances(&pmcd), "3 \"sec\" \"min\" \"hour\"");
    fs::write(&conf, "hour\n").unwrap();
    assert_eq!(instances(&pmcd), "1 \"hour\"");
    fs::write(&conf, "hour,nonsense,sec\n").unwrap();
    assert_eq!(instances(&pmcd), "2 \"sec\" \"hour\"");
    let log = pmcd.log("simple");
    let line = format!("{}:1: ignoring \"nonsense\"", conf.display());
    assert!(log.lines().any(|l| l.starts_with('[') && l.contains("Warning: ") && l.contains(&line)), "{log}");
    fs::remove_file(&conf).unwrap();
    assert!(pmcd.run("pminfo", ["-f", "simple.now"]).text.contains("No value(s) available"));
    assert!(pmcd.log("simple").contains(&format!("Error: {}: No such file", conf.display())), "{}", pmcd.log("simple"));

    // Identifiers outlive the agent: "hour" is the only instance, and keeps its identifier.
    fs::write(&conf, "hour\n").unwrap();
    pmcd.restart();
    assert!(pmcd.run("pminfo", ["-f", "simple.now"]).ok().contains("inst [2 or \"hour\"] value "));
    let cache = fs::read_to_string(pmcd.cache_dir().join("253.1")).unwrap();
    assert!(cache.starts_with("2 0 2147483647\n0 ") && cache.ends_with(" hour\n"), "{cache}");
}
