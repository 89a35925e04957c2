//! Sources of operands fail and come back. In between there are errors or no values, but no wrong values. The agent
//! keeps running.

use crate::scene::{Outcome, Scene, Watch, operand, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pmapi::{Error, Inst};
use testkit::Pmcd;

const CONFIG: &str = "\
raw = operand.count
step = delta(operand.count)
speed = rate(operand.count)
named = operand.value
chosen = operand.value[b]
like = matchinst(/^b/, operand.value)
changing = operand.changing + operand.changing
";

fn names() -> Vec<String> {
    let names = CONFIG.lines().filter_map(|line| Some(line.split_once(" = ")?.0));
    names.map(|name| format!("derived.{name}")).collect()
}

fn start(options: &[&str], scene: &Scene) -> Pmcd {
    scene.pmcd().options(options).agent(operand()).agent(scene.agent(&["-t", "100msec"])).start()
}

fn watch(pmcd: &Pmcd) -> Watch {
    let names = names();
    Watch::new(pmcd, &names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn all_there(values: &[Outcome]) -> bool {
    values.iter().all(|values| values.as_ref().is_ok_and(|values| !values.is_empty()))
}

/// Checks that errors are about operands, and that no difference is over a restart of the agent. Such a difference
/// would be negative, because the counter restarts with the agent.
fn nothing_wrong(values: &[Outcome]) {
    for (name, values) in names().iter().zip(values) {
        match values {
            Err(e) => assert!(![Error::IPC, Error::TIMEOUT, Error::PMDANOTREADY].contains(e), "{name}: {e}"),
            Ok(values) => assert!(values.iter().all(|(_, value)| *value > 0.0 && *value < 1e6), "{name}: {values:?}"),
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_dies_or_hangs() {
    let scene = Scene::new(CONFIG);
    for how in [Signal::SIGKILL, Signal::SIGSTOP] {
        // pmcd waits one second for a reply of an agent.
        let pmcd = start(&["-t", "1"], &scene);
        let mut watch = watch(&pmcd);
        watch.until("all there", all_there);
        // This value is higher than those after the restart.
        pmcd.run("pmstore", ["operand.reset", "500000"]).ok();
        watch.until("the new value", |values| matches!(&values[0], Ok(values) if values[0].1 > 5e5));
        watch.until("no jump", |values| matches!(&values[1], Ok(values) if values.first().is_some_and(|v| v.1 < 10.0)));
        let pid = Pid::from_raw(pmcd.agent_pid("operand").unwrap());
        kill(pid, how).unwrap();
        watch.until("errors", |values| {
            nothing_wrong(values);
            values.iter().all(|values| *values == Err(Error::NOAGENT))
        });
        // pmcd has dropped a stopped agent without ending it.
        let _ = kill(pid, Signal::SIGKILL);
        // Makes pmcd restart the agent.
        pmcd.sighup();
        let back = watch.until("all there again", |values| {
            nothing_wrong(values);
            all_there(values)
        });
        assert!(back[0].as_ref().unwrap()[0].1 < 1000.0, "{back:?}");
        assert_eq!(pmcd.agent_status("derived"), 0);
    }
}

#[test]
#[ignore = "needs PCP"]
fn instances_come_and_go() {
    let scene = Scene::new(CONFIG);
    let pmcd = start(&[], &scene);
    let mut watch = watch(&pmcd);
    watch.until("all there", all_there);
    let inst = |number| Some(Inst::new(number));
    // The value of an instance is the first byte of its name.
    type Step = (&'static str, &'static [(u32, u8)], &'static [u32], &'static [u32]);
    let steps: [Step; 4] = [
        ("0=a 1=b 7=bee", &[(0, b'a'), (1, b'b'), (7, b'b')], &[1], &[1, 7]),
        ("7=bee", &[(7, b'b')], &[], &[7]),
        ("3=c 7=d 8=b", &[(3, b'c'), (7, b'd'), (8, b'b')], &[8], &[8]),
        ("0=a 1=b", &[(0, b'a'), (1, b'b')], &[1], &[1]),
    ];
    for (instances, named, chosen, like) in steps {
        pmcd.run("pmstore", ["operand.instances", instances]).ok();
        let list = |values: &[u32]| values.iter().map(|number| inst(*number)).collect::<Vec<_>>();
        let named: Vec<_> = named.iter().map(|(number, value)| (inst(*number), f64::from(*value))).collect();
        watch.until(instances, |values| {
            let insts = |at: usize| values[at].as_ref().unwrap().iter().map(|(inst, _)| *inst).collect::<Vec<_>>();
            values[3] == Ok(named.clone()) && insts(4) == list(chosen) && insts(5) == list(like)
        });
        // The names belong to the values.
        let text = pmcd.run("pminfo", ["-f", "derived.named"]).ok();
        for pair in instances.split(' ') {
            let (number, name) = pair.split_once('=').unwrap();
            assert!(text.contains(&format!("[{number} or \"{name}\"] value {}", name.as_bytes()[0])), "{text}");
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_operand_changes_its_type() {
    let scene = Scene::new(CONFIG);
    let pmcd = start(&[], &scene);
    watch(&pmcd).until("all there", all_there);
    let descriptor = |part: &str| until(&pmcd, "pminfo", &["-df", "derived.changing"], part);
    let before = descriptor("value 14");
    assert!(before.contains("32-bit unsigned int") && before.contains("Units: byte"), "{before}");
    pmcd.run("pmstore", ["operand.kind", "none"]).ok();
    descriptor("Unknown metric name");
    pmcd.run("pmstore", ["operand.kind", "double"]).ok();
    let after = descriptor("value 5");
    assert!(after.contains("double") && after.contains("Units: sec"), "{after}");
    // The type changes again. The metric exists at all times.
    pmcd.run("pmstore", ["operand.kind", "u32"]).ok();
    let again = descriptor("value 14");
    assert_eq!(again, before);
    assert_eq!(pmcd.agent_status("derived"), 0);
}

#[test]
#[ignore = "needs PCP"]
fn a_pmcd_of_operands_restarts() {
    let scene = Scene::new(CONFIG);
    let mut other = scene.pmcd().agent(operand()).start();
    let pmcd = scene.pmcd().agent(scene.agent(&["-t", "100msec", "--host", &other.host()])).start();
    let mut watch = watch(&pmcd);
    watch.until("all there", all_there);
    other.run("pmstore", ["operand.reset", "500000"]).ok();
    watch.until("the new value", |values| matches!(&values[0], Ok(values) if values[0].1 > 5e5));
    watch.until("no jump", |values| matches!(&values[1], Ok(values) if values.first().is_some_and(|v| v.1 < 10.0)));
    for _ in 0..2 {
        other.restart();
        let back = watch.until("all there again", |values| {
            nothing_wrong(values);
            all_there(values) && values[0].as_ref().is_ok_and(|values| values[0].1 < 5e5)
        });
        assert!(back[1].as_ref().unwrap()[0].1 < 100.0, "{back:?}");
    }
    drop(other);
    let gone = watch.until("errors", |values| values.iter().all(Result::is_err));
    assert!(gone.iter().all(|values| *values == Err(Error::AGAIN)), "{gone:?}");
    assert_eq!(pmcd.agent_status("derived"), 0);
}

#[test]
#[ignore = "needs PCP"]
fn a_pmcd_that_comes_late() {
    let scene = Scene::new(CONFIG);
    let mut other = scene.pmcd().agent(operand()).start();
    let pmcd = scene.pmcd().agent(scene.agent(&["-t", "100msec", "--host", &other.host()]));
    other.stop();
    let pmcd = pmcd.start();
    // The agent answers before it has derived metrics.
    until(&pmcd, "pminfo", &["-f", "derived.control.definitions.good"], "value 0");
    until(&pmcd, "pminfo", &["-f", "derived.control.errors"], "value");
    other.restart();
    watch(&pmcd).until("all there", all_there);
}

#[test]
#[ignore = "needs PCP"]
fn a_pmcd_of_operands_hangs() {
    let scene = Scene::new(CONFIG);
    let other = scene.pmcd().agent(operand()).start();
    let agent = scene.agent(&["-t", "100msec", "--host", &other.host()]);
    let pmcd = scene.pmcd().env("PMCD_REQUEST_TIMEOUT", "2").agent(agent).start();
    let mut watch = watch(&pmcd);
    watch.until("all there", all_there);
    let pid = other.run("pminfo", ["-f", "pmcd.pid"]).ok();
    let pid = Pid::from_raw(pid.split_whitespace().last().unwrap().parse().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    // Old values stay for a while, then there are none. Clients are answered all the time.
    watch.until("errors", |values| {
        nothing_wrong(values);
        values.iter().all(|values| *values == Err(Error::AGAIN))
    });
    // A client may ask for the names of values that it received before.
    let mut client = crate::scene::client(&pmcd);
    let named = client.lookup_name("derived.named").unwrap();
    let indom = client.lookup_desc(named).unwrap().indom.unwrap();
    let instances = client.indom(indom).unwrap();
    assert!(instances.iter().any(|(_, name)| name == b"b"), "{instances:?}");
    let mut timed_out = Watch::new(&pmcd, &["derived.control.errors"]);
    timed_out.until("a time-out", |values| values[0].as_ref().is_ok_and(|errors| errors[0].1 > 0.0));
    kill(pid, Signal::SIGCONT).unwrap();
    watch.until("all there again", |values| {
        nothing_wrong(values);
        all_there(values)
    });
    assert_eq!(pmcd.agent_status("derived"), 0);
}
