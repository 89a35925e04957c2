//! Derived metrics of a context.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pcp_client::Sample;
use pcp_derived::{
    Definition, DefinitionId, Definitions, Evaluator, Load, Metadata, Missing, Operand, OperandValues, Presence, Scope,
    Source, UnknownNames,
};
use pcp_pdu::event::Stamp;
use pcp_pdu::result::RawValue;
use pmapi::names::is_at_or_below;
use pmapi::{Atom, Desc, Error, InDom, Inst, PmId, Type};

use crate::assemble::Assembly;
use crate::base::Base;
use crate::error::ContextError;

/// Derived metrics: those of the context, and those of all contexts.
#[derive(Debug)]
pub(crate) struct Derived {
    pub(crate) own: Definitions,
    pub(crate) global: Option<Arc<Definitions>>,
    evaluator: Option<Evaluator>,
    /// The definition with a PMID.
    ids: HashMap<PmId, DefinitionId>,
    operands: OperandValues,
    last: Option<Stamp>,
}

impl Default for Derived {
    fn default() -> Derived {
        Derived {
            own: Definitions::new(Scope::Context),
            global: None,
            evaluator: None,
            ids: HashMap::new(),
            operands: OperandValues::default(),
            last: None,
        }
    }
}

/// Descriptors of the metrics that are not derived.
struct Descs<'b>(&'b mut Base);

impl Metadata for Descs<'_> {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        let pmid = self.0.lookup_name(name).map_err(|_| Missing::Name)?;
        self.0.lookup_desc(pmid).map_err(|_| Missing::Desc)
    }

    fn hides(&mut self, name: &str) -> bool {
        self.0.lookup_name(name).is_ok()
    }
}

/// Values of the last sample, and the instances.
struct Values<'b> {
    base: &'b mut Base,
    operands: &'b mut OperandValues,
}

