//! The agents of the gallery: each in this process, and all of them under a real pmcd.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use gallery::cgroup2::Cgroup2;
use gallery::follow::{Follow, LINE};
use gallery::health::Health;
use gallery::script::Script;
use gallery::status::Status;
use pcp_collector::{Collector, Local};
use pmda::Agent;
use pmda::pmapi::Atom;
use testkit::Pcp;

/// Starts an agent with options of its own.
fn agent<A: Agent>(options: &[&str]) -> Collector<Local<A>> {
    Local::with_options(options).unwrap()
}

/// Returns the values of a metric with their instances' names, in the order of the instances.
fn values<A: Agent>(agent: &mut Collector<Local<A>>, name: &str) -> Vec<(String, String)> {
    let metric = agent.metric(name).unwrap();
    let values: Vec<_> = agent.values(metric).unwrap().iter().map(|(inst, value)| (inst, text(value))).collect();
    let Some(indom) = agent.desc(metric).unwrap().indom else {
        return values.into_iter().map(|(_, value)| (String::new(), value)).collect();
    };
    values.into_iter().map(|(inst, value)| (agent.instance_name(indom, inst.unwrap()).unwrap(), value)).collect()
}

fn text(value: Atom<'_>) -> String {
    match value {
        Atom::Double(number) => number.to_string(),
        Atom::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        number => number.to_string(),
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_status_of_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("status.json");
    let mut agent = agent::<Status>(&["--file", file.to_str().unwrap()]);
    // No file, and what is none, have no values, and no queues.
    for text in ["", "{", "[1]"] {
        fs::write(&file, text).unwrap();
        assert_eq!(values(&mut agent, "status.requests"), []);
        assert_eq!(values(&mut agent, "status.queue.length"), []);
    }
    fs::write(
        &file,
        r#"{"version": "1.2", "requests": 7, "new": [], "queues": {"mail": {"length": 2, "oldest_ms": 1500}, "b": {}}}"#,
    )
    .unwrap();
    assert_eq!(values(&mut agent, "status.requests"), pairs(&[("", "7")]));
    assert_eq!(values(&mut agent, "status.errors"), []);
    assert_eq!(values(&mut agent, "status.queue.length"), pairs(&[("mail", "2")]));
    assert_eq!(values(&mut agent, "status.queue.age"), pairs(&[("mail", "1.5")]));
}

#[test]
fn control_groups_come_and_go() {
    let root = tempfile::tempdir().unwrap();
    let group = |name: &str, memory: &str| {
        let dir = root.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("memory.current"), memory).unwrap();
    };
    group("system.slice/a.service", "4096\n");
    fs::write(root.path().join("cpu.stat"), "usage_usec 2500000\nuser_usec 1\n").unwrap();
    let mut agent = agent::<Cgroup2>(&["--root", root.path().to_str().unwrap()]);
    assert_eq!(values(&mut agent, "cgroup2.memory"), pairs(&[("/system.slice/a.service", "4096")]));
    assert_eq!(values(&mut agent, "cgroup2.cpu"), pairs(&[("/", "2.5")]));
    assert_eq!(values(&mut agent, "cgroup2.count"), pairs(&[("", "3")]));
    group("user.slice", "1\n");
    fs::remove_dir_all(root.path().join("system.slice")).unwrap();
    assert_eq!(values(&mut agent, "cgroup2.memory"), pairs(&[("/user.slice", "1")]));
}

#[test]
fn lines_of_a_log_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    fs::write(&log, "before\n").unwrap();
    let mut agent = agent::<Follow>(&["--file", log.to_str().unwrap()]);
    let records = agent.metric("follow.records").unwrap();
    let mut read = || {
        let values = agent.values(records).unwrap();
        let lines: Vec<_> = values.records().unwrap().iter().filter_map(|record| record.text(LINE)).collect();
        lines.join(" ")
    };
    read();
    let mut file = File::options().append(true).open(&log).unwrap();
    write!(file, "one\ntwo\nhal").unwrap();
    assert_eq!(read(), "one two");
    writeln!(file, "f").unwrap();
    assert_eq!(read(), "half");
    // Another file of this name.
    fs::remove_file(&log).unwrap();
    fs::write(&log, "rotated\n").unwrap();
    assert_eq!(read(), "rotated");
    assert_eq!(values(&mut agent, "follow.lines"), pairs(&[("", "4")]));
}

