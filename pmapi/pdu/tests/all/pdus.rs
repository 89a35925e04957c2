//! PDU codec against bytes that the real PCP sent (`data/pdus.hex`).

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::LazyLock;

use pcp_pdu::codec::{DecodeError, Reader};
use pcp_pdu::handshake::{Attribute, Features};
use pcp_pdu::label::{LabelSetRef, encode_label};
use pcp_pdu::metadata::{self, Subject, TextKind};
use pcp_pdu::names::Node;
use pcp_pdu::result::{Changes, Format};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu, PduType, event};
use pmapi::{Atom, Error, InDom, Inst, PmId, RawLabel, Semantics, Type};
use property::{encode, walk};
use proptest::prelude::*;

#[path = "support/property.rs"]
mod property;

static CAPTURED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let lines = include_str!("../data/pdus.hex").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| hex(&line[2..])).collect()
});

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn decode(bytes: &[u8]) -> Result<Pdu<'_>, DecodeError> {
    Pdu::decode(Header::parse(bytes).unwrap().unwrap(), bytes)
}

#[test]
fn every_captured_pdu_comes_back_byte_for_byte() {
    let mut types = std::collections::BTreeSet::new();
    for bytes in CAPTURED.iter() {
        let header = Header::parse(bytes).unwrap().unwrap();
        types.insert(header.pdu);
        let pdu = decode(bytes).unwrap_or_else(|e| panic!("{e}: {bytes:02x?}"));
        assert_eq!(encode(&pdu, header.from).as_ref(), Some(bytes), "{pdu:?}");
    }
    // Every type that pmcd and agents send occurs.
    let all = (0x7000..=0x7013).filter(|code| ![0x700a, 0x700b].contains(code)).map(PduType::new);
    assert!(types.into_iter().eq(all));
}

#[test]
fn a_pdu_that_ends_early_says_which_field_was_short() {
    for bytes in CAPTURED.iter() {
        let header = Header::parse(bytes).unwrap().unwrap();
        for len in 12..bytes.len() {
            let cut = &bytes[..len];
            match Pdu::decode(header, cut) {
                // An attribute's value extends to the end. The second word of an ERROR and the padding after the last
                // JSON are optional.
                Ok(Pdu::Attr(_)) => {}
                Err(DecodeError::Short { field, need, have, .. }) => assert!(need > have && !field.is_empty()),
                // A count that no longer matches the rest of the PDU.
                Err(DecodeError::Bad { .. }) => {}
                other => panic!("{:?} of {} bytes: {other:?}", header.pdu, len),
            }
        }
    }
}

#[test]
fn a_pdu_that_goes_on_is_refused() {
    for bytes in CAPTURED.iter() {
        let header = Header::parse(bytes).unwrap().unwrap();
        // The length of an attribute's value is not encoded, and an ERROR may have a second word.
        if [PduType::ATTR, PduType::ERROR].contains(&header.pdu) {
            continue;
        }
        let long = [&bytes[..], b"~~~~"].concat();
        let e = Pdu::decode(header, &long).unwrap_err();
        assert_eq!(e, DecodeError::Trailing { pdu: header.pdu, extra: 4 }, "{e}");
    }
}

fn pmid(word: u32) -> PmId {
    PmId::from_word(word).unwrap()
}

#[test]
fn requests() {
    let creds = hex("00000014 0000700c 00001c47 00000001 01020004");
    let Ok(Pdu::Creds(c)) = decode(&creds) else { panic!() };
    assert_eq!(c.version(), Some((2, Features::AUTHORIZE)));

    let fetch = hex("00000024 00007003 00000000 00000000 0000000000000000 00000002 3f400000 3f400001");
    let Ok(Pdu::Fetch(f)) = decode(&fetch) else { panic!() };
    assert_eq!(f.pmids().collect::<Vec<_>>(), [Some(pmid(0x3f40_0000)), Some(pmid(0x3f40_0001))]);

    let attr = hex("00000015 00007011 00000007 00000005 726f6f7400");
    let Ok(Pdu::Attr(a)) = decode(&attr) else { panic!() };
    assert_eq!((a.attribute, a.value), (Attribute::USERNAME, &b"root"[..]));

    let text = hex("00000014 00007008 00000000 3f400001 0000000a");
    let Ok(Pdu::TextReq(t)) = decode(&text) else { panic!() };
    assert_eq!(t.parse(), Ok((Subject::InDom(InDom::from_word(0x3f40_0001).unwrap()), TextKind::Help)));

    // A metric takes precedence over an instance domain, a one-line text over a full one.
    let both = metadata::TextReq { ident: 0x3f40_0001, bits: 15 };
    assert_eq!(both.parse(), Ok((Subject::Metric(pmid(0x3f40_0001)), TextKind::OneLine)));

    let ended = hex("00000010 00007000 00000003 ffffcf99");
    let Ok(Pdu::Error(e)) = decode(&ended) else { panic!() };
    assert_eq!(e.status(), Err(Error::NOTCONN));
}

