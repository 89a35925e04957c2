//! Evaluation of definitions in samples.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::eval::{Run, Scratch};
use super::program::{Bound, Operand, Root, Slot, Step};
use super::values::{Column, InstIds, Load};
use super::{BindError, Presence, Source, trace};
use pmapi::{Desc, Error, InDom};

/// Definitions bound to the metrics of a source, with the values of the last sample.
///
/// An evaluator holds the history of its `delta` and `rate` operations. Each of them compares the current sample with
/// the last one in which it was evaluated, even if other samples were evaluated since.
#[derive(Debug, Default)]
pub struct Evaluator {
    pub(crate) definitions: Vec<(Box<str>, pmapi::PmId)>,
    pub(crate) names: HashMap<Box<str>, u32>,
    /// Index in `bound` of each definition.
    pub(crate) order: Vec<u32>,
    pub(crate) bound: Vec<Bound>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) operand_slots: Vec<Slot>,
    pub(crate) slots: Vec<Column>,
    pub(crate) steps: Vec<Step>,
    /// Last instances of each domain, shared by the operands of the domain.
    instances: HashMap<InDom, Arc<InstIds>>,
    scratch: Scratch,
}

/// Definition of an [`Evaluator`]: its index among those passed to [`Evaluator::bind`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DefinitionId(usize);

impl DefinitionId {
    /// Returns the identifier of the definition with this index, from 0.
    pub const fn new(index: usize) -> Self {
        DefinitionId(index)
    }

    /// Returns the index of the definition.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Set of definitions to evaluate in a sample, from [`Evaluator::plan`].
#[derive(Clone, Debug, Default)]
pub struct Plan {
    operands: Vec<u32>,
    /// Indexes in `Evaluator::bound`, ascending.
    bound: Vec<u32>,
}

impl Evaluator {
    /// Returns the number of definitions.
    pub fn len(&self) -> usize {
        self.definitions.len()
    }

    /// Returns whether there are no definitions.
    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }

