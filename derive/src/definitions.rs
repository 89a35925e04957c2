//! Named expressions.

use std::collections::HashMap;
use std::fmt;

use super::RegisterError;
use super::expr::Expr;
use super::parser::parse;
use pmapi::{Error, PmId};

/// For whom definitions are: which messages they get, and which identifiers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// All contexts (pmRegisterDerived(3)).
    Global,
    /// One context (pmAddDerived(3)).
    Context,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Global => "global",
            Scope::Context => "per-context",
        })
    }
}

/// Which help text of a definition (`PM_TEXT_ONELINE`, `PM_TEXT_HELP`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Text {
    /// The short one.
    OneLine,
    /// The long one.
    Help,
}

/// A derived metric: its name, its expression, and what else is said of it.
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

/// Two are equal when they define the same metric by the same text.
impl PartialEq for Definition {
    fn eq(&self, other: &Definition) -> bool {
        // The expression follows from its text.
        let Definition { name, text, expr: _, pmid, alias, oneline, help } = self;
        (name, text, pmid) == (&other.name, &other.text, &other.pmid)
            && (alias, oneline, help) == (&other.alias, &other.oneline, &other.help)
    }
}

impl Definition {
    /// Parses an expression.
    ///
    /// # Errors
    /// When the name is none, or the expression is none.
    pub fn new(name: &str, expr: &str, pmid: PmId) -> Result<Definition, RegisterError> {
        let (text, expr, name) = (expr.into(), parse(expr)?, checked_name(name)?);
        Ok(Definition { name, text, expr, pmid, alias: None, oneline: None, help: None })
    }

    /// The metric's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The metric's identifier.
    pub fn pmid(&self) -> PmId {
        self.pmid
    }

    /// Gives it another name, by which other definitions may refer to it as well.
    pub fn set_alias(&mut self, alias: &str) {
        self.alias = Some(alias.into());
    }

    /// The expression as it was given.
    pub fn expression(&self) -> &str {
        &self.text
    }

    /// Every metric that the expression names, in its order, whether or not its values are used.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.expr.names()
    }

    /// The help text (pmLookupText(3)): for [`Text::Help`] the short one if there is no long one, unless `direct`.
    pub fn text(&self, text: Text, direct: bool) -> Option<&str> {
        let oneline = self.oneline.as_deref();
        match text {
            Text::OneLine => oneline,
            Text::Help => self.help.as_deref().or_else(|| oneline.filter(|_| !direct)),
        }
    }

    /// Sets a help text (pmAddDerivedText(3)).
    ///
    /// # Errors
    /// `PM_ERR_TEXT` when it has this one already.
    pub fn set_text(&mut self, text: Text, value: &str) -> Result<(), Error> {
        let place = match text {
            Text::OneLine => &mut self.oneline,
            Text::Help => &mut self.help,
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

/// Whether a text is the name of a metric.
pub(crate) fn is_name(text: &str) -> bool {
    let component = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    // As in C a dot at the end is let through.
    text.strip_suffix('.').unwrap_or(text).split('.').all(component)
}

/// A set of definitions, in the order in which they were added.
///
/// Names and identifiers are unique in it. Where a set for all contexts and one for a context are used together, a
/// metric that is not derived hides a definition of the same name, and a definition of the context one for all
/// contexts: so bind those of the context first ([`Evaluator::bind`](super::Evaluator::bind)).
#[derive(Clone, PartialEq, Debug)]
pub struct Definitions {
    scope: Scope,
    list: Vec<Definition>,
    by_name: HashMap<Box<str>, usize>,
    limit: Option<usize>,
    /// How many identifiers have been given.
    used: u32,
}

/// libpcp defines these itself, for event records: `event.flags` and `event.missed`.
const ANONYMOUS: u32 = 2;
const ITEMS: u32 = 1023;
const CLUSTERS: u32 = 2048;
const DYNAMIC: u32 = 511 << 22;

impl Definitions {
    /// No definitions.
    pub fn new(scope: Scope) -> Definitions {
        let used = if scope == Scope::Global { ANONYMOUS } else { 0 };
        Definitions { scope, list: Vec::new(), by_name: HashMap::new(), limit: None, used }
    }

    /// Adds a definition (pmRegisterDerived(3), or pmAddDerived(3) without binding it).
    ///
    /// # Errors
    /// [`RegisterError::TooMany`], [`RegisterError::Duplicate`], then the errors of the expression and of the name,
    /// then [`RegisterError::NoPmId`].
    pub fn register(&mut self, name: &str, expr: &str) -> Result<&mut Definition, RegisterError> {
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

    /// The next identifier: of all contexts from below, of one from above.
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

    /// Removes a definition (pmUnregisterDerived(3)). Its identifier is not used again.
    ///
    /// # Errors
    /// `PM_ERR_NAME` when there is none of this name.
    pub fn unregister(&mut self, name: &str) -> Result<Definition, Error> {
        let at = self.by_name.remove(name).ok_or(Error::NAME)?;
        let definition = self.list.remove(at);
        self.by_name.values_mut().filter(|other| **other > at).for_each(|other| *other -= 1);
        Ok(definition)
    }

    /// For whom the definitions are.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The largest number of definitions that is allowed.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Sets the largest number of definitions that is allowed; those that are there stay.
    pub fn set_limit(&mut self, limit: Option<usize>) {
        self.limit = limit;
    }

    /// A definition.
    pub fn get(&self, name: &str) -> Option<&Definition> {
        self.by_name.get(name).and_then(|at| self.list.get(*at))
    }

    /// A definition, to change its texts.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Definition> {
        self.by_name.get(name).and_then(|at| self.list.get_mut(*at))
    }

    /// All definitions, in the order in which they were added.
    pub fn iter(&self) -> std::slice::Iter<'_, Definition> {
        self.list.iter()
    }

    /// The number of definitions.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
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
