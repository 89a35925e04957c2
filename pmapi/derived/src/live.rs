//! Metadata and operand values of derived metrics, from pmcd.

use std::collections::HashMap;

use crate::{Load, Metadata, Missing, Operand, Source};
use pcp_client::{Context, Sample};
use pcp_pdu::result::Changes;
use pmapi::{Desc, Error, InDom, Inst, PmId, Result};

/// Descriptors of metrics by name, for binding definitions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Descs(HashMap<String, Result<Desc, Missing>>);

impl Descs {
    /// Looks up the descriptors of metrics: operands of definitions, and metrics that may have the name of a
    /// definition.
    ///
    /// # Errors
    /// [Connection errors](pcp_client#connection-errors). A metric that does not exist is recorded as [`Missing`].
    pub fn lookup<'a>(context: &mut Context, names: impl IntoIterator<Item = &'a str>) -> Result<Descs> {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(Descs::default());
        }
        let mut pmids = match context.lookup_names(&names) {
            Ok(pmids) => pmids.into_iter().map(|pmid| pmid.ok_or(Missing::Name)).collect(),
            // One agent that is not ready makes the whole request fail.
            Err(_) if context.is_connected() => vec![Err(Missing::Name); names.len()],
            Err(e) => return Err(e),
        };
        for (name, pmid) in names.iter().zip(&mut pmids).filter(|(_, pmid)| pmid.is_err()) {
            *pmid = match context.lookup_name(name) {
                Err(Error::NAME | Error::NONLEAF) => Err(Missing::Name),
                // The agent is absent or not ready.
                Err(_) if context.is_connected() => Err(Missing::Desc),
                found => Ok(found?),
            };
        }
        let known: Vec<PmId> = pmids.iter().filter_map(|pmid| pmid.ok()).collect();
        let mut descs = match context.lookup_descs(&known) {
            Err(_) if known.len() < 2 && context.is_connected() => vec![None; known.len()],
            descs => descs?,
        }
        .into_iter();
        let found = names.into_iter().zip(pmids).map(|(name, pmid)| {
            let desc = pmid.and_then(|_| descs.next().flatten().ok_or(Missing::Desc));
            (name.to_owned(), desc)
        });
        Ok(Descs(found.collect()))
    }

    /// Looks up only names that `self` does not contain, and names without a descriptor if `again` returns true for
    /// them.
    ///
    /// The result contains no other names than `names`.
    ///
    /// # Errors
    /// [Connection errors](pcp_client#connection-errors).
    pub fn lookup_beyond<'a>(
        mut self,
        context: &mut Context,
        names: impl IntoIterator<Item = &'a str>,
        again: impl Fn(&str) -> bool,
    ) -> Result<Descs> {
        let mut known = HashMap::new();
        let mut others = Vec::new();
        for name in names {
            match self.0.remove_entry(name) {
                Some((name, desc)) if desc.is_ok() || !again(&name) => _ = known.insert(name, desc),
                _ if known.contains_key(name) => {}
                _ => others.push(name),
            }
        }
        known.extend(Descs::lookup(context, others)?.0);
        Ok(Descs(known))
    }
}

impl Descs {
    /// Returns what is known about a metric; `None` if it has not been looked up.
    pub fn get(&self, name: &str) -> Option<Result<Desc, Missing>> {
        self.0.get(name).copied()
    }
}

impl FromIterator<(String, Result<Desc, Missing>)> for Descs {
    fn from_iter<I: IntoIterator<Item = (String, Result<Desc, Missing>)>>(found: I) -> Descs {
        Descs(found.into_iter().collect())
    }
}

impl Metadata for Descs {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        self.0.get(name).copied().unwrap_or(Err(Missing::Name))
    }

    fn hides(&mut self, name: &str) -> bool {
        self.0.get(name).is_some_and(|desc| *desc != Err(Missing::Name))
    }
}

/// Values of operands in one sample, and the names of instances.
///
/// The names of instances are requested once, and again when an instance without a known name occurs.
#[derive(Debug, Default)]
pub struct OperandValues {
    pmids: Vec<PmId>,
    places: HashMap<PmId, usize>,
    sample: Sample,
    instances: HashMap<InDom, Instances>,
}

/// Names of a domain's instances.
#[derive(Debug, Default)]
struct Instances {
    names: HashMap<Inst, Vec<u8>>,
    /// Whether the names have been requested since the last sample.
    fresh: bool,
}

impl OperandValues {
    /// Returns the last sample.
    pub fn last(&self) -> &Sample {
        &self.sample
    }

