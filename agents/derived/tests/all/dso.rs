//! The agent as a shared object in pmcd: its threads send requests to the pmcd that has loaded it.

use std::fs;
use std::thread;

use crate::scene::{Scene, Watch, operand, until};
use testkit::{Agent, built};

const CONFIG: &str = "\
plus = sample.long.one + sample.long.hundred
bins = sample.bin - 7
raw = operand.square
step = delta(operand.square)
";

#[test]
#[ignore = "needs PCP"]
fn in_pmcd() {
    let scene = Scene::new(CONFIG);
    let dir = scene.dir.path().join("pmdaderived");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("some"), CONFIG).unwrap();
    let agent = Agent::new("derived", 404, built("pmda_derived")).dso("derived_init").pmns(&scene.pmns(&dir));
    let pmcd = scene.pmcd().env("PCP_SYSCONF_DIR", scene.dir.path()).agent(scene.sample.agent()).agent(operand());
    let mut pmcd = pmcd.agent(agent).start();
    let mut numbers = None;
    for _ in 0..2 {
        until(&pmcd, "pminfo", &["-f", "derived.plus"], "value 101");
        let text = until(&pmcd, "pminfo", &["-f", "derived.bins"], "value 893");
        assert!(text.contains("[900 or \"bin-900\"] value 893"), "{text}");
        let now = pmcd.run("pminfo", ["-m", "derived.plus", "derived.step"]).ok();
        assert_eq!(*numbers.get_or_insert(now.clone()), now);

        // pmcd keeps answering clients while the agent's threads send it requests.
        pmcd.run("pmstore", ["derived.control.interval", "0.02"]).ok();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut watch = Watch::new(&pmcd, &["derived.plus", "derived.raw", "derived.step"]);
                    watch.until("all there", |values| values.iter().all(|v| v.as_ref().is_ok_and(|v| !v.is_empty())));
                    for _ in 0..200 {
                        let values = watch.numbers();
                        if let [_, Some(raw), Some(step)] = values[..] {
                            // The difference between the squares of two samples, which need not be consecutive.
                            assert!(step > 0.0 && step < raw, "{values:?}");
                        }
                    }
                });
            }
        });

        fs::write(dir.join("other"), "new = sample.long.ten * 3\n").unwrap();
        pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
        until(&pmcd, "pminfo", &["-f", "derived.new"], "value 30");
        pmcd.kill_agent("sample");
        until(&pmcd, "pminfo", &["-f", "derived.new"], "Error: No PMCD agent for domain of request");
        // SIGHUP makes pmcd restart agent `sample`.
        pmcd.sighup();
        until(&pmcd, "pminfo", &["-f", "derived.new"], "value 30");
        pmcd.restart();
    }
    let log = pmcd.log("pmcd");
    assert!(!log.contains("timeout") && !log.contains("panic"), "{log}");
}
