//! Metrics made up for a test.

use pcp_derived::{
    DefinitionId, Definitions, Evaluator, Load, Metadata, Missing, Operand, Plan, Presence, Scope, Source, UnknownNames,
};
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, Item, PmId, Semantics, Serial, Type, Units};
use std::collections::BTreeMap;
use std::time::Duration;

/// Table of metrics with values. Instance `n` of any domain is called `i n`, followed by a second word.
#[derive(Default)]
pub(crate) struct Table {
    metrics: BTreeMap<String, (Desc, Numbers)>,
    /// Metrics that the sample does not have.
    missing: BTreeMap<String, Presence>,
}

/// Values by instance, or an error.
type Numbers = Result<Vec<(u32, f64)>, Error>;

pub(crate) fn indom(serial: u32) -> InDom {
    InDom::new(Domain::new(7).unwrap(), Serial::new(serial))
}

impl Table {
    /// Adds a metric without values. `serial` is the serial of its instance domain, or 0 for a singular metric.
    pub(crate) fn metric(mut self, name: &str, ty: Type, semantics: Semantics, units: Units, serial: u32) -> Table {
        let pmid = PmId::new(Domain::new(7).unwrap(), Item::new(0, self.metrics.len() as u16));
        let indom = (serial != 0).then(|| indom(serial));
        let desc = Desc { pmid, ty, indom, semantics, units };
        self.metrics.insert(name.to_owned(), (desc, Ok(Vec::new())));
        self
    }

    /// Sets the values of a metric. The value of a singular metric has instance 0.
    pub(crate) fn set(&mut self, name: &str, values: &[(u32, f64)]) {
        self.metrics.get_mut(name).unwrap().1 = Ok(values.to_vec());
    }

    /// Sets whether the sample has a metric.
    pub(crate) fn presence(&mut self, name: &str, presence: Presence) {
        self.missing.insert(name.to_owned(), presence);
    }

    pub(crate) fn fail(&mut self, name: &str, error: Error) {
        self.metrics.get_mut(name).unwrap().1 = Err(error);
    }
}

impl Metadata for &Table {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        self.metrics.get(name).map(|(desc, _)| *desc).ok_or(Missing::Name)
    }
}

impl Source for &Table {
    fn presence(&mut self, operand: &Operand) -> Presence {
        self.missing.get(&*operand.name).copied().unwrap_or(Presence::Sampled)
    }

    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        let (desc, values) = &self.metrics[&*operand.name];
        for (inst, value) in values.as_ref().map_err(|error| *error)? {
            let inst = desc.indom.map(|_| Inst::new(*inst));
            let text = value.to_string();
            load.push(
                inst,
                match desc.ty {
                    Type::I32 => Atom::I32(*value as i32),
                    Type::U32 => Atom::U32(*value as u32),
                    Type::I64 => Atom::I64(*value as i64),
                    Type::U64 => Atom::U64(*value as u64),
                    Type::Float => Atom::Float(*value as f32),
                    Type::Double => Atom::Double(*value),
                    _ => Atom::String(text.as_bytes()),
                },
            );
        }
        Ok(())
    }

    fn instances(&mut self, _: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        list.extend((0..3).map(Inst::new));
        Ok(())
    }

    fn instance_name(&mut self, _: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        name.extend_from_slice(format!("i{inst} x").as_bytes());
        Ok(())
    }

    fn instance_id(&mut self, _: InDom, name: &str) -> Result<Inst, Error> {
        let number = name.strip_prefix('i').and_then(|number| number.parse().ok()).ok_or(Error::INST)?;
        Inst::from_word(number).ok_or(Error::INST)
    }
}

/// One definition, bound to a table.
pub(crate) struct One {
    pub(crate) evaluator: Evaluator,
    plan: Plan,
}

impl One {
    pub(crate) fn new(expr: &str, table: &Table) -> One {
        let mut definitions = Definitions::new(Scope::Global);
        definitions.register("x", expr).unwrap();
        let mut metadata = table;
        let evaluator = Evaluator::bind(&definitions, &mut metadata, UnknownNames::Refused);
        let plan = evaluator.plan([DefinitionId::new(0)]);
        One { evaluator, plan }
    }

    pub(crate) fn desc(&self) -> Desc {
        self.evaluator.desc(DefinitionId::new(0)).unwrap()
    }

    /// Evaluates a sample at a time in seconds and returns the values as numbers.
    pub(crate) fn at(&mut self, seconds: f64, table: &Table) -> Numbers {
        let mut source = table;
        self.evaluator.evaluate(&self.plan, Duration::from_secs_f64(seconds), &mut source);
        let number = |atom| match atom {
            Atom::I32(v) => f64::from(v),
            Atom::U32(v) => f64::from(v),
            Atom::I64(v) => v as f64,
            Atom::U64(v) => v as f64,
            Atom::Float(v) => f64::from(v),
            Atom::Double(v) => v,
            Atom::String(text) => std::str::from_utf8(text).unwrap().parse().unwrap(),
            _ => f64::NAN,
        };
        let values = self.evaluator.values(DefinitionId::new(0))?;
        Ok(values.iter().map(|(inst, atom)| (inst.map_or(0, Inst::word), number(atom))).collect())
    }
}
