//! A conversation with the agent `zoo`. It must never panic, and must answer every complete request with one valid PDU.
//!
//! Run it with `./seed && cargo +nightly fuzz run --fuzz-dir . session` in `qa/fuzz`. The first byte of an input is the size of
//! the pieces in which the stream arrives. PDUs follow, each as the low byte of the code, the client, the length of the
//! body in two bytes, and the body. When the code's high bit is set, the length in the PDU's header is wrong.

#![no_main]

#[path = "../../../pmda/tests/zoo/mod.rs"]
mod zoo;

use std::cell::RefCell;
use std::io::{self, Read};
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pcp_pdu::handshake::{Features, encode_creds};
use pcp_pdu::profile::Profile;
use pcp_pdu::{FROM_AGENT, Frames, Header, Pdu, PduType};
use pmapi::{Config, Domain, Error};
use pmda::host::{Engine, Session, SessionError};
use zoo::Zoo;

/// A subscriber that formats log lines and drops them.
static LOG: LazyLock<()> = LazyLock::new(|| {
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false).with_writer(io::sink).init();
});

thread_local! {
    /// All inputs share one agent, because its start takes much longer than an input.
    static ENGINE: RefCell<Engine<Zoo>> = RefCell::new(engine());
}

fn engine() -> Engine<Zoo> {
    LazyLock::force(&LOG);
    Engine::builder().domain(Domain::new(zoo::DOMAIN).unwrap()).config(Config::new(b"", [])).build().unwrap()
}

const REQUESTS: [PduType; 10] = [
    PduType::RESULT,
    PduType::FETCH,
    PduType::DESC_REQ,
    PduType::INSTANCE_REQ,
    PduType::TEXT_REQ,
    PduType::PMNS_IDS,
    PduType::PMNS_NAMES,
    PduType::PMNS_CHILD,
    PduType::PMNS_TRAVERSE,
    PduType::LABEL_REQ,
];

fuzz_target!(|input: &[u8]| {
    let Some((&size, mut rest)) = input.split_first() else { return };
    let mut stream = Vec::new();
    encode_creds(&mut stream, 1, Features::default()).unwrap();
    Profile::default().encode(&mut stream, 0, 0).unwrap();
    let mut requests = 0;
    let mut damaged = false;
    while let Some((&[code, client, high, low], tail)) = rest.split_first_chunk() {
        let (body, tail) = tail.split_at(tail.len().min(u16::from_be_bytes([high, low]).into()));
        rest = tail;
        let pdu = PduType::new(0x7000 | i32::from(code & 0x1f));
        damaged |= code & 0x80 != 0;
        let wrong = if code & 0x80 != 0 { u32::from(client) } else { 0 };
        let len = (12 + body.len() as u32) ^ wrong;
        stream.extend_from_slice(&Header { len, pdu, from: client.into() }.to_bytes());
        stream.extend_from_slice(body);
        requests += usize::from(REQUESTS.contains(&pdu));
    }

    let mut output = Vec::new();
    let pieces = Pieces(&stream, usize::from(size).max(1));
    let mut session = Session::open(pieces, &mut output, Features::default()).unwrap();
    let ended = ENGINE.with_borrow_mut(|engine| {
        let agent = engine.agent_mut();
        (agent.stored, agent.levels) = (String::new(), [10, 20]);
        agent.told.clear();
        session.run(engine)
    });
    let replies = check(&output);
    match ended {
        Ok(()) | Err(SessionError::Cut(_)) if !damaged => assert_eq!(replies, requests),
        Ok(()) | Err(SessionError::Cut(_) | SessionError::Frame(_)) => assert!(damaged),
        Err(e) => panic!("{e}"),
    }
});

/// Counts the replies after the version. Each must be one that an agent may send.
fn check(output: &[u8]) -> usize {
    let mut frames = Frames::new();
    let mut rest = output;
    let mut pdus = 0;
    loop {
        while let Some((header, bytes)) = frames.next_pdu().unwrap() {
            match Pdu::decode(header, bytes).unwrap() {
                Pdu::Creds(_) if pdus == 0 => {}
                Pdu::Error(e) if pdus > 0 => {
                    // pmcd interprets these errors as a broken connection.
                    let broken = e.status() == Err(Error::TIMEOUT);
                    assert!(!broken && header.from == FROM_AGENT, "{e:?}");
                }
                Pdu::Result(_) | Pdu::Desc(_) | Pdu::Instance(_) | Pdu::Text(_) | Pdu::Label(_) if pdus > 0 => {
                    assert_eq!(header.from, FROM_AGENT);
                }
                other => panic!("{other:?}"),
            }
            pdus += 1;
        }
        if rest.is_empty() {
            assert_eq!(frames.pending(), 0);
            return pdus - 1;
        }
        let space = frames.space();
        let n = space.len().min(rest.len());
        space[..n].copy_from_slice(&rest[..n]);
        frames.filled(n);
        rest = &rest[n..];
    }
}

/// A reader that returns a few bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(buf.len());
        (&mut self.0).take(n as u64).read(buf)
    }
}
