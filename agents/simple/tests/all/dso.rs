//! The agent as a shared object in PCP's hosts, compared with the C agent: dbpmda, pmcd, local contexts, valgrind.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::Path;

use testkit::{Agent, Pcp, Pmcd, built};

const DOMAIN: u16 = 253;

fn ours() -> std::path::PathBuf {
    built("pmda_simple")
}

/// Returns the session without requests for help, which C's shared object reads from a file. Also leaves out two kinds
/// of stores after which dbpmda frees a shared object's values twice: values that it cannot parse, and values in
/// blocks.
fn script() -> String {
    let deadly = |line: &str| line == "store simple.numfetch \"-1\"" || line.starts_with("store simple.time");
    let lines = include_str!("../session.dbpmda").lines().filter(|line| !line.starts_with("text") && !deadly(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn session(object: &Path) -> String {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let open = format!("dso {} simple_init {DOMAIN}", object.display());
    let text = pcp.dbpmda_open(&c.root(), c.pmdas_dir(), &open, &script()).normalised();
    // Removes times, addresses of results, the name of the file, C's log lines, and the version of the PMAPI that the
    // agent was compiled for.
    let other = |line: &&str| {
        !["open dso", "PMDA:", "PMDA PMAPI Version:"].iter().any(|p| line.starts_with(p))
            && !line.contains(") Warning: ")
    };
    let mut changing = false;
    let lines = text.lines().filter(other);
    lines.fold(String::new(), |mut text, line| {
        let of_time = ["253.1.2", "253.1.3", "253.2.4"].iter().any(|pmid| line.contains(pmid));
        if line.contains("numval") || of_time {
            changing = of_time;
        }
        let cut = if line.starts_with("pmResult dump from") { line.find("0x") } else { None };
        let cut = cut.or_else(|| line.find(" value ").filter(|_| changing));
        let cut = cut.or_else(|| line.find(": ").filter(|_| changing && line.contains(" -> ")));
        let _ = writeln!(text, "{}", cut.map_or(line, |at| &line[..at]));
        text
    })
}

#[test]
#[ignore = "needs PCP"]
fn dbpmda_gets_the_answers_of_the_c_shared_object() {
    let c = session(&Pcp::required().c_agent("simple").shared_object());
    let ours = session(&ours());
    assert!(c == ours, "--- C\n{c}\n--- ours\n{ours}");
    for part in ["[  1] inst: 1 name: \"green\"", "unitsystem=\"SI\"", "units=\"hour\"", "DSO desc() failed"] {
        assert!(c.contains(part), "{part} is not in\n{c}");
    }
}

fn in_pmcd(object: &Path) -> Pmcd {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let agent = Agent::new("simple", DOMAIN, object).dso("simple_init").pmns(&c.pmns());
    pcp.pmcd().pmdas_dir(c.pmdas_dir()).agent(agent).start()
}

/// Returns what clients see, apart from times and help.
fn described(pmcd: &Pmcd) -> String {
    let metrics = ["simple.numfetch", "simple.color", "simple.time", "simple.now"];
    let mut text = String::new();
    for options in ["-d", "-m", "-I", "-l"] {
        text.push_str(&pmcd.run("pminfo", [&[options], &metrics[..]].concat()).text);
    }
    text.push_str(&pmcd.run("pminfo", ["-f", "simple.color", "simple.numfetch"]).text);
    text.push_str(&pmcd.run("pmprobe", ["-i", "simple"]).text);
    text.push_str(&pmcd.run("pmval", ["-s", "2", "-t", "0.05", "-i", "red,blue", "simple.color"]).text);
    for words in [["simple.color", "7"], ["simple.color", "256"], ["simple.numfetch", "100"], ["simple.now", "1"]] {
        text.push_str(&pmcd.run("pmstore", words).text);
        text.push_str(&pmcd.run("pminfo", ["-f", "simple.color", "simple.numfetch"]).text);
    }
    text.replace(&pmcd.host(), "HOST").replace(&format!(":{}", pmcd.port()), ":PORT")
}

#[test]
#[ignore = "needs PCP"]
fn in_pmcd_clients_see_what_the_c_shared_object_shows() {
    let c = described(&in_pmcd(&Pcp::required().c_agent("simple").shared_object()));
    let pmcd = in_pmcd(&ours());
    let ours = described(&pmcd);
    assert!(c == ours, "--- C\n{c}\n--- ours\n{ours}");
    assert!(ours.contains("inst [1 or \"green\"]"), "{ours}");
    // After SIGHUP, pmcd may have moved the agent in its tables.
    pmcd.sighup();
    let after = pmcd.run("pminfo", ["-f", "simple.color"]).ok();
    assert!(after.contains("inst [1 or \"green\"] value"), "{after}");
    assert_eq!(pmcd.agent_status("simple"), 0, "{}", pmcd.log("pmcd"));
}

#[test]
#[ignore = "needs PCP"]
fn a_local_context_loads_it() {
    let pcp = Pcp::required();
    let run = |object: &Path| {
        let add = format!("add,{DOMAIN},{},simple_init", object.display());
        let mut pminfo = pcp.command("pminfo");
        let (c, var) = (pcp.c_agent("simple"), pcp.var_dir());
        pminfo.env("PCP_VAR_DIR", var.path()).env("PCP_PMDAS_DIR", c.pmdas_dir()).arg("-n").arg(c.root()).args([
            "-L",
            "-K",
            "clear",
            "-K",
            &add,
            "-f",
            "-d",
            "-l",
            "simple.color",
        ]);
        pcp.run_command(pminfo, "").ok()
    };
    let c = run(&pcp.c_agent("simple").shared_object());
    assert_eq!(run(&ours()), c);
    assert!(c.contains("inst [2 or \"blue\"] value 201"), "{c}");
}

/// Returns requests of every kind in pseudo-random order.
fn many_requests() -> String {
    const REQUESTS: [&str; 20] = [
        "desc 253.0.0",
        "fetch 253.0.0 253.0.1 253.1.2 253.1.3 253.2.4 253.9.9",
        "instance 253.0",
        "instance 253.0 1",
        "instance 253.1 7",
        "text 253.0.1",
        "text indom 253.1",
        "profile 253.0 all\nstore 253.0.1 \"7\"",
        "profile 253.0 all\nstore 253.0.1 \"300\"",
        "label indom 253.0",
        "label instances 253.0",
        "label instances 253.1",
        "label item 253.0.1",
        "name 253.0.0",
        "pmid simple.color",
        "children simple",
        "traverse simple",
        "profile 253.0 none",
        "profile 253.0 add 1",
        "attr 5 \"kenj\"",
    ];
    let mut state = 1u64;
    let mut text = String::new();
    for _ in 0..10_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        text.push_str(REQUESTS[(state >> 33) as usize % REQUESTS.len()]);
        text.push('\n');
    }
    text
}

#[test]
#[ignore = "needs PCP"]
// Slow: pmcd runs under valgrind.
fn valgrind_sees_no_leak_and_no_invalid_access() {
    let pcp = Pcp::required();
    let mut valgrind = pcp.valgrind(pcp.path("PCP_BIN_DIR").join("dbpmda"));
    let var = pcp.var_dir();
    valgrind.env("PCP_VAR_DIR", var.path());
    valgrind.arg("-n").arg(pcp.c_agent("simple").root());
    let open = format!("open dso {} simple_init {DOMAIN}\n", ours().display());
    let output = pcp.run_command(valgrind, &format!("{open}{}quit\n", many_requests()));
    let said = &output.text[output.text.len().saturating_sub(4000)..];
    assert!(output.status.success(), "{said}");
    assert!(output.text.matches("inst: 1 name: \"green\"").count() > 300, "{said}");
}

/// libpcp reads an agent's data after the end of the agents, if another shared object was loaded before.
#[test]
#[ignore = "needs PCP"]
// Slow: pminfo runs under valgrind.
fn valgrind_sees_no_invalid_access_at_the_end_of_a_local_context() {
    let pcp = Pcp::required();
    let (c, var) = (pcp.c_agent("simple"), pcp.var_dir());
    let mut valgrind = pcp.valgrind(pcp.path("PCP_BIN_DIR").join("pminfo"));
    valgrind
        .env("PCP_VAR_DIR", var.path())
        .env("PCP_PMDAS_DIR", c.pmdas_dir())
        .arg("-n")
        .arg(c.root())
        .args(["-L", "-K", "clear"]);
    for (domain, object) in [(252, c.shared_object()), (DOMAIN, ours()), (251, ours())] {
        valgrind.args(["-K", &format!("add,{domain},{},simple_init", object.display())]);
    }
    valgrind.args(["-f", "simple.color"]);
    let output = pcp.run_command(valgrind, "");
    assert!(output.status.success() && output.text.contains("inst [2 or \"blue\"] value 201"), "{}", output.text);
}
