//! CPU time of writing compared with `libpcp_import`'s in the same run: `cargo bench -p pcp-archive`.
//!
//! The C program (`import.c`) is compiled if `libpcp_import` is installed. Both write the same values, in turn.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;

use nix::time::{ClockId, clock_gettime};
use pcp_archive::{Archive, Create, Version};
use pcp_pdu::desc::RawDesc;
use pcp_pdu::event::Stamp;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, InDom, Inst, PmId, Type};

/// Metrics, instances, records.
const SIZES: [[u32; 3]; 3] = [[10, 1, 20_000], [200, 1, 3000], [50, 200, 300]];
const TURNS: usize = 5;

fn cpu() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
    now.tv_sec() as f64 + now.tv_nsec() as f64 / 1e9
}

/// Writes an archive and returns the CPU time in seconds.
fn ours(base: &Path, [metrics, instances, records]: [u32; 3]) -> f64 {
    let start = cpu();
    let indom = InDom::from_word(253 << 22 | 7).unwrap();
    let names: Vec<String> = (0..instances).map(|inst| format!("instance{inst}")).collect();
    let list: Vec<_> = (0..).zip(&names).map(|(inst, name)| (Inst::new(inst), name.as_bytes())).collect();
    let descs: Vec<RawDesc> = (0..metrics)
        .map(|item| {
            let ty = if item % 2 == 1 { Type::U64 } else { Type::U32 };
            let pmid = PmId::from_word(253 << 22 | item);
            RawDesc { pmid, ty: ty.code(), indom: Some(indom), semantics: 1, units: 0 }
        })
        .collect();
    let mut writer = Create::new("host").version(Version::V2).create(base).unwrap();
    let mut values = ResultWriter::new();
    for record in 0..records {
        let time = Stamp { seconds: 1_700_000_000 + i64::from(record), nanoseconds: 0 };
        if record == 0 {
            for (item, desc) in descs.iter().enumerate() {
                writer.metric(desc, &[format!("bench.metric{item}").as_bytes()]).unwrap();
            }
        }
        writer.instances(time, indom, &list).unwrap();
        values.begin();
        for desc in &descs {
            values.begin_set(desc.pmid);
            for (inst, _) in &list {
                let value = u64::from(record) * 1000 + u64::from(inst.word());
                let (ty, atom) = match desc.ty {
                    ty if ty == Type::U64.code() => (Type::U64, Atom::U64(value)),
                    _ => (Type::U32, Atom::U32(value as u32)),
                };
                values.push(Some(*inst), ty, atom).unwrap();
            }
            values.end_set(Ok(()));
        }
        writer.values(time, &mut values).unwrap();
    }
    writer.finish().unwrap();
    cpu() - start
}

/// Compiles the C program; `None` without `libpcp_import`.
fn peer(dir: &Path) -> Option<std::path::PathBuf> {
    let program = dir.join("import");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/write/import.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-o"]).arg(&program).args([source, "-l:libpcp_import.so.1", "-lpcp"]);
    gcc.output().is_ok_and(|compiled| compiled.status.success()).then_some(program)
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let peer = peer(dir.path());
    for size in SIZES {
        let [metrics, instances, records] = size;
        println!("{records} records of {metrics} metrics with {instances} instances");
        let (mut least, mut theirs) = (f64::INFINITY, f64::INFINITY);
        for turn in 0..TURNS {
            let base = dir.path().join(format!("ours{metrics}-{instances}-{turn}"));
            least = least.min(ours(&base, size));
            let Some(peer) = &peer else { continue };
            let other = dir.path().join(format!("theirs{metrics}-{instances}-{turn}"));
            let arguments = size.map(|number| number.to_string());
            let output = Command::new(peer).arg(&other).args(arguments).output().unwrap();
            let seconds: f64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            theirs = theirs.min(seconds);
            let lens = [&base, &other].map(|base| Archive::open(base).unwrap().first().volume_len(0).unwrap());
            assert_eq!(lens[0], lens[1], "the values differ in length");
        }
        match peer {
            Some(_) => println!("  ours {least:.4} s, libpcp_import {theirs:.4} s, {:.2} times", theirs / least),
            None => println!("  ours {least:.4} s; libpcp_import is not installed"),
        }
    }
}
