//! An agent that hangs, crashes or cannot be loaded, as pmcd sees it.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::scene;

use std::thread;
use std::time::Duration;

use pcp_collector::{AgentState, Collector, End, Error, Launch, Process};
use pcp_pdu::handshake::Attribute;
use pcp_pdu::profile::{Profile, ProfileState};
use pmapi::{Atom, Inst};
use scene::*;

const LIMIT: Duration = Duration::from_secs(60);

fn refused(agent: &mut Collector<Process>, item: u16) {
    let error = agent.fetch(&[pmid(item)]).unwrap_err();
    assert!(matches!(error, Error::NotReady), "{error}");
    assert_eq!(agent.state(), AgentState::NotReady);
}

fn ready(agent: &mut Collector<Process>) {
    assert!(agent.wait_ready(Some(LIMIT)).unwrap());
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_hangs_is_not_ready_until_it_returns() {
    let scene = Scene::new();
    let mut agent = scene.start(&["--patience", "0.3"]);
    let process = number(&mut agent, PROCESS);
    agent.store(pmid(PAUSE), None, Atom::U32(1500)).unwrap();
    refused(&mut agent, SLOW);
    ready(&mut agent);
    // It is the same process, with its state.
    assert_eq!((number(&mut agent, PROCESS), number(&mut agent, PAUSE)), (process, 1500));
    let log = scene.log();
    assert!(log.contains("has not returned from a FETCH PDU") && log.contains("has returned after 1."), "{log}");
    assert!(matches!(agent.close_within(LIMIT), End::Exited(status) if status.success()));
}

#[test]
#[ignore = "needs PCP"]
fn a_slow_answer_within_the_patience_is_an_answer() {
    let scene = Scene::new();
    let mut agent = scene.start(&["--patience", "60"]);
    agent.store(pmid(PAUSE), None, Atom::U32(1200)).unwrap();
    assert_eq!(number(&mut agent, SLOW), 1200);
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_crashes_is_started_again_and_knows_profile_and_clients() {
    let scene = Scene::new();
    let mut agent = scene.start(&["--entry", "clients_init"]);
    let process = number(&mut agent, PROCESS);
    assert!(agent.as_client(3).attribute(Attribute::USERID, "1003").unwrap());
    assert!(agent.as_client(4).attribute(Attribute::USERID, "1004").unwrap());
    assert!(agent.as_client(3).end_client().unwrap());
    agent.as_client(4);
    let mut profile = Profile::default();
    profile.set(indom(), ProfileState::Exclude, &[Inst::new(2)]);
    agent.set_profile(profile);
    let kinds = |agent: &mut Collector<Process>| -> Vec<Option<Inst>> {
        agent.values(pmid(KINDS)).unwrap().iter().map(|(inst, _)| inst).collect()
    };
    assert_eq!(kinds(&mut agent), [Some(Inst::new(2))]);
    assert_eq!(number(&mut agent, ENDED), 1);

    // pmcd would refuse new clients while such an agent is not ready, so it stays ready.
    let again = |agent: &mut Collector<Process>, item| {
        matches!(agent.fetch(&[pmid(item)]), Err(Error::Agent(pmapi::Error::AGAIN)))
    };
    assert!(again(&mut agent, CRASH));
    assert!(agent.as_client(5).attribute(Attribute::USERID, "1005").unwrap());
    agent.as_client(4);
    testkit::wait_for("the agent's next process", || !again(&mut agent, PROCESS));
    assert_eq!(agent.state(), AgentState::Ready);
    // The collector does not repeat profile and attributes.
    assert_eq!(kinds(&mut agent), [Some(Inst::new(2))]);
    assert_eq!(agent.value(pmid(USER)).unwrap(), Atom::String(b"1004"));
    assert_eq!(agent.as_client(5).value(pmid(USER)).unwrap(), Atom::String(b"1005"));
    assert!(matches!(agent.as_client(3).values(pmid(USER)).map(drop), Err(Error::Agent(pmapi::Error::VALUE))));
    assert_ne!(number(&mut agent, PROCESS), process);
    assert_eq!(number(&mut agent, ENDED), 0);
    let log = scene.log();
    let crashes: Vec<_> = log.lines().filter(|line| line.contains("SIGSEGV")).collect();
    assert!(crashes.len() == 1 && crashes[0].contains("in a FETCH request"), "{log}");
}

#[test]
#[ignore = "needs PCP"]
fn pauses_grow_while_an_agent_crashes_again_and_again() {
    let scene = Scene::new();
    let mut agent = scene.start(&[]);
    for _ in 0..3 {
        refused(&mut agent, CRASH);
        ready(&mut agent);
    }
    let log = scene.log();
    for pause in ["500ms", "1s", "2s"] {
        assert_eq!(log.matches(&format!("; restarting it in {pause}\n")).count(), 1, "{pause}: {log}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_is_killed_while_idle() {
    let scene = Scene::new();
    let mut agent = scene.start(&[]);
    let process = number(&mut agent, PROCESS);
    // It still runs a moment after its answer.
    testkit::wait_for("the agent to be idle", || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    });
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(process as i32), nix::sys::signal::Signal::SIGKILL).unwrap();
    // Until the proxy notices, a request may be handled by the next process. None is lost.
    loop {
        match agent.fetch(&[pmid(PROCESS)]) {
            Ok(_) => break,
            Err(Error::NotReady) => ready(&mut agent),
            Err(e) => panic!("{e}: {}", scene.log()),
        }
    }
    assert_ne!(number(&mut agent, PROCESS), process);
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_whose_entry_point_hangs_is_answered_for() {
    let scene = Scene::new();
    let go = scene.path("go");
    let mut command = scene.command(&["--entry", "hang_init"]);
    command.env("TROUBLE_GO", &go);
    // pmcd gets the version although the agent is not loaded.
    let mut agent = Launch::pipe(command).timeout(None).handshake_timeout(None).start().unwrap();
    let again = |agent: &mut Collector<Process>| {
        matches!(agent.fetch(&[pmid(PROCESS)]), Err(Error::Agent(pmapi::Error::AGAIN)))
    };
    assert!(again(&mut agent) && again(&mut agent), "{}", scene.log());
    assert!(scene.log().contains("hang_init has not returned for 2s"), "{}", scene.log());
    std::fs::write(&go, "").unwrap();
    testkit::wait_for("the agent", || !again(&mut agent));
    assert_ne!(number(&mut agent, PROCESS), 0);
}

#[test]
#[ignore = "needs PCP"]
fn clients_that_end_while_the_agent_hangs() {
    let scene = Scene::new();
    let mut agent = scene.start(&["--patience", "0.2"]);
    agent.store(pmid(PAUSE), None, Atom::U32(1000)).unwrap();
    refused(&mut agent, SLOW);
    // pmcd does not send this, but other hosts may.
    agent.send_raw(|out, _| pcp_pdu::handshake::encode_error(out, 7, Err(pmapi::Error::NOTCONN))).unwrap();
    ready(&mut agent);
    assert_eq!(number(&mut agent, ENDED), 1);
}

#[test]
#[ignore = "needs PCP"]
fn the_processes_end_with_pmcd_and_with_each_other() {
    let scene = Scene::new();
    for hangs in [false, true] {
        let mut agent = scene.start(&["--patience", "0.2"]);
        let process = number(&mut agent, PROCESS) as i32;
        if hangs {
            agent.store(pmid(PAUSE), None, Atom::U32(3_600_000)).unwrap();
            refused(&mut agent, SLOW);
        }
        assert!(matches!(agent.close_within(LIMIT), End::Exited(status) if status.success()), "{}", scene.log());
        gone(process);
    }
    let mut agent = scene.start(&[]);
    let process = number(&mut agent, PROCESS) as i32;
    let proxy = nix::unistd::Pid::from_raw(agent.pid().unwrap() as i32);
    nix::sys::signal::kill(proxy, nix::sys::signal::Signal::SIGKILL).unwrap();
    gone(process);
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_ends_by_itself_although_pmcd_leaves_during_a_call() {
    let scene = Scene::new();
    let mut command = scene.command(&["--patience", "60"]);
    command.env("TROUBLE_PAUSE", "500").env("TROUBLE_EXIT", scene.path("exit"));
    let mut agent = Launch::pipe(command).timeout(None).handshake_timeout(None).start().unwrap();
    agent.send_raw(|out, _| pcp_pdu::metadata::encode_fetch(out, 0, 0, [Some(pmid(SLOW))].into_iter())).unwrap();
    let end = agent.close_within(LIMIT);
    assert!(matches!(end, End::Exited(status) if status.success()), "{end:?}: {}", scene.log());
    assert!(scene.path("exit").exists(), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_forks_ends_with_pmcd() {
    let scene = Scene::new();
    let mut agent = scene.start(&["--patience", "60"]);
    let process = number(&mut agent, PROCESS) as i32;
    let forked = number(&mut agent, FORK) as i32;
    assert_ne!(forked, process);
    assert!(matches!(agent.close_within(LIMIT), End::Exited(status) if status.success()), "{}", scene.log());
    gone(process);
    gone(forked);
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_forks_ends_with_its_proxy() {
    use nix::sys::signal::{Signal, kill};
    let scene = Scene::new();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut agent = scene.start(&["--patience", "60"]);
        let process = number(&mut agent, PROCESS) as i32;
        let forked = number(&mut agent, FORK) as i32;
        kill(nix::unistd::Pid::from_raw(agent.pid().unwrap() as i32), signal).unwrap();
        gone(process);
        gone(forked);
        assert!(agent.fetch(&[pmid(FETCHES)]).is_err());
    }
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_closes_the_connection_is_started_again() {
    let scene = Scene::new();
    let mut agent = scene.start(&[]);
    let process = number(&mut agent, PROCESS);
    refused(&mut agent, CLOSE);
    ready(&mut agent);
    assert_ne!(number(&mut agent, PROCESS), process);
    assert!(scene.log().contains("the agent has closed descriptors that are not its own"), "{}", scene.log());
    // The answer goes elsewhere.
    let process = number(&mut agent, PROCESS);
    refused(&mut agent, REPLACE);
    ready(&mut agent);
    assert_ne!(number(&mut agent, PROCESS), process);
    assert!(matches!(agent.close_within(LIMIT), End::Exited(status) if status.success()), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_makes_the_connection_non_blocking() {
    let scene = Scene::new();
    let mut agent = scene.start(&[]);
    let process = number(&mut agent, NONBLOCK);
    for _ in 0..100 {
        assert_eq!(number(&mut agent, PROCESS), process);
    }
    refused(&mut agent, CRASH);
    ready(&mut agent);
    assert_ne!(number(&mut agent, PROCESS), process);
    assert!(matches!(agent.close_within(LIMIT), End::Exited(status) if status.success()), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn programs_of_an_agent_have_the_environment_of_the_host() {
    let scene = Scene::new();
    for given in [None, Some("glibc.malloc.arena_max=1")] {
        let mut command = scene.command(&[]);
        command.env_remove("GLIBC_TUNABLES").envs(given.map(|given| ("GLIBC_TUNABLES", given)));
        let mut agent = Launch::pipe(command).timeout(None).handshake_timeout(None).start().unwrap();
        let text = format!("{}\n", given.unwrap_or_default());
        assert_eq!(agent.value(pmid(TUNABLES)).unwrap(), Atom::String(text.as_bytes()));
    }
}

fn gone(process: i32) {
    testkit::wait_for("the end of the process with the agent", || {
        // A process that its parent has not waited for has no command line.
        std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default().is_empty()
    });
}

#[test]
#[ignore = "needs PCP"]
fn over_a_socket() {
    let scene = Scene::new();
    let path = scene.path("socket");
    let command = scene.command(&["-u", path.to_str().unwrap()]);
    let mut agent = Launch::socket(pcp_collector::Address::Unix(path)).command(command).start().unwrap();
    assert_eq!(number(&mut agent, FETCHES), 1);
    refused(&mut agent, CRASH);
    ready(&mut agent);
    assert_eq!(number(&mut agent, FETCHES), 1);
}

#[test]
#[ignore = "needs PCP"]
fn agents_that_cannot_be_loaded() {
    let scene = Scene::new();
    let pmcd = testkit::Pcp::required().path("PCP_PMDAS_DIR").join("pmcd/pmda_pmcd.so");
    let text = scene.path("pmda_text.so");
    std::fs::write(&text, "text").unwrap();
    for (object, entry, sentence) in [
        (scene.object(), "none_init", "there is no function none_init"),
        (scene.object(), "crash_init", "crash_init has ended the process: signal: 11 (SIGSEGV)"),
        (scene.object(), "fail_init", "fail_init: No such device"),
        // This agent is a part of pmcd.
        (pmcd, "pmcd_init", "undefined symbol"),
        (text, "text_init", "pmda_text.so"),
    ] {
        let mut command = host();
        command.arg("--so").arg(&object).args(["--entry", entry, "-d", "400", "-l"]).arg(scene.path("trouble.log"));
        assert!(Launch::pipe(command).handshake_timeout(None).start().is_err());
        testkit::wait_for("the end of the log", || scene.log().contains("Log finished"));
        assert!(scene.log().contains(sentence), "{sentence}: {}", scene.log());
    }
}

#[test]
fn bad_input_is_one_sentence() {
    for (arguments, sentence) in [
        (&["--so", "/no/pmda_x.so", "-d", "9"][..], "pmda-host: /no/pmda_x.so: there is no such file\n"),
        (&["--so", "/no/pmda_x.so"], "--domain <NUM>"),
        (&["--so", "/x", "-d", "511"], "invalid value '511' for '--domain <NUM>'"),
        (&["--so", "/x", "-d", "5", "--patience", "0"], "a number of seconds from 0.01 to 3600 is needed"),
        (&["--so", "/x", "-d", "5", "-i", "1", "-p"], "cannot be used with"),
    ] {
        let output = host().args(arguments).stdin(std::process::Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && output.stdout.is_empty() && text.contains(sentence),
            "{arguments:?}: {text}"
        );
    }
    let output = host().args(["--serve", "1", "--so", "/x", "-d", "5"]).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("the proxy has ended"));
}

#[test]
#[ignore = "needs PCP"]
// Slow: pmcd and its agents start again and again.
fn a_pmcd_with_an_agent_that_hangs_and_crashes() {
    let scene = Scene::new();
    let names = "trouble {\n fetches 400:0:0\n pause 400:0:1\n crash 400:0:2\n slow 400:0:3\n process 400:0:7\n}\n";
    for entry in ["trouble_init", "clients_init"] {
        let agent = testkit::Agent::new("trouble", DOMAIN, env!("CARGO_BIN_EXE_pmda-host")).names(names).args([
            "--so",
            scene.object().to_str().unwrap(),
            "--entry",
            entry,
        ]);
        let pmcd = testkit::Pcp::required().pmcd().agent(agent).start();
        let value = |name: &str| {
            let text = pmcd.run("pmprobe", ["-v", name]).text;
            text.split_whitespace().nth(1).unwrap_or_default().to_owned()
        };
        let again = pmapi::Error::AGAIN.code().to_string();
        assert_eq!(value("trouble.process"), "1");
        assert_eq!(value("trouble.crash"), again);
        assert_eq!(value("pmcd.pid"), "1");
        testkit::wait_for("the agent to be ready again", || value("trouble.process") == "1");
        pmcd.run("pmstore", ["trouble.pause", "2500"]).ok();
        thread::scope(|scope| {
            let hangs = scope.spawn(|| value("trouble.slow"));
            assert_eq!(value("pmcd.pid"), "1");
            assert_eq!(hangs.join().unwrap(), again);
        });
        assert_eq!(value("pmcd.pid"), "1");
        testkit::wait_for("the agent to be ready again", || value("trouble.process") == "1");
        assert_eq!(pmcd.agent_status("trouble"), 0);
    }
}
