//! Lines on standard error that would block or end another program.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsFd as _;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{close, dup2_stderr, pipe, write};
use pcp_base::stderr::tell;
use testkit::Child;

/// Gives signals their default effect, as in a program that is not in Rust.
#[allow(unsafe_code)]
fn default_signals() {
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.unwrap();
}

#[test]
fn a_file_at_its_limit_ends_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("told");
    Child::new(|| {
        dup2_stderr(File::create(&path).unwrap()).unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, 10, 10).unwrap();
        assert_eq!(["four", "five", "6"].map(tell), [true, true, false]);
    })
    .ends();
    assert_eq!(fs::read_to_string(&path).unwrap(), "four\nfive\n");
}

#[test]
fn a_full_pipe_blocks_no_program() {
    let (mut reader, writer) = pipe().map(|(reader, writer)| (File::from(reader), writer)).unwrap();
    Child::new(|| {
        dup2_stderr(writer.as_fd()).unwrap();
        assert!(tell("first"));
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        while write(&writer, &[b'x'; 4096]).is_ok() {}
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        assert!(!tell("second"));
    })
    .ends();
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text.trim_end_matches('x'), "first\n");
}

#[test]
fn without_a_reader_or_a_descriptor_nothing_is_written() {
    Child::new(|| {
        default_signals();
        let (reader, writer) = pipe().unwrap();
        dup2_stderr(writer).unwrap();
        drop(reader);
        assert!(!tell("nobody reads this"));
        close(2).unwrap();
        assert!(!tell("nor this"));
    })
    .ends();
}

#[test]
fn a_long_text_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("told");
    Child::new(|| {
        dup2_stderr(File::create(&path).unwrap()).unwrap();
        assert!(tell(&"é".repeat(10_000)));
    })
    .ends();
    assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
}
