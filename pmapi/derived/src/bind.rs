//! Binding of definitions: resolves names and generates columns and steps.

use std::borrow::Cow;
use std::collections::HashMap;

use super::check::{self, Resolved};
use super::data::Data;
use super::emit::{self, Emitted};
use super::expr::{Expr, Function, Kind, Spec};
use super::program::{Bound, Operand, Root};
use super::rules::Meta;
use super::values::Column;
use super::{BindError, Definition, Evaluator, Metadata, Missing, trace};
use pmapi::Desc;

const UNKNOWN: &str = "Unknown operand metric";
const NO_METADATA: &str = "Metadata for operand metric not available";

/// Largest cycle whose path names all of its definitions.
const LONGEST_PATH: usize = 20;

/// Handling of metrics that do not exist, by [`Evaluator::bind`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum UnknownNames {
    /// Definitions that refer to the metric have an error.
    #[default]
    Refused,
    /// The metric has no values (the control [`OptionNovalue`](super::Control::OptionNovalue)).
    NoValue,
}

/// Binds every definition after those that it refers to.
struct Binder<'a> {
    definitions: Vec<&'a Definition>,
    by_name: HashMap<&'a str, usize>,
    metadata: &'a mut dyn Metadata,
    unknown: UnknownNames,
    looked_up: HashMap<&'a str, Result<u32, Missing>>,
    progress: Vec<Progress>,
    /// Number of nodes of each definition, from its first, that need no further definition to be bound.
    passed: Vec<usize>,
    evaluator: Evaluator,
}

#[derive(Clone, Copy, PartialEq)]
enum Progress {
    No,
    Begun,
    /// Bound, with the index in `Evaluator::bound`.
    Done(u32),
}

impl<'a> Binder<'a> {
    fn new(definitions: Vec<&'a Definition>, metadata: &'a mut dyn Metadata, unknown: UnknownNames) -> Self {
        let numbered = || definitions.iter().enumerate().rev();
        let aliases = numbered().filter_map(|(at, definition)| Some((definition.alias.as_deref()?, at)));
        let by_name = aliases.chain(numbered().map(|(at, definition)| (&*definition.name, at))).collect();
        let progress = vec![Progress::No; definitions.len()];
        let passed = vec![0; definitions.len()];
        let evaluator = Evaluator::default();
        Binder { definitions, by_name, metadata, unknown, looked_up: HashMap::new(), progress, passed, evaluator }
    }

    fn run(mut self) -> Evaluator {
        // Definitions being bound. Each is needed by the one before it.
        let mut begun = Vec::new();
        for number in 0..self.definitions.len() {
            begun.push(number);
            while let Some(&last) = begun.last() {
                if matches!(self.progress[last], Progress::Done(_)) {
                    begun.pop();
                    continue;
                }
                self.progress[last] = Progress::Begun;
                match self.next_needed(last) {
                    Some(needed) if self.progress[needed] == Progress::Begun => self.refuse_cycle(&begun, needed),
                    Some(needed) => begun.push(needed),
                    None => {
                        begun.pop();
                        self.bind(last);
                    }
                }
            }
        }
        let numbers = self.progress.iter().map(|progress| match progress {
            Progress::Done(number) => *number,
            _ => u32::MAX,
        });
        self.evaluator.order = numbers.collect();
        self.evaluator
    }