    /// Forgets the names of instances, after which instance identifiers may have new meanings.
    pub fn forget_instances(&mut self) {
        self.instances.clear();
    }

    /// Fetches the values of several metrics by one call of `fetch`, which is not called for an empty list.
    ///
    /// # Errors
    /// Errors of `fetch`, after which there are no values.
    pub fn take(
        &mut self,
        pmids: impl Iterator<Item = PmId>,
        fetch: impl FnOnce(&[PmId], &mut Sample) -> Result<Changes>,
    ) -> Result<Changes> {
        self.pmids.clear();
        self.pmids.extend(pmids);
        self.places.clear();
        self.instances.values_mut().for_each(|instances| instances.fresh = false);
        if self.pmids.is_empty() {
            return Ok(Changes::default());
        }
        let changes = fetch(&self.pmids, &mut self.sample)?;
        self.places.extend(self.pmids.iter().enumerate().map(|(at, pmid)| (*pmid, at)));
        Ok(changes)
    }

    /// Loads the values of one operand ([`Source::values`]).
    ///
    /// # Errors
    /// The error in the operand's value set; `PM_ERR_VALUE` for a metric that is not in the sample. `PM_ERR_IPC` when
    /// the value set is that of another metric, `PM_ERR_CONV` for values of another type.
    pub fn values(&self, operand: &Operand, load: &mut Load<'_>) -> Result<()> {
        let pmid = operand.desc.pmid;
        let place = self.places.get(&pmid).ok_or(Error::VALUE)?;
        let set = self.sample.set(*place).filter(|set| set.pmid == Some(pmid)).ok_or(Error::IPC)?;
        set.error.map_or(Ok(()), Err)?;
        let (ty, mut result) = (load.ty(), Ok(()));
        load.extend(set.values().map_while(|(inst, value)| match value.atom(ty) {
            Ok(atom) => Some((inst, atom)),
            Err(e) => {
                result = Err(e);
                None
            }
        }));
        result
    }

    /// Appends the name of an instance to `name` ([`Source::instance_name`]); `ask` returns all instances of the
    /// domain.
    ///
    /// # Errors
    /// Errors of `ask`; `PM_ERR_INST` when the instance has no name.
    pub fn instance_name<N: Into<Vec<u8>>>(
        &mut self,
        indom: InDom,
        inst: Inst,
        name: &mut Vec<u8>,
        ask: impl FnOnce() -> Result<Vec<(Inst, N)>>,
    ) -> Result<()> {
        let known = self.instances.entry(indom).or_default();
        if !known.names.contains_key(&inst) && !known.fresh {
            known.names = ask()?.into_iter().map(|(inst, name)| (inst, name.into())).collect();
            known.fresh = true;
        }
        name.extend_from_slice(known.names.get(&inst).ok_or(Error::INST)?);
        Ok(())
    }
}

/// Samples of operands from pmcd, for [`Evaluator::evaluate`](crate::Evaluator::evaluate).
#[derive(Debug)]
pub struct Live {
    context: Context,
    operands: OperandValues,
}

impl Live {
    /// Creates a source of samples from a context, whose profile applies to them.
    pub fn new(context: Context) -> Live {
        Live { context, operands: OperandValues::default() }
    }

    /// Returns the context whose pmcd supplies the operands.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// Returns the last sample.
    pub fn last(&self) -> &Sample {
        self.operands.last()
    }

    /// Forgets the names of instances, after which instance identifiers may have new meanings.
    pub fn forget_instances(&mut self) {
        self.operands.forget_instances();
    }

    /// Fetches the values of operands, for instance those of [`Evaluator::operands_of`](crate::Evaluator::operands_of),
    /// by one request. Returns the changes in pmcd.
    ///
    /// # Errors
    /// Errors of [`Context::fetch`], after which there are no values.
    pub fn take<'o>(&mut self, operands: impl Iterator<Item = &'o Operand>) -> Result<Changes> {
        let Live { context, operands: taken } = self;
        taken.take(operands.map(|operand| operand.desc.pmid), |pmids, sample| {
            context.fetch_into(pmids, sample)?;
            Ok(sample.changes())
        })
    }
}

impl Source for Live {
    fn values(&mut self, operand: &Operand, load: &mut Load<'_>) -> Result<()> {
        self.operands.values(operand, load)
    }

    fn instances(&mut self, indom: InDom, list: &mut Vec<Inst>) -> Result<()> {
        list.extend(self.context.indom(indom)?.into_iter().map(|(inst, _)| inst));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<()> {
        self.operands.instance_name(indom, inst, name, || self.context.indom(indom))
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst> {
        self.context.lookup_indom(indom, name.as_bytes())
    }
}
