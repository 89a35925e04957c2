//! Texts of an archive do not reach a terminal as they are.
#![allow(clippy::unwrap_used)]

use pcp_archive::Create;
use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, InDom, Inst, PmId, Type};

#[test]
fn texts_of_an_archive_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("x");
    let time = Stamp { seconds: 1, nanoseconds: 0 };
    let mut writer = Create::new("ho\x1bst").start(time).create(&base).unwrap();
    let (pmid, indom) = (PmId::from_word(253 << 22 | 1), InDom::from_word(253 << 22 | 7).unwrap());
    let desc = RawDesc { pmid, ty: Type::String.code(), indom: Some(indom), semantics: 3, units: 0 };
    writer.metric(&desc, &[b"a.b"]).unwrap();
    writer.instances(time, indom, &[(Inst::new(0), b"in\x1bst")]).unwrap();
    let mut values = ResultWriter::new();
    values.begin();
    values.begin_set(pmid);
    values.push(Some(Inst::new(0)), Type::String, Atom::String(b"te\x1b[2J\nxt")).unwrap();
    values.end_set(Ok(()));
    writer.values(time, &mut values).unwrap();
    writer.finish().unwrap();
    for options in [&["-a"][..], &["-L"], &["-i"], &["-Dpdu", "-m"], &["--check"], &["-a", "\x1b.no"], &["-\x1b"]] {
        let arguments = [options, &[base.to_str().unwrap()]].concat();
        let said = testkit::on_terminal(env!("CARGO_BIN_EXE_pmdumplog"), &arguments);
        assert!(!said.contains('\x1b'), "{options:?}: {said:?}");
    }
    let pdu = testkit::on_terminal(env!("CARGO_BIN_EXE_pmdumplog"), ["-Dpdu", base.to_str().unwrap()]);
    assert!(pdu.contains(r"te\u{1b}[2J") && pdu.contains("__pmResult dump"), "{pdu}");
}