    /// Returns the identifiers of all definitions, in their order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = DefinitionId> + Clone + use<> {
        (0..self.len()).map(DefinitionId)
    }

    /// Returns the definition with this name.
    pub fn find(&self, name: &str) -> Option<DefinitionId> {
        self.names.get(name).map(|index| DefinitionId(*index as usize))
    }

    fn bound(&self, id: DefinitionId) -> Option<&Bound> {
        self.order.get(id.0).and_then(|at| self.bound.get(*at as usize))
    }

    fn root(&self, id: DefinitionId) -> Result<Root, Option<&BindError>> {
        self.bound(id).ok_or(None).and_then(|bound| bound.result.as_ref().map(|root| *root).map_err(Some))
    }

    /// Returns the descriptor of a definition (pmLookupDesc(3)).
    ///
    /// # Errors
    /// The error of binding the definition; `None` if the evaluator has no such definition.
    pub fn desc(&self, id: DefinitionId) -> Result<Desc, Option<&BindError>> {
        let meta = self.root(id)?.meta;
        let (_, pmid) = self.definitions.get(id.0).ok_or(None)?;
        Ok(Desc { pmid: *pmid, ty: meta.ty, indom: meta.indom, semantics: meta.semantics, units: meta.units })
    }

    /// Returns, for each definition in its order, whether its values depend on earlier samples. They do if it uses
    /// `delta` or `rate`, or refers to a definition that does.
    pub fn have_history(&self) -> Vec<bool> {
        let mut bound = Vec::with_capacity(self.bound.len());
        for definition in &self.bound {
            let mut steps = self.steps.get(definition.steps.clone()).unwrap_or_default().iter();
            // Each definition refers to earlier ones only.
            let has = steps.any(Step::has_history)
                || definition.definitions.iter().any(|other| bound.get(*other as usize) == Some(&true));
            bound.push(has);
        }
        self.order.iter().map(|at| bound.get(*at as usize) == Some(&true)).collect()
    }

    /// Returns every metric that the definitions refer to.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// Plans the evaluation of some definitions, and of those that they refer to. Omits definitions with an error.
    pub fn plan(&self, definitions: impl IntoIterator<Item = DefinitionId>) -> Plan {
        self.plan_beyond(&Plan::default(), definitions)
    }

    /// Plans the evaluation of further definitions, without those that `plan` evaluates already.
    pub fn plan_beyond(&self, plan: &Plan, definitions: impl IntoIterator<Item = DefinitionId>) -> Plan {
        let (mut planned, mut wanted) = (vec![false; self.bound.len()], vec![false; self.bound.len()]);
        for at in &plan.bound {
            mark(&mut planned, *at);
        }
        for at in definitions.into_iter().filter_map(|id| self.order.get(id.0)) {
            mark(&mut wanted, *at);
        }
        let mut plan = Plan::default();
        // Each definition refers to earlier ones only.
        for at in (0..wanted.len()).rev().filter(|at| self.bound[*at].result.is_ok() && !planned[*at]) {
            if wanted[at] {
                for other in &self.bound[at].definitions {
                    mark(&mut wanted, *other);
                }
                plan.bound.push(at as u32);
                plan.operands.extend(&self.bound[at].operands);
            }
        }
        plan.bound.reverse();
        plan.operands.sort_unstable();
        plan.operands.dedup();
        plan
    }

    /// Resets the `delta` and `rate` operations of a plan, as if there had been no sample.
    pub fn forget(&mut self, plan: &Plan) {
        for bound in plan.bound.iter().filter_map(|at| self.bound.get(*at as usize)) {
            for step in self.steps.get_mut(bound.steps.clone()).unwrap_or_default() {
                step.forget();
            }
        }
    }

    /// Returns whether a definition of a plan has no operands. It is [current](Self::is_current) in each sample.
    pub fn has_constant(&self, plan: &Plan) -> bool {
        let mut depend = Vec::with_capacity(self.bound.len());
        for definition in &self.bound {
            let others = &definition.definitions;
            let depends = others.iter().any(|other| depend.get(*other as usize) == Some(&true));
            depend.push(depends || !definition.operands.is_empty());
        }
        plan.bound.iter().any(|at| depend.get(*at as usize) == Some(&false))
    }

    /// Returns the metrics whose values a plan needs. The source must fetch all of them in one sample.
    pub fn operands_of(&self, plan: &Plan) -> impl Iterator<Item = &Operand> + Clone {
        plan.operands.iter().filter_map(|number| self.operands.get(*number as usize))
    }

    /// Evaluates a plan in a sample that was taken at `stamp`, on any clock that never goes back.
    ///
    /// Allocates no memory as long as instances do not change and strings do not grow.
    pub fn evaluate(&mut self, plan: &Plan, stamp: Duration, source: &mut dyn Source) {
        for number in &plan.operands {
            self.load(*number as usize, source);
        }
        let Evaluator { bound, steps, slots, scratch, .. } = self;
        let mut run = Run { slots, scratch, stamp, source };
        for bound in plan.bound.iter().filter_map(|at| bound.get(*at as usize)) {
            for step in steps.get_mut(bound.steps.clone()).unwrap_or_default() {
                run.step(step);
            }
        }
        if trace::shows_values() {
            for (id, (name, _)) in
                self.ids().zip(&self.definitions).filter(|(id, _)| self.plans(plan, *id) && self.is_current(*id))
            {
                trace::evaluated(name, stamp, self.values(id));
            }
        }
    }

    /// Returns whether a plan evaluates a definition.
    fn plans(&self, plan: &Plan, id: DefinitionId) -> bool {
        self.order.get(id.0).is_some_and(|at| plan.bound.binary_search(at).is_ok())
    }

    fn load(&mut self, number: usize, source: &mut dyn Source) {
        let (Some(operand), Some(slot)) = (self.operands.get(number), self.operand_slots.get(number)) else { return };
        let Some(values) = self.slots.get_mut(*slot as usize) else { return };
        let presence = source.presence(operand);
        values.presence = Some(presence);
        if presence != Presence::Sampled {
            return;
        }
        let mut load = Load::new(values, self.scratch.list());
        let result = source.values(operand, &mut load);
        let changed = load.finish(result);
        if let (true, Some(indom)) = (changed, operand.desc.indom) {
            let shared = self.instances.entry(indom).or_insert_with(|| Arc::clone(&values.ids));
            if shared.list == values.ids.list {
                values.ids = Arc::clone(shared)
            } else {
                *shared = Arc::clone(&values.ids)
            }
        }
    }

    /// Returns whether the last sample had the operands of a definition of its plan. It had all of them, apart from those
    /// that are [kept](Presence::Kept), and at least one. A definition without operands is current in each sample.
    pub fn is_current(&self, id: DefinitionId) -> bool {
        let values = self.root(id).ok().and_then(|root| self.slots.get(root.slot as usize));
        values.is_some_and(|values| values.presence.is_none_or(|presence| presence == Presence::Sampled))
    }

    /// Returns the values of a definition in the last sample in which it was evaluated. They are not of that sample unless
    /// the definition is [current](Self::is_current).
    ///
    /// # Errors
    /// `PM_ERR_BADDERIVE` if binding the definition failed, `PM_ERR_PMID` if the evaluator has no such definition.
    /// Otherwise the error that stands in place of the values.
    pub fn values(&self, id: DefinitionId) -> Result<&Column, Error> {
        let root = self.root(id).map_err(|why| if why.is_some() { Error::BADDERIVE } else { Error::PMID })?;
        let values = self.slots.get(root.slot as usize).ok_or(Error::PMID)?;
        values.status.map(|()| values)
    }
}

fn mark(list: &mut [bool], at: u32) {
    if let Some(marked) = list.get_mut(at as usize) {
        *marked = true;
    }
}
