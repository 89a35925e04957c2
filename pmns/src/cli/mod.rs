//! What the commands of the packages `pcp-pmns` and `pcp-help` share: options, messages and exit
//! codes in the manner of PCP's own.

mod args;
mod merge;
mod update;

pub use args::{Debug, debug};
pub use merge::{Order, merge};
pub use update::{Update, ignore_signals};

use crate::{Error, Loader, Tree};
use pmapi::config::Config;
use pmapi::escape::Output;
use std::fmt::{Arguments, Display};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A command.
pub struct Program {
    name: String,
    usage: &'static str,
    failure: u8,
    /// Before a message about a name space that cannot be loaded.
    load_prefix: String,
}

impl Program {
    /// The running command, its usage text, and the exit code of every failure.
    pub fn new(usage: &'static str, failure: u8) -> Program {
        let name = std::env::args_os().next().map(PathBuf::from);
        let name = name.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let load_prefix = format!("{name}: Error: ");
        Program { name, usage, failure, load_prefix }
    }

    /// With another beginning of messages about name spaces that cannot be loaded.
    pub fn load_prefix(mut self, prefix: impl Into<String>) -> Program {
        self.load_prefix = prefix.into();
        self
    }

    /// The command's name, as it was called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Prints `NAME: message` to stderr.
    pub fn say(&self, message: impl Display) {
        print(format_args!("{}: {message}\n", self.name));
    }

    /// Prints `NAME: message` to stderr; the exit code of a failure.
    pub fn fail(&self, message: impl Display) -> ExitCode {
        self.say(message);
        self.failure()
    }

    /// Prints the usage text to stderr; the exit code of a failure.
    pub fn usage(&self) -> ExitCode {
        eprint!("{}", self.usage);
        self.failure()
    }

    /// The exit code of a failure.
    pub fn failure(&self) -> ExitCode {
        self.failure.into()
    }

    /// Checks the argument of the option for the version of help text, which must be 2.
    pub fn check_version(&self, version: &str) -> Result<(), ExitCode> {
        let number = version.parse::<i64>();
        if number.is_err() && !version.is_empty() {
            self.say("-v requires numeric argument");
        }
        // PCP's takes the number that the argument begins with.
        let digits = version.trim_start_matches(|c: char| c.is_ascii_digit());
        if version.strip_suffix(digits) != Some("2") {
            self.say("deprecated option - only version 2 is supported");
        }
        if number == Ok(2) { Ok(()) } else { Err(self.usage()) }
    }

    /// The name space of a file, or of the default file, as pmLoadASCIINameSpace(3) loads it. On
    /// failure, says why.
    pub fn load(&self, path: Option<&Path>, unique_pmids: bool) -> Result<Tree, ExitCode> {
        let default = default_name_space();
        let loaded = loader(unique_pmids).load(path.unwrap_or(&default));
        loaded.map_err(|e| self.not_loaded(e, path, unique_pmids))
    }

    /// The name space of a text that is, or might be, the content of a file.
    pub fn parse(&self, text: Vec<u8>, path: &Path) -> Result<Tree, ExitCode> {
        loader(false).parse(text, path).map_err(|e| self.not_loaded(e, Some(path), false))
    }

    fn not_loaded(&self, error: Error, path: Option<&Path>, unique_pmids: bool) -> ExitCode {
        print(format_args!("{}", error.diagnostics()));
        let path = path.map_or_else(|| "(null)".into(), |path| path.display().to_string());
        let dupok = i32::from(!unique_pmids);
        let error = pmapi::Error::from(error);
        print(format_args!("{}pmLoadASCIINameSpace({path}, {dupok}): {error}\n", self.load_prefix));
        self.failure()
    }
}

/// What the commands of the name space say to `-d`.
pub const DUPOK_WARNING: &str = "Warning: -d deprecated, duplicate PMNS names allowed by default";

/// The loader with the directory that libpcp looks for included files in.
pub fn loader(unique_pmids: bool) -> Loader<'static> {
    Loader::new().include_dir(Config::load().var_dir().join("pmns")).unique_pmids(unique_pmids)
}

/// The file of the default name space: `$PMNS_DEFAULT`, else `$PCP_VAR_DIR/pmns/root`.
pub fn default_name_space() -> PathBuf {
    match std::env::var_os("PMNS_DEFAULT") {
        Some(path) => path.into(),
        None => Config::load().var_dir().join("pmns").join("root"),
    }
}

/// Prints to stderr. What stands in files steers no terminal.
fn print(text: Arguments<'_>) {
    let _ = Output::to(io::stderr()).write_fmt(text);
}
