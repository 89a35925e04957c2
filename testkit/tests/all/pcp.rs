//! Tests of the test kit itself, with the C agents.

use std::ffi::OsStr;
use std::fs;
use std::net::ToSocketAddrs;

use testkit::{Agent, Pcp, normalise};

#[test]
#[ignore = "needs PCP"]
fn a_private_pmcd_answers_for_an_agent_over_every_transport() {
    let pcp = Pcp::required();
    let simple = pcp.c_agent("simple");
    let agent = |name: &str, domain| {
        let pmns = fs::read_to_string(simple.pmns()).unwrap().replace("simple", name);
        Agent::new(name, domain, simple.binary()).names(&pmns).args(["-l", &format!("{name}.log")])
    };
    let mut names = vec!["one", "two", "three"];
    let mut builder = pcp
        .pmcd()
        .pmdas_dir(simple.pmdas_dir())
        .agent(agent("one", 501))
        .agent(agent("two", 502).unix())
        .agent(agent("three", 503).inet());
    // pmcd connects to the address of "localhost", for which not every /etc/hosts has an IPv6 address.
    if "localhost:0".to_socket_addrs().unwrap().any(|address| address.is_ipv6()) {
        names.push("four");
        builder = builder.agent(agent("four", 504).ipv6());
    }
    let pmcd = builder.start();
    for name in names {
        assert_eq!(pmcd.agent_status(name), 0, "{name}: {}{}", pmcd.log("pmcd"), pmcd.log(name));
        let text = pmcd.run("pminfo", ["-f", &format!("{name}.color")]).ok();
        assert!(text.contains("inst [1 or \"green\"] value"), "{text}");
        assert!(pmcd.log(name).starts_with("Log for pmdasimple on "), "{}", pmcd.log(name));
    }
    let text = pmcd.run("pmval", ["-s", "1", "-t", "0.01", "one.numfetch"]).ok();
    assert!(text.contains("semantics: instantaneous value"), "{text}");
}

#[test]
#[ignore = "needs PCP"]
fn help_text_of_a_c_agent_is_found() {
    let pcp = Pcp::required();
    let (trivial, sample) = (pcp.c_agent("trivial"), pcp.c_agent("sample"));
    let pmcd = pcp.pmcd().pmdas_dir(trivial.pmdas_dir()).agent(trivial.agent()).agent(sample.agent()).start();
    for name in ["trivial.time", "sample.colour"] {
        let text = pmcd.run("pminfo", ["-t", name]).ok();
        assert!(text.starts_with(&format!("{name} [")), "{text}");
        assert!(!text.contains("One-line Help: Error"), "{text}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn stores_are_allowed_or_refused_as_configured() {
    let pcp = Pcp::required();
    let simple = pcp.c_agent("simple");
    let build = || pcp.pmcd().pmdas_dir(simple.pmdas_dir()).agent(simple.agent());

    let open = build().start();
    let text = open.run("pmstore", ["simple.numfetch", "42"]).ok();
    assert!(text.contains("new value=42"), "{text}");

    let closed = build().access("disallow \"*\" : store;\ndisallow \"local:*\" : store;").start();
    let text = closed.run("pmstore", ["simple.numfetch", "42"]).failed();
    assert!(text.contains("No permission to perform requested operation"), "{text}");
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_is_killed_and_pmcd_restarted() {
    let pcp = Pcp::required();
    let simple = pcp.c_agent("simple");
    let mut pmcd = pcp.pmcd().pmdas_dir(simple.pmdas_dir()).agent(simple.agent()).start();
    let first = pmcd.agent_pid("simple").unwrap();
    pmcd.kill_agent("simple");
    // The next request fails because the agent is dead, and makes pmcd restart it.
    let text = pmcd.run("pmprobe", ["-v", "simple.numfetch"]).text;
    assert!(text.starts_with("simple.numfetch -"), "{text}");
    assert!(pmcd.run("pmprobe", ["-v", "simple.numfetch"]).ok().starts_with("simple.numfetch 1 "));
    let second = pmcd.agent_pid("simple").unwrap();
    assert_ne!(first, second);

    pmcd.restart();
    assert_eq!(pmcd.agent_status("simple"), 0);
    assert_ne!(pmcd.agent_pid("simple").unwrap(), second);
}

#[test]
#[ignore = "needs PCP"]
fn sighup_makes_pmcd_read_its_configuration_again() {
    let pcp = Pcp::required();
    let (simple, trivial) = (pcp.c_agent("simple"), pcp.c_agent("trivial"));
    let mut pmcd = pcp.pmcd().pmdas_dir(simple.pmdas_dir()).agent(simple.agent()).start();
    let pid = pmcd.agent_pid("simple");
    assert!(pmcd.run("pmprobe", ["trivial.time"]).text.contains("Unknown metric name"));

    pmcd.set_agents(vec![simple.agent(), trivial.agent()]);
    pmcd.sighup();
    assert!(pmcd.run("pmprobe", ["-v", "trivial.time"]).ok().starts_with("trivial.time 1 "));
    assert_eq!(pmcd.agent_pid("simple"), pid);
}

#[test]
#[ignore = "needs PCP"]
fn pmcd_and_its_agents_end_with_the_value() {
    let pcp = Pcp::required();
    let trivial = pcp.c_agent("trivial");
    let pmcd = pcp.pmcd().pmdas_dir(trivial.pmdas_dir()).agent(trivial.agent()).start();
    let (dir, pid) = (pmcd.dir().to_owned(), pmcd.agent_pid("trivial").unwrap());
    drop(pmcd);
    assert!(!dir.exists());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the agent is still there: {stat}");
}

#[test]
#[ignore = "needs PCP"]
fn two_dbpmda_sessions_are_equal_apart_from_processes_and_times() {
    let pcp = Pcp::required();
    let simple = pcp.c_agent("simple");
    let binary = simple.binary();
    let session = || {
        let agent = [binary.as_os_str(), OsStr::new("-d"), OsStr::new("253")];
        let script = "getdesc on\nfetch simple.color\ninstance 253.0\ntext simple.numfetch\nstatus\nwait 1";
        pcp.dbpmda(&simple.root(), simple.pmdas_dir(), &agent, script)
    };
    let (one, two) = (session(), session());
    assert!(one.text.contains("PMID(s): 253.0.1"), "{}", one.text);
    assert_eq!(one.normalised(), two.normalised());
    assert_ne!(one.text, two.text);
}

#[test]
#[ignore = "needs PCP"]
fn a_tool_that_fails_says_so() {
    let pcp = Pcp::required();
    let text = pcp.run("pminfo", ["-h", "unix:///nonexistent/socket", "simple"]).failed();
    assert!(text.contains("pminfo: Cannot connect to PMCD"), "{text}");
}

#[test]
fn only_what_differs_between_runs_is_normalised() {
    let text = "open pipe /a/b -d 253\nStart pmdab PMDA: /a/b -d 253\n(pid: 4711) at 12:34:56.789\n\
        __pmResult dump from 0x560a843770f0 timestamp: 0.000000000 00:00:00.000000000 numpmid: 1\n value 4711 0x560a8437\n";
    let normal = "open pipe AGENT\nStart PMDA\n(pid: PID) at TIME\n\
        __pmResult dump numpmid: 1\n value 4711 0x560a8437\n";
    assert_eq!(normalise(text), normal);
}
