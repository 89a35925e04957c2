//! Evaluation allocates nothing as long as instances stay the same.

use std::time::Duration;

use pcp_derived::{Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source, UnknownNames};
use pmapi::{Atom, Desc, Error, InDom, Inst, Semantics, Type, Units};

use crate::derive::table::{Table, indom};

/// Source with the operands of a table, whose values change without allocations.
struct Moving<'a> {
    table: &'a Table,
    tick: u32,
}

impl Metadata for Moving<'_> {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        self.table.lookup(name)
    }
}

impl Source for Moving<'_> {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        let value = |id: u32| id + self.tick * 3;
        let ids = if operand.desc.indom.is_none() { 0..1 } else { 0..100 };
        let inst = |id| operand.desc.indom.map(|_| Inst::new(id));
        // One metric lacks some instances, and has them in another order.
        let scrambled = |id| inst((id * 37) % 90);
        match (load.ty(), &*operand.name) {
            (_, "scrambled") => load.extend((0..90).map(|id| (scrambled(id), Atom::U32(value(id))))),
            (Type::U32, _) => load.extend(ids.map(|id| (inst(id), Atom::U32(value(id))))),
            (Type::U64, _) => load.extend(ids.map(|id| (inst(id), Atom::U64(value(id).into())))),
            (Type::Double, _) => ids.for_each(|id| load.push(inst(id), Atom::Double(value(id).into()))),
            _ => load.extend(ids.map(|id| (inst(id), Atom::String(b"some text")))),
        }
        Ok(())
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        (&*self.table).instances(indom, list)
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        (&*self.table).instance_name(indom, inst, name)
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst, Error> {
        (&*self.table).instance_id(indom, name)
    }
}

#[test]
fn a_steady_tick_allocates_nothing() {
    let table = Table::default()
        .metric("gauge", Type::U32, Semantics::Instant, Units::NONE, 1)
        .metric("scrambled", Type::U32, Semantics::Instant, Units::NONE, 1)
        .metric("real", Type::Double, Semantics::Instant, Units::NONE, 1)
        .metric("bytes", Type::U64, Semantics::Counter, Units::BYTES, 1)
        .metric("kbytes", Type::U64, Semantics::Counter, Units::KBYTES, 1)
        .metric("text", Type::String, Semantics::Instant, Units::NONE, 1)
        .metric("one", Type::U32, Semantics::Instant, Units::NONE, 0);
    let mut definitions = Definitions::new(Scope::Global);
    let constant = format!("mkconst(3, indom={})", indom(1));
    for (number, expr) in [
        "gauge + real * 2 - one / 3",
        "gauge + scrambled",
        "bytes + kbytes",
        "gauge > 30 && scrambled <= 20 || !real",
        "gauge > 30 ? gauge : scrambled",
        "gauge > 30 ? text : novalue()",
        "-bytes",
        "delta(bytes)",
        "rate(bytes)",
        "rate(scrambled + gauge)",
        "instant(kbytes)",
        "avg(gauge)",
        "count(gauge)",
        "max(gauge)",
        "min(real)",
        "sum(bytes)",
        "scalar(text)",
        "rescale(bytes, \"Mbyte\")",
        "rescale(instant(bytes) / 7, \"Kbyte\")",
        "gauge[i7]",
        "matchinst(/5$/, text)",
        "matchinst(!/5$/, gauge) + gauge",
        "defined(no.such) ? no.such : d0 + 1",
        &constant,
    ]
    .iter()
    .enumerate()
    {
        definitions.register(&format!("d{number}"), expr).unwrap();
    }
    let mut source = Moving { table: &table, tick: 0 };
    let mut evaluator = Evaluator::bind(&definitions, &mut source, UnknownNames::Refused);
    for id in evaluator.ids() {
        assert!(evaluator.desc(id).is_ok(), "{id:?}: {:?}", evaluator.desc(id));
    }
    let plan = evaluator.plan(evaluator.ids());
    let mut tick = || {
        source.tick += 1;
        evaluator.evaluate(&plan, Duration::from_secs(source.tick.into()), &mut source);
    };
    // In the first ticks the guards choose other instances each time, which allocates. After 20 ticks the choice is
    // stable.
    (0..20).for_each(|_| tick());
    let info = allocation_counter::measure(|| (0..3).for_each(|_| tick()));
    assert_eq!((info.count_total, info.bytes_total), (0, 0));
    let empty = evaluator.ids().find(|id| evaluator.values(*id).is_ok_and(|values| values.is_empty()));
    assert_eq!(empty, None);
}
