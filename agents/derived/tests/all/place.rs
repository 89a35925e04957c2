//! Metrics that are shown among those of another agent.

use std::fs;

use crate::scene::until;
use testkit::{Agent, Pcp};

const CONFIG: &str = r#"
[metric.bin.twice]
expr = "sample.bin * 2"
name = "sample.twice"
oneline = "each bin, twice"
help = "Twice what is in the bin."
labels = { bins = "many" }

[metric.four]
expr = "sample.twice * derived.two"
name = "of.another.kind"

[metric]
two = "sample.long.one * 2"
"#;

#[test]
#[ignore = "needs PCP"]
fn among_the_metrics_of_another_agent() {
    let scene = crate::scene::Scene::new("");
    let config = scene.dir.path().join("conf.toml");
    fs::write(&config, CONFIG).unwrap();
    let agent = |config: &std::path::Path| {
        let agent = Agent::new("derived", 404, env!("CARGO_BIN_EXE_pmdaderived")).pmns(&scene.pmns(config)).not_ready();
        agent.args(["-c", config.to_str().unwrap(), "-U", "root", "--notready", "-t", "100msec"])
    };
    let mut pmcd = scene.pmcd().agent(scene.sample.agent()).agent(agent(&config)).start();
    until(&pmcd, "pminfo", &["-f", "sample.twice"], "value 200");
    let text = pmcd.run("pminfo", ["-d", "-t", "-T", "-l", "-m", "sample.twice"]).ok();
    for part in [
        "sample.twice PMID: 404.1.0 [each bin, twice]",
        "Data Type: 32-bit unsigned int  InDom: 404.",
        "Semantics: instant  Units: none",
        "Twice what is in the bin.",
        "\"agent\":\"derived\",\"bins\":\"many\"",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    until(&pmcd, "pminfo", &["-f", "of.another.kind"], "inst [900 or \"bin-900\"] value 3600\n");
    until(&pmcd, "pminfo", &["-f", "derived.two"], "    value 2\n");
    let names = |root: &str| pmcd.run("pminfo", [root]).ok();
    assert!(names("sample").lines().any(|name| name == "sample.twice") && names("sample").contains("sample.bin\n"));
    assert_eq!(names("of"), "of.another.kind\n");
    assert!(!names("derived").contains("derived.bin"));

    // pmcd learns a new name only when it loads its name space again.
    fs::write(&config, CONFIG.replace("sample.twice", "sample.doubled")).unwrap();
    pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
    until(&pmcd, "pminfo", &["-f", "of.another.kind"], "value 3600");
    assert!(pmcd.run("pminfo", ["-f", "sample.doubled"]).failed().contains("Unknown metric name"));
    pmcd.set_agents(vec![scene.sample.agent(), agent(&config)]);
    pmcd.sighup();
    let text = until(&pmcd, "pminfo", &["-m", "-f", "sample.doubled"], "value 200");
    assert!(text.contains("PMID: 404.1.3"), "{text}");
}

#[test]
#[ignore = "needs PCP"]
fn names_that_pmcd_has_already() {
    let (pcp, dir) = (Pcp::required(), tempfile::tempdir().unwrap());
    let (names, config) = (dir.path().join("root"), dir.path().join("conf.toml"));
    // The format is that of pmcd's own file.
    fs::write(&names, "root { disk mmv 70:*:* derived 404:*:* }\ndisk { read 60:0:4 mine 404:*:* }\n").unwrap();
    let named = |name: &str, shown: &str| format!("[metric.{name}]\nexpr = \"1\"\nname = \"{shown}\"\n");
    let text = named("a", "disk.read")
        + &named("b", "mmv.b")
        + &named("c", "disk")
        + &named("d", "disk.mine")
        + &named("e", "disk.new");
    fs::write(&config, text).unwrap();
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_pmdaderived"));
    let pmcd = pcp.pmcd().start();
    check.arg("--check").arg(&config).args(["--host", &pmcd.host()]).env("PMNS_DEFAULT", &names);
    let text = String::from_utf8(check.output().unwrap().stdout).unwrap();
    let said: Vec<&str> =
        text.lines().filter(|line| !line.starts_with(' ')).map(|line| line.rsplit("] ").next().unwrap()).collect();
    assert_eq!(
        said,
        [
            "Error: disk.read is a metric of the agent with domain 60",
            "derived.a",
            "Error: mmv.b is below mmv, whose names belong to the agent with domain 70",
            "derived.b",
            "Error: disk has other metrics below it",
            "derived.c",
            "disk.mine",
            "Warning: pmcd's name space does not have disk.new yet: run Install again",
            "disk.new"
        ]
    );
}
