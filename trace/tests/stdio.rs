//! Processes that have closed standard input, output and error. A process of its own: it forks.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, unsafe_code)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use nix::unistd::close;
use pcp_trace::shared_memory::Directory;
use pcp_trace::{Options, Tag, Trace, Transport, protocol};
use testkit::Child;

/// Returns whether standard input, output and error are closed.
fn are_closed() -> bool {
    // SAFETY: the call reads the flags of a descriptor, if it is open.
    (0..3).all(|fd| unsafe { nix::libc::fcntl(fd, nix::libc::F_GETFD) } == -1)
}

/// Traces in a child without descriptors 0 to 2. Neither the file nor the connection may get one of these numbers.
fn trace_without_stdio(options: &Options) {
    let tag = Tag::new("tag").unwrap();
    Child::new(|| {
        assert!((0..3).all(|fd| close(fd).is_ok()));
        let trace = Trace::new(options.clone());
        (0..3).for_each(|_| trace.point(&tag));
        assert_eq!((trace.status().sent, trace.status().missed), (3, 0));
        assert!(are_closed());
    })
    .ends();
}

#[test]
fn no_file_or_connection_has_the_descriptor_of_a_closed_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    trace_without_stdio(&Options::default().directory(directory.path()).transport(Transport::SharedMemory));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let agent = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(&protocol::encode_ack(protocol::VERSION, 1)).unwrap();
        let (mut bytes, mut more) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = stream.read(&mut more) {
            bytes.extend_from_slice(&more[..n]);
            while let Some((protocol::Pdu::Data(data), len)) = protocol::next(&bytes).unwrap() {
                stream.write_all(&protocol::encode_ack(data.kind as i32, 1)).unwrap();
                bytes.drain(..len);
            }
        }
    });
    trace_without_stdio(&Options::default().host("127.0.0.1").port(port).transport(Transport::Tcp));
    agent.join().unwrap();
}
