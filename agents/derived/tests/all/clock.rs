//! `delta` and `rate` are over the agent's own samples, whichever clients fetch them and however often.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use crate::scene::{Scene, Watch, operand};

const CONFIG: &str = "\
raw = operand.count
step = delta(operand.count)
speed = rate(operand.count)
";

/// The counter grows by one with each sample, so a difference equals the number of samples since the earlier value.
#[test]
#[ignore = "needs PCP"]
fn clients_do_not_disturb_each_other() {
    let scene = Scene::new(&format!("{CONFIG}other = operand.count * 2\nanother = operand.count * 3\n"));
    let pmcd = scene.pmcd().agent(operand()).agent(scene.agent(&["-t", "200msec"])).start();
    let names = ["derived.raw", "derived.step", "derived.speed"];
    let (mut fast, mut slow) = (Watch::new(&pmcd, &names), Watch::new(&pmcd, &names));
    let mut seen: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
    let mut add = |values: Vec<Option<f64>>| {
        let [Some(raw), Some(step), Some(speed)] = values[..] else { return };
        let values = [step, speed];
        // All clients get the same values of a sample.
        assert_eq!(*seen.entry(raw as u64).or_insert(values), values);
    };
    for round in 0..100 {
        add(fast.numbers());
        if round % 7 == 0 {
            add(slow.numbers());
        }
        // Metrics that another client begins to fetch are sampled in between.
        if round % 30 == 15 {
            Watch::new(&pmcd, &["derived.other", "derived.another"]).fetch();
        }
        sleep(Duration::from_millis(20));
    }
    assert!(seen.len() > 3, "{seen:?}");
    for (before, after) in seen.keys().zip(seen.keys().skip(1)) {
        let [step, speed] = seen[after];
        // This client may have missed a sample, and a sample for another client may have come in between. So the
        // difference is at least 1, and at most the difference of the values that this client has seen.
        assert!(step >= 1.0 && step <= (after - before) as f64, "{seen:?}");
        assert!(speed > 0.0, "{seen:?}");
    }
    let steps: Vec<f64> = seen.values().map(|[step, _]| *step).collect();
    assert!(steps.contains(&1.0), "{steps:?}");
}

#[test]
#[ignore = "needs PCP"]
fn the_interval_can_be_stored() {
    let scene = Scene::new(CONFIG);
    let pmcd = scene.pmcd().agent(operand()).agent(scene.agent(&["-t", "1hour"])).start();
    let mut watch = Watch::new(&pmcd, &["derived.raw", "derived.step"]);
    // The first sample is taken at once, the second one after an hour.
    let values = watch.until("sampled", |values| values.iter().all(Result::is_ok));
    assert_eq!(values[1], Ok(vec![]));
    for bad in ["0", "-1", "1e9", "0.001"] {
        let text = pmcd.run("pmstore", ["derived.control.interval", bad]).text;
        assert!(text.contains("Bad input to pmstore"), "{bad}: {text}");
    }
    let text = pmcd.run("pmstore", ["-i", "derived", "derived.control.interval", "0.05"]).ok();
    assert!(text.contains("old value=3600 new value=0.05"), "{text}");
    watch.until("a difference", |values| values[1].as_ref().is_ok_and(|values| !values.is_empty()));
    assert!(pmcd.run("pminfo", ["-f", "derived.control.interval"]).ok().contains("value 0.05"));
}

/// A reload without changes keeps the history, and does not notify clients of changed names.
#[test]
#[ignore = "needs PCP"]
fn a_reload_keeps_the_history_of_what_is_unchanged() {
    let scene = Scene::new(CONFIG);
    let pmcd = scene.pmcd().agent(operand()).agent(scene.agent(&["-t", "2sec"])).start();
    let mut watch = Watch::new(&pmcd, &["derived.step"]);
    let has_value = |values: &[Result<Vec<_>, _>]| values[0].as_ref().is_ok_and(|values| !values.is_empty());
    watch.until("a difference", has_value);
    for n in 0..5 {
        if n == 3 {
            // A comment is not a change.
            scene.write(&format!("# a comment\n{CONFIG}"));
        }
        pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
        let values = watch.fetch();
        assert!(has_value(&values), "{n}: {values:?}");
    }
}

/// pmcd knows the users of clients on its Unix socket, but not those of other clients.
#[test]
#[ignore = "needs PCP and root"]
fn controls_are_for_administrators() {
    let scene = Scene::new(CONFIG);
    let pmcd = scene.start(&[]);
    pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
    pmcd.run("pmstore", ["derived.control.interval", "5"]).ok();
    let unix = pmcd.host();
    let inet = format!("127.0.0.1:{}", pmcd.port());
    std::fs::set_permissions(pmcd.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (host, user) in [(&unix, "nobody"), (&inet, "root"), (&inet, "nobody")] {
        for metric in ["derived.control.reload", "derived.control.interval"] {
            let mut pmstore = std::process::Command::new("setpriv");
            pmstore.args(["--clear-groups", "--reuid", user, "pmstore", "-h", host, metric, "1"]);
            let output = pmstore.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("No permission"), "{host} {user} {metric}: {output:?}");
        }
    }
    let log = pmcd.log("derived");
    assert!(log.contains("refused to let an unknown user store") && log.contains("refused to let user 65534"), "{log}");
}
