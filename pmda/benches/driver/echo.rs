//! The floor: the cost of the pipes and the kernel.

use std::fs;
use std::io::{stdin, stdout};
use std::path::Path;

use nix::unistd::{read, write};
use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::{Frames, PduType};

use super::{Program, encode};

const OPTION: &str = "--echo";

/// Returns this program as the floor, which answers with the reply in a file.
pub(super) fn program(reply: &Path) -> Program {
    let this = std::env::current_exe().expect("the path of this bench");
    Program::new("floor", this).arg(OPTION).arg(reply)
}

/// Returns the file of the reply, when this process is the floor.
pub(super) fn asked(arguments: &[String]) -> Option<&Path> {
    let at = arguments.iter().position(|argument| argument == OPTION)?;
    arguments.get(at + 1).map(Path::new)
}

pub(super) fn run(reply: &Path) {
    let reply = fs::read(reply).expect("the recorded reply");
    send(&encode(|out| encode_creds(out, 0, Features::default())));
    let mut frames = Frames::new();
    loop {
        let n = read(stdin(), frames.space()).expect("a request");
        if n == 0 {
            return;
        }
        frames.filled(n);
        while let Some((header, _)) = frames.next_pdu().expect("a PDU") {
            if ![PduType::CREDS, PduType::PROFILE].contains(&header.pdu) {
                send(&reply);
            }
        }
    }
}

/// Writes without the buffer of standard output: one system call, if the pipe has room for all.
fn send(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = write(stdout(), bytes).expect("a reader of replies");
        bytes = &bytes[n..];
    }
}
