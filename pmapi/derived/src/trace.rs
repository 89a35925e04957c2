//! Debug output about definitions, as `DEBUG`-level events of `tracing`.
//!
//! The target of an event names the debug options (pmSetDebug(3)) with which libpcp prints similar output. An agent of
//! `pmda` logs the event if all of them are set.

use std::fmt;
use std::time::Duration;

use pmapi::{Desc, Error};
use tracing::{Level, debug, enabled};

use super::error::{BindError, RegisterError};
use super::expr::{Expr, Kind};
use super::filter::Filter;
use super::values::Column;

/// Definitions that are refused, and that cannot be bound.
const FAILURES: &str = "derive";
/// Parsed expressions.
const SYNTAX: &str = "derive,appl0";
/// Descriptors of bound definitions.
const SEMANTICS: &str = "derive,appl1";
/// Values in each sample.
const EVALUATION: &str = "derive,appl2";

/// Number of values that a line shows.
const SHOWN: usize = 16;

/// Reports a definition that is registered, or refused.
pub(crate) fn registered(name: &str, text: &str, result: Result<&Expr, &RegisterError>) {
    match result {
        Ok(expr) => debug!(target: SYNTAX, "{name} = {text}: parsed as {}", Nodes(expr)),
        Err(error) => debug!(target: FAILURES, "{name} = {text}: refused: {error}"),
    }
}

/// Returns whether [`bound`] reports anything.
pub(crate) fn shows_binding() -> bool {
    enabled!(target: FAILURES, Level::DEBUG) || enabled!(target: SEMANTICS, Level::DEBUG)
}

/// Reports the result of binding a definition.
pub(crate) fn bound(name: &str, result: Result<Desc, Option<&BindError>>) {
    match result {
        Ok(desc) => debug!(target: SEMANTICS, "{name}: bound: {desc:?}"),
        Err(Some(error)) => debug!(target: FAILURES, "{name}: not bound: {error}"),
        Err(None) => {}
    }
}

/// Returns whether [`evaluated`] reports anything.
pub(crate) fn shows_values() -> bool {
    enabled!(target: EVALUATION, Level::DEBUG)
}

/// Reports the values of a definition in a sample.
pub(crate) fn evaluated(name: &str, stamp: Duration, result: Result<&Column, Error>) {
    let seconds = stamp.as_secs_f64();
    match result {
        Ok(values) => debug!(target: EVALUATION, "{name} at {seconds:.6} s: {}", Shown(values)),
        Err(error) => debug!(target: EVALUATION, "{name} at {seconds:.6} s: {error}"),
    }
}

/// Nodes of an expression, each with its number: operands come first, and the last node is the whole expression. The
/// length of the text is proportional to that of the expression, however deeply it is nested.
struct Nodes<'a>(&'a Expr);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, node) in self.0.nodes.iter().enumerate() {
            write!(f, "{}#{number} ", if number == 0 { "" } else { ", " })?;
            match &node.kind {
                Kind::Name(name) => f.write_str(name),
                Kind::Constant { text, .. } => f.write_str(text),
                Kind::NoValue { .. } => f.write_str("novalue()"),
                Kind::Binary(op, left, right) => write!(f, "(#{left} {} #{right})", op.symbol()),
                Kind::Neg(of) => write!(f, "-#{of}"),
                Kind::Not(of) => write!(f, "!#{of}"),
                Kind::Function(function, of) => write!(f, "{}(#{of})", function.word()),
                Kind::Rescale(of, units) => write!(f, "rescale(#{of}, \"{units}\")"),
                Kind::Filter(Filter::Instance(name), of) => write!(f, "#{of}[{name}]"),
                Kind::Filter(Filter::Pattern { regex, invert }, of) => {
                    write!(f, "matchinst({}/{regex}/, #{of})", if *invert { "!" } else { "" })
                }
                Kind::Ternary { guard, left, right } => write!(f, "(#{guard} ? #{left} : #{right})"),
                Kind::Anon(ty) => write!(f, "mkanon({ty})"),
            }?;
        }
        Ok(())
    }
}

/// First values of a column, each with its instance.
struct Shown<'a>(&'a Column);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => f.write_str("no values")?,
            1 => f.write_str("1 value:")?,
            count => write!(f, "{count} values:")?,
        }
        for (inst, value) in self.0.iter().take(SHOWN) {
            match inst {
                Some(inst) => write!(f, " {}={value}", inst.word())?,
                None => write!(f, " {value}")?,
            }
        }
        f.write_str(if self.0.len() > SHOWN { " ..." } else { "" })
    }
}
