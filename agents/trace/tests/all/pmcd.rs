//! The agent in the real pmcd, compared with PCP's agent, and with PCP's clients: pmtrace and programs in C.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::{Agent, Pcp, Pmcd, free_port};

/// All metrics except `trace.control.debug`, which was a number before PCP 7, and is a string since.
const METRICS: [&str; 9] = [
    "trace.transact",
    "trace.point",
    "trace.observe",
    "trace.counter",
    "trace.control.period",
    "trace.control.interval",
    "trace.control.buckets",
    "trace.control.port",
    "trace.control.reset",
];

/// A pmcd with PCP's agent or this one, and the agent's TCP port.
struct Traced {
    pcp: Pcp,
    pmcd: Pmcd,
    port: u16,
}

impl Traced {
    fn start(ours: bool, args: &[&str]) -> Traced {
        let pcp = Pcp::required();
        let c = pcp.c_agent("trace");
        let port = free_port("127.0.0.1");
        let agent = if ours {
            let agent = Agent::new("trace", 10, env!("CARGO_BIN_EXE_pmdatrace")).pmns(&c.pmns());
            agent.args(["-h".as_ref(), c.help().as_os_str()])
        } else {
            c.agent()
        };
        let agent = agent.args(["-I", &port.to_string()]).args(args);
        let pmcd = pcp.pmcd().pmdas_dir(c.pmdas_dir()).agent(agent).start();
        // The agent listens before it answers its first request.
        pmcd.run("pminfo", ["-f", "trace.control.port"]).ok();
        Traced { pcp, pmcd, port }
    }

    fn client(&self, mut command: Command) -> String {
        command.env("PCP_TRACE_HOST", "127.0.0.1").env("PCP_TRACE_PORT", self.port.to_string());
        self.pcp.run_command(command, "").ok()
    }

    fn pmtrace(&self, args: &[&str]) -> String {
        let mut command = self.pcp.command("pmtrace");
        command.args(args);
        self.client(command)
    }

    fn pminfo(&self, args: &[&str]) -> String {
        self.pmcd.run("pminfo", args).text
    }