#[test]
fn servers_are_asked() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("{}/health", server.local_addr().unwrap());
    thread::spawn(move || {
        for mut client in server.incoming().flatten() {
            let mut line = String::new();
            BufReader::new(&client).read_line(&mut line).unwrap();
            assert!(line.starts_with("GET /health "), "{line}");
            write!(client, "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").unwrap();
        }
    });
    let mut agent = agent::<Health>(&["--server", &address, "--server", "127.0.0.1:1/"]);
    while values(&mut agent, "health.up").len() < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    let up = values(&mut agent, "health.up");
    assert!(up.iter().all(|(_, up)| up == "0"), "{up:?}");
    assert_eq!(values(&mut agent, "health.status"), pairs(&[(&address, "503")]));
    let errors = values(&mut agent, "health.error");
    assert!(errors.len() == 1 && errors[0].0 == "127.0.0.1:1/" && errors[0].1.contains("refused"), "{errors:?}");
}

#[test]
fn the_output_of_a_command() {
    let mut agent = agent::<Script>(&["--command", "echo files 42; echo /a b 1.5; echo nothing; echo x y"]);
    while !agent.agent().is_ready() {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(values(&mut agent, "script.value"), pairs(&[("/a b", "1.5"), ("files", "42")]));
    let mut agent = self::agent::<Script>(&["--command", "exit 3"]);
    while !agent.agent().is_ready() {
        thread::sleep(Duration::from_millis(10));
    }
    let value = agent.metric("script.value").unwrap();
    assert!(agent.values(value).is_err());
}

#[test]
#[ignore = "needs PCP"]
fn all_of_them_run_under_pmcd() {
    let pcp = Pcp::required();
    let mut builder = pcp.pmcd().options(["-t", "20"]);
    for (name, domain) in [
        (Status::NAME, Status::DOMAIN),
        (Cgroup2::NAME, Cgroup2::DOMAIN),
        (Follow::NAME, Follow::DOMAIN),
        (Health::NAME, Health::DOMAIN),
        (Script::NAME, Script::DOMAIN),
    ] {
        let binary = match name {
            "status" => env!("CARGO_BIN_EXE_pmdastatus"),
            "cgroup2" => env!("CARGO_BIN_EXE_pmdacgroup2"),
            "follow" => env!("CARGO_BIN_EXE_pmdafollow"),
            "health" => env!("CARGO_BIN_EXE_pmdahealth"),
            _ => env!("CARGO_BIN_EXE_pmdascript"),
        };
        let agent = testkit::Agent::new(name, domain, PathBuf::from(binary)).names(&names(binary));
        builder = builder.agent(if name == "script" { agent.args(["--notready"]).not_ready() } else { agent });
    }
    let pmcd = builder.start();
    testkit::wait_for("the first run of the command", || {
        !pmcd.run("pmprobe", ["script.value"]).ok().contains("Try again")
    });
    for name in ["status.requests", "cgroup2.count", "follow.records", "health.up", "script.value"] {
        let text = pmcd.run("pminfo", ["-dT", name]).ok();
        assert!(text.contains("Semantics: ") && text.contains("Help:"), "{text}");
        let status = pmcd.agent_status(name.split('.').next().unwrap());
        assert_eq!(status, 0, "{name}");
    }
    // The root group, at least, whatever the host mounts there.
    assert!(pmcd.run("pmprobe", ["-v", "cgroup2.count"]).ok().starts_with("cgroup2.count 1 "));
}

/// Returns the name space that an agent writes.
fn names(binary: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("pmda");
    let written = std::process::Command::new(binary).arg("--write-pmda").arg(&to).status().unwrap();
    assert!(written.success());
    fs::read_to_string(to.join("pmns")).unwrap()
}

// Each file stands alone, and is as short as the page says.
#[test]
fn each_agent_has_less_than_a_hundred_lines() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap().flatten() {
        if entry.path().is_file() {
            let text = fs::read_to_string(entry.path()).unwrap();
            assert!(text.lines().count() < 100 && !text.contains("crate::"), "{}", entry.path().display());
        }
    }
}

#[test]
fn values_are_of_their_types() {
    let mut agent = agent::<Cgroup2>(&["--root", "/nonexistent"]);
    let count = agent.metric("cgroup2.count").unwrap();
    assert_eq!(agent.value(count).unwrap(), Atom::U64(1));
}
