//! Command lines: clap's parser, pmgetopt_r(3)'s messages.

use super::Program;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::process::ExitCode;

/// The names of `-D` (pmdbg(1)), in the order of their bits.
const DEBUG: &str = "pdu fetch profile value context indom pdubuf log logmeta optfetch af appl0 appl1 appl2 pmns \
    libpmda timecontrol pmc derive lock interp config pmapi fault auth discovery attr http desperate deprecated exec \
    labels series libweb alloc services appl3 appl4 appl5 access qa search query compress dev0 dev1 dev2 pmlc appl6 \
    appl7 appl8 appl9 tls";

/// Debug options that are set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Debug(Vec<&'static str>);

impl Debug {
    /// Whether an option is set.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

/// The options that an argument of `-D` sets (pmSetDebug(3)): names with commas between, `all`, or
/// the bits of the first 32 as a number.
pub fn debug(spec: &str) -> Result<Debug, String> {
    let names = DEBUG.split_whitespace();
    if let Ok(bits) = spec.parse::<i32>() {
        return Ok(Debug(
            names.take(32).enumerate().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, n)| n).collect(),
        ));
    }
    let mut set = Vec::new();
    for wanted in spec.split(',') {
        match names.clone().find(|name| name.eq_ignore_ascii_case(wanted)) {
            Some(name) => set.push(name),
            None if wanted.eq_ignore_ascii_case("all") => set.extend(names.clone()),
            None => return Err(format!("unrecognized debug options specification ({spec})")),
        }
    }
    Ok(Debug(set))
}

impl Program {
    /// The arguments of the process. When they are wrong or ask for help, prints why and the usage.
    pub fn args<T: Parser>(&self) -> Result<T, ExitCode> {
        T::try_parse().map_err(|e| {
            if let Some(message) = message(&e) {
                self.say(message);
            }
            self.usage()
        })
    }
}

/// What pmgetopt_r(3) says in the same case; nothing when help is asked for.
fn message(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    let short = argument.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    match error.kind() {
        ErrorKind::DisplayHelp => None,
        ErrorKind::UnknownArgument => Some(match short {
            Some(letter) => format!("invalid option -- '{letter}'"),
            None => format!("unrecognized option '{argument}'"),
        }),
        ErrorKind::TooManyValues => {
            let name = argument.split([' ', '=']).next().unwrap_or_default();
            Some(format!("option '{name}' doesn't allow an argument"))
        }
        // A value is missing only where the arguments end.
        ErrorKind::InvalidValue if context(ContextKind::InvalidValue).is_none_or(str::is_empty) => {
            let last = std::env::args().next_back().unwrap_or_default();
            Some(match last.strip_prefix("--") {
                Some(_) => format!("option '{last}' requires an argument"),
                None => format!("option requires an argument -- '{}'", last.chars().next_back().unwrap_or_default()),
            })
        }
        ErrorKind::ValueValidation => std::error::Error::source(error).map(|source| source.to_string()),
        _ => Some(error.kind().to_string()),
    }
}
