//! Definitions bound to the metrics of one source.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::bind::Binder;
use super::eval::{Run, Scratch};
use super::program::{Bound, Operand, Root, Slot, Step};
use super::values::{Ids, Load, Values};
use super::{BindError, Definition, Metadata, Source};
use pmapi::{Desc, Error, InDom};

/// Definitions, bound to the metrics of a source, with the values of the last sample.
///
/// The history of `delta` and `rate` is in here, so each evaluator has its own. A step of an expression remembers the
/// sample in which it was last computed, whether or not there were others since.
#[derive(Debug, Default)]
pub struct Evaluator {
    definitions: Vec<(Box<str>, pmapi::PmId)>,
    names: HashMap<Box<str>, u32>,
    /// For each definition its place in the order of binding.
    pub(crate) order: Vec<u32>,
    pub(crate) bound: Vec<Bound>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) operand_slots: Vec<Slot>,
    pub(crate) slots: Vec<Values>,
    pub(crate) steps: Vec<Step>,
    /// The instances last seen in each domain: operands of one domain share them.
    instances: HashMap<InDom, Arc<Ids>>,
    scratch: Scratch,
}

/// What to compute in a sample, from [`Evaluator::plan`].
#[derive(Clone, Debug, Default)]
pub struct Plan {
    operands: Vec<u32>,
    /// In the order of binding.
    bound: Vec<u32>,
}

