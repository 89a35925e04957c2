//! Groups with their own interval and labels, and metrics elsewhere in the name space.

use std::fs;

use crate::scene::{Scene, Watch, operand, until};

const CONFIG: &str = r#"
[group.often]
interval = "50msec"
labels = { rhythm = "often" }

[group.often.metric]
count = "operand.count"
named = { expr = "operand.value", name = "elsewhere.named", labels = { colour = "red" }, help = "At length." }

[group.seldom]
interval = "1hour"

[group.seldom.metric]
slow = "instant(operand.count)"
slowest = { expr = "slow + 1", oneline = "One more" }
"#;

#[test]
#[ignore = "needs PCP"]
fn intervals_labels_and_names() {
    let scene = Scene::new("");
    let conf = scene.dir.path().join("conf.toml");
    fs::write(&conf, CONFIG).unwrap();
    let binary = env!("CARGO_BIN_EXE_pmdaderived");
    let agent = testkit::Agent::new("derived", 404, binary).pmns(&scene.pmns(&conf)).not_ready();
    let agent = agent.args(["-c", conf.to_str().unwrap(), "-U", "root", "--notready"]);
    let pmcd = scene.pmcd().agent(operand()).agent(agent).start();

    // Each group has its own interval.
    let mut watch = Watch::new(&pmcd, &["derived.count", "derived.slow", "derived.slowest"]);
    let first = watch.until("sampled", |values| values.iter().all(Result::is_ok));
    let later = watch.until("sampled again", |values| values[0] != first[0]);
    assert_eq!(later[1..], first[1..]);
    let [slow, slowest] = [&first[1], &first[2]].map(|values| values.as_ref().unwrap()[0].1);
    assert_eq!(slowest, slow + 1.0);
    let text = pmcd.run("pminfo", ["-f", "derived.control.interval"]).ok();
    assert!(text.contains("\"often\"] value 0.05") && text.contains("\"seldom\"] value 3600"), "{text}");
    let text = pmcd.run("pminfo", ["-f", "derived.control.definitions.good"]).ok();
    assert!(text.contains("\"often\"] value 2") && text.contains("\"seldom\"] value 2"), "{text}");
    pmcd.run("pmstore", ["-i", "seldom", "derived.control.interval", "0.05"]).ok();
    watch.until("sampled again", |values| values[1].is_ok() && values[1] != first[1]);

    // Names, help, and the labels of the configuration and of the operands.
    let text = until(&pmcd, "pminfo", &["-fT", "elsewhere.named"], "[1 or \"b\"] value 98");
    assert!(text.contains("At length."), "{text}");
    until(&pmcd, "pminfo", &["-f", "derived.named"], "Unknown metric name");
    let text = pmcd.run("pminfo", ["-t", "derived.slow", "derived.slowest"]).ok();
    assert!(text.contains("[instant(operand.count)]") && text.contains("[One more]"), "{text}");
    let text = until(&pmcd, "pminfo", &["-fl", "elsewhere.named"], "\"kind\":\"letters\"");
    for label in ["\"rhythm\":\"often\"", "\"colour\":\"red\"", "\"kind\":\"letters\"", "\"letter\":\"b\""] {
        assert!(text.contains(label), "{label} is not in\n{text}");
    }
    // New instances have labels.
    pmcd.run("pmstore", ["operand.instances", "1=b 2=c"]).ok();
    let text = until(&pmcd, "pminfo", &["-fl", "elsewhere.named"], "\"letter\":\"c\"");
    assert!(!text.contains("\"letter\":\"a\""), "{text}");
}
