//! Every invalid PDU leaves a line in the log. The test has a program of its own, because tracing decides for the whole
//! process whether to record an event.

#![allow(clippy::unwrap_used, clippy::panic)]

mod zoo;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use pcp_pdu::{Header, PduType};
use pmapi::{Domain, config::Config};
use pmda::Engine;
use zoo::Zoo;

/// A writer that collects a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_bad_pdu_leaves_a_line() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
    let mut engine = Engine::<Zoo>::new(Domain::new(zoo::DOMAIN).unwrap(), Config::new(b"", [])).unwrap();
    for (pdu, bytes) in [(PduType::FETCH, [0; 29]), (PduType::PROFILE, [9; 29]), (PduType::new(0x6000), [0; 29])] {
        engine.handle(Header { len: 29, pdu, from: 1 }, &bytes);
    }
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for line in [
        "FETCH PDU: 1 bytes after its last field",
        "PROFILE PDU: global state: 151587081",
        "unexpected TYPE-24576? PDU",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
}
