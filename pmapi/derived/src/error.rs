//! Errors of definitions.

use std::fmt;

/// Syntax error in an expression.
///
/// `Display` prints only the reason. It may be empty: libpcp has no reason for a left-over number, for example.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SyntaxError {
    /// Byte offset in the expression where parsing stopped, as shown by libpcp's caret.
    pub offset: usize,
    /// Reason, as from pmDerivedErrStr(3); `None` if libpcp gives none.
    pub reason: Option<String>,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_deref().unwrap_or_default())
    }
}

impl std::error::Error for SyntaxError {}

impl SyntaxError {
    /// Returns the line to print below the expression: a caret at [`SyntaxError::offset`], as libpcp prints it.
    pub fn caret(&self, expr: &str) -> String {
        expr.bytes()
            .enumerate()
            .map(|(at, byte)| match byte {
                _ if at == self.offset => '^',
                b if super::lexer::is_space(b) => char::from(b),
                _ => ' ',
            })
            .collect()
    }

    /// Returns the lines below a message: the expression, the caret, and the reason if there is one.
    pub fn detail(&self, expr: &str) -> Vec<String> {
        [expr.to_owned(), self.caret(expr)].into_iter().chain(self.reason.clone()).collect()
    }
}

impl From<RegisterError> for SyntaxError {
    /// Returns the syntax error. Other errors concern the whole expression, so their position is its start.
    fn from(error: RegisterError) -> SyntaxError {
        match error {
            RegisterError::Syntax(error) => error,
            error => whole(&error),
        }
    }
}

/// Error that keeps a definition from being registered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The expression has a syntax error.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The name is not a metric name: components between dots, each a letter followed by letters, digits and `_`.
    #[error("illegal derived metric name ({0})")]
    Name(String),
    /// A definition with this name exists.
    #[error("Duplicate {0} derived metric name")]
    Duplicate(super::Scope),
    /// The set has reached its limit.
    #[error("Too many {0} derived metrics")]
    TooMany(super::Scope),
    /// No PMID is left.
    #[error("{0} PMID space exhausted")]
    NoPmId(super::Scope),
}

impl RegisterError {
    /// Returns the message of pmRegisterDerivedMetric(3), or of pmAddDerivedMetric(3) for one context.
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

/// Places an error at the start of the expression.
fn whole(error: &impl fmt::Display) -> SyntaxError {
    SyntaxError { offset: 0, reason: Some(error.to_string()) }
}

/// Formats the failed call, the expression with a caret below, and the reason.
fn place(what: &str, name: &str, expr: &str, error: &SyntaxError) -> String {
    let offset = error.offset;
    let reason = error.reason.as_ref().map_or(String::new(), |reason| format!("{reason}\n"));
    format!("{what}(\"{name}\", ...)\n{expr}\n{:offset$}^\n{reason}", "")
}

/// Error that keeps a definition from having values. A client's request for them fails with `PM_ERR_BADDERIVE`.
///
/// `Display` prints what libpcp prints after `derived metric NAME: `.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A part of the expression has a semantic error.
    #[error("{context}: {reason}")]
    Semantic {
        /// Part of the expression; operands appear by name or as `<expr>`.
        context: String,
        /// Reason, as from pmDerivedErrStr(3).
        reason: &'static str,
    },
    /// The definition refers to itself, directly or through others.
    #[error("definition refers to itself: {}", path.join(" -> "))]
    Cycle {
        /// Names of the definitions in the cycle, from this one back to itself. A long path has `...` in the middle.
        path: Vec<String>,
    },
    /// A metric that is not derived has this name.
    #[error("a metric of this name exists")]
    Hidden,
}

impl BindError {
    /// Returns the message of pmAddDerivedMetric(3), which binds a definition at once.
    pub fn report(&self, name: &str, expr: &str) -> String {
        let error = match self {
            BindError::Semantic { reason, .. } => whole(reason),
            other => whole(other),
        };
        place("Semantic Error: pmAddDerivedMetric", name, expr, &error)
    }
}
