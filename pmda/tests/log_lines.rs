//! Every invalid PDU, and every metric without a value, leaves a line in the log, which names the client as its source.
//! The test is a separate program, because tracing decides for the whole process whether to record an event.

#![allow(clippy::unwrap_used, clippy::panic)]

mod zoo;

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use pcp_pdu::handshake::{self, Attr, Attribute};
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::{Header, PduType};
use pmapi::{Config, Domain, Error, PmId};
use pmda::host::Engine;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use zoo::Zoo;

/// A log that collects the lines of warnings and errors.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

#[derive(Default, Debug)]
struct Line {
    text: String,
    source: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.text = format!("{value:?}"),
            "source" => self.source = format!("{value:?}"),
            _ => {}
        }
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock().unwrap().push(line);
        }
    }
}

/// Makes an agent handle PDUs in a buffer, one after another.
fn handle(engine: &mut Engine<Zoo>, mut pdus: &[u8]) {
    while let Some(header) = Header::parse(pdus).unwrap() {
        let (pdu, rest) = pdus.split_at(header.len as usize);
        engine.handle(header, pdu, |_| ());
        pdus = rest;
    }
}

#[test]
fn lines_that_clients_cause_name_them_as_the_source() {
    let log = Log::default();
    tracing_subscriber::registry().with(log.clone()).init();
    let domain = Domain::new(zoo::DOMAIN).unwrap();
    let mut engine = Engine::<Zoo>::builder().domain(domain).config(Config::new(b"", [])).build().unwrap();
    for (pdu, bytes) in [(PduType::FETCH, [0; 29]), (PduType::PROFILE, [9; 29]), (PduType::new(0x6000), [0; 29])] {
        engine.handle(Header { len: 29, pdu, from: 1 }, &bytes, |_| ());
    }
    let mut pdus = Vec::new();
    for item in [zoo::FAILING, zoo::PARTLY, zoo::MISFIT, zoo::ONE_FOR_ALL, zoo::INST_OF_NONE] {
        encode_fetch(&mut pdus, 1, 1, [Some(PmId::new(domain, item))].into_iter()).unwrap();
    }
    encode_fetch(&mut pdus, 1, 1, [].into_iter()).unwrap();
    handshake::encode_error(&mut pdus, 1, Err(Error::PERMISSION)).unwrap();
    handshake::encode_error(&mut pdus, 1, Ok(())).unwrap();
    handshake::encode_ready(&mut pdus).unwrap();
    handle(&mut engine, &pdus);
    let lines = std::mem::take(&mut *log.0.lock().unwrap());
    for text in [
        "FETCH PDU: 1 bytes after its last field",
        "PROFILE PDU: global state: 151587081",
        "unexpected TYPE-24576? PDU",
        "pmdaFetch: Instance -1 of PMID 400.3.3 not handled",
        "an empty request",
        "unexpected error PDU from pmcd",
    ] {
        assert!(lines.iter().any(|line| line.text.contains(text)), "{text:?} is not in {lines:#?}");
    }
    assert!(lines.iter().all(|line| ["client 1", "client 0"].contains(&&*line.source)), "{lines:#?}");

    // A client whose user is known is named by it.
    let mut pdus = Vec::new();
    Attr { attribute: Attribute::USERID, value: b"7" }.encode(&mut pdus, 2).unwrap();
    encode_fetch(&mut pdus, 2, 2, [Some(PmId::new(domain, zoo::MISFIT))].into_iter()).unwrap();
    handle(&mut engine, &pdus);
    let lines = log.0.lock().unwrap();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.source == "uid 7"), "{lines:#?}");
}
