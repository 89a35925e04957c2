//! Decodes any bytes as a PDU of every type. A valid PDU can be read completely, and its encoding decodes to an equal
//! PDU.
//!
//! `./seed && cargo +nightly fuzz run --fuzz-dir . pdu` in `qa/fuzz`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pcp_pdu::{HEADER, Header, Pdu, PduType};
use property::{encode, walk};

#[path = "../../../pmapi/pdu/tests/all/support/property.rs"]
mod property;

fuzz_target!(|bytes: &[u8]| {
    let Some(head) = bytes.get(..HEADER) else { return };
    let from = i32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    for code in 0x7000..=0x7017 {
        let header = Header { len: bytes.len() as u32, pdu: PduType::new(code), from };
        let Ok(pdu) = Pdu::decode(header, bytes) else { continue };
        let _ = format!("{pdu:?}");
        walk(&pdu);
        let Some(again) = encode(&pdu, from) else { continue };
        let header = Header::parse(&again).unwrap().unwrap();
        assert_eq!((header.len as usize, header.pdu.code(), header.from), (again.len(), code, from));
        let pdu = Pdu::decode(header, &again).unwrap_or_else(|e| panic!("{e}: {again:02x?}"));
        assert_eq!(encode(&pdu, from).as_ref(), Some(&again));
    }
});
