//! Controls of derived metrics (pmGetDerivedControl(3), pmSetDerivedControl(3)), also set by `#control` lines and
//! `$PCP_DERIVED_CONTROL`.

use std::fmt;

use super::lexer::is_space;
use super::{Definitions, Scope, UnknownNames};
use pmapi::Error;

/// Control of derived metrics (`PCP_DERIVED_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Control {
    /// Largest number of definitions for all contexts; -1 means no limit.
    GlobalLimit,
    /// Largest number of definitions for one context; -1 means no limit.
    ContextLimit,
    /// Diagnostics of the parser: 0 or 1.
    DebugSyntax,
    /// Diagnostics of binding: 0 or 1.
    DebugSemantics,
    /// Diagnostics of evaluation: 0 or 1.
    DebugEval,
    /// 1 if an unknown metric has no values, 0 if it is an error.
    OptionNovalue,
}

const ALL: [(Control, &str); 6] = [
    (Control::GlobalLimit, "GLOBAL_LIMIT"),
    (Control::ContextLimit, "CONTEXT_LIMIT"),
    (Control::DebugSyntax, "DEBUG_SYNTAX"),
    (Control::DebugSemantics, "DEBUG_SEMANTICS"),
    (Control::DebugEval, "DEBUG_EVAL"),
    (Control::OptionNovalue, "OPTION_NOVALUE"),
];

impl Control {
    /// Returns the first control whose name begins with `text`, in upper or lower case. Also accepts `novalue`, as the
    /// manual spells it.
    fn named(text: &str) -> Option<Control> {
        let novalue = text.eq_ignore_ascii_case("novalue").then_some(Control::OptionNovalue);
        ALL.into_iter()
            .find(|(_, name)| name.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text)))
            .map(|(control, _)| control)
            .or(novalue)
    }
}

/// Origin of a control's value. The program cannot change a value that the environment has set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Setter {
    /// The environment variable `PCP_DERIVED_CONTROL`.
    Environment,
    /// The program or a configuration file.
    Program,
}

/// Values of the controls. By default there are no limits, and the other values are 0.
#[derive(Clone, Debug)]
pub struct Controls {
    values: [i32; ALL.len()],
    by_environment: [bool; ALL.len()],
    on_debug: Option<fn(Control, i32)>,
}

impl Default for Controls {
    fn default() -> Controls {
        Controls { values: [-1, -1, 0, 0, 0, 0], by_environment: [false; ALL.len()], on_debug: None }
    }
}

impl Controls {
    /// Returns the value of a control (pmGetDerivedControl(3)).
    pub fn get(&self, control: Control) -> i32 {
        self.values[control as usize]
    }

    /// Sets a control (pmSetDerivedControl(3)). A limit must be -1 or positive, any other value 0 or 1.
    ///
    /// # Errors
    /// `PM_ERR_AGAIN` if the environment has set another value, `PM_ERR_ARG` if the value is not allowed.
    pub fn set(&mut self, setter: Setter, control: Control, value: i32) -> Result<(), Error> {
        let at = control as usize;
        if setter == Setter::Program && self.by_environment[at] && self.values[at] != value {
            return Err(Error::AGAIN);
        }
        let allowed = match control {
            Control::GlobalLimit | Control::ContextLimit => value == -1 || value > 0,
            _ => value == 0 || value == 1,
        };
        if !allowed {
            return Err(Error::ARG);
        }
        self.values[at] = value;
        self.by_environment[at] |= setter == Setter::Environment;
        let is_debug = matches!(control, Control::DebugSyntax | Control::DebugSemantics | Control::DebugEval);
        if let Some(on_debug) = self.on_debug.filter(|_| is_debug) {
            on_debug(control, value);
        }
        Ok(())
    }

