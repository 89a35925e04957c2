//! Any text as an expression and as a configuration. What parses is bound and evaluated on two samples.
//!
//! `cargo +nightly fuzz run derive -- -dict=derive.dict` in this folder.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use pcp_derive::{Controls, Definitions, Evaluator, Load, Metadata, Missing, Operand, Scope, Source};
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};

fuzz_target!(|text: &str| {
    let mut definitions = Definitions::new(Scope::Global);
    if let Err(pcp_derive::RegisterError::Syntax(error)) = definitions.register("x", text) {
        assert!(error.offset < text.len().max(1));
        error.caret(text);
    }
    definitions.load_text("file", text, &mut Controls::default());
    let mut evaluator = Evaluator::bind(&definitions, &mut Metrics, false);
    let plan = evaluator.plan(0..evaluator.len());
    for stamp in 1..3 {
        evaluator.evaluate(&plan, Duration::from_secs(stamp), &mut Metrics);
        for number in 0..evaluator.len() {
            let Ok(desc) = evaluator.desc(number) else { continue };
            let Ok(values) = evaluator.values(number) else { continue };
            assert!(values.iter().all(|(_, atom)| atom.ty() == desc.ty));
        }
    }
});

/// Metrics `a` to `h`, one of each type, half of them with instances.
struct Metrics;

impl Metadata for Metrics {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        let &[letter @ b'a'..=b'h'] = name.as_bytes() else { return Err(Missing::Name) };
        let number = letter - b'a';
        let domain = Domain::new(1).unwrap();
        Ok(Desc {
            pmid: PmId::new(domain, Item::new(0, number.into())),
            ty: Type::from_code(number.into()).unwrap(),
            indom: (number % 2 == 0).then(|| InDom::new(domain, Serial::new(1))),
            semantics: if number % 3 == 0 { Semantics::Counter } else { Semantics::Instant },
            units: if number % 5 == 0 { Units::BYTES } else { Units::NONE },
        })
    }
}

impl Source for Metrics {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        for id in [3, 1, 4] {
            let inst = operand.desc.indom.map(|_| Inst::new(id));
            load.push(
                inst,
                match operand.desc.ty {
                    Type::I32 => Atom::I32(-1),
                    Type::U32 => Atom::U32(id),
                    Type::I64 => Atom::I64(i64::MIN),
                    Type::U64 => Atom::U64(u64::MAX),
                    Type::Float => Atom::Float(0.0),
                    Type::Double => Atom::Double(1e300),
                    Type::String => Atom::String(b"text"),
                    _ => Atom::Aggregate(b"bytes"),
                },
            );
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
