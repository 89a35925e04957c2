//! The parsed command line of an agent, and the options that other programs have, too.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Args};
use pmapi::{Domain, debug};

use crate::transport::{Address, inet_port};

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

/// The options of every agent that say where it waits for pmcd, for the command lines of other programs that serve
/// agents.
#[derive(Args, Debug, Default)]
#[group(multiple = false)]
pub struct TransportOptions {
    /// Wait for pmcd on IPv4 port or service PORT
    #[arg(short, long, value_name = "PORT", value_parser = inet_port)]
    inet: Option<u16>,
    /// Wait for pmcd on IPv6 port or service PORT
    #[arg(short = '6', long, value_name = "PORT", value_parser = inet_port)]
    ipv6: Option<u16>,
    /// Wait for pmcd on the unix socket FILE
    #[arg(short, long, value_name = "FILE")]
    unix: Option<PathBuf>,
    /// Talk to pmcd over standard input and output (the default)
    #[arg(short, long)]
    pub(crate) pipe: bool,
}

impl TransportOptions {
    /// Returns the socket on which to wait for pmcd; `None` for a pipe.
    pub fn address(&self) -> Option<Address> {
        let TransportOptions { inet, ipv6, unix, .. } = self;
        inet.map(Address::Inet).or(ipv6.map(Address::Ipv6)).or(unix.clone().map(Address::Unix))
    }
}

/// Checks the name of an agent, which is also a directory name and a word in shell scripts.
pub(crate) fn name(name: &str) -> Result<String, String> {
    if pmns::is_name(name) && !name.contains('.') {
        Ok(name.to_owned())
    } else {
        Err("a name has letters, digits and _, and begins with a letter".to_owned())
    }
}
