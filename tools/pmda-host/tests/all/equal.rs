//! The agents of PCP that are shared objects, as many as are installed: clients see the same values if pmcd loads them and
//! if they are behind `pmda-host`.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcp_collector::Launch;
use testkit::{Agent, Pcp, Pmcd};

/// An agent of PCP.
struct Installed {
    name: String,
    domain: u16,
    object: PathBuf,
    names: String,
}

/// Agents without which the comparison says little. An administrator may have removed any of the others.
const NEEDED: [&str; 3] = ["linux", "proc", "sample"];

/// Returns PCP's agents that are shared objects, except that of pmcd itself, which uses variables of pmcd.
fn installed(pcp: &Pcp) -> Vec<Installed> {
    let pmdas = pcp.path("PCP_PMDAS_DIR");
    let mut found = Vec::new();
    for entry in fs::read_dir(pmdas).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let object = entry.path().join(format!("pmda_{name}.so"));
        if name == "pmcd" || !object.exists() {
            continue;
        }
        let header = fs::read_to_string(entry.path().join("domain.h")).unwrap();
        let number = header.lines().find(|line| line.starts_with("#define")).unwrap().split_whitespace().nth(2);
        let domain = number.unwrap().parse().unwrap();
        found.push(Installed { names: names(pcp, &entry.path(), &name), domain, object, name });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    for needed in NEEDED {
        let is_there = found.iter().any(|agent| agent.name == needed);
        assert!(is_there, "{}/{needed}/pmda_{needed}.so is missing", pmdas.display());
    }
    found
}

fn names(pcp: &Pcp, dir: &Path, name: &str) -> String {
    let root = format!("root_{name}");
    let linux = pcp.path("PCP_VAR_DIR").join("pmns").join(&root);
    let mut files = vec![dir.join("pmns"), dir.join(&root), linux];
    files.retain(|file| file.exists());
    files.truncate(1);
    if files.is_empty() {
        let parts = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        files.extend(parts.filter(|path| path.file_stem() == Some("pmns".as_ref())));
        files.sort();
    }
    files.iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Returns the lines that pminfo prints for each metric.
fn info(pmcd: &Pmcd, options: &[&str]) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    // pminfo ends with an error when one of many metrics has no value.
    let output = pmcd.run("pminfo", options);
    let mut metric = String::new();
    for line in output.text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with(|c: char| c.is_ascii_alphabetic()) && line.split([' ', ':']).next().unwrap().contains('.') {
            line.split([' ', ':']).next().unwrap().clone_into(&mut metric);
        }
        all.entry(metric.clone()).or_default().push(line.to_owned());
    }
    all
}

/// Agents that pmcd cannot serve as shared objects: the entry points of kvm and sendmail fail, and a fetch from docker never
/// returns.
const IMPOSSIBLE: [&str; 3] = ["docker", "kvm", "sendmail"];

/// Returns whether a metric depends on the agent's process or its history: identifiers, counts of requests, and
/// sockets, whose instances have numbers in the order in which the agent has seen them.
fn is_own(name: &str) -> bool {
    const OWN: [&str; 5] = [
        "sample.daemon_pid",
        "sample.datasize",
        "sample.dupnames.daemon_pid",
        "sample.dupnames.pid_daemon",
        "sample.magnitude",
    ];
    name.starts_with("pmcd.") || name.starts_with("network.persocket.") || OWN.contains(&name)
}

/// Returns whether the values of a metric count since its agent has started: programs in the kernel, which each agent bpf
/// loads for itself.
fn counts_from_start(name: &str, options: &[&str]) -> bool {
    options.contains(&"-f") && name.starts_with("bpf.")
}

fn starts(host: &Path, agent: &Installed) -> bool {
    let mut command = Command::new(host);
    command.arg("--so").arg(&agent.object).args(["-d", &agent.domain.to_string(), "-U", "root", "-l", "/dev/null"]);
    Launch::pipe(command).handshake_timeout(None).start().is_ok()
}

