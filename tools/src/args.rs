//! Command lines, parsed by clap, with the messages of `pmgetopt_r(3)`.

use crate::Program;
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
pub use pmapi::debug::Debug;
use pmapi::debug::UnknownOption;
use pmapi::escape;
use std::process::ExitCode;

/// Parses the argument of `-D`, a list of debugging options (pmSetDebug(3)).
///
/// # Errors
///
/// [`UnknownOption`] when a word is not the name of an option.
pub fn debug(spec: &str) -> Result<Debug, UnknownOption> {
    spec.parse()
}

impl Program {
    /// Prints name and version of the command.
    pub fn print_version(&self) {
        escape::print(format_args!("{} {}\n", self.name(), pmapi::build::version(env!("CARGO_PKG_VERSION"))));
    }

    /// Parses the arguments of the process. `--version` as the only argument prints the version and ends the process.
    /// PCP's commands refuse it, or have another option of this name that needs an argument.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when the arguments are wrong or request help. The reason, if any, and the usage text
    /// are then on stderr.
    pub fn args<T: Parser>(&self) -> Result<T, ExitCode> {
        if std::env::args_os().skip(1).eq(["--version"]) {
            self.print_version();
            std::process::exit(0);
        }
        T::try_parse().map_err(|e| {
            if let Some(message) = message(&e) {
                self.say(message);
            }
            self.usage()
        })
    }
}

/// Returns the message of `pmgetopt_r(3)` for the same mistake; `None` for a request for help.
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
        // Only the last argument can lack its value.
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
