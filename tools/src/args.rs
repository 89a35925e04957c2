//! Command lines, parsed by clap, with the rules and messages of `pmgetopt_r(3)`.

use crate::Program;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command, Parser};
use pcp_base::escape;
pub use pmapi::debug::Debug;
use pmapi::debug::UnknownOption;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the options of a command line end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operands {
    /// Options may stand behind operands, unless the environment has `POSIXLY_CORRECT`.
    Anywhere,
    /// The first operand ends the options, as in a shell's getopts.
    Last,
}

/// Parses the argument of `-D`, a list of debugging options (pmSetDebug(3)).
///
/// # Errors
///
/// [`UnknownOption`] when a word is not the name of an option.
pub fn debug(spec: &str) -> Result<Debug, UnknownOption> {
    spec.parse()
}

/// Parses an argument as a path, which may be empty, as C's commands accept it. Opening it is then the error.
pub fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Parses an argument as text. A byte that is not UTF-8 becomes a replacement character.
pub fn text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| text.to_string_lossy().into_owned())
}

/// Returns the number at the start of a text, which wraps around at 32 bits, and whether nothing is behind it
/// (strtol(3), converted to `int`).
pub fn integer(text: &str) -> (i32, bool) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (sign, digits) = match rest.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, rest.strip_prefix('+').unwrap_or(rest)),
    };
    let behind = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = digits.bytes().take(digits.len() - behind.len());
    let is_number = digits.len() > 0;
    let value = digits.fold(0_i128, |value, digit| value.saturating_mul(10).saturating_add((digit - b'0').into()));
    let value = (sign * value).clamp(i64::MIN.into(), i64::MAX.into());
    (value as i32, if is_number { behind.is_empty() } else { text.is_empty() })
}

/// Parses the argument of `-v`, the version of the format of help text.
///
/// # Errors
///
/// PCP's messages for anything but 2, a line each.
pub fn version(text: &str) -> Result<(), String> {
    let (number, whole) = integer(text);
    let mut wrong = Vec::new();
    if !whole {
        wrong.push("-v requires numeric argument");
    }
    if number != 2 {
        wrong.push("deprecated option - only version 2 is supported");
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

impl Program {
    /// Prints name and version of the command.
    pub fn print_version(&self) {
        escape::print(format_args!("{} {}\n", self.name(), pcp_base::build::version(env!("CARGO_PKG_VERSION"))));
    }

    /// Parses the arguments of the process. `--version` as the only argument prints the version and ends the process.
    /// PCP's commands refuse it, or have another option of this name that needs an argument.
    ///
    /// The argument of an option may begin with `-`, as in getopt(3).
    ///
    /// # Errors
    ///
    /// The exit code of a failure when the arguments are wrong or request help. The reason, if any, and the usage text
    /// are then on stderr.
    pub fn args<T: Parser>(&self, operands: Operands) -> Result<T, ExitCode> {
        if std::env::args_os().skip(1).eq(["--version"]) {
            self.print_version();
            std::process::exit(0);
        }
        self.parse_args(operands)
    }

    /// Parses the arguments of a command that has an option `--version` of its own.
    ///
    /// # Errors
    ///
    /// Errors of [`Program::args`].
    pub fn parse_args<T: Parser>(&self, operands: Operands) -> Result<T, ExitCode> {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let last = operands == Operands::Last || std::env::var_os("POSIXLY_CORRECT").is_some();
        let mut command = T::command().mut_args(|arg| match arg.get_action() {
            ArgAction::Append if arg.is_positional() => arg.trailing_var_arg(last),
            action if action.takes_values() && !arg.is_positional() => arg.allow_hyphen_values(true),
            _ => arg,
        });
        let matched = command.try_get_matches_from_mut(&arguments);
        matched.and_then(|matches| T::from_arg_matches(&matches)).map_err(|e| {
            let message = message(&e, &command, &arguments).unwrap_or_default();
            message.lines().for_each(|line| self.say(line));
            self.usage()
        })
    }
}

/// Returns the message of `pmgetopt_r(3)` for the same mistake; `None` for a request for help.
fn message(error: &clap::Error, command: &Command, arguments: &[OsString]) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = context(ContextKind::InvalidArg).unwrap_or_default();
    // clap writes `--output <FILE>`, and `--verbose...` for an option that counts.
    let name = argument.split([' ', '=', '.']).next().unwrap_or_default();
    match error.kind() {
        ErrorKind::DisplayHelp => None,
        ErrorKind::UnknownArgument => Some(unknown(argument, command, arguments)),
        ErrorKind::TooManyValues => Some(format!("option '{name}' doesn't allow an argument")),
        // Only the last argument can lack its value.
        ErrorKind::InvalidValue if context(ContextKind::InvalidValue).is_none_or(str::is_empty) => {
            let last = arguments.last().map(|last| last.to_string_lossy()).unwrap_or_default();
            Some(match last.strip_prefix("--") {
                Some(_) => format!("option '{name}' requires an argument"),
                None => format!("option requires an argument -- '{}'", last.chars().next_back().unwrap_or_default()),
            })
        }
        ErrorKind::ValueValidation => std::error::Error::source(error).map(|source| source.to_string()),
        _ => Some(error.kind().to_string()),
    }
}

/// Returns the message about an option that the command does not have.
fn unknown(argument: &str, command: &Command, arguments: &[OsString]) -> String {
    let Some(name) = argument.strip_prefix("--") else {
        return format!("invalid option -- '{}'", argument.strip_prefix('-').unwrap_or(argument));
    };
    let longs = || command.get_arguments().filter_map(|arg| arg.get_long());
    if longs().next().is_none() {
        return "invalid option -- '-'".to_owned();
    }
    // clap leaves out what is behind `=`.
    let given = arguments.iter().filter_map(|given| given.to_str());
    let given = given.into_iter().find(|given| given.split('=').next() == Some(argument)).unwrap_or(argument);
    let possible: Vec<_> = longs().filter(|long| long.starts_with(name)).map(|long| format!(" '--{long}'")).collect();
    match possible.len() {
        0 | 1 => format!("unrecognized option '{given}'"),
        _ => format!("option '{given}' is ambiguous; possibilities:{}", possible.concat()),
    }
}
