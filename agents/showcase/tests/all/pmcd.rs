//! The agent in the real pmcd, as a daemon and as a shared object: PCP's tools show each feature.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use testkit::{Agent, Pcp, Pmcd, built};

const DOMAIN: u16 = 402;

/// Adds the names that the agent writes for its installation.
fn named(agent: Agent) -> Agent {
    let dir = tempfile::tempdir().unwrap();
    let pmda = dir.path().join("pmda");
    let mut write = Command::new(env!("CARGO_BIN_EXE_pmdashowcase"));
    assert!(write.arg("--write-pmda").arg(&pmda).status().unwrap().success());
    agent.pmns(&pmda.join("pmns"))
}

fn daemon() -> Agent {
    named(Agent::new("showcase", DOMAIN, env!("CARGO_BIN_EXE_pmdashowcase")))
}

fn object() -> Agent {
    named(Agent::new("showcase", DOMAIN, built("pmda_showcase")).dso("showcase_init"))
}

/// Starts a pmcd with the daemon, and a pmcd with the shared object.
fn hosts() -> [Pmcd; 2] {
    [daemon(), object()].map(|agent| Pcp::required().pmcd().agent(agent).start())
}

trait Tools {
    fn says(&self, command: &str) -> String;
    fn shows(&self, command: &str, parts: &[&str]);
}

impl Tools for Pmcd {
    /// Returns the output of a command, whose words must not contain blanks.
    fn says(&self, command: &str) -> String {
        let (tool, arguments) = command.split_once(' ').unwrap();
        self.run(tool, arguments.split(' ')).text
    }

    #[track_caller]
    fn shows(&self, command: &str, parts: &[&str]) {
        let text = self.says(command);
        parts.iter().for_each(|part| assert!(text.contains(part), "{command}: {part:?} is not in\n{text}"));
    }
}

#[test]
#[ignore = "needs PCP"]
fn everything_is_described() {
    for pmcd in hosts() {
        let text = pmcd.says("pminfo -dmtT showcase");
        let metrics = text.lines().filter(|line| line.starts_with("showcase.")).count();
        assert!(metrics > 80, "{metrics} metrics in\n{text}");
        assert_eq!(text.matches("\nHelp:\n").count(), metrics, "{text}");
        assert!(!text.contains("\nHelp:\n\n"), "{text}");
        assert!(!pmcd.says("pminfo -f showcase").contains("IPC protocol failure"));
    }
}

#[test]
#[ignore = "needs PCP"]
fn values_of_every_type() {
    for pmcd in hosts() {
        for (metric, value) in [
            ("i32.million", "1 1000000"),
            ("u64.hundred", "1 100"),
            ("float.ten", "1 10"),
            ("double.million", "1 1000000"),
            ("string.hello", "1 \"hello, world\""),
            ("string.empty", "1 \"\""),
            ("aggregate", "1 [010203]"),
            ("aggregate_static", "1 [010203]"),
        ] {
            let metric = format!("showcase.constant.{metric}");
            assert_eq!(pmcd.says(&format!("pmprobe -v {metric}")), format!("{metric} {value}\n"));
        }
        pmcd.shows("pminfo -d showcase.constant.no_support", &["Not Supported"]);
    }
}

