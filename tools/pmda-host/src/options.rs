//! Command line of `pmda-host`. `packaging/manpages` has this file as a module, too.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use pmapi::debug::Debug;
use pmda::host::{Address, TransportOptions};

/// Serves an agent that is a shared object to pmcd, from a process of its own.
///
/// pmcd(1) starts this program in place of loading the shared object. Hostile requests are refused before they reach
/// the agent. If the agent does not answer a request in time, pmcd is told that it is not ready. An agent that crashes
/// is restarted.
#[derive(Parser, Debug)]
#[command(name = "pmda-host", version = pcp_base::build::version(env!("CARGO_PKG_VERSION")))]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Shared object of the agent: a path with a slash, or the name of a file in PCP's directory of the agent
    #[arg(long, value_name = "FILE")]
    pub(crate) so: PathBuf,
    /// Entry point of the shared object, as in pmcd.conf; by default made of the file's name
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) entry: Option<String>,
    /// Domain of the agent's metrics (1 to 510)
    #[arg(short, long, value_name = "NUM", value_parser = clap::value_parser!(u16).range(1..=510))]
    pub(crate) domain: u16,
    /// Set debug options: names separated by commas, see pmdbg(1)
    #[arg(short = 'D', long, value_name = "DBG", allow_negative_numbers = true)]
    debug: Vec<Debug>,
    /// Write the log to FILE, - for stderr; NAME.log by default, for agent NAME
    #[arg(short, long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Run as USER; by default root becomes PCP's user, as pmcd does
    #[arg(short = 'U', long, value_name = "USER")]
    pub(crate) username: Option<String>,
    /// Seconds that the agent may take for an answer, before pmcd is told that it is not ready (0.01 to 3600). After 5
    /// seconds, or what pmcd's option -t sets, pmcd drops an agent that has not answered
    #[arg(long, value_name = "SECONDS", default_value = "0.8", value_parser = patience)]
    pub(crate) patience: Duration,
    #[command(flatten)]
    transport: TransportOptions,
    /// Number of the process that has started this one for the agent
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) serve: Option<i32>,
    /// Show this help and exit
    #[arg(short = '?', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

// The man pages need the command line alone.
#[allow(dead_code)]
impl Options {
    /// Returns the socket on which the program waits for pmcd; `None` for a pipe.
    pub(crate) fn address(&self) -> Option<Address> {
        self.transport.address()
    }

    /// Returns all debug options together.
    pub(crate) fn debug(&self) -> Debug {
        let mut debug = Debug::NONE;
        self.debug.iter().for_each(|options| debug.set(*options));
        debug
    }

    /// Returns the name of the agent: the file's, without `pmda_` and `.so`.
    pub(crate) fn name(&self) -> String {
        let stem = self.so.file_stem().unwrap_or_default().to_string_lossy();
        stem.strip_prefix("pmda_").unwrap_or(&stem).to_owned()
    }

    /// Returns the name of the entry point.
    pub(crate) fn entry(&self) -> String {
        self.entry.clone().unwrap_or_else(|| format!("{}_init", self.name()))
    }
}

fn patience(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a number of seconds from 0.01 to 3600 is needed".to_owned())
}
