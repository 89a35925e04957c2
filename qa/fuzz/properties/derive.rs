//! Properties of every text as an expression and as a configuration. The fuzz target `derive` and the stage `texts` of
//! `qa/campaign` share it.

use std::time::Duration;

use pcp_derived::{
    Controls, Definitions, Evaluator, Load, Metadata, Missing, Operand, RegisterError, Scope, Source, UnknownNames,
};
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};

/// Registers a text, and the part after its name. Binds valid definitions, and evaluates them in two samples. A syntax
/// error lies within its text, and values have the type of their metric.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let mut definitions = Definitions::new(Scope::Global);
    let expression = text.split_once([' ', '=']).map_or(text, |(_, expression)| expression);
    for (name, expression) in [("x", expression), ("y", text)] {
        if let Err(RegisterError::Syntax(error)) = definitions.register(name, expression)
            && (error.offset >= expression.len().max(1) || error.caret(expression).len() > expression.len())
        {
            return Err(format!("{expression:?} has a syntax error behind its end"));
        }
    }
    definitions.load_text("file", text, &mut Controls::default());
    let mut evaluator = Evaluator::bind(&definitions, &mut Metrics, UnknownNames::Refused);
    let plan = evaluator.plan(evaluator.ids());
    for stamp in 1..3 {
        evaluator.evaluate(&plan, Duration::from_secs(stamp), &mut Metrics);
        for id in evaluator.ids() {
            let (Ok(desc), Ok(values)) = (evaluator.desc(id), evaluator.values(id)) else { continue };
            if values.iter().any(|(_, atom)| atom.ty() != desc.ty) {
                return Err(format!("{text:?} has a value of another type than its own"));
            }
        }
    }
    Ok(())
}

/// Operands with any name but those that begin with `z`. Type, instances, semantics and units follow from the length of
/// the name.
struct Metrics;

impl Metadata for Metrics {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        if name.starts_with('z') {
            return Err(Missing::Name);
        }
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
