//! pmcd as the source of derived metrics.

use std::collections::HashMap;

use crate::{Load, Metadata, Missing, Operand, Source};
use pcp_client::{Context, Sample};
use pcp_pdu::result::Changes;
use pmapi::{Desc, Error, InDom, Inst, PmId, Result};

/// The descriptors of metrics, by name: what binding asks for, all at once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Names(HashMap<String, Result<Desc, Missing>>);

impl Names {
    /// Looks up metrics: those that definitions refer to, and those that may have the name of a definition.
    ///
    /// # Errors
    /// When pmcd cannot be asked. That a metric does not exist is an answer.
    pub fn lookup<'a>(context: &mut Context, names: impl IntoIterator<Item = &'a str>) -> Result<Names> {
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(Names::default());
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
                // Its agent is away, or not ready.
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
        Ok(Names(found.collect()))
    }

    /// The same, but asks only for what is not in these, and for names without a descriptor if `again` says so.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn lookup_beyond<'a>(
        mut self,
        context: &mut Context,
        names: impl IntoIterator<Item = &'a str>,
        again: impl Fn(&str) -> bool,
    ) -> Result<Names> {
        let mut known = HashMap::new();
        let mut others = Vec::new();
        for name in names {
            match self.0.remove_entry(name) {
                Some((name, desc)) if desc.is_ok() || !again(&name) => _ = known.insert(name, desc),
                _ if known.contains_key(name) => {}
                _ => others.push(name),
            }
        }
        known.extend(Names::lookup(context, others)?.0);
        Ok(Names(known))
    }
}

impl Metadata for Names {
    fn lookup(&mut self, name: &str) -> Result<Desc, Missing> {
        self.0.get(name).copied().unwrap_or(Err(Missing::Name))
    }

    fn hides(&mut self, name: &str) -> bool {
        self.0.get(name).is_some_and(|desc| *desc != Err(Missing::Name))
    }
}

/// The values of operands in one sample, and the names of instances.
///
/// Names of instances are asked for once, and again when an instance is seen that has none yet.
#[derive(Debug, Default)]
pub struct OperandValues {
    pmids: Vec<PmId>,
    places: HashMap<PmId, usize>,
    sample: Sample,
    instances: HashMap<InDom, Instances>,
}

/// The names of a domain's instances.
#[derive(Debug, Default)]
struct Instances {
    names: HashMap<Inst, Vec<u8>>,
    /// Whether they have been asked for since the last sample.
    fresh: bool,
}

impl OperandValues {
    /// The last sample.
    pub fn last(&self) -> &Sample {
        &self.sample
    }

    /// Forgets the names of instances: numbers may be those of others.
    pub fn forget_instances(&mut self) {
        self.instances.clear();
    }

    /// Takes a sample of some metrics by fetching them all at once: `fetch` is not called for none.
    ///
    /// # Errors
    /// Those of `fetch`. There are no values then.
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

    /// The values of one ([`Source::values`]).
    ///
    /// # Errors
    /// The error in place of values; `PM_ERR_VALUE` for a metric that is not in the sample, `PM_ERR_IPC` when there is
    /// another one in its place, `PM_ERR_CONV` for values of another type.
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

    /// Adds the name of an instance to a text ([`Source::instance_name`]); `ask` gives all instances of its domain.
    ///
    /// # Errors
    /// Those of `ask`; `PM_ERR_INST` when the instance has no name.
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
    /// Samples from a context, whose profile they obey.
    pub fn new(context: Context) -> Live {
        Live { context, operands: OperandValues::default() }
    }

    /// The context.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// The last sample.
    pub fn last(&self) -> &Sample {
        self.operands.last()
    }

    /// Forgets the names of instances: numbers may be those of others.
    pub fn forget_instances(&mut self) {
        self.operands.forget_instances();
    }

    /// Takes a sample of operands, all in one fetch: those of
    /// [`Evaluator::operands_of`](crate::Evaluator::operands_of). Says what has changed in pmcd.
    ///
    /// # Errors
    /// Those of [`Context::fetch`]. There are no values then.
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
        list.extend(self.context.in_dom(indom)?.into_iter().map(|(inst, _)| inst));
        Ok(())
    }

    fn instance_name(&mut self, indom: InDom, inst: Inst, name: &mut Vec<u8>) -> Result<()> {
        self.operands.instance_name(indom, inst, name, || self.context.in_dom(indom))
    }

    fn instance_id(&mut self, indom: InDom, name: &str) -> Result<Inst> {
        self.context.lookup_in_dom(indom, name.as_bytes())
    }
}
