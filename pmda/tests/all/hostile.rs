//! Bytes that no pmcd sends. The agent never panics, never uses a disproportionate amount of memory, and reacts as
//! `libpcp_pmda` intends: an error PDU, nothing, or the end of the session.

use std::io::{self, Read};
use std::sync::LazyLock;

use crate::zoo::{self, Zoo};
use pcp_pdu::handshake::Features;
use pcp_pdu::{Header, Pdu, PduType};
use pmapi::{Config, Domain, Error};
use pmda::host::{Engine, Reply, Session, SessionError};
use proptest::prelude::*;

/// Requests of PCP's dbpmda to its agents, changed to the domain of `zoo`.
static REQUESTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let captured =
        include_str!("../../../pmapi/pdu/tests/data/pdus.hex").lines().filter_map(|line| line.strip_prefix("> "));
    let bytes = |line: &str| -> Vec<u8> {
        line.as_bytes().chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    };
    let domain = |mut pdu: Vec<u8>| {
        // The captured agents have the domains 253 and 29, in the upper half of a word.
        for i in (12..pdu.len().saturating_sub(3)).step_by(4) {
            if [[0x3f, 0x40], [0x07, 0x40]].contains(&[pdu[i], pdu[i + 1]]) {
                pdu[i..i + 2].copy_from_slice(&[0x64, 0x00]);
            }
        }
        pdu
    };
    captured.map(bytes).map(domain).collect()
});

fn engine() -> Engine<Zoo> {
    Engine::builder().domain(Domain::new(zoo::DOMAIN).unwrap()).config(Config::new(b"", [])).build().unwrap()
}

/// Returns the type of the reply, which must itself be a valid PDU.
fn reply(engine: &mut Engine<Zoo>, header: Header, bytes: &[u8]) -> Option<(PduType, Option<Error>)> {
    let bytes = engine.handle(header, bytes, |reply| match reply {
        Reply::Pdu(head, rest) => Some([head, rest].concat()),
        _ => None,
    })?;
    let header = Header::parse(&bytes).unwrap().unwrap();
    assert_eq!((header.len as usize, header.from), (bytes.len(), 0));
    match Pdu::decode(header, &bytes).unwrap() {
        Pdu::Error(e) => Some((header.pdu, e.status().err())),
        _ => Some((header.pdu, None)),
    }
}

fn header(pdu: PduType, bytes: &[u8]) -> Header {
    Header { len: bytes.len() as u32, pdu, from: 1 }
}

const SILENT: [PduType; 3] = [PduType::ERROR, PduType::PROFILE, PduType::ATTR];

#[test]
fn requests_cut_short_are_errors_and_news_are_ignored() {
    for original in REQUESTS.iter() {
        let pdu = Header::parse(original).unwrap().unwrap().pdu;
        for len in 12..original.len() {
            let cut = &original[..len];
            let reply = reply(&mut engine(), header(pdu, cut), cut);
            let expected =
                (pdu != PduType::CREDS && !SILENT.contains(&pdu)).then_some((PduType::ERROR, Some(Error::IPC)));
            assert_eq!(reply, expected, "{pdu} of {len} bytes");
        }
    }
}

#[test]
fn pdus_that_are_no_requests_get_no_answer() {
    for code in
        (0..0x7000).step_by(997).chain([0x7005, 0x7007, 0x7009, 0x700a, 0x700b, 0x700c, 0x7013, 0x7014, 0x7fff_ffff])
    {
        let bytes = [0; 32];
        assert_eq!(reply(&mut engine(), header(PduType::new(code), &bytes), &bytes), None, "{code:#x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_requests(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop_oneof![
            Just(-1), Just(0), Just(1), Just(2), Just(0x7fff_ffff), Just(i32::MIN), any::<i32>()
        ], any::<bool>()), 1..8),
    ) {
        let mut engine = engine();
        for (pick, at, word, cut) in picks {
            let mut bytes = pick.get(&REQUESTS[..]).clone();
            let pdu = Header::parse(&bytes).unwrap().unwrap().pdu;
            let at = 12 + at.index(bytes.len() - 12) / 4 * 4;
            if cut {
                bytes.truncate(at);
            } else if let Some(place) = bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&word.to_be_bytes());
            }
            let reply = reply(&mut engine, header(pdu, &bytes), &bytes);
            if pdu == PduType::CREDS || SILENT.contains(&pdu) {
                prop_assert_eq!(reply, None);
            } else {
                prop_assert!(reply.is_some());
            }
        }
    }

    #[test]
    fn streams_of_anything(bytes in prop::collection::vec(any::<u8>(), 0..300), chunk in 1..64usize, framed in any::<bool>()) {
        let mut stream = REQUESTS[0].clone();
        if framed {
            stream.extend_from_slice(&(12 + bytes.len() as u32).to_be_bytes());
        }
        stream.extend_from_slice(&bytes);
        let mut out = Vec::new();
        let mut session = Session::open(Chunks(&stream, chunk), &mut out, Features::default()).unwrap();
        let _ = session.run(&mut engine());
    }
}

/// A reader that returns a few bytes at a time.
struct Chunks<'a>(&'a [u8], usize);

impl Read for Chunks<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(buf.len());
        (&mut self.0).take(n as u64).read(buf)
    }
}

fn session(stream: &[u8]) -> Result<(), SessionError> {
    let mut out = Vec::new();
    Session::open(Chunks(stream, 7), &mut out, Features::default()).unwrap().run(&mut engine())
}

#[test]
fn what_is_no_pdu_ends_the_session() {
    let creds = &REQUESTS[0];
    assert!(session(creds).is_ok());
    assert!(session(&[]).is_ok());
    assert!(matches!(session(&REQUESTS[1]), Err(SessionError::Greeting(PduType::DESC_REQ))));
    let then = |bytes: &[u8]| session(&[creds, bytes].concat());
    assert!(matches!(then(&[0, 0, 0, 11, 0, 0, 0x70, 3, 0, 0, 0, 0]), Err(SessionError::Frame(_))));
    assert!(matches!(then(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0x70, 3, 0, 0, 0, 0]), Err(SessionError::Frame(_))));
    assert!(matches!(then(&[0, 0, 0, 16, 0x80, 0, 0x70, 3, 0, 0, 0, 0]), Err(SessionError::Frame(_))));
    assert!(matches!(then(&[0, 1, 0, 0, 0, 0, 0x70, 3, 0, 0, 0, 0, 1]), Err(SessionError::Cut(13))));
    assert!(matches!(then(&[0x7f, 0, 0, 0, 0, 0, 0x70, 3, 0, 0, 0, 0, 1]), Err(SessionError::Frame(_))));
    assert!(matches!(then(&[0, 0, 0]), Err(SessionError::Cut(3))));
    let version = [0, 0, 0, 20, 0, 0, 0x70, 0x0c, 0, 0, 0, 1, 0, 0, 0, 1, 1, 7, 0, 0];
    assert!(matches!(session(&version), Err(SessionError::Version(7))));
}