    fn expr(&self, number: usize) -> &'a Expr {
        &self.definitions[number].expr
    }

    /// Returns a definition that is not bound yet and that this one refers to.
    fn next_needed(&mut self, number: usize) -> Option<usize> {
        let nodes = self.expr(number).nodes.get(self.passed[number]..).unwrap_or_default();
        for node in nodes {
            if let Kind::Name(name) = &node.kind {
                let needed = self.by_name.get(&**name).copied();
                let needed = needed.filter(|number| !matches!(self.progress[*number], Progress::Done(_)));
                if let Some(needed) = needed.filter(|_| self.look_up(name) == Err(Missing::Name)) {
                    return Some(needed);
                }
            }
            self.passed[number] += 1;
        }
        None
    }

    fn refuse_cycle(&mut self, begun: &[usize], again: usize) {
        let start = begun.iter().position(|number| *number == again).unwrap_or(0);
        let cycle = begun.get(start..).unwrap_or_default();
        let name = |number: &usize| self.definitions[*number].name.to_string();
        let mut paths = Vec::with_capacity(cycle.len());
        for at in 0..cycle.len() {
            let around = || cycle.iter().cycle().skip(at);
            let path = if cycle.len() <= LONGEST_PATH {
                around().take(cycle.len() + 1).map(name).collect()
            } else {
                // Only both ends: all complete paths of a large cycle together would take too much memory.
                let last = around().skip(cycle.len() - LONGEST_PATH / 2).take(LONGEST_PATH / 2 + 1);
                let first = around().take(LONGEST_PATH / 2).map(name);
                first.chain(["...".to_owned()]).chain(last.map(name)).collect()
            };
            paths.push(path);
        }
        for (number, path) in cycle.iter().zip(paths) {
            self.done(*number, Err(BindError::Cycle { path }));
        }
    }

    /// Looks a metric up, once for each name, and returns its number as an operand.
    fn look_up(&mut self, name: &'a str) -> Result<u32, Missing> {
        if let Some(result) = self.looked_up.get(name) {
            return *result;
        }
        let result = self.metadata.lookup(name).map(|desc| self.evaluator.add_operand(name, desc));
        self.looked_up.insert(name, result);
        result
    }

    fn bind(&mut self, number: usize) {
        if self.metadata.hides(&self.definitions[number].name) {
            return self.done(number, Err(BindError::Hidden));
        }
        let expr = self.expr(number);
        let result = self.resolve(expr).and_then(|names| {
            let checked = check::check(expr, &names, self.metadata).map_err(|fault| {
                let expr = without_unknown(expr, &names);
                let context = if fault.arms { expr.arms_context(fault.node) } else { expr.context(fault.node) };
                BindError::Semantic { context: context.to_string(), reason: fault.reason }
            })?;
            Ok(emit::emit(&mut self.evaluator, expr, &names, &checked))
        });
        self.done(number, result);
    }

    /// Resolves each name in the expression.
    fn resolve(&mut self, expr: &'a Expr) -> Result<Vec<Option<Resolved>>, BindError> {
        let lazy = lazy_names(expr);
        let mut names = vec![None; expr.nodes.len()];
        for (at, node) in expr.nodes.iter().enumerate() {
            let Kind::Name(name) = &node.kind else { continue };
            let fault = |reason| Err(BindError::Semantic { context: expr.context(at as u32).to_string(), reason });
            let resolved = match self.look_up(name) {
                Ok(operand) => {
                    let desc = self.evaluator.operands[operand as usize].desc;
                    Resolved::Metric { operand, meta: meta(&desc) }
                }
                Err(Missing::Desc) => return fault(NO_METADATA),
                Err(Missing::Name) => match self.definition(name) {
                    Some((number, Ok(Root { slot, meta }))) => Resolved::Definition { number, slot, meta },
                    // The name exists, but a definition that failed to bind has no descriptor.
                    Some((_, Err(()))) if !lazy[at] => return fault(NO_METADATA),
                    _ if self.unknown == UnknownNames::NoValue => Resolved::NoValue,
                    _ if lazy[at] => Resolved::Unknown,
                    _ => return fault(UNKNOWN),
                },
            };
            names[at] = Some(resolved);
        }
        Ok(names)
    }

    fn definition(&self, name: &str) -> Option<(u32, Result<Root, ()>)> {
        let Progress::Done(number) = self.progress[*self.by_name.get(name)?] else { return None };
        let bound = &self.evaluator.bound[number as usize];
        Some((number, bound.result.as_ref().map(|root| *root).map_err(|_| ())))
    }

    fn done(&mut self, number: usize, result: Result<Emitted, BindError>) {
        let first = self.evaluator.bound.last().map_or(0, |bound| bound.steps.end);
        let steps = first..self.evaluator.steps.len();
        self.progress[number] = Progress::Done(self.evaluator.bound.len() as u32);
        let bound = match result {
            Ok(Emitted { root, operands, definitions }) => Bound { result: Ok(root), steps, operands, definitions },
            Err(error) => Bound { result: Err(error), steps, operands: Vec::new(), definitions: Vec::new() },
        };
        self.evaluator.bound.push(bound);
    }
}

pub(crate) fn meta(desc: &Desc) -> Meta {
    Meta { ty: desc.ty, indom: desc.indom, semantics: desc.semantics, nominal: desc.semantics, units: desc.units }
}

/// Returns the expression as semantic errors show it, with `novalue()` in place of unknown names.
fn without_unknown<'a>(expr: &'a Expr, names: &[Option<Resolved>]) -> Cow<'a, Expr> {
    let mut shown = Cow::Borrowed(expr);
    for (at, _) in names.iter().enumerate().filter(|(_, name)| matches!(name, Some(Resolved::NoValue))) {
        shown.to_mut().nodes[at].kind = Kind::NoValue { spec: Spec::default(), meta: None };
    }
    shown
}

/// Returns the nodes whose names may be unknown: all nodes of a ternary, and the operand of `defined`.
fn lazy_names(expr: &Expr) -> Vec<bool> {
    let mut lazy = vec![false; expr.nodes.len()];
    for id in (0..expr.nodes.len()).rev() {
        let range = expr.range(id as u32);
        if matches!(expr.nodes[id].kind, Kind::Ternary { .. } | Kind::Function(Function::Defined, _)) && !lazy[id] {
            lazy[range].fill(true);
        }
    }
    lazy
}

impl Evaluator {
    /// Binds definitions; libpcp does this for all registered definitions in a new context.
    ///
    /// An error of one definition does not affect the others; [`Evaluator::desc`] returns it. Of several definitions
    /// with one name, the first counts. [`Controls::unknown_names`](super::Controls::unknown_names) returns what the
    /// user has chosen for `unknown`.
    pub fn bind<'a>(
        definitions: impl IntoIterator<Item = &'a Definition>,
        metadata: &mut dyn Metadata,
        unknown: UnknownNames,
    ) -> Evaluator {
        let definitions: Vec<&Definition> = definitions.into_iter().collect();
        let own = definitions.iter().map(|definition| (definition.name.clone(), definition.pmid)).collect();
        let names = definitions.iter().enumerate().rev().map(|(at, def)| (def.name.clone(), at as u32)).collect();
        let mut evaluator = Binder::new(definitions, metadata, unknown).run();
        (evaluator.definitions, evaluator.names) = (own, names);
        if trace::shows_binding() {
            let named = evaluator.ids().zip(&evaluator.definitions);
            named.for_each(|(id, (name, _))| trace::bound(name, evaluator.desc(id)));
        }
        evaluator
    }

    fn add_operand(&mut self, name: &str, desc: Desc) -> u32 {
        let number = self.operands.len() as u32;
        let slot = self.add_slot(Column::new(desc.ty));
        self.operands.push(Operand { name: name.into(), desc });
        self.operand_slots.push(slot);
        number
    }

    pub(crate) fn add_slot(&mut self, values: Column) -> u32 {
        self.slots.push(values);
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn add_constant(&mut self, meta: &Meta, data: Data) -> u32 {
        let mut values = Column::new(meta.ty);
        values.begin_singular();
        values.data = data;
        self.add_slot(values)
    }
}
