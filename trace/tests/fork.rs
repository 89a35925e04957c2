//! Forks of processes that trace over TCP. A process of its own: no other test may hold a lock at a fork.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use pcp_trace::protocol::{self, Pdu};
use pcp_trace::{Options, State, Tag, Trace, Transport};

/// Starts an agent. Returns options for it, and a channel that receives each ended connection's trace events by
/// process.
fn agent() -> (Options, Receiver<HashMap<u32, u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, counts) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            thread::spawn(move || sender.send(serve(stream.unwrap())));
        }
    });
    let transport = Transport::Tcp;
    (Options::default().host("127.0.0.1").port(port).transport(transport), counts)
}

fn serve(mut stream: TcpStream) -> HashMap<u32, u64> {
    stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
    let (mut bytes, mut counts) = (Vec::new(), HashMap::new());
    loop {
        let mut more = [0; 4096];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return counts,
            Ok(n) => bytes.extend_from_slice(&more[..n]),
        }
        while let Some((Pdu::Data(data), len)) = protocol::next(&bytes).unwrap() {
            let pid = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
            *counts.entry(pid).or_default() += 1;
            if data.reply {
                stream.write_all(&protocol::encode_ack(data.kind as i32, 1)).unwrap();
            }
            bytes.drain(..len);
        }
    }
}

/// Runs `f` in a forked child. Returns its result, or `None` if the child hangs.
fn in_child(f: impl FnOnce() -> bool) -> Option<bool> {
    // SAFETY: the child only traces, and exits without destructors. Tracing takes no lock that another thread of the
    // parent may hold, except malloc's, which glibc handles at a fork.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let good = f();
            // SAFETY: ends the process.
            unsafe { nix::libc::_exit(i32::from(!good)) }
        }
        ForkResult::Parent { child } => wait(child),
    }
}

fn wait(child: Pid) -> Option<bool> {
    for _ in 0..6000 {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive => thread::sleep(Duration::from_millis(5)),
            WaitStatus::Exited(_, code) => return Some(code == 0),
            _ => return Some(false),
        }
    }
    kill(child, Signal::SIGKILL).unwrap();
    waitpid(child, None).unwrap();
    None
}

#[test]
fn a_child_has_a_connection_of_its_own() {
    for state in [State::empty(), State::ASYNC] {
        let (options, counts) = agent();
        let trace = Trace::new(options.state(state));
        let tag = Tag::new("tag").unwrap();
        (0..100).for_each(|_| trace.point(&tag));
        let sent = |trace: &Trace, points| {
            trace.flush(Duration::from_secs(20)) && (trace.status().sent, trace.status().missed) == (points, 0)
        };
        assert!(sent(&trace, 100));
        let child = trace.clone();
        assert_eq!(
            in_child(|| {
                (0..50).for_each(|_| child.point(&tag));
                let of_child = sent(&child, 150);
                // A grandchild has its own connection, too.
                let grandchild = in_child(|| {
                    (0..25).for_each(|_| child.point(&tag));
                    sent(&child, 175)
                });
                drop(child);
                of_child && grandchild == Some(true)
            }),
            Some(true),
            "{state:?}"
        );
        (0..100).for_each(|_| trace.point(&tag));
        assert!(sent(&trace, 200));
        drop(trace);
        // Each connection has trace events of one process only.
        let all: Vec<_> = (0..3).map(|_| counts.recv_timeout(Duration::from_secs(30)).unwrap()).collect();
        let mut points: Vec<u64> = all.iter().flat_map(HashMap::values).copied().collect();
        points.sort_unstable();
        assert_eq!((all.iter().all(|counts| counts.len() == 1), points), (true, vec![25, 50, 200]), "{all:?}");
        assert!(all.iter().any(|counts| counts.get(&std::process::id()) == Some(&200)));
    }
}

#[test]
fn what_other_threads_do_at_a_fork_stops_no_child() {
    let (options, _counts) = agent();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let [sync, asynchronous] = [State::empty(), State::ASYNC].map(|state| Trace::new(options.clone().state(state)));
    // This handle waits for a greeting that never comes, and holds its locks meanwhile.
    let waiting = Trace::new(options.port(silent.local_addr().unwrap().port()));
    let (tag, other) = (Tag::new("tag").unwrap(), Tag::new("other").unwrap());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| waiting.point(&tag));
        for trace in [&sync, &asynchronous] {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    trace.point(&tag);
                }
            });
        }
        let mark = || {
            sync.point(&other);
            asynchronous.point(&other);
            asynchronous.flush(Duration::from_secs(20))
        };
        let marks: Vec<_> = (0..20).map(|_| in_child(mark)).collect();
        let last = in_child(|| waiting.status().sent == 0 && sync.status().missed == 0);
        // This must come before the assertion. A panic would wait for these threads forever.
        done.store(true, Relaxed);
        assert_eq!((marks, last), (vec![Some(true); 20], Some(true)));
    });
}

#[test]
fn diagnostics_of_a_child_do_not_wait_for_the_lock_of_standard_error() {
    let trace = Trace::new(agent().0.state(State::API | State::NOAGENT));
    let tag = Tag::new("tag").unwrap();
    let ((locks, is_locked), (release, released)) = (channel(), channel::<()>());
    let holder = thread::spawn(move || {
        let _held = std::io::stderr().lock();
        locks.send(()).unwrap();
        released.recv().unwrap();
    });
    is_locked.recv().unwrap();
    let ended = in_child(|| {
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        nix::unistd::dup2_stderr(null).unwrap();
        trace.point(&tag);
        true
    });
    release.send(()).unwrap();
    holder.join().unwrap();
    assert_eq!(ended, Some(true));
}

#[test]
fn children_of_children_trace_however_many_generations_there_are() {
    fn generations(trace: &Trace, tag: &Tag, left: u32) -> bool {
        trace.point(tag);
        trace.status().missed == 0 && (left == 0 || in_child(|| generations(trace, tag, left - 1)) == Some(true))
    }
    let (options, counts) = agent();
    let trace = Trace::new(options.state(State::empty()));
    assert!(generations(&trace, &Tag::new("tag").unwrap(), 11));
    drop(trace);
    let all = (0..12).map(|_| counts.recv_timeout(Duration::from_secs(30)).unwrap());
    assert_eq!(all.flat_map(HashMap::into_values).sum::<u64>(), 12);
}
