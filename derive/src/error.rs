//! What is wrong with a definition.

use std::fmt;

/// A text that is no expression.
///
/// `Display` gives the reason alone, which may be empty: libpcp has none for a left-over number, for instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// The byte of the expression where parsing stopped; where libpcp's caret stands.
    pub offset: usize,
    /// The reason (pmDerivedErrStr(3)), if there is one.
    pub reason: Option<String>,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for SyntaxError {}

impl SyntaxError {
    /// The line below the expression that has a caret under the place, as libpcp prints it.
    pub fn caret(&self, expr: &str) -> String {
        let mark = |(at, byte): (usize, u8)| match byte {
            _ if at == self.offset => '^',
            b if super::lexer::is_space(b) => char::from(b),
            _ => ' ',
        };
        expr.bytes().enumerate().map(mark).collect()
    }
}

/// Why a definition is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// It is no expression.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The name is not one of a metric: components of letters, digits and `_`, each beginning with a letter.
    #[error("illegal derived metric name ({0})")]
    Name(String),
    /// The name is defined already.
    #[error("Duplicate {0} derived metric name")]
    Duplicate(super::Scope),
    /// There are as many as the limit allows.
    #[error("Too many {0} derived metrics")]
    TooMany(super::Scope),
    /// No identifiers are left.
    #[error("{0} PMID space exhausted")]
    NoPmId(super::Scope),
}

impl RegisterError {
    /// The message of pmRegisterDerivedMetric(3), or of pmAddDerivedMetric(3) for one context.
    pub fn report(&self, scope: super::Scope, name: &str, expr: &str) -> String {
        use super::Scope::{Context, Global};
        match (self, scope) {
            (RegisterError::Syntax(error), Global) => place("Error: pmRegisterDerivedMetric", name, expr, error),
            (RegisterError::Syntax(error), Context) => place("Syntax Error: pmAddDerivedMetric", name, expr, error),
            (error, Global) => place("Error: pmRegisterDerivedMetric", name, expr, &whole(error)),
            (error, Context) => {
                let code = pmapi::Error::BADDERIVE.code();
                format!("Error: pmAddDerivedMetric(\"{name}\", ...): returns {code}\n{error}\n")
            }
        }
    }
}

/// An error of an expression as a whole.
fn whole(error: &impl fmt::Display) -> SyntaxError {
    SyntaxError { offset: 0, reason: Some(error.to_string()) }
}

/// What fails, and the place in the expression.
fn place(what: &str, name: &str, expr: &str, error: &SyntaxError) -> String {
    let offset = error.offset;
    let reason = error.reason.as_ref().map_or(String::new(), |reason| format!("{reason}\n"));
    format!("{what}(\"{name}\", ...)\n{expr}\n{:offset$}^\n{reason}", "")
}

/// Why a definition has no values: `PM_ERR_BADDERIVE` for who asks for it.
///
/// `Display` gives what libpcp prints behind `derived metric NAME: `.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindError {
    /// A semantic error: the part of the expression, and the reason (pmDerivedErrStr(3)).
    #[error("{context}: {reason}")]
    Semantic {
        /// The part of the expression, its operands by name or as `<expr>`.
        context: String,
        /// The reason.
        reason: &'static str,
    },
    /// It refers to itself; the path begins and ends with it.
    #[error("definition refers to itself: {}", path.join(" -> "))]
    Cycle {
        /// The definitions, each of which refers to the next; of very many those in the middle are left out.
        path: Vec<String>,
    },
    /// A metric that is not derived has this name.
    #[error("a metric of this name exists")]
    Hidden,
}

impl BindError {
    /// The message of pmAddDerivedMetric(3), which binds at once.
    pub fn report(&self, name: &str, expr: &str) -> String {
        let error = match self {
            BindError::Semantic { reason, .. } => whole(reason),
            other => whole(other),
        };
        place("Semantic Error: pmAddDerivedMetric", name, expr, &error)
    }
}