#[test]
fn answers() {
    let desc = hex("00000020 00007005 00000000 3f400402 00000005 ffffffff 00000001 10003000");
    let Ok(Pdu::Desc(d)) = decode(&desc) else { panic!() };
    assert_eq!((d.desc.ty, d.desc.indom, d.desc.semantics), (Type::Double, None, Semantics::Counter));

    let bytes = hex("00000034 00007001 00000000 00000000 00000000 00000001 07400020 00000001 00000001 ffffffff
                     0000000b 06000007 3133007e");
    let Ok(Pdu::Result(r)) = decode(&bytes) else { panic!() };
    let set = r.sets().next().unwrap();
    assert_eq!((set.pmid, set.format()), (Some(pmid(0x0740_0020)), Format::Dynamic));
    let (inst, value) = set.values().next().unwrap();
    assert_eq!((inst, value.atom(Type::String)), (None, Ok(Atom::String(b"13"))));
    assert_eq!(value.atom(Type::U32), Err(Error::CONV));

    let unknown = hex("00000020 00007001 00000000 00000000 00000000 00000001 3f400009 ffffcfba");
    let Ok(Pdu::Result(r)) = decode(&unknown) else { panic!() };
    assert_eq!(r.sets().next().unwrap().error, Some(Error::PMID));

    let names = hex("00000030 0000700e 00000000 00000008 00000002 00000002 00000001 00000003 666f6f7e 00000000
                     00000003 6261727e");
    let Ok(Pdu::Names(n)) = decode(&names) else { panic!() };
    assert!(n.iter().eq([(Some(Node::NonLeaf), &b"foo"[..]), (Some(Node::Leaf), b"bar")]));

    let label =
        hex("00000046 00007013 00000000 07400000 00000008 00000000 00000001 ffffffff 00000001 00000034 00000012
                     0002 07 08 000b 0006 7b22636c7573746572223a227a65726f227d");
    let Ok(Pdu::Label(l)) = decode(&label) else { panic!() };
    let set = l.sets().next().unwrap();
    let span = set.spans().next().unwrap();
    assert_eq!(span.name_in(set.json), Some(&b"cluster"[..]));
    assert_eq!((span.value_in(set.json), span.flags.bits()), (Some(&b"\"zero\""[..]), 8));
}

/// PCP's sample agent sends this for `sample.bad.nosupport`.
#[test]
fn a_metric_without_support_has_no_semantics() {
    let bytes = hex("00000020 00007005 00000000 07400037 ffffffff ffffffff 00000000 00000000");
    let Ok(Pdu::Desc(desc)) = decode(&bytes) else { panic!() };
    assert_eq!((desc.desc.ty, desc.desc.semantics), (Type::NoSupport, Semantics::Instant));
}

#[test]
fn events_of_both_layouts() {
    for (layout, ty) in [(event::Layout::Micro, Type::Event), (event::Layout::Nano, Type::HighResEvent)] {
        let mut payloads = Vec::new();
        for bytes in CAPTURED.iter() {
            let Ok(Pdu::Result(r)) = decode(bytes) else { continue };
            payloads.extend(r.sets().flat_map(|set| set.values()).filter_map(|(_, value)| value.atom(ty).ok()));
        }
        let mut seen = 0;
        for atom in payloads {
            let (Atom::Event(payload) | Atom::HighResEvent(payload)) = atom else { panic!() };
            let mut array = event::EventArray::new(layout);
            for record in event::records(payload, layout).unwrap() {
                assert_eq!(record.flags, event::EventFlags::POINT);
                array.record(record.time, record.flags).unwrap();
                for (pmid, value) in record.params() {
                    assert!(matches!(value, Atom::String(b"fetch #0" | b"bingo!")));
                    array.param(pmid.unwrap(), value).unwrap();
                    seen += 1;
                }
            }
            assert_eq!(array.atom(), atom);
            // Whole records must give the same payload.
            let mut whole = event::EventArray::new(layout);
            for record in event::records(payload, layout).unwrap() {
                let mut params = event::Params::default();
                record.params().for_each(|(pmid, value)| params.add(pmid.unwrap(), value).unwrap());
                whole.push(record.time, record.flags, &params).unwrap();
                assert!(params.iter().eq(record.params()));
            }
            assert_eq!(whole.atom(), atom);
            // No parameter can be added to a record that is complete.
            array.push(event::Stamp::default(), event::EventFlags::POINT, &event::Params::default()).unwrap();
            assert_eq!(array.param(pmid(1), Atom::U32(1)), Err(Error::NODATA));
            for len in 0..payload.len() {
                assert!(event::records(&payload[..len], layout).is_err());
            }
        }
        assert_eq!(seen, 2);
    }
}

#[test]
fn failed_sets_and_values_leave_nothing_behind() {
    let mut w = ResultWriter::new();
    w.begin();
    for id in 1..=3 {
        w.begin_set(Some(pmid(id)));
        w.push(Some(Inst::new(4)), Type::U64, Atom::U64(id.into())).unwrap();
        assert_eq!(w.push(None, Type::U64, Atom::U32(1)), Err(Error::TYPE));
        assert_eq!(w.push(None, Type::String, Atom::String(&vec![b'x'; 1 << 24])), Err(Error::TOOBIG));
        if id == 2 { w.fail_set(Error::AGAIN) } else { w.end_set(Ok(())) }
    }
    let (head, blocks) = w.seal(0, Changes::default()).unwrap();
    let bytes = [head, blocks].concat();
    let Ok(Pdu::Result(r)) = decode(&bytes) else { panic!() };
    let sets: Vec<_> = r.sets().map(|set| (set.error, set.values().next().map(|v| v.1.atom(Type::U64)))).collect();
    assert_eq!(sets, [(None, Some(Ok(Atom::U64(1)))), (Some(Error::AGAIN), None), (None, Some(Ok(Atom::U64(3))))]);
}

#[test]
fn static_values_are_marked_so() {
    for (ty, atom, format) in [
        (Type::Aggregate, Atom::Aggregate(b"x"), Format::Dynamic),
        (Type::AggregateStatic, Atom::Aggregate(b"x"), Format::Static),
        (Type::Event, Atom::Event(&[0; 4]), Format::Static),
        (Type::HighResEvent, Atom::HighResEvent(&[0; 4]), Format::Static),
        (Type::Float, Atom::Float(1.5), Format::Dynamic),
    ] {
        let mut w = ResultWriter::new();
        w.begin();
        w.begin_set(Some(pmid(1)));
        w.push(None, ty, atom).unwrap();
        w.end_set(Ok(()));
        let (head, blocks) = w.seal(0, Changes::default()).unwrap();
        let bytes = [head, blocks].concat();
        let Ok(Pdu::Result(r)) = decode(&bytes) else { panic!() };
        let set = r.sets().next().unwrap();
        assert_eq!((set.format(), set.values().next().unwrap().1.atom(ty)), (format, Ok(atom)));
    }
}

#[test]
fn labels_over_the_limits_are_refused() {
    let span = RawLabel { name: 0, name_len: 0, flags: pmapi::LabelFlags::empty(), value: 0, value_len: 0 };
    let req = pcp_pdu::label::LabelReq { ident: 0, bits: 2 };
    for (labels, json, expected) in
        [(255, 65_535, Ok(())), (256, 1, Err(Error::TOOBIG)), (1, 65_536, Err(Error::TOOBIG))]
    {
        let (labels, json) = (vec![span; labels], vec![b' '; json]);
        let set = LabelSetRef { inst: None, labels: Ok(&labels), json: &json };
        let mut out = Vec::new();
        assert_eq!(encode_label(&mut out, 0, req, &[set]), expected);
        assert_eq!(out.is_empty(), expected.is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn mutated_pdus_never_panic(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        word in (any::<prop::sample::Index>(), prop_oneof![Just(-1), Just(0), Just(1), Just(i32::MAX), Just(i32::MIN), any::<i32>()]),
        len in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let original = pick.get(&CAPTURED);
        let mut bytes = original.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let at = word.0.index(bytes.len() / 4) * 4;
        bytes[at..at + 4].copy_from_slice(&word.1.to_be_bytes());
        if cut {
            bytes.truncate(12 + len.index(bytes.len() - 11));
        }
        let code = i32::from_be_bytes(original[4..8].try_into().unwrap());
        let header = Header { len: bytes.len() as u32, pdu: PduType::new(code), from: 0 };
        if let Ok(pdu) = Pdu::decode(header, &bytes) {
            walk(&pdu);
        }
    }

    #[test]
    fn random_bytes_never_panic(code in 0x6fff..0x7018i32, body in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [&[0; 12][..], &body].concat();
        let header = Header { len: bytes.len() as u32, pdu: PduType::new(code), from: 0 };
        if let Ok(pdu) = Pdu::decode(header, &bytes) {
            walk(&pdu);
        }
    }
}

#[test]
fn a_reader_never_reads_past_its_input() {
    let mut r = Reader::new(PduType::FETCH, &[0; 14]);
    assert_eq!(r.left(), 2);
    assert!(r.u32("x").is_err());
    assert_eq!(r.left(), 2);
    assert!(r.padded(usize::MAX, "x").is_err() && r.records(usize::MAX, 16, "x").is_err());
    let mut short = Reader::new(PduType::FETCH, &[0; 3]);
    assert_eq!((short.left(), short.u32("x").is_err()), (0, true));
}
