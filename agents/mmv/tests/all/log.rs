//! The agents' log lines about files that contradict each other.
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::raw::{INDOMS, INSTANCES, METRICS, MetricV1, Raw, VALUES};
use crate::scene::Scene;
use testkit::built;

/// A file of cluster 7. It has a metric with a value for one of two instances, singular metrics with and without a
/// value, and one with an invalid item.
fn file(first_item: u32, instances: [(i32, &str); 2]) -> Raw {
    let (metrics, indom, ids, values) = (104, 520, 552, 712);
    let mut raw = Raw::new(776, 4);
    raw.i32(36, 7).u32(28, 1);
    raw.toc(0, METRICS, 4, metrics).toc(1, INDOMS, 1, indom).toc(2, INSTANCES, 2, ids).toc(3, VALUES, 2, values);
    for (i, name) in (0u32..).zip(["each", "one", "none", "bad"]) {
        let item = if i == 3 { 1024 } else { first_item + i };
        let indom = if i == 0 { 5 } else { u32::MAX };
        raw.metric(metrics + u64::from(i) * 104, &MetricV1 { name, item, indom, ..MetricV1::default() });
    }
    raw.indom(indom, 5, 2, ids);
    for (at, (id, name)) in [ids, ids + 80].into_iter().zip(instances) {
        raw.instance(at, indom, id, name);
    }
    raw.value(values, 11, 0, metrics, ids).value(values + 32, 12, 0, metrics + 104, 0);
    raw
}

/// Writes two files with the same instance domain. The first file also has other metrics.
fn write(directory: &Path) {
    let first = file(1, [(1, "one"), (2, "two")]);
    let mut second = file(11, [(3, "three"), (4, "four")]);
    for (i, name) in (0u64..).zip(["other", "more", "gone", "worse"]) {
        second.put(104 + i * 104, &[0; 64]).put(104 + i * 104, name.as_bytes());
    }
    fs::write(directory.join("a"), first.0).unwrap();
    fs::write(directory.join("b"), second.0).unwrap();
}

/// Returns the output and log lines of a tool that loads an agent, without times and process.
fn run(scene: &Scene, object: &Path, tool: &str, args: &[&str]) -> (String, Vec<String>) {
    let names = scene.files().with_file_name("names");
    fs::write(&names, "root {\n    mmv 70:*:*\n}\n").unwrap();
    // The tools want the name of a shared object without its suffix.
    let object = object.with_extension("");
    let mut tool = Command::new(tool);
    tool.env("PCP_TMP_DIR", scene.files().parent().unwrap()).arg("-n").arg(names);
    tool.args(["-L", "-Kclear", &format!("-Kadd,70,{},mmv_init", object.display())]).args(args);
    let output = tool.output().unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    let without_start = |line: &str| line.split_once(") ").unwrap_or(("", line)).1.to_owned();
    let lines = log.lines().filter(|line| !line.is_empty()).map(without_start).collect();
    (String::from_utf8(output.stdout).unwrap(), lines)
}

#[test]
#[ignore = "needs PCP"]
fn what_has_no_value_is_in_the_log_as_under_c() {
    let scene = Scene::new();
    write(&scene.files());
    let object = scene.pcp.path("PCP_PMDASADM_DIR").join("mmv/pmda_mmv.so");
    let pminfo = |object: &Path| run(&scene, object, "pminfo", &["-f", "mmv"]);
    let mut c = pminfo(&object);
    for line in &mut c.1 {
        // PCP 7's agent says it this way.
        if let Some(rest) = line.strip_prefix("Error: verify_metric_item: ") {
            *line = format!("Warning: MMV: verify_metric_item: {rest}");
        }
    }
    for part in [
        "Warning: MMV: verify_metric_item: invalid item 1024 (mmv.bad) in a, ignored",
        "Error: pmdaFetch: PMID 70.7.1 not handled by fetch callback",
        "Error: pmdaFetch: PMID 70.7.3 not handled by fetch callback",
    ] {
        assert!(c.1.iter().any(|line| line == part), "{part} is not in\n{c:#?}");
    }
    let ours = pminfo(&built("pmda_mmv"));
    assert_eq!(ours.0, c.0);
    // PCP 7 logs these, PCP 6 does not.
    let (instances, lines): (Vec<_>, Vec<_>) = ours.1.into_iter().partition(|line| line.contains(" Instance "));
    let c: Vec<_> = c.1.into_iter().filter(|line| !line.contains(" Instance ")).collect();
    assert_eq!(lines, c);
    let expected = ["-1 of PMID 70.7.13", "1 of PMID 70.7.11", "2 of PMID 70.7.11", "4 of PMID 70.7.11"];
    let line = |of| format!("Warning: pmdaFetch: Instance {of} not handled by fetch callback");
    assert_eq!(instances, expected.map(line));

    // C's log grows with every fetch.
    let fetched = |object: &Path| {
        let (values, log) = run(&scene, object, "pmval", &["-s", "5", "-t", "0.01", "mmv.each"]);
        assert_eq!(values.lines().filter(|line| line.trim().starts_with("11 ")).count(), 5, "{values}");
        log.iter().filter(|line| line.contains("PMID 70.7.1 not")).count()
    };
    assert_eq!((fetched(&object), fetched(&built("pmda_mmv"))), (15, 3));
}

#[test]
#[ignore = "needs PCP"]
fn dropped_lines_are_counted_by_a_metric() {
    let scene = Scene::new();
    for number in 0..50 {
        let instances = [(1, "one"), (2, "two")];
        let mut bad = file(1, instances);
        bad.i32(36, 100 + number);
        fs::write(scene.files().join(format!("f{number}")), bad.0).unwrap();
    }
    let pmcd = scene.under(scene.ours());
    let dropped = pmcd.run("pminfo", ["-f", "mmv.control.limits.log_lines"]).ok();
    assert!(dropped.contains("value ") && !dropped.contains("value 0\n"), "{dropped}");
    // Now the metric is listed as well.
    assert!(pmcd.run("pminfo", ["mmv.control"]).ok().contains("mmv.control.limits.log_lines"));
    let text = pmcd.run("pminfo", ["-dT", "mmv.control.limits.clients"]).ok();
    assert!(text.contains("64-bit unsigned int") && text.contains("there were too many clients"), "{text}");
    assert!(pmcd.log("mmv").matches("invalid item 1024").count() < 50);
}