#[test]
#[ignore = "needs PCP"]
fn counters_have_rates() {
    for pmcd in hosts() {
        // Each value takes one fetch. The rate of the seconds is 1, whatever the interval is.
        let text = pmcd.says("pmval -s 3 -t 0.2 -f 1 showcase.counter.double");
        assert!(text.contains("semantics: cumulative counter (converting to rate)"), "{text}");
        assert!(text.lines().any(|line| line.trim() == "1.0"), "{text}");
        pmcd.shows("pmstore showcase.counter.fetches 15", &["new value=15"]);
        // The counter passes 2^32, and the rate stays above zero.
        let text = pmcd.says("pmval -s 4 -t 0.05 showcase.counter.wrap");
        assert!(!text.contains('-') || !text.contains(" -"), "{text}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn instances_are_stored_one_by_one() {
    for pmcd in hosts() {
        pmcd.shows("pmstore -i bin-300 showcase.bin.level 0.25", &["inst [300 or \"bin-300\"]", "new value=0.25"]);
        pmcd.shows("pminfo -f showcase.bin.level", &["inst [200 or \"bin-200\"] value 0\n", "\"bin-300\"] value 0.25"]);
        pmcd.shows("pmstore showcase.bin.level 2", &["Bad input to pmstore"]);
        pmcd.shows("pmprobe -i showcase.bin.odd", &["showcase.bin.odd 5 ?100 ?300 ?500 ?700 ?900"]);
        pmcd.shows("pmval -s 1 -i bin-900 showcase.bin.size", &["bin-900", "900"]);
        pmcd.shows("pminfo -l showcase.bin.size", &["\"bin\":100", "\"indom_name\":\"bin\""]);
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: a domain of 100,000 instances.
fn domains_grow_and_shrink() {
    for pmcd in hosts() {
        let counts: Vec<String> = (0..8).map(|_| pmcd.says("pmprobe showcase.mirage.height")).collect();
        assert!(counts.windows(2).all(|two| two[0] != two[1]), "{counts:?}");
        pmcd.shows("pmstore showcase.many.count 100000", &["new value=100000"]);
        pmcd.shows("pmprobe showcase.many.number", &["showcase.many.number 100000"]);
        pmcd.shows("pmval -s 1 -i i-99999 showcase.many.number", &["99999"]);
        pmcd.shows("pmstore showcase.many.count 2", &["new value=2"]);
        pmcd.shows("pmprobe -I showcase.many.number", &["showcase.many.number 2 \"i-0\" \"i-1\""]);
        pmcd.shows("pmstore showcase.many.count 0", &["Bad input to pmstore"]);
    }
}

#[test]
#[ignore = "needs PCP"]
fn stores_of_every_type() {
    for pmcd in hosts() {
        for (name, value) in [
            ("i32", "-2147483648"),
            ("u32", "4294967295"),
            ("i64", "-9223372036854775808"),
            ("u64", "18446744073709551615"),
            ("float", "0.5"),
            ("double", "-1e+300"),
            ("string", "three"),
        ] {
            pmcd.run("pmstore", ["--", &format!("showcase.write.{name}"), value]).ok();
            let text = pmcd.says(&format!("pmprobe -v showcase.write.{name}"));
            assert_eq!(text.replace('"', ""), format!("showcase.write.{name} 1 {value}\n"));
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn stores_are_events() {
    for pmcd in hosts() {
        pmcd.shows("pmstore -i bin-500 showcase.bin.level 1", &["new value=1"]);
        pmcd.shows("pmstore showcase.write.u32 7", &["new value=7"]);
        let bin = "param.inst (402.9.12)\n        value 500\n    showcase.event.param.client (402.9.13)\n";
        for metric in ["records", "highres_records"] {
            pmcd.shows(&format!("pminfo -x showcase.event.{metric}"), &["value [2 event records", bin]);
            let text = pmcd.says(&format!("pmval -x 8 -s 1 showcase.event.{metric}"));
            assert!(text.contains("1 event records") && text.contains("showcase.event.param.cluster 8"), "{text}");
        }
        pmcd.shows("pmprobe -v showcase.event.count", &["showcase.event.count 1 2"]);
        pmcd.shows("pmprobe -v showcase.event.clients", &["showcase.event.clients 1 0"]);
    }
}

#[test]
#[ignore = "needs PCP"]
fn names_come_and_go() {
    for pmcd in hosts() {
        assert_eq!(pmcd.says("pminfo showcase.dynamic"), "showcase.dynamic.first\n");
        pmcd.shows("pmstore showcase.names.add disk.reads", &["new value=\"disk.reads\""]);
        assert_eq!(pmcd.says("pminfo showcase.dynamic.disk"), "showcase.dynamic.disk.reads\n");
        pmcd.shows("pminfo -df showcase.dynamic.disk.reads", &["64-bit unsigned int", "Semantics: counter", "value 1"]);
        pmcd.shows("pmstore showcase.names.remove disk", &["new value=\"disk\""]);
        pmcd.shows("pminfo -f showcase.dynamic.disk.reads", &["Unknown metric name"]);
        pmcd.shows("pmstore showcase.names.add a..b", &["Bad input to pmstore"]);
    }
}

#[test]
#[ignore = "needs PCP"]
fn errors_on_demand() {
    for pmcd in hosts() {
        pmcd.shows("pmstore -- showcase.fail.code -12351", &["new value=-12351"]);
        pmcd.shows("pmprobe showcase.fail.on_demand", &["-12351 Missing metric value(s)"]);
        pmcd.shows("pmprobe showcase.fail.no_values", &["showcase.fail.no_values 0"]);
        pmcd.shows("pmstore showcase.fail.panic 1", &["Generic error, already reported above"]);
        assert_eq!(pmcd.says("pmprobe -v showcase.fail.panic"), "showcase.fail.panic 1 0\n");
    }
}

#[test]
#[ignore = "needs PCP"]
fn a_source_that_hangs_keeps_nobody_waiting() {
    for pmcd in hosts() {
        while !pmcd.says("pmprobe -v showcase.source.readings").starts_with("showcase.source.readings 1 ") {}
        pmcd.shows("pmstore showcase.source.takes 3600000", &["new value=3600000"]);
        for _ in 0..20 {
            pmcd.shows("pmprobe showcase.source.readings", &["showcase.source.readings 1"]);
        }
        assert_eq!(pmcd.agent_status("showcase"), 0);
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: pmprobe runs until the agent is ready.
fn an_agent_that_is_not_ready() {
    let pmcd = Pcp::required().pmcd().agent(daemon()).start();
    let pid = pmcd.agent_pid("showcase");
    pmcd.says("pmstore showcase.not_ready 1500");
    pmcd.shows("pmprobe showcase.bin.size", &["Try again. Information not currently available"]);
    while !pmcd.says("pmprobe showcase.bin.size").ends_with(" 9\n") {}
    assert_eq!(pmcd.agent_pid("showcase"), pid);
}

#[test]
#[ignore = "needs PCP"]
fn clients_are_told_apart() {
    for pmcd in hosts() {
        let text = pmcd.says("pmval -s 3 -t 0.05 -r showcase.client.fetches");
        let values: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(values[values.len() - 3..], ["1", "2", "3"], "{text}");
        assert_eq!(pmcd.says("pmprobe -v showcase.client.count"), "showcase.client.count 1 0\n");
        let uid = nix::unistd::geteuid();
        assert_eq!(pmcd.says("pmprobe -v showcase.client.uid"), format!("showcase.client.uid 1 {uid}\n"));
        pmcd.shows("pmstore showcase.client.of_root 5", &[if uid.is_root() { "new value=5" } else { "No permission" }]);
        // pmcd does not know the user of a client on an Internet socket.
        let mut pmstore = Pcp::required().command("pmstore");
        pmstore.args(["-h", &format!("127.0.0.1:{}", pmcd.port()), "showcase.client.of_root", "6"]);
        let text = Pcp::required().run_command(pmstore, "").failed();
        assert!(text.contains("No permission to perform requested operation"), "{text}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn labels_of_every_level() {
    for pmcd in hosts() {
        let levels =
            ["\"agent\":\"showcase\"", "\"feature\":\"labels\"", "\"origin.room\":\"attic\",\"origin.shelf\":3"];
        pmcd.shows("pminfo -l showcase.label.levels", &levels);
        pmcd.shows("pminfo -l showcase.label.levels", &["\"level\":\"item\"", "\"remark\":", "\"language\":\"Rust\""]);
        pmcd.shows("pmstore showcase.label.changing merry", &["new value=\"merry\""]);
        pmcd.shows("pminfo -l showcase.label.changing", &["\"mood\":\"merry\""]);
    }
}
