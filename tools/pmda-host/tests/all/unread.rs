//! A pmcd that sends requests and does not read the answers, or stops within a request.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::scene;

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::{Header, Pdu};
use scene::*;

/// Number of requests. Their answers take more than a page, the least that a pipe can have, and they themselves take less
/// than a pipe has by default.
const REQUESTS: usize = 1000;

/// A host whose agent is not loaded, after the greeting.
fn host(scene: &Scene) -> Child {
    let mut command = scene.command(&["--entry", "hang_init"]);
    command.env("TROUBLE_GO", scene.path("go")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut host = command.spawn().unwrap();
    pdu(&mut host);
    let mut creds = Vec::new();
    encode_creds(&mut creds, 0, Features::default()).unwrap();
    host.stdin.as_ref().unwrap().write_all(&creds).unwrap();
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
    let mut pdus = Vec::new();
    for _ in 0..count {
        encode_fetch(&mut pdus, 0, 0, [Some(pmid(PROCESS))].into_iter()).unwrap();
    }
    pdus
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
        assert!(is_error(&pdu(&mut host)), "the supervisor has read this request");
        host.stdin.as_ref().unwrap().write_all(&request).unwrap();
        assert!(!is_error(&pdu(&mut host)));
        drop(host.stdin.take());
        assert!(host.wait().unwrap().success(), "{}", scene.log());
        std::fs::remove_file(scene.path("go")).unwrap();
    }
}
