//! Samples that no well-behaved agent sends: evaluation accepts them all, and never panics.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use pcp_derived::{Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source, UnknownNames};
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};
use proptest::prelude::*;

const EXPRESSIONS: &[&str] = &[
    "many + one",
    "many * other",
    "many / other",
    "-many",
    "many > other && one",
    "sum(many)",
    "avg(many)",
    "max(many) - min(many)",
    "count(many)",
    "scalar(many)",
    "delta(many)",
    "rate(many)",
    "rate(one)",
    "delta(many + other)",
    "many[i2]",
    "matchinst(/i[12]/, many)",
    "matchinst(!/i1/, many + other)",
    "many > one ? many : other",
    "one > 5 ? many : novalue()",
    "one ? one : instant(counter)",
    "rate(counter)",
];

fn desc(name: &str) -> Option<Desc> {
    let domain = Domain::new(60).unwrap();
    let many = Some(InDom::new(domain, Serial::new(1)));
    let (item, ty, indom, semantics) = match name {
        "one" => (0, Type::U32, None, Semantics::Instant),
        "many" => (1, Type::U32, many, Semantics::Instant),
        "other" => (2, Type::U32, many, Semantics::Instant),
        "counter" => (3, Type::U32, None, Semantics::Counter),
        _ => return None,
    };
    Some(Desc { pmid: PmId::new(domain, Item::new(0, item)), ty, indom, semantics, units: Units::NONE })
}

/// Value set of each operand: an error, or values with or without instances. Values may have a type other than the
/// metric's.
type Sample = [Result<Vec<(Option<u32>, u64)>, ()>; 4];

struct Odd(Sample);

impl Metadata for Odd {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        desc(name).ok_or(Missing::Name)
    }
}

impl Source for Odd {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        let values = self.0[usize::from(operand.desc.pmid.item().item())].as_ref().map_err(|()| Error::AGAIN)?;
        for (inst, value) in values {
            // One value in five has a type other than the metric's.
            let atom = if value % 5 == 0 { Atom::U64(*value) } else { Atom::U32(*value as u32) };
            load.push(inst.map(Inst::new), atom);
        }
        Ok(())
    }

    fn instances(&mut self, _: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        list.extend([1, 1, 0].map(Inst::new));
        Ok(())
    }

    fn instance_name(&mut self, _: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        name.extend(format!("i{inst} \u{fffd}").bytes());
        if inst.word() == 3 { Err(Error::INST) } else { Ok(()) }
    }

    fn instance_id(&mut self, _: InDom, name: &str) -> Result<Inst, Error> {
        name.strip_prefix('i').and_then(|inst| inst.parse().ok()).map(Inst::new).ok_or(Error::INST)
    }
}

fn operand() -> impl Strategy<Value = Result<Vec<(Option<u32>, u64)>, ()>> {
    let value = (proptest::option::weighted(0.8, 0..5u32), any::<u64>());
    proptest::result::maybe_err_weighted(0.1, proptest::collection::vec(value, 0..6), Just(()))
}

fn sample() -> impl Strategy<Value = Sample> {
    [operand(), operand(), operand(), operand()]
}

proptest! {
    #[test]
    fn are_evaluated_without_panics(samples in proptest::collection::vec((sample(), 0..3u64), 1..6)) {
        let mut definitions = Definitions::new(Scope::Global);
        for (number, expression) in EXPRESSIONS.iter().enumerate() {
            definitions.register(&format!("d{number}"), expression).unwrap();
        }
        let mut source = Odd([const { Ok(Vec::new()) }; 4]);
        let mut evaluator = Evaluator::bind(&definitions, &mut source, UnknownNames::Refused);
        let plan = evaluator.plan(evaluator.ids());
        let mut time = Duration::ZERO;
        for (sample, pause) in samples {
            source.0 = sample;
            time += Duration::from_secs(pause);
            evaluator.evaluate(&plan, time, &mut source);
            for (id, expression) in evaluator.ids().zip(EXPRESSIONS) {
                let desc = evaluator.desc(id).unwrap_or_else(|e| panic!("{expression}: {e:?}"));
                let Ok(values) = evaluator.values(id) else { continue };
                prop_assert_eq!(values.iter().len(), values.len());
                let (mut each, mut left) = (values.iter(), values.len());
                let same = values.try_each(|inst, value| {
                    left -= 1;
                    let other = each.next();
                    if other.is_some_and(|other| format!("{other:?}") == format!("{:?}", (inst, value))) { Ok(()) } else { Err(other.is_none()) }
                });
                prop_assert!(same.is_ok() && left == 0, "{}: {:?}, {} left", expression, same, left);
                for (_, value) in values.iter() {
                    prop_assert_eq!(value.ty(), desc.ty, "{}", expression);
                }
            }
        }
    }
}
