//! The configuration changes while the agent runs.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::scene::{Scene, client, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pmapi::Atom;
use testkit::{Pmcd, wait_for};

const CONFIG: &str = "one = sample.long.one\ntwo = one + 1\nbins = sample.bin\nlast = sample.long.million\n";
const REORDERED: &str =
    "new = 5 + sample.long.one\nlast = sample.long.million\nbins = sample.bin\none = sample.long.one\n";
const BAD: &str = "wrong = sample.long.one +\nmissing = no.such.metric + 1\n";

/// Returns identifiers and descriptors of metrics that stay.
fn identifiers(pmcd: &Pmcd) -> String {
    let metrics = ["derived.one", "derived.bins", "derived.last"];
    until(pmcd, "pminfo", &[&["-f"][..], &metrics].concat(), "\"bin-900\"] value 900");
    pmcd.run("pminfo", [&["-md"][..], &metrics].concat()).ok() + &pmcd.run("pmprobe", ["-I", "derived.bins"]).ok()
}

#[test]
#[ignore = "needs PCP"]
fn numbers_stay_the_same() {
    let scene = Scene::new(CONFIG);
    let mut pmcd = scene.start(&["-t", "100msec"]);
    let before = identifiers(&pmcd);
    for how in ["store", "signal", "restart"] {
        for (config, what, value) in [(REORDERED, "derived.new", "value 6"), (CONFIG, "derived.two", "value 2")] {
            scene.write(config);
            match how {
                "store" => _ = pmcd.run("pmstore", ["derived.control.reload", "1"]).ok(),
                "signal" => kill(Pid::from_raw(pmcd.agent_pid("derived").unwrap()), Signal::SIGHUP).unwrap(),
                _ => pmcd.restart(),
            }
            until(&pmcd, "pminfo", &["-f", what], value);
            assert_eq!(identifiers(&pmcd), before, "{how}");
        }
        until(&pmcd, "pminfo", &["-f", "derived.new"], "Unknown metric name");
    }
    assert_eq!(pmcd.agent_status("derived"), 0);
}

#[test]
#[ignore = "needs PCP"]
fn what_is_wrong_is_told_and_the_rest_goes_on() {
    let scene = Scene::new(CONFIG);
    let pmcd = scene.start(&["-t", "100msec"]);
    until(&pmcd, "pminfo", &["-f", "derived.two"], "value 2");
    let none = pmcd.run("pminfo", ["-f", "derived.control.message"]).ok();
    assert!(none.contains("No value(s) available"), "{none}");
    scene.write(&format!("{CONFIG}{BAD}itself = derived.control.samples + 1\nround = about\nabout = round\n"));
    pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
    let message = until(&pmcd, "pminfo", &["-f", "derived.control.message"], "no.such.metric");
    for part in [
        "syntax error\n sample.long.one +\n                 ^\n",
        "expected to follow PLUS",
        "or \"wrong\"] value \"[/",
        "or \"missing\"] value",
        ":6] Semantic error: derived metric missing: operand no.such.metric: Unknown operand metric",
        "itself: operand derived.control.samples: Unknown operand metric",
        "round -> about -> round",
    ] {
        assert!(message.contains(part), "{part} is not in\n{message}");
    }
    let log = pmcd.log("derived");
    for part in [
        ") Warning:  sample.long.one +\n",
        ") Warning:                  ^\n",
        "expected to follow PLUS",
        "operand no.such.metric: Unknown operand metric",
    ] {
        assert!(log.contains(part), "{part} is not in\n{log}");
    }
    until(&pmcd, "pminfo", &["-f", "derived.two"], "value 2");
    let counts = pmcd.run("pminfo", ["-f", "derived.control.definitions"]).ok();
    assert!(counts.contains("good\n    inst [0 or \"derived\"] value 4"), "{counts}");
    assert!(counts.contains("bad\n    inst [0 or \"derived\"] value 5"), "{counts}");
    // Without the file the agent has no derived metrics, but it still handles requests and reports the problem.
    fs::remove_file(scene.config()).unwrap();
    pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
    let message = until(&pmcd, "pminfo", &["-f", "derived.control.message"], "No such file");
    assert!(message.contains(scene.config().to_str().unwrap()), "{message}");
    until(&pmcd, "pminfo", &["-f", "derived.two"], "Unknown metric name");
}

