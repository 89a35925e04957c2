//! A pmcd that sends requests and does not read the answers, stops within a request, or sends several PDUs at once.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::scene;

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcp_pdu::handshake::{Attr, Attribute, Features, encode_creds};
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::{Header, Pdu};
use scene::*;

/// Number of requests. Their answers take more than a page, the least that a pipe can have, and they themselves take less
/// than a pipe has by default.
const REQUESTS: usize = 1000;

/// A host that has sent its version.
fn start(mut command: Command) -> Child {
    let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    pdu(&mut host);
    host
}

fn creds() -> Vec<u8> {
    let mut creds = Vec::new();
    encode_creds(&mut creds, 0, Features::default()).unwrap();
    creds
}

/// A host whose agent is not loaded, after the greeting.
fn host(scene: &Scene) -> Child {
    let mut command = scene.command(&["--entry", "hang_init"]);
    command.env("TROUBLE_GO", scene.path("go"));
    let host = start(command);
    host.stdin.as_ref().unwrap().write_all(&creds()).unwrap();
    host
}

/// A host that has also answered requests until the pipe was full.
fn host_with_full_pipe(scene: &Scene) -> Child {
    let host = host(scene);
    fcntl(host.stdout.as_ref().unwrap(), FcntlArg::F_SETPIPE_SZ(1)).unwrap();
    host.stdin.as_ref().unwrap().write_all(&requests(REQUESTS)).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    host
}

/// Fetches.
fn requests(count: usize) -> Vec<u8> {
    fetch(PROCESS).repeat(count)
}

fn fetch(item: u16) -> Vec<u8> {
    let mut pdu = Vec::new();
    encode_fetch(&mut pdu, 0, 0, [Some(pmid(item))].into_iter()).unwrap();
    pdu
}

/// Reads a PDU.
fn pdu(host: &mut Child) -> Vec<u8> {
    let output = host.stdout.as_mut().unwrap();
    let mut pdu = vec![0; 12];
    output.read_exact(&mut pdu).unwrap();
    let len = Header::parse(&pdu).unwrap().unwrap().len as usize;
    pdu.resize(len, 0);
    output.read_exact(pdu.get_mut(12..).unwrap()).unwrap();
    pdu
}

fn is_error(pdu: &[u8]) -> bool {
    matches!(Pdu::decode(Header::parse(pdu).unwrap().unwrap(), pdu).unwrap(), Pdu::Error(_))
}

