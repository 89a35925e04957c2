//! The archive of agent replay, and changes of its position and speed.

use std::path::Path;

use pcp_archive::Create;
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, InDom, Inst, PmId, Semantics, Type, Units};

use crate::Outcome;
use crate::rng::Rng;

/// Seconds from the start to the end, with a record for each of them.
const LENGTH: u32 = 600;
/// Start, in seconds since 1970.
const START: i64 = 1_700_000_000;
/// Value of the metric that is constant.
const FIXED: u32 = 12_345;
/// Items of the metrics in cluster 1 of the agent: the constant, a counter with instances that come and go, and a text.
pub(super) const ITEMS: [u16; 3] = [0, 1, 2];

/// Writes an archive with a value of each metric for each second.
pub(super) fn write(base: &Path) -> Outcome {
    let mut writer = Create::new("recorded").create(base)?;
    let pmid = |item: u32| PmId::from_word(60 << 22 | item).ok_or("an invalid PMID");
    let indom = InDom::from_word(60 << 22 | 1).ok_or("an invalid instance domain")?;
    let desc = |pmid, ty, indom, semantics| Desc { pmid, ty, indom, semantics, units: Units::NONE };
    let fixed = desc(pmid(0)?, Type::U32, None, Semantics::Instant);
    let counter = desc(pmid(1)?, Type::U64, Some(indom), Semantics::Counter);
    let text = desc(pmid(2)?, Type::String, None, Semantics::Discrete);
    for (desc, name) in [(fixed, "a.fixed"), (counter, "b.counter"), (text, "c.text")] {
        writer.metric(&desc.into(), &[name.as_bytes()])?;
        writer.text(Subject::Metric(desc.pmid), TextKind::OneLine, name.as_bytes())?;
    }
    let names: Vec<String> = (0..8).map(|inst| format!("row{inst}")).collect();
    let mut values = ResultWriter::new();
    for second in 0..=LENGTH {
        let time = Stamp { seconds: START + i64::from(second), nanoseconds: 0 };
        let rows = 1 + second / 30 % 8;
        if second % 30 == 0 {
            let named: Vec<_> = (0..rows).zip(&names).map(|(inst, name)| (Inst::new(inst), name.as_bytes())).collect();
            writer.instances(time, indom, &named)?;
        }
        values.begin();
        values.begin_set(Some(fixed.pmid));
        values.push(None, Type::U32, Atom::U32(FIXED))?;
        values.end_set(Ok(()));
        values.begin_set(Some(counter.pmid));
        for inst in 0..rows {
            values.push(Some(Inst::new(inst)), Type::U64, Atom::U64(u64::from(second * (inst + 1))))?;
        }
        values.end_set(Ok(()));
        values.begin_set(Some(text.pmid));
        values.push(None, Type::String, Atom::String(format!("second {second}").as_bytes()))?;
        values.end_set(Ok(()));
        writer.values(time, &mut values)?;
    }
    Ok(writer.finish()?)
}

/// Returns the item of a control metric, and a value to store into it: a position, a speed, or whether the replay is
/// paused.
pub(super) fn change(rng: &mut Rng) -> (u16, Atom<'static>) {
    match rng.below(4) {
        0 => (0, Atom::Double(rng.below(LENGTH as usize) as f64)),
        1 => (1, Atom::Double(f64::from(1_u32 << rng.below(10)))),
        2 => (2, Atom::U32(1)),
        _ => (2, Atom::U32(0)),
    }
}