#[test]
#[ignore = "needs PCP"]
fn dropped_log_lines_are_counted_by_a_metric() {
    let scene = Scene::new(&format!("{CONFIG}{BAD}"));
    let pmcd = scene.start(&["-t", "100msec"]);
    until(&pmcd, "pminfo", &["-f", "derived.two"], "value 2");
    let dropped = || pmcd.run("pminfo", ["-f", "derived.control.limits.log_lines"]).ok();
    assert!(dropped().contains("value 0\n"), "{}", dropped());
    // A reload logs the same problems about the same places.
    for _ in 0..200 {
        pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
        if !dropped().contains("value 0\n") {
            break;
        }
    }
    assert!(!dropped().contains("value 0\n"), "{}", dropped());
}

#[test]
#[ignore = "needs PCP"]
fn names_are_there_when_a_store_has_been_answered() {
    let scene = Scene::new(CONFIG);
    let pmcd = scene.start(&["-t", "100msec"]);
    until(&pmcd, "pminfo", &["-f", "derived.two"], "value 2");
    let mut client = client(&pmcd);
    let reload = client.lookup_name("derived.control.reload").unwrap();
    let found = (0..20).filter(|number| {
        // By then the sampler has finished with the previous reload.
        sleep(Duration::from_millis(50));
        scene.write(&format!("{CONFIG}now{number} = sample.long.ten + sample.long.one\n"));
        client.store(reload, &[(None, Atom::U32(1))]).unwrap();
        client.lookup_name(&format!("derived.now{number}")).is_ok()
    });
    // On a busy machine binding may take longer. If the agent did not wait for names, there would never be any.
    assert!(found.count() > 0);
}

/// A group has an instance although none of its definitions is valid, and the controls of libpcp set debug options.
#[test]
#[ignore = "needs PCP"]
fn what_is_refused_is_counted_and_debug_output_is_on_request() {
    let scene = Scene::new("wrong = sample.long.one +\nworse = (\n");
    let pmcd = scene.start(&["-t", "100msec"]);
    let bad = until(&pmcd, "pminfo", &["-f", "derived.control.definitions.bad"], "value");
    assert!(bad.contains("or \"derived\"] value 2"), "{bad}");
    let good = pmcd.run("pminfo", ["-f", "derived.control.definitions.good", "derived.control.samples"]).ok();
    assert_eq!(good.matches("or \"derived\"] value 0").count(), 2, "{good}");
    assert!(!pmcd.log("derived").contains("parsed as"));

    scene.write(&format!("#control DEBUG_SYNTAX=1,DEBUG_SEMANTICS=1\n#control DEBUG_EVAL=1\n{CONFIG}{BAD}"));
    pmcd.run("pmstore", ["derived.control.reload", "1"]).ok();
    until(&pmcd, "pminfo", &["-f", "derived.two"], "value 2");
    wait_for("the values in the log", || pmcd.log("derived").contains("Debug: two at "));
    let log = pmcd.log("derived");
    for part in [
        "two = one + 1: parsed as #0 one, #1 1, #2 (#0 + #1)",
        "wrong = sample.long.one +: refused: ",
        "two: bound: Desc {",
        "missing: not bound: operand no.such.metric: Unknown operand metric",
        " s: 1 value: 2\n",
        " s: 9 values: 100=100 200=200",
    ] {
        assert!(log.contains(part), "{part} is not in\n{log}");
    }
    assert!(pmcd.run("pminfo", ["-f", "derived.control.definitions.bad"]).ok().contains("or \"derived\"] value 2"));
}