    /// Runs pminfo until its output contains `part`, and returns the output.
    ///
    /// Clients of the asynchronous protocol exit before their trace events are counted.
    #[track_caller]
    fn until(&self, metric: &str, part: &str) -> String {
        let start = Instant::now();
        loop {
            let text = self.pminfo(&["-f", metric]);
            if text.contains(part) {
                return text;
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "no {part} in\n{text}\n{}{}",
                self.pmcd.log("trace"),
                self.pmcd.log("pmcd")
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// Removes what differs between two agents: host, port, and the label `agent`, which PCP's agent does not have.
    fn common(&self, text: &str) -> String {
        let text = text.replace(&self.pmcd.host(), "HOST").replace(&format!("value {}", self.port), "value PORT");
        text.replace("\"agent\":\"trace\",", "")
    }
}

fn both(args: &[&str], what: impl Fn(&Traced) -> String) -> String {
    let [c, ours] = [false, true].map(|ours| what(&Traced::start(ours, args)));
    assert!(c == ours, "--- C\n{c}\n--- ours\n{ours}");
    c
}

/// Compiles a program with `libpcp_trace`.
fn compiled(dir: &Path, source: &str) -> std::path::PathBuf {
    let file = dir.join("client.c");
    std::fs::write(&file, source).unwrap();
    testkit::compile(file, dir, &["-pthread", "-lpcp_trace", "-lpcp"])
}

#[test]
#[ignore = "needs PCP"]
fn it_is_described_as_pcps_agent() {
    let described = |traced: &Traced| {
        let mut text = String::new();
        let show = |text: &mut String| {
            for options in ["-d", "-m", "-t", "-T", "-I", "-l", "-f"] {
                let shown = traced.pminfo(&[&[options], &METRICS[..]].concat());
                let _ = writeln!(text, "=== {options}\n{}", traced.common(&shown));
            }
            text.push_str(&traced.pmcd.run("pmprobe", ["-i", "trace"]).text);
        };
        show(&mut text);
        traced.pmtrace(&["-q", "-v", "1.5", "size"]);
        traced.pmtrace(&["-q", "-c", "100", "bytes"]);
        traced.pmtrace(&["-q", "a point"]);
        traced.pmtrace(&["-q", "other"]);
        traced.until("trace.observe.count", "\"size\"] value 1");
        traced.until("trace.counter.count", "\"bytes\"] value 1");
        traced.until("trace.point.count", "\"other\"] value 1");
        show(&mut text);
        text
    };
    let text = both(&["-U", "1,-1,0,2,3,0", "-V", "0,0,1,0,0,6", "-N", "12", "-T", "1min"], described);
    for part in ["Units: Mbyte / sec", "Units: count x 10^6", "inst [2 or \"other\"] value 1", "value 1.5", "value 12"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn stores_are_answered_as_by_pcps_agent() {
    let stored = |traced: &Traced| {
        let mut text = String::new();
        for tag in ["foo", "bar", "eek"] {
            traced.pmtrace(&["-q", tag]);
            traced.until("trace.point.count", &format!("\"{tag}\"]"));
        }
        for args in [
            &["trace.control.period", "5"][..],
            &["trace.point.count", "1"],
            &["-i", "foo", "trace.point.count", "1"],
            &["trace.transact.count", "1"],
            &["trace.control.reset", "0"],
        ] {
            text.push_str(&traced.pmcd.run("pmstore", args).text);
            text.push_str(&traced.common(&traced.pminfo(&["-f", "trace.control.reset", "trace.point.count"])));
        }
        for tag in ["eek", "new", "bar"] {
            traced.pmtrace(&["-q", tag]);
            text.push_str(&traced.until("trace.point.count", &format!("\"{tag}\"]")));
        }
        text.push_str(&traced.pminfo(&["-f", "trace.point.count", "trace.point.rate"]));
        text
    };
    let text = both(&[], stored);
    assert!(text.contains("inst [4 or \"new\"] value 1"), "{text}");
}

#[test]
#[ignore = "needs PCP"]
// Slow: pminfo and pmtrace run until a period of six seconds has passed under both agents.
fn rates_and_times_are_those_of_pcps_agent() {
    let rolled = |traced: &Traced| {
        let mut text = String::new();
        (0..6).for_each(|_| _ = traced.pmtrace(&["-q", "point"]));
        // For a while, complete buckets have all points. After the period they have none.
        text.push_str(&traced.until("trace.point.rate", "\"point\"] value 1"));
        text.push_str(&traced.until("trace.point.rate", "No value(s) available"));
        text.push_str(&traced.until("trace.point.count", "\"point\"] value 6"));

        traced.pmtrace(&["-q", "-e", "sleep 0.5", "work"]);
        traced.pmtrace(&["-q", "-e", "sleep 1.5", "work"]);
        traced.until("trace.transact.rate", "\"work\"] value 0.33333334");
        for metric in ["min_time", "max_time", "ave_time", "total_time"] {
            // Cuts values to seconds. Half a second is left for starting `sleep`.
            let shown = traced.pminfo(&["-f", &format!("trace.transact.{metric}")]);
            text.push_str(shown.trim_end().rsplit_once('.').map_or(&shown, |(seconds, _)| seconds));
        }
        text
    };
    let text = both(&["-T", "6", "-N", "3"], rolled);
    for part in ["min_time\n    inst [1 or \"work\"] value 0", "max_time\n    inst [1 or \"work\"] value 1"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn programs_with_libpcp_trace_are_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let program = compiled(dir.path(), include_str!("client.c"));
    let counted = |traced: &Traced, mode: &str| {
        let mut command = Command::new(&program);
        command.arg(mode);
        let mut text = traced.client(command);
        assert_eq!(text, "");
        for (metric, value) in [("transact", 300), ("point", 2000), ("observe", 500), ("counter", 500)] {
            traced.until(&format!("trace.{metric}.count"), &format!("\"{mode} {metric}\"] value {value}\n"));
        }
        for metric in ["transact.count", "point.count", "observe.count", "observe.value", "counter.value"] {
            text.push_str(&traced.pminfo(&["-f", &format!("trace.{metric}")]));
        }
        text
    };
    let text = both(&[], |traced| counted(traced, "sync"));
    assert!(text.contains("inst [1 or \"sync counter\"] value 499"), "{text}");
    // Only this agent: PCP's agent drops a client when a read ends within the header of a PDU.
    let text = counted(&Traced::start(true, &[]), "async");
    assert!(text.contains("inst [1 or \"async counter\"] value 499"), "{text}");
}

#[test]
#[ignore = "needs PCP"]
fn debug_options_are_stored() {
    let traced = Traced::start(true, &["-D", "pdu"]);
    let mut shown = Vec::new();
    for options in ["fetch,appl1", "nonsense", "", "appl0"] {
        shown.push(traced.pmcd.run("pmstore", ["trace.control.debug", options]).text.trim().to_owned());
    }
    let expected = [
        "trace.control.debug old value=\"pdu\" new value=\"fetch,appl1\"",
        "trace.control.debug: new value=\"nonsense\" pmStore: Impossible value or scale conversion",
        "trace.control.debug old value=\"fetch,appl1\" new value=\"\"",
        "trace.control.debug old value=\"\" new value=\"appl0\"",
    ];
    assert_eq!(shown, expected);
    let log = traced.pmcd.log("trace");
    assert!(!log.contains("new connection"), "{log}");
    traced.pmtrace(&["-q", "point"]);
    traced.until("trace.point.count", "point");
    let log = traced.pmcd.log("trace");
    assert!(log.contains(") Debug: client 127.0.0.1: new connection"), "{log}");
}

#[test]
#[ignore = "needs PCP"]
fn a_hangup_lists_the_clients() {
    let traced = Traced::start(true, &[]);
    let connect = || std::net::TcpStream::connect(("127.0.0.1", traced.port)).unwrap();
    let mut clients = [connect(), connect()];
    clients.iter_mut().for_each(|client| std::io::Read::read_exact(client, &mut [0; 16]).unwrap());
    let pid = traced.pmcd.agent_pid("trace").unwrap();
    assert!(Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap().success());
    let start = Instant::now();
    while !traced.pmcd.log("trace").contains("2 connected clients") {
        assert!(start.elapsed() < Duration::from_secs(30), "{}", traced.pmcd.log("trace"));
        sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "needs PCP"]
fn as_a_shared_object_it_serves_clients_when_pmcd_asks() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("trace");
    let port = free_port("127.0.0.1");
    let agent = Agent::new("trace", 10, testkit::built("pmda_trace")).pmns(&c.pmns()).dso("trace_init");
    let pmcd = pcp.pmcd().agent(agent).env("PCP_TRACE_PORT", port.to_string()).start();
    let traced = Traced { pcp, pmcd, port };
    std::thread::scope(|scope| {
        scope.spawn(|| traced.pmtrace(&["-q", "point"]));
        traced.until("trace.point.count", "\"point\"] value 1");
    });
    let directory = traced.pmcd.dir().join(format!("run/trace/{port}"));
    let trace =
        trace::Trace::new(trace::Options::default().directory(directory).transport(trace::Transport::SharedMemory));
    trace.point(&trace::Tag::new("point").unwrap());
    assert_eq!(trace.status().sent, 1);
    traced.until("trace.point.count", "\"point\"] value 2");
}

#[test]
#[ignore = "needs PCP"]
fn long_tags_and_selections_without_instances_are_no_errors_here() {
    let traced = Traced::start(true, &[]);
    let long = "x".repeat(254);
    for tag in [&long[..125], &long[..126], &long] {
        traced.pmtrace(&["-q", tag]);
        traced.until("trace.point.count", &format!("\"{tag}\"]"));
    }
    // A profile with the number of an instance that does not exist.
    let mut pmval = traced.pcp.command("pmval");
    let host = traced.pmcd.host();
    pmval.args(["-h", &host, "-s", "1", "-i", "[77]", "trace.point.count"]);
    let text = traced.pcp.run_command(pmval, "").text;
    assert!(!text.contains("pmFetch"), "{text}");
}
