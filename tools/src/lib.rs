//! Common code of the commands pmnsmerge, pmnsadd, pmnsdel, newhelp, chkhelp and pmgenmap: options, messages and exit
//! codes that match those of PCP's commands.

mod args;
pub mod genmap;
mod merge;
mod update;
pub mod usage;

pub use args::{Debug, Operands, debug, integer, path, text, version};
pub use merge::{Order, merge};
pub use update::{Update, ignore_signals};

use pcp_base::escape::{self, Escaped};
use pcp_base::file;
use pmapi::Config;
use pmns::{Error, Loader, Tree};
use std::fmt::Display;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Whether several names may have the same PMID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PmIds {
    /// Each PMID has one name.
    Unique,
    /// Names may share a PMID, as in libpcp by default.
    Shared,
}

/// The running command.
pub struct Program {
    name: String,
    usage: &'static str,
    failure: u8,
    /// Start of the message about a name space that cannot be loaded.
    load_prefix: String,
}

impl Program {
    /// Creates the running command with its usage text and the exit code of every failure.
    pub fn new(usage: &'static str, failure: u8) -> Program {
        let name = std::env::args_os().next().map(PathBuf::from);
        let name = name.as_deref().and_then(Path::file_name).unwrap_or_default();
        let name = Escaped(name.to_string_lossy()).to_string();
        let load_prefix = format!("{name}: Error: ");
        Program { name, usage, failure, load_prefix }
    }

    /// Sets the start of the message about a name space that cannot be loaded; by default `NAME: Error: `.
    pub fn load_prefix(mut self, prefix: impl Into<String>) -> Program {
        self.load_prefix = prefix.into();
        self
    }

    /// Returns the file name that the command was started with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Prints `NAME: message` to stderr.
    pub fn say(&self, message: impl Display) {
        escape::eprint(format_args!("{}: {message}\n", self.name));
    }

    /// Prints `NAME: message` to stderr and returns the exit code of a failure.
    pub fn fail(&self, message: impl Display) -> ExitCode {
        self.say(message);
        self.failure()
    }

    /// Prints the usage text to stderr, with the name that the command was started with, and returns the exit code of a
    /// failure.
    pub fn usage(&self) -> ExitCode {
        let (synopsis, options) = self.usage.split_once("\n\n").unwrap_or((self.usage, ""));
        let known = synopsis.split_whitespace().nth(1).unwrap_or_default();
        for line in synopsis.lines() {
            let line = match line.split_once(known) {
                Some((start, rest)) if rest.starts_with(' ') => format!("{start}{}{rest}", self.name),
                _ => line.to_owned(),
            };
            escape::eprint(format_args!("{line}\n"));
        }
        if !options.is_empty() {
            escape::eprint(format_args!("\n{options}"));
        }
        self.failure()
    }

    /// Returns the exit code of a failure.
    pub fn failure(&self) -> ExitCode {
        self.failure.into()
    }

    /// Loads the name space of `path`, or of the default file, as pmLoadASCIINameSpace(3) does.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when it cannot be loaded, after libpcp's messages on stderr.
    pub fn load(&self, path: Option<&Path>, pmids: PmIds) -> Result<Tree, ExitCode> {
        let default = default_name_space();
        let loaded = loader(pmids).load(path.unwrap_or(&default));
        loaded.map_err(|e| self.not_loaded(e, path, pmids))
    }

    /// Loads the name space of a text as if it were the content of `path`.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when the text is malformed, after libpcp's messages on stderr.
    pub fn parse(&self, text: Vec<u8>, path: &Path) -> Result<Tree, ExitCode> {
        loader(PmIds::Shared).parse(text, path).map_err(|e| self.not_loaded(e, Some(path), PmIds::Shared))
    }

    fn not_loaded(&self, error: Error, path: Option<&Path>, pmids: PmIds) -> ExitCode {
        escape::eprint(format_args!("{}", error.diagnostics()));
        let path = path.map_or_else(|| "(null)".into(), |path| path.display().to_string());
        let dupok = i32::from(pmids == PmIds::Shared);
        let error = pmapi::Error::from(error);
        escape::eprint(format_args!("{}pmLoadASCIINameSpace({path}, {dupok}): {error}\n", self.load_prefix));
        self.failure()
    }
}

/// Longest input of a command, in bytes.
const LONGEST: u64 = 256 << 20;

/// Reads an input file of a command, which may be a pipe, or standard input.
///
/// # Errors
///
/// Errors of [`file::read_input`]; `FileTooLarge` for more than 256 MiB.
pub fn input(path: Option<&Path>) -> io::Result<Vec<u8>> {
    let Some(path) = path else {
        let mut text = Vec::new();
        io::stdin().lock().take(LONGEST + 1).read_to_end(&mut text)?;
        return if text.len() as u64 > LONGEST { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) };
    };
    file::read_input(path, LONGEST)
}

/// Warning of the name space commands about the option `-d`.
pub const DUPOK_WARNING: &str = "Warning: -d deprecated, duplicate PMNS names allowed by default";

/// Returns a loader that searches libpcp's directory, `$PCP_VAR_DIR/pmns`, for included files.
pub fn loader(pmids: PmIds) -> Loader<'static> {
    let loader = Loader::new().include_dir(Config::load().var_dir().join("pmns"));
    match pmids {
        PmIds::Unique => loader.unique_pmids(),
        PmIds::Shared => loader,
    }
}

/// Returns the file of the default name space: `$PMNS_DEFAULT`, or else `$PCP_VAR_DIR/pmns/root`.
pub fn default_name_space() -> PathBuf {
    match std::env::var_os("PMNS_DEFAULT") {
        Some(path) => path.into(),
        None => Config::load().var_dir().join("pmns").join("root"),
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