#[test]
#[ignore = "needs PCP"]
// Slow: clients of PCP ask several agents, with the host and without it.
fn clients_see_the_same() {
    let pcp = Pcp::required();
    if !pcp.has_all_agents() {
        return;
    }
    let agents = installed(&pcp);
    let host = testkit::one_word(env!("CARGO_BIN_EXE_pmda-host"));
    let (mut loads, mut hosts) = (pcp.pmcd(), pcp.pmcd());
    for agent in &agents {
        let Installed { name, domain, object, names } = agent;
        if IMPOSSIBLE.contains(&name.as_str()) {
            assert_eq!(starts(&host, agent), name == "docker", "{name}");
            continue;
        }
        loads = loads.agent(Agent::new(name, *domain, object).dso(&format!("{name}_init")).names(names));
        let arguments = ["--patience", "60", "-U", "root", "--so", object.to_str().unwrap()];
        hosts = hosts.agent(Agent::new(name, *domain, &host).args(arguments).names(names));
    }
    // The agents save their instance numbers when clients ask for them: two that start at once would choose different ones.
    let loads = loads.start();
    info(&loads, &["-f"]);
    let hosts = hosts.start();
    for needed in NEEDED {
        assert_eq!(loads.agent_status(needed), 0, "pmcd does not serve {needed}");
    }
    let possible = agents.iter().filter(|agent| !IMPOSSIBLE.contains(&agent.name.as_str()));
    for Installed { name, .. } in possible {
        // Some agents, such as bpf, cannot start on every kernel.
        let [loaded, hosted] = [&loads, &hosts].map(|pmcd| pmcd.agent_status(name) == 0);
        assert_eq!(hosted, loaded, "{name}");
    }
    let differences: Vec<String> = [&["-d", "-m"][..], &["-t", "-T"], &["-l"], &["-f"]]
        .iter()
        .flat_map(|options| differences(&loads, &hosts, options, 500))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A fetch from docker's agent never returns on a machine without docker. A pmcd that has loaded the agent then serves no
/// client; one that starts the host does.
#[test]
#[ignore = "needs PCP"]
fn dockers_metrics_are_the_same_and_its_fetch_does_not_stall_pmcd() {
    let pcp = Pcp::required();
    if !pcp.has_all_agents() {
        return;
    }
    let all = installed(&pcp);
    let docker = all.iter().find(|agent| agent.name == "docker");
    let Installed { domain, object, names, .. } = docker.expect("agent docker of PCP is not installed");
    let loads = pcp.pmcd().agent(Agent::new("docker", *domain, object).dso("docker_init").names(names)).start();
    let host = testkit::one_word(env!("CARGO_BIN_EXE_pmda-host"));
    let arguments = ["--patience", "5", "-U", "root", "--so", object.to_str().unwrap()];
    let hosts = pcp.pmcd().agent(Agent::new("docker", *domain, host).args(arguments).names(names)).start();
    for options in [&["-d", "-m"][..], &["-t", "-T"]] {
        let differences = differences(&loads, &hosts, options, 10);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
    hosts.run("pminfo", ["-f", "docker.arch"]);
    let text = hosts.run("pminfo", ["-f", "pmcd.numagents"]).text;
    assert!(text.contains("value 2"), "{text}\n{}", hosts.log("docker"));
}

/// Compares the metrics as clients see them, except parts that change by themselves.
fn differences(loads: &Pmcd, hosts: &Pmcd, options: &[&str], least: usize) -> Vec<String> {
    let before = info(loads, options);
    let mut ours = info(hosts, options);
    let after = info(loads, options);
    let mut theirs: BTreeMap<String, Vec<String>> = before
        .iter()
        .filter(|(name, lines)| after.get(*name) == Some(lines) && !is_own(name) && !counts_from_start(name, options))
        .map(|(name, lines)| (name.clone(), lines.clone()))
        .collect();
    println!("{options:?}: {} of {} metrics do not change by themselves", theirs.len(), before.len());
    assert!(theirs.len() > least, "{options:?}: {}", theirs.len());
    let new = ours.keys().filter(|name| !before.contains_key(*name) && !is_own(name));
    let new: Vec<String> = new.map(|name| format!("{options:?}: {name} is new")).collect();
    // The system may have changed, and changed back.
    for _ in 0..20 {
        theirs.retain(|name, lines| ours.get(name).is_none_or(|ours| !is_same(lines, ours)));
        if theirs.is_empty() {
            return new;
        }
        let names: Vec<&str> = options.iter().copied().chain(theirs.keys().map(String::as_str)).collect();
        ours = info(hosts, &names);
        let now = info(loads, &names);
        // Some metrics change by themselves, but not always.
        theirs.retain(|name, lines| now.get(name) == Some(lines));
    }
    let describe = |(name, lines)| format!("{options:?} {name}\n  pmcd {lines:?}\n  host {:?}", ours.get(name));
    new.into_iter().chain(theirs.iter().map(describe)).collect()
}

/// Returns whether clients see the same lines. When an agent's fetch fails, clients see no values if pmcd has loaded
/// the agent. If the agent is behind the host, they see the error, as with a daemon.
fn is_same(theirs: &[String], ours: &[String]) -> bool {
    match (theirs, ours) {
        ([theirs, none], [ours, error]) if none == "No value(s) available!" && error.starts_with("Error: ") => {
            theirs == ours
        }
        _ => theirs == ours,
    }
}
