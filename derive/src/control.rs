//! Controls (pmGetDerivedControl(3), pmSetDerivedControl(3)), and `#control` and `$PCP_DERIVED_CONTROL` that set them.

use std::fmt;

use super::lexer::is_space;
use super::{Definitions, Scope};
use pmapi::Error;

/// What can be controlled (`PCP_DERIVED_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Control {
    /// The largest number of definitions for all contexts; -1 for none.
    GlobalLimit,
    /// The largest number of definitions of one context; -1 for none.
    ContextLimit,
    /// Diagnostics of the parser.
    DebugSyntax,
    /// Diagnostics of binding.
    DebugSemantics,
    /// Diagnostics of evaluation.
    DebugEval,
    /// Whether a metric that does not exist has no values instead of being an error.
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
    /// The control that a text means: the first whose name begins with it, in upper or lower case, or `novalue`, as
    /// the manual has it.
    fn named(text: &str) -> Option<Control> {
        let begins = |name: &str| name.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
        let novalue = text.eq_ignore_ascii_case("novalue").then_some(Control::OptionNovalue);
        ALL.into_iter().find(|(_, name)| begins(name)).map(|(control, _)| control).or(novalue)
    }
}

/// Who sets a control. What the environment set nobody else changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setter {
    /// `$PCP_DERIVED_CONTROL`.
    Environment,
    /// The program, or a configuration.
    Program,
}

/// The values of the controls.
#[derive(Clone, Debug)]
pub struct Controls {
    values: [i32; ALL.len()],
    by_environment: [bool; ALL.len()],
}

impl Default for Controls {
    fn default() -> Controls {
        Controls { values: [-1, -1, 0, 0, 0, 0], by_environment: [false; ALL.len()] }
    }
}

impl Controls {
    /// The value of a control (pmGetDerivedControl(3)).
    pub fn get(&self, control: Control) -> i32 {
        self.values[control as usize]
    }

    /// Sets a control (pmSetDerivedControl(3)).
    ///
    /// # Errors
    /// `PM_ERR_AGAIN` when the environment has set it to something else, `PM_ERR_ARG` for a value that it cannot have.
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
        Ok(())
    }

    /// Whether [`Control::OptionNovalue`] is on.
    pub fn novalue(&self) -> bool {
        self.get(Control::OptionNovalue) == 1
    }

    /// Makes the limit of a set the one that is set here.
    pub fn apply(&self, definitions: &mut Definitions) {
        let limit = match definitions.scope() {
            Scope::Global => self.get(Control::GlobalLimit),
            Scope::Context => self.get(Control::ContextLimit),
        };
        definitions.set_limit(usize::try_from(limit).ok());
    }

    /// Sets controls from a text: `NAME=NUMBER` between commas. What is wrong is skipped, in part with what follows,
    /// and told without the place that libpcp puts before it.
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

/// strtol(3) of all of a text, as an `int`.
fn number(text: &str) -> Option<i32> {
    let text = text.trim_start_matches(|c: char| u8::try_from(c).is_ok_and(is_space));
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse::<i64>().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }) as i32)
}

/// What is wrong with the setting of a control.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// No `=`; the rest of the text.
    #[error("missing '=' in derived metric control ({0})")]
    NoEquals(String),
    /// Nothing after `=`; the rest of the text.
    #[error("missing value in derived metric control ({0})")]
    NoValue(String),
    /// The value is no number.
    #[error("bad value ({value}) for derived metric control ({name})")]
    BadValue {
        /// The rest of the text.
        value: String,
        /// The control.
        name: String,
    },
    /// No control has this name.
    #[error("unknown derived metric control ({0})")]
    Unknown(String),
    /// It cannot be set.
    #[error("failed to set derived metric control {name}={value}: {why}")]
    Failed {
        /// The control.
        name: String,
        /// The value.
        value: i32,
        /// [`Controls::set`]'s error.
        why: Error,
    },
}

impl ControlError {
    /// `Error` or `Warning`, as libpcp calls it.
    pub(crate) fn severity(&self) -> Severity {
        if matches!(self, ControlError::NoEquals(_)) { Severity::Error } else { Severity::Warning }
    }
}

/// How bad a message of a configuration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// Something in the line is not as it should be.
    Warning,
    /// The line has no effect.
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