impl Evaluator {
    /// Binds definitions (in C, what a new context does with those that are registered). Those that mean nothing have
    /// an error, the others work. Of several with one name the first counts.
    ///
    /// With `novalue`, which is the control [`OptionNovalue`](super::Control::OptionNovalue), a metric that does not
    /// exist has no values instead of being an error.
    pub fn bind<'a>(
        definitions: impl IntoIterator<Item = &'a Definition>,
        metadata: &mut impl Metadata,
        novalue: bool,
    ) -> Evaluator {
        let definitions: Vec<&Definition> = definitions.into_iter().collect();
        let own = definitions.iter().map(|definition| (definition.name.clone(), definition.pmid)).collect();
        let names = definitions.iter().enumerate().rev().map(|(at, def)| (def.name.clone(), at as u32)).collect();
        let evaluator = Binder::new(definitions, metadata, novalue).run();
        Evaluator { definitions: own, names, ..evaluator }
    }

    /// The number of definitions; each is known by its place among those that were bound.
    pub fn len(&self) -> usize {
        self.definitions.len()
    }

    /// Whether there are no definitions.
    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }

    /// A definition by its name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).map(|number| *number as usize)
    }

    fn bound(&self, number: usize) -> Option<&Bound> {
        self.order.get(number).and_then(|at| self.bound.get(*at as usize))
    }

    fn root(&self, number: usize) -> Result<Root, Option<&BindError>> {
        self.bound(number).ok_or(None).and_then(|bound| bound.result.as_ref().map(|root| *root).map_err(Some))
    }

    /// The descriptor of a definition (pmLookupDesc(3)).
    ///
    /// # Errors
    /// Why it means nothing: `None` for a number that no definition has.
    pub fn desc(&self, number: usize) -> Result<Desc, Option<&BindError>> {
        let meta = self.root(number)?.meta;
        let (_, pmid) = self.definitions.get(number).ok_or(None)?;
        Ok(Desc { pmid: *pmid, ty: meta.ty, indom: meta.indom, semantics: meta.semantics, units: meta.units })
    }

    /// For each definition whether its values depend on those of the sample before: there is a `delta` or `rate` in it,
    /// or in what it refers to.
    pub fn have_history(&self) -> Vec<bool> {
        let mut bound = Vec::with_capacity(self.bound.len());
        for definition in &self.bound {
            let mut steps = self.steps.get(definition.steps.clone()).unwrap_or_default().iter();
            // Each definition refers to earlier ones only.
            let refers = || definition.definitions.iter().any(|other| bound.get(*other as usize) == Some(&true));
            let has = steps.any(Step::has_history) || refers();
            bound.push(has);
        }
        self.order.iter().map(|at| bound.get(*at as usize) == Some(&true)).collect()
    }

    /// Every metric that definitions refer to.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// What has to be computed for some definitions: they themselves, and those that they refer to. Those that mean
    /// nothing are left out.
    pub fn plan(&self, definitions: impl IntoIterator<Item = usize>) -> Plan {
        self.plan_beyond(&Plan::default(), definitions)
    }

    /// What has to be computed besides a plan for further definitions.
    pub fn plan_beyond(&self, plan: &Plan, definitions: impl IntoIterator<Item = usize>) -> Plan {
        let (mut planned, mut wanted) = (vec![false; self.bound.len()], vec![false; self.bound.len()]);
        let mark = |list: &mut [bool], at: &u32| _ = list.get_mut(*at as usize).map(|marked| *marked = true);
        plan.bound.iter().for_each(|at| mark(&mut planned, at));
        definitions.into_iter().filter_map(|number| self.order.get(number)).for_each(|at| mark(&mut wanted, at));
        let mut plan = Plan::default();
        // Each definition refers to earlier ones only.
        for at in (0..wanted.len()).rev().filter(|at| self.bound[*at].result.is_ok() && !planned[*at]) {
            if wanted[at] {
                self.bound[at].definitions.iter().for_each(|other| wanted[*other as usize] = true);
                plan.bound.push(at as u32);
                plan.operands.extend(&self.bound[at].operands);
            }
        }
        plan.bound.reverse();
        plan.operands.sort_unstable();
        plan.operands.dedup();
        plan
    }

    /// Makes `delta` and `rate` in a plan begin anew, as if there had been no sample.
    pub fn forget(&mut self, plan: &Plan) {
        for bound in plan.bound.iter().filter_map(|at| self.bound.get(*at as usize)) {
            self.steps.get_mut(bound.steps.clone()).unwrap_or_default().iter_mut().for_each(Step::forget);
        }
    }

    /// The metrics whose values a plan needs: all of them are to be fetched at once.
    pub fn operands_of(&self, plan: &Plan) -> impl Iterator<Item = &Operand> + Clone {
        plan.operands.iter().filter_map(|number| self.operands.get(*number as usize))
    }

    /// Computes the definitions of a plan from a sample that was taken at `stamp`, on any clock that never goes back.
    ///
    /// Nothing is allocated as long as instances don't change and texts don't grow.
    pub fn evaluate(&mut self, plan: &Plan, stamp: Duration, source: &mut impl Source) {
        for number in &plan.operands {
            self.load(*number as usize, source);
        }
        let Evaluator { bound, steps, slots, scratch, .. } = self;
        let mut run = Run { slots, scratch, stamp, source };
        for bound in plan.bound.iter().filter_map(|at| bound.get(*at as usize)) {
            steps.get_mut(bound.steps.clone()).unwrap_or_default().iter_mut().for_each(|step| run.step(step));
        }
    }

    fn load(&mut self, number: usize, source: &mut impl Source) {
        let (Some(operand), Some(slot)) = (self.operands.get(number), self.operand_slots.get(number)) else { return };
        let Some(values) = self.slots.get_mut(*slot as usize) else { return };
        let mut load = Load::new(values, self.scratch.list());
        let result = source.values(operand, &mut load);
        let changed = load.finish(result);
        if let (true, Some(indom)) = (changed, operand.desc.indom) {
            let shared = self.instances.entry(indom).or_insert_with(|| Arc::clone(&values.ids));
            match shared.list == values.ids.list {
                true => values.ids = Arc::clone(shared),
                false => *shared = Arc::clone(&values.ids),
            }
        }
    }

    /// The values of a definition in the last sample that was computed for it.
    ///
    /// # Errors
    /// `PM_ERR_BADDERIVE` when it means nothing, `PM_ERR_PMID` when there is none with this number; the error that the
    /// sample has for it.
    pub fn values(&self, number: usize) -> Result<&Values, Error> {
        let root = self.root(number).map_err(|why| if why.is_some() { Error::BADDERIVE } else { Error::PMID })?;
        let values = self.slots.get(root.slot as usize).ok_or(Error::PMID)?;
        values.status.map(|()| values)
    }
}
