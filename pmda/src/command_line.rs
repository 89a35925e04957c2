//! The parsed command line of an agent.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use pmapi::{Domain, debug};

use crate::transport::Address;

/// The parsed command line of an agent.
#[derive(Debug)]
pub(crate) struct Options {
    /// Last component of the program's path.
    pub(crate) program: String,
    pub(crate) debug: debug::Debug,
    pub(crate) domain: Option<u16>,
    pub(crate) name: Option<String>,
    pub(crate) helpfile: Option<PathBuf>,
    pub(crate) log: Option<PathBuf>,
    pub(crate) username: Option<String>,
    /// The socket on which the agent waits for pmcd; `None` for a pipe.
    pub(crate) address: Option<Address>,
    pub(crate) not_ready: bool,
    pub(crate) open_control: bool,
    pub(crate) write_pmda: Option<PathBuf>,
    pub(crate) write_help: Option<PathBuf>,
    /// Arguments that are not options, of an agent that does not define positional arguments. They are ignored, as in C
    /// agents.
    pub(crate) operands: Vec<OsString>,
    /// Domain or name is there more than once, and the last one counts.
    pub(crate) repeated: Option<&'static str>,
    /// All matches, including the agent's own options.
    pub(crate) matches: ArgMatches,
}

/// The parsed command line of a daemon, for [`Agent::command_line`](crate::Agent::command_line).
#[derive(Debug)]
pub struct CommandLine<'a>(pub(crate) &'a mut Options);

impl CommandLine<'_> {
    /// Returns the values of the agent's own options.
    pub fn options(&self) -> &ArgMatches {
        &self.0.matches
    }

    /// Returns the domain of option `-d`; `None` without it.
    pub fn domain(&self) -> Option<Domain> {
        self.0.domain.and_then(Domain::new)
    }

    /// Sets the user that the agent changes to, as option `-U` does.
    pub fn set_user(&mut self, user: impl Into<String>) {
        self.0.username = Some(user.into());
    }

    /// Sets the name of the agent in PCP, as option `--name` does.
    pub fn set_name(&mut self, name: impl Into<String>) {
        self.0.name = Some(name.into());
    }

    /// Makes the agent notify pmcd when it is ready, as option `--notready` does.
    pub fn set_not_ready(&mut self) {
        self.0.not_ready = true;
    }
}
