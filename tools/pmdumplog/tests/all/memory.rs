//! Memory for archives whose text is far longer than their files.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

use pcp_archive::Create;
use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, InDom, Inst, PmId, Type};

const OURS: &str = env!("CARGO_BIN_EXE_pmdumplog");

/// Length of an instance's name in bytes, and the number of values with it: 400 MB of text, far over the limit of 200 MB
/// of memory.
const NAME: usize = 100_000;
const VALUES: u32 = 4000;

#[test]
// Slow: the output must be longer than the memory that is allowed.
fn long_names_of_instances_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("x");
    let (pmid, indom) = (PmId::from_word(253 << 22 | 1), InDom::from_word(253 << 22 | 7));
    let desc = RawDesc { pmid, ty: Type::U32.code(), indom, semantics: 3, units: 0 };
    let mut writer = Create::new("host").create(&base).unwrap();
    writer.metric(&desc, &[b"test.long"]).unwrap();
    let (time, name) = (Stamp { seconds: 1_700_000_000, nanoseconds: 0 }, "n".repeat(NAME));
    writer.instances(time, indom.unwrap(), &[(Inst::new(1), name.as_bytes())]).unwrap();
    let mut values = ResultWriter::new();
    values.begin();
    values.begin_set(pmid);
    for value in 0..VALUES {
        values.push(Some(Inst::new(1)), Type::U32, Atom::U32(value)).unwrap();
    }
    values.end_set(Ok(()));
    writer.values(time, &mut values).unwrap();
    writer.finish().unwrap();
    for options in ["-m", "-D pdu -m"] {
        let command = format!("ulimit -v 200000; \"$OURS\" {options} \"$BASE\" 2>&1 | wc -c");
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("OURS", OURS).env("BASE", &base).stdin(Stdio::null());
        let count: usize = String::from_utf8_lossy(&shell.output().unwrap().stdout).trim().parse().unwrap();
        assert!(count > NAME * VALUES as usize, "{options}: {count} bytes");
    }
}