impl Source for Values<'_> {
    fn presence(&mut self, operand: &Operand) -> Presence {
        match &*self.base {
            Base::Archive(recorded) if recorded.absent.contains(&operand.desc.pmid) => Presence::Absent,
            _ => Presence::Sampled,
        }
    }

    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<(), Error> {
        self.operands.values(operand, load)
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<(), Error> {
        list.extend(self.base.indom(indom)?.into_iter().map(|(inst, _)| inst));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<(), Error> {
        self.operands.instance_name(indom, inst, name, || self.base.indom(indom))
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst, Error> {
        self.base.lookup_indom(indom, name.as_bytes())
    }
}

impl Derived {
    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.global.as_ref().is_none_or(|global| global.is_empty())
    }

    /// Returns the same definitions without their history.
    pub(crate) fn duplicate(&self) -> Derived {
        Derived { own: self.own.clone(), global: self.global.clone(), ..Derived::default() }
    }

    /// Notes that the definitions must be bound again.
    pub(crate) fn has_changed(&mut self) {
        self.evaluator = None;
    }

    /// Resets the history of `delta` and `rate`.
    pub(crate) fn forget(&mut self) {
        self.last = None;
        if let Some(evaluator) = &mut self.evaluator {
            let plan = evaluator.plan(evaluator.ids());
            evaluator.forget(&plan);
        }
    }

    fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.own.iter().chain(self.global.iter().flat_map(|global| global.iter()))
    }

    fn bind(&mut self, base: &mut Base) {
        if self.evaluator.is_none() {
            let bound = Evaluator::bind(self.definitions(), &mut Descs(base), UnknownNames::Refused);
            self.ids = self.definitions().zip(bound.ids()).map(|(definition, id)| (definition.pmid(), id)).collect();
            self.evaluator = Some(bound);
            self.operands.forget_instances();
        }
    }

    /// Returns the PMID of a definition by its name.
    pub(crate) fn pmid(&self, name: &str) -> Option<PmId> {
        self.definitions().find(|definition| definition.name() == name).map(Definition::pmid)
    }

    /// Returns the definition with a PMID.
    pub(crate) fn definition(&self, pmid: PmId) -> Option<&Definition> {
        self.definitions().find(|definition| definition.pmid() == pmid)
    }

    /// Returns the descriptor of a definition, or `None` if no definition has the PMID.
    pub(crate) fn desc(&mut self, base: &mut Base, pmid: PmId) -> Option<Result<Desc, Error>> {
        if self.is_empty() {
            return None;
        }
        self.bind(base);
        let id = *self.ids.get(&pmid)?;
        Some(self.evaluator.as_ref()?.desc(id).map_err(|_| Error::BADDERIVE))
    }

    /// Returns the names of the definitions that can be evaluated, at or below a name.
    pub(crate) fn below<'d>(&'d mut self, base: &mut Base, name: &'d str) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        self.bind(base);
        let mut names = Vec::new();
        let Some(evaluator) = &self.evaluator else { return names };
        for (definition, id) in self
            .definitions()
            .zip(evaluator.ids())
            .filter(|(found, _)| name.is_empty() || is_at_or_below(found.name(), name))
        {
            let is_bound = evaluator.desc(id).is_ok();
            if is_bound && !names.iter().any(|other| other == definition.name()) {
                names.push(definition.name().to_owned());
            }
        }
        names
    }

    /// Fetches metrics. Some of them may be derived.
    pub(crate) fn fetch(&mut self, base: &mut Base, pmids: &[PmId]) -> Result<Sample, ContextError> {
        self.bind(base);
        let ids: Vec<Option<DefinitionId>> = pmids.iter().map(|pmid| self.ids.get(pmid).copied()).collect();
        let Derived { evaluator, operands, last, .. } = self;
        let Some(evaluator) = evaluator.as_mut().filter(|_| ids.iter().any(Option::is_some)) else {
            return base.fetch(pmids);
        };
        let plan = evaluator.plan(ids.iter().copied().flatten());
        let plain = pmids.iter().zip(&ids).filter(|(_, id)| id.is_none()).map(|(pmid, _)| *pmid);
        let mut wanted: Vec<PmId> = plain.collect();
        wanted.extend(evaluator.operands_of(&plan).map(|operand| operand.desc.pmid));
        wanted.sort_unstable();
        wanted.dedup();
        let mut failure = None;
        let taken = operands.take(wanted.iter().copied(), |pmids, sample| {
            *sample = base.fetch(pmids).map_err(|e| failure.insert(e).code())?;
            Ok(sample.changes())
        });
        let changes = taken.map_err(|e| failure.unwrap_or(e.into()))?;
        let time = if wanted.is_empty() { Stamp::now() } else { operands.last().time() };
        if last.replace(time).is_some_and(|last| last > time) {
            evaluator.forget(&plan);
        }
        let since = Duration::new(u64::try_from(time.seconds).unwrap_or(0), time.nanoseconds.min(999_999_999));
        evaluator.evaluate(&plan, since, &mut Values { base, operands });
        let mut assembly = Assembly::default();
        for (pmid, id) in pmids.iter().zip(ids) {
            match id {
                Some(id) if evaluator.is_current(id) || evaluator.desc(id).is_err() => {
                    add(&mut assembly, *pmid, evaluator, id);
                }
                // The record lacks an operand.
                Some(_) => assembly.add(*pmid, Ok(std::iter::empty())),
                None => {
                    let set = wanted.binary_search(pmid).ok().and_then(|at| operands.last().set(at));
                    let values = set.map(|set| set.error.map_or_else(|| Ok(set.values()), Err));
                    assembly.add(*pmid, values.unwrap_or(Err(Error::PMID)));
                }
            }
        }
        Ok(assembly.sample(time).with_changes(changes))
    }
}

/// Adds the values of a definition.
fn add(assembly: &mut Assembly, pmid: PmId, evaluator: &Evaluator, id: DefinitionId) {
    let encoded =
        evaluator.values(id).map(|values| values.iter().map(|(inst, atom)| (inst, encoded(atom))).collect::<Vec<_>>());
    match &encoded {
        Ok(values) => assembly.add(
            pmid,
            Ok(values.iter().map(|(inst, (code, bytes))| match code {
                None => (*inst, RawValue::InSitu(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))),
                Some(code) => (*inst, RawValue::Block(*code, bytes)),
            })),
        ),
        Err(e) => assembly.add(pmid, Err::<std::iter::Empty<_>, _>(*e)),
    }
}

/// Encodes a value: returns its type, if it needs a block, and its bytes.
fn encoded(atom: Atom<'_>) -> (Option<u8>, Vec<u8>) {
    let code = |ty: Type| Some(ty.code() as u8);
    match atom {
        Atom::I32(value) => (None, value.to_be_bytes().to_vec()),
        Atom::U32(value) => (None, value.to_be_bytes().to_vec()),
        Atom::I64(value) => (code(Type::I64), value.to_be_bytes().to_vec()),
        Atom::U64(value) => (code(Type::U64), value.to_be_bytes().to_vec()),
        Atom::Float(value) => (code(Type::Float), value.to_be_bytes().to_vec()),
        Atom::Double(value) => (code(Type::Double), value.to_be_bytes().to_vec()),
        Atom::String(text) => (code(Type::String), [text, b"\0"].concat()),
        Atom::Aggregate(bytes) | Atom::Event(bytes) | Atom::HighResEvent(bytes) => (code(atom.ty()), bytes.to_vec()),
    }
}
