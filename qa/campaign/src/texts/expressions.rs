//! Damaged expressions of derived metrics, in this process. Those that parse are bound, and evaluated on two samples.

use std::time::Duration;

use pcp_derive::{Controls, Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source, UnknownNames};
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};

use super::damage::{damage, lines};
use crate::Outcome;
use crate::rng::Rng;

/// Valid definitions, each a line `name expression`.
const KNOWN: &str = include_str!("../../../../derive/tests/data/derive/expressions.txt");
const CONFIGURATION: &str = include_str!("../../../../agents/derived/etc/disk.conf");

/// Parses and evaluates a damaged configuration. Values must have the type of their metric.
pub(super) fn try_one(rng: &mut Rng) -> Outcome {
    let mut text = Vec::new();
    let known = if rng.one_in(3) { CONFIGURATION } else { KNOWN };
    lines(rng, known, &mut text);
    damage(rng, &mut text);
    let text = String::from_utf8_lossy(&text);
    let mut definitions = Definitions::new(Scope::Global);
    let expression = text.split_once([' ', '=']).map_or(&*text, |(_, expression)| expression);
    let _ = definitions.register("x", expression);
    definitions.load_text("file", &text, &mut Controls::default());
    let mut evaluator = Evaluator::bind(&definitions, &mut Metrics, UnknownNames::Refused);
    let plan = evaluator.plan(0..evaluator.len());
    for stamp in 1..3 {
        evaluator.evaluate(&plan, Duration::from_secs(stamp), &mut Metrics);
        for number in 0..evaluator.len() {
            let (Ok(desc), Ok(values)) = (evaluator.desc(number), evaluator.values(number)) else { continue };
            if values.iter().any(|(_, atom)| atom.ty() != desc.ty) {
                return Err(format!("{text:?} has a value of another type than its own").into());
            }
        }
    }
    Ok(())
}

/// Operands with any name. Type, instances, semantics and units follow from the length of the name.
struct Metrics;

impl Metadata for Metrics {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        let number = name.len() as u16 % 8;
        let domain = Domain::new(1).ok_or(Missing::Name)?;
        Ok(Desc {
            pmid: PmId::new(domain, Item::try_new(0, name.len() as u16 & 0x3ff).ok_or(Missing::Name)?),
            ty: Type::from_code(number.into()).map_err(|_| Missing::Name)?,
            indom: number.is_multiple_of(2).then(|| InDom::new(domain, Serial::new(1))),
            semantics: if number.is_multiple_of(3) { Semantics::Counter } else { Semantics::Instant },
            units: if number.is_multiple_of(5) { Units::BYTES } else { Units::NONE },
        })
    }
}

impl Source for Metrics {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        for id in [3, 1, 4] {
            let inst = operand.desc.indom.map(|_| Inst::new(id));
            let atom = match operand.desc.ty {
                Type::I32 => Atom::I32(-1),
                Type::U32 => Atom::U32(id),
                Type::I64 => Atom::I64(i64::MIN),
                Type::U64 => Atom::U64(u64::MAX),
                Type::Float => Atom::Float(0.0),
                Type::Double => Atom::Double(1e300),
                Type::String => Atom::String(b"text"),
                _ => Atom::Aggregate(b"bytes"),
            };
            load.push(inst, atom);
            if inst.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn instances(&mut self, _: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        list.extend([1, 3].map(Inst::new));
        Ok(())
    }

    fn instance_name(&mut self, _: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        name.extend_from_slice(inst.to_string().as_bytes());
        Ok(())
    }

    fn instance_id(&mut self, _: InDom, name: &str) -> Result<Inst, Error> {
        name.parse().ok().and_then(Inst::from_word).ok_or(Error::INST)
    }
}
