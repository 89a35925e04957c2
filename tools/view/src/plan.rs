//! Agents that are to be started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pmapi::Config;
use pmda::Failure;

/// Agent that is to be started.
#[derive(Debug)]
pub struct Plan {
    pub(crate) name: String,
    pub(crate) command: Command,
    /// Names of its metrics, and its dynamic roots.
    pub(crate) names: pmns::Tree,
    /// File with its standard error.
    pub(crate) log: PathBuf,
}

impl Plan {
    /// Plans the start of an agent with the names of its metrics and its dynamic roots. Standard error of the agent goes
    /// to a file in `scratch`. A process group of its own keeps Ctrl-C from the agent.
    ///
    /// # Errors
    /// The error of the file's creation.
    pub fn new(
        name: impl Into<String>,
        mut command: Command,
        names: pmns::Tree,
        scratch: &Path,
    ) -> Result<Plan, io::Error> {
        let name = name.into();
        let log = scratch.join(Path::new(&name).with_extension("log").file_name().unwrap_or(OsStr::new("log")));
        command.stderr(File::create(&log)?).process_group(0);
        Ok(Plan { name, command, names, log })
    }

    /// Plans the start of an agent in any language, with a command line and the file of its metrics' names (PMNS(5)).
    ///
    /// # Errors
    /// An empty command line, an error of the name space, or those of [`Plan::new`].
    pub fn with_names(command: &[OsString], names: &Path, scratch: &Path) -> Result<Plan, Failure> {
        let (program, args) = command.split_first().ok_or("no command")?;
        let include = Config::load().var_dir().join("pmns");
        let names = pmns::Loader::new().include_dir(include).load(names).map_err(|e| e.to_string())?;
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
        let name = name.strip_prefix("pmda").unwrap_or(&name).to_owned();
        let mut command = Command::new(program);
        command.args(args);
        Ok(Plan::new(name, command, names, scratch)?)
    }
}
