//! Sets of named expressions.

use std::collections::HashMap;

use super::expr::Expr;
use super::parser::parse;
use super::{RegisterError, Scope, trace};
use pcp_pdu::metadata::TextKind;
use pmapi::{Error, PmId};

/// Derived metric: name, expression, PMID and optional help texts.
#[derive(Clone, Debug)]
pub struct Definition {
    pub(crate) name: Box<str>,
    text: Box<str>,
    pub(crate) expr: Expr,
    pub(crate) pmid: PmId,
    pub(crate) alias: Option<Box<str>>,
    oneline: Option<String>,
    help: Option<String>,
}

/// Definitions are equal if they define the same metric by the same texts.
impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        // The expression follows from its text.
        let Definition { name, text, expr: _, pmid, alias, oneline, help } = self;
        (name, text, pmid) == (&other.name, &other.text, &other.pmid)
            && (alias, oneline, help) == (&other.alias, &other.oneline, &other.help)
    }
}

impl Definition {
    /// Parses an expression into a definition that belongs to no set.
    ///
    /// # Errors
    /// [`RegisterError::Syntax`] for an invalid expression, [`RegisterError::Name`] for an invalid name.
    pub fn new(name: &str, expr: &str, pmid: PmId) -> Result<Definition, RegisterError> {
        let (text, expr, name) = (expr.into(), parse(expr)?, checked_name(name)?);
        Ok(Definition { name, text, expr, pmid, alias: None, oneline: None, help: None })
    }

    /// Returns the metric's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the metric's PMID.
    pub fn pmid(&self) -> PmId {
        self.pmid
    }

    /// Sets a second name by which other definitions can refer to this one. A definition with that name takes
    /// precedence.
    pub fn set_alias(&mut self, alias: &str) {
        self.alias = Some(alias.into());
    }

    /// Returns the text of the expression.
    pub fn expression(&self) -> &str {
        &self.text
    }

    /// Returns every metric name in the expression, in the order of the text, even if its values are not used.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.expr.names()
    }

    /// Returns a help text (pmLookupText(3) with `PM_TEXT_DIRECT`).
    pub fn text(&self, kind: TextKind) -> Option<&str> {
        match kind {
            TextKind::OneLine => self.oneline.as_deref(),
            TextKind::Help => self.help.as_deref(),
        }
    }

    /// Sets a help text (pmAddDerivedText(3)).
    ///
    /// # Errors
    /// `PM_ERR_TEXT` if the definition already has a text of this kind.
    pub fn set_text(&mut self, kind: TextKind, value: &str) -> Result<(), Error> {
        let place = match kind {
            TextKind::OneLine => &mut self.oneline,
            TextKind::Help => &mut self.help,
        };
        if place.is_some() {
            return Err(Error::TEXT);
        }
        *place = Some(value.to_owned());
        Ok(())
    }
}

fn checked_name(name: &str) -> Result<Box<str>, RegisterError> {
    if is_name(name) { Ok(name.into()) } else { Err(RegisterError::Name(name.to_owned())) }
}

/// Returns whether `text` is a valid metric name.
pub(crate) fn is_name(text: &str) -> bool {
    // As in C, a dot at the end is accepted.
    text.strip_suffix('.').unwrap_or(text).split('.').all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// Set of definitions, in the order in which they were added.
///
/// Names and PMIDs are unique in a set. A program may use a set for all contexts together with a set for one context.
/// Then a metric that is not derived hides a definition of the same name, and a definition of the context hides one for
/// all contexts. So bind the definitions of the context first ([`Evaluator::bind`](super::Evaluator::bind)).
#[derive(Clone, PartialEq, Debug)]
pub struct Definitions {
    scope: Scope,
    list: Vec<Definition>,
    by_name: HashMap<Box<str>, usize>,
    limit: Option<usize>,
    /// Number of PMIDs assigned so far, also to definitions that were removed.
    used: u32,
}

/// Number of definitions that libpcp registers itself, for event records: `event.flags` and `event.missed`.
const ANONYMOUS: u32 = 2;
const ITEMS: u32 = 1023;
const CLUSTERS: u32 = 2048;
const DYNAMIC: u32 = 511 << 22;

impl Definitions {
    /// Returns an empty set without a limit.
    pub fn new(scope: Scope) -> Definitions {
        let used = if scope == Scope::Global { ANONYMOUS } else { 0 };
        Definitions { scope, list: Vec::new(), by_name: HashMap::new(), limit: None, used }
    }

    /// Parses and adds a definition (pmRegisterDerived(3), or pmAddDerived(3) without binding).
    ///
    /// # Errors
    /// The first of [`RegisterError::TooMany`], [`RegisterError::Duplicate`], [`RegisterError::Syntax`],
    /// [`RegisterError::Name`] and [`RegisterError::NoPmId`] that applies.
    pub fn register(&mut self, name: &str, expr: &str) -> Result<&mut Definition, RegisterError> {
        let result = self.add(name, expr);
        trace::registered(name, expr, result.as_ref().map(|definition| &definition.expr));
        result
    }

    fn add(&mut self, name: &str, expr: &str) -> Result<&mut Definition, RegisterError> {
        if self.limit.is_some_and(|limit| self.list.len() >= limit) {
            return Err(RegisterError::TooMany(self.scope));
        }
        if self.by_name.contains_key(name) {
            return Err(RegisterError::Duplicate(self.scope));
        }
        let (text, expr, name) = (expr.into(), parse(expr)?, checked_name(name)?);
        let pmid = self.next_pmid().ok_or(RegisterError::NoPmId(self.scope))?;
        let definition = Definition { name, text, expr, pmid, alias: None, oneline: None, help: None };
        self.used += 1;
        let at = self.list.len();
        self.by_name.insert(definition.name.clone(), at);
        self.list.push(definition);
        Ok(&mut self.list[at])
    }

    /// Returns the next PMID: ascending from the lowest for all contexts, descending from the highest for one context.
    fn next_pmid(&self) -> Option<PmId> {
        let (cluster, item) = (self.used / ITEMS, self.used % ITEMS);
        if cluster >= CLUSTERS {
            return None;
        }
        PmId::from_word(match self.scope {
            Scope::Global => DYNAMIC | cluster << 10 | (item + 1),
            Scope::Context => 1 << 31 | DYNAMIC | (CLUSTERS - 1 - cluster) << 10 | (ITEMS - item),
        })
    }

    /// Removes and returns a definition (pmUnregisterDerived(3)). Its PMID is not assigned again.
    ///
    /// # Errors
    /// `PM_ERR_NAME` if no definition has this name.
    pub fn unregister(&mut self, name: &str) -> Result<Definition, Error> {
        let at = self.by_name.remove(name).ok_or(Error::NAME)?;
        let definition = self.list.remove(at);
        self.by_name.values_mut().filter(|other| **other > at).for_each(|other| *other -= 1);
        Ok(definition)
    }

    /// Returns the contexts that the definitions apply to.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the largest number of definitions allowed; `None` means no limit.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Sets the largest number of definitions allowed; `None` means no limit. Existing definitions stay.
    pub fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
    }

    /// Returns the definition with this name.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.by_name.get(name).and_then(|at| self.list.get(*at))
    }

    /// Returns the definition with this name, mutably, to set its texts or alias.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Definition> {
        self.by_name.get(name).and_then(|at| self.list.get_mut(*at))
    }

    /// Returns the definitions, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Definition> {
        self.list.iter()
    }

    /// Returns the number of definitions.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl<'a> IntoIterator for &'a Definitions {
    type Item = &'a Definition;
    type IntoIter = std::slice::Iter<'a, Definition>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