    /// Sets the function that is called with each of the three debug controls that is set, and its value.
    ///
    /// The crate reports the selected events to `tracing`, at level DEBUG. Targets of the events are `derive,appl0` for
    /// parsed expressions, `derive,appl1` for bound definitions, `derive,appl2` for values, and `derive` for
    /// definitions that are refused or cannot be bound. These are the debug options (pmSetDebug(3)) that libpcp sets
    /// with the controls. The caller decides what its log shows.
    pub fn on_debug(&mut self, call: fn(Control, i32)) {
        self.on_debug = Some(call);
    }

    /// Returns the handling of metrics that do not exist, by [`Control::OptionNovalue`].
    pub fn unknown_names(&self) -> UnknownNames {
        if self.get(Control::OptionNovalue) == 1 { UnknownNames::NoValue } else { UnknownNames::Refused }
    }

    /// Sets the limit of a set of definitions to the control for its scope.
    pub fn apply(&self, definitions: &mut Definitions) {
        let limit = match definitions.scope() {
            Scope::Global => self.get(Control::GlobalLimit),
            Scope::Context => self.get(Control::ContextLimit),
        };
        definitions.set_limit(usize::try_from(limit).ok());
    }

    /// Sets controls from a text: `NAME=NUMBER`, separated by commas.
    ///
    /// Returns the errors, without the position that libpcp prints before them. After an unknown name or a value that
    /// [`Controls::set`] refuses, it continues with the next control. After any other error it stops.
    pub fn set_from_text(&mut self, setter: Setter, text: &str) -> Vec<ControlError> {
        let mut errors = Vec::new();
        let mut rest = Some(text);
        while let Some(text) = rest {
            let Some((name, value)) = text.split_once('=') else {
                errors.push(ControlError::NoEquals(text.to_owned()));
                break;
            };
            let (value, after) = value.split_once(',').map_or((value, None), |(value, after)| (value, Some(after)));
            if value.is_empty() {
                errors.push(ControlError::NoValue(text.to_owned()));
                break;
            }
            let Some(number) = number(value) else {
                let value = text.split_once('=').map_or(value, |(_, value)| value).to_owned();
                errors.push(ControlError::BadValue { value, name: name.to_owned() });
                break;
            };
            match Control::named(name).map(|control| self.set(setter, control, number)) {
                None => errors.push(ControlError::Unknown(name.to_owned())),
                Some(Err(why)) => errors.push(ControlError::Failed { name: name.to_owned(), value: number, why }),
                Some(Ok(())) => {}
            }
            rest = after;
        }
        errors
    }
}

/// Parses the whole text as a decimal number, truncated to 32 bits like an `int` from strtol(3).
fn number(text: &str) -> Option<i32> {
    let text = text.trim_start_matches(|c: char| u8::try_from(c).is_ok_and(is_space));
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse::<i64>().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }) as i32)
}

/// Error in a text that sets controls.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The `=` is missing. The field is the rest of the text.
    #[error("missing '=' in derived metric control ({0})")]
    NoEquals(String),
    /// The value after `=` is missing. The field is the rest of the text.
    #[error("missing value in derived metric control ({0})")]
    NoValue(String),
    /// The value is not a number.
    #[error("bad value ({value}) for derived metric control ({name})")]
    BadValue {
        /// Text from the value to the end.
        value: String,
        /// Name of the control, as written.
        name: String,
    },
    /// There is no control of this name (pmSetDerivedControl(3)).
    #[error("unknown derived metric control ({0})")]
    Unknown(String),
    /// The control does not accept the value.
    #[error("failed to set derived metric control {name}={value}: {why}")]
    Failed {
        /// Name of the control, as written.
        name: String,
        /// The refused value.
        value: i32,
        /// Error of [`Controls::set`].
        why: Error,
    },
}

impl ControlError {
    /// Returns the severity that libpcp prints.
    pub(crate) fn severity(&self) -> Severity {
        if matches!(self, ControlError::NoEquals(_)) { Severity::Error } else { Severity::Warning }
    }
}

/// Severity of a message about a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Severity {
    /// A part of the line is ignored.
    Warning,
    /// The line, or its remainder, is ignored.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "Warning",
            Severity::Error => "Error",
        })
    }
}