#[test]
#[ignore = "needs PCP"]
fn the_host_can_be_ended() {
    let scene = Scene::new();
    let mut host = host_with_full_pipe(&scene);
    kill(Pid::from_raw(host.id() as i32), Signal::SIGTERM).unwrap();
    testkit::wait_for("the end of the host", || host.try_wait().unwrap().is_some());
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_is_loaded_meanwhile_answers_after_the_errors() {
    let scene = Scene::new();
    let mut host = host_with_full_pipe(&scene);
    std::fs::write(scene.path("go"), "").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let answers: Vec<bool> = (0..REQUESTS).map(|_| is_error(&pdu(&mut host))).collect();
    // Requests that the host has not read before are for the agent.
    let errors = answers.iter().take_while(|is_error| **is_error).count();
    assert!(errors > 0 && errors < REQUESTS && !answers.get(errors..).unwrap().contains(&true), "{errors}");
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success(), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn a_pmcd_that_stops_within_a_request_stops_nothing() {
    let scene = Scene::new();
    let request = requests(1);
    for cut in [5, 12, request.len() - 1] {
        let (begin, rest) = request.split_at(cut);
        let mut ended = host(&scene);
        ended.stdin.as_ref().unwrap().write_all(begin).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        kill(Pid::from_raw(ended.id() as i32), Signal::SIGTERM).unwrap();
        testkit::wait_for("the end of the host", || ended.try_wait().unwrap().is_some());

        let mut host = host(&scene);
        host.stdin.as_ref().unwrap().write_all(begin).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        std::fs::write(scene.path("go"), "").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        host.stdin.as_ref().unwrap().write_all(rest).unwrap();
        assert!(!is_error(&pdu(&mut host)), "{}", scene.log());
        drop(host.stdin.take());
        assert!(host.wait().unwrap().success(), "{}", scene.log());
        std::fs::remove_file(scene.path("go")).unwrap();
    }
}

#[test]
#[ignore = "needs PCP"]
fn requests_that_come_with_the_greeting_are_answered() {
    let scene = Scene::new();
    let mut host = start(scene.command(&[]));
    host.stdin.as_ref().unwrap().write_all(&[creds(), requests(3)].concat()).unwrap();
    (0..3).for_each(|_| assert!(!is_error(&pdu(&mut host))));
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success(), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn an_answer_is_whole_although_the_agent_ends_before_pmcd_has_read_it() {
    let scene = Scene::new();
    let mut host = start(scene.command(&[]));
    host.stdin.as_ref().unwrap().write_all(&[creds(), fetch(PROCESS), fetch(LARGE)].concat()).unwrap();
    let answer = pdu(&mut host);
    let process = answer.last_chunk::<4>().map(|word| i32::from_be_bytes(*word)).unwrap();
    // The pipe is full, and the proxy has the rest.
    std::thread::sleep(Duration::from_secs(1));
    kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
    testkit::wait_for("the end of the agent", || scene.log().contains("the agent has ended: signal: 9"));
    assert!(pdu(&mut host).len() > 3_000_000);
    let is_refused = |host: &mut Child| {
        host.stdin.as_ref().unwrap().write_all(&fetch(PROCESS)).unwrap();
        is_error(&pdu(host))
    };
    if is_refused(&mut host) {
        assert!(is_error(&pdu(&mut host)), "the notification that the agent is ready");
        assert!(!is_refused(&mut host));
    }
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success(), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn requests_before_the_end_of_the_input_are_answered() {
    let scene = Scene::new();
    let mut command = scene.command(&["--patience", "60"]);
    // Each call ends in less time than the agent gets after the end of the input, and all together do not.
    command.env("TROUBLE_PAUSE", "1500").env("TROUBLE_EXIT", scene.path("exit"));
    let mut host = start(command);
    let mut input = host.stdin.take().unwrap();
    input.write_all(&[creds(), fetch(SLOW).repeat(5)].concat()).unwrap();
    drop(input);
    (0..5).for_each(|_| assert!(!is_error(&pdu(&mut host)), "{}", scene.log()));
    assert!(host.wait().unwrap().success() && scene.path("exit").exists(), "{}", scene.log());
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_may_be_slow_to_read_the_attributes_that_it_gets_after_a_restart() {
    let scene = Scene::new();
    let stop = scene.path("stop");
    let mut command = scene.command(&["--entry", "clients_init", "--patience", "60"]);
    command.env("TROUBLE_STOP", &stop);
    let mut host = start(command);
    let send = |host: &mut Child, bytes: &[u8]| host.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    let attribute = |client| {
        let mut pdu = Vec::new();
        Attr { attribute: Attribute::CONTAINER, value: &[b'a'; 4000] }.encode(&mut pdu, client).unwrap();
        pdu
    };
    // More than the proxy keeps for the next process.
    let attributes: Vec<u8> = (0..4500).flat_map(attribute).collect();
    send(&mut host, &[creds(), attributes, fetch(PROCESS)].concat());
    assert!(!is_error(&pdu(&mut host)), "{}", scene.log());

    std::fs::write(&stop, "").unwrap();
    send(&mut host, &fetch(CRASH));
    assert!(is_error(&pdu(&mut host)));
    testkit::wait_for("the agent's next process", || scene.log().contains("the agent runs again"));
    // More than the pipe holds.
    send(&mut host, &(0..1000).flat_map(attribute).collect::<Vec<u8>>());
    send(&mut host, &fetch(PROCESS));
    std::fs::remove_file(&stop).unwrap();
    assert!(!is_error(&pdu(&mut host)), "{}", scene.log());
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success(), "{}", scene.log());
    assert!(!scene.log().contains("missed too many"), "{}", scene.log());
}
