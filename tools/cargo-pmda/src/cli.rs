//! Command line.

use std::ffi::OsString;
use std::num::ParseFloatError;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use pcp_view::ViewOptions;

use crate::template::Template;

/// Creates, runs, checks and installs agents (PMDAs) of Performance Co-Pilot
#[derive(Parser, Debug)]
#[command(name = "cargo-pmda", bin_name = "cargo pmda", version, after_help = EXAMPLE)]
#[command(arg_required_else_help = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) task: Task,
}

const EXAMPLE: &str = "An agent of your own:
  cargo pmda new hello
  cd hello
  cargo pmda run
  cargo pmda install";

/// What is to be done.
#[derive(Subcommand, Debug)]
pub(crate) enum Task {
    /// Create a package with an agent and its tests, in the new folder NAME
    ///
    /// The package is pmda-NAME, and its program pmdaNAME.
    ///
    /// PCP's documents leave the domains 385 to 510 to agents that are not its own. The default is one of these that
    /// depends on the name, so that two new agents rarely get the same one. It is free on this host: neither in
    /// stdpmid, stdpmid.local or stdpmid.pcp of /var/lib/pcp/pmns, nor in pmcd.conf, nor that of an agent in this
    /// folder or its workspace. A domain that has been taken when the agent is installed is refused then.
    New(New),
    /// Build the agent in this folder and show its live metrics; needs no PCP
    ///
    /// The agent's log is pmda/NAME.log in cargo's target folder. The agent reads the configuration of this host, but its
    /// instance numbers are not those of the installed PCP, and are gone after the run.
    Run(Run),
    /// Build the agent in this folder and check it against the rules of PCP, as dbpmda check does
    ///
    /// A panic of any thread is a breach. If a rule is broken, the last lines of the agent's log follow. Names of metrics
    /// that do not begin with the agent's name are a warning. As in a run, the agent's instance numbers are its own.
    Check(Check),
    /// Build the agent in this folder and install it into the PCP of this host
    ///
    /// The agent is built with the profile release, and writes its directory with the script Install, which runs as
    /// root: by sudo, unless you are root. pmcd then runs the agent as PCP's user, and talks to it over a pipe unless
    /// an option says otherwise. Installing again replaces the agent, and keeps its domain, the way in which pmcd talks
    /// to it, and its own options, unless new ones are given.
    Install(Install),
    /// Remove the agent in this folder from the PCP of this host
    Remove(Remove),
    /// Print the name space of the agent in this folder
    Pmns(Print),
    /// Print the help text of the metrics of the agent in this folder
    ///
    /// The format is that of newhelp(1).
    Helptext(Print),
}

/// Agent to create.
#[derive(Args, Debug)]
pub(crate) struct New {
    /// Name of the agent and first component of its metrics' names: lower-case letters, digits and _
    pub(crate) name: String,

    /// What the agent begins as
    #[arg(short, long, value_enum, default_value_t = Template::Simple)]
    pub(crate) template: Template,

    /// Domain of the agent, 1 to 510 [default: a free one, by the name]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=510))]
    pub(crate) domain: Option<u16>,

    /// Declare the metrics of an installed agent, with their help: of this directory, or of this name below PCP's
    /// directory of agents
    ///
    /// The agent is started, and asked for its metrics. The new agent has no values for them yet: `fetch` answers
    /// an error. Their names begin with the name of the new agent.
    #[arg(long, value_name = "DIR", conflicts_with = "template")]
    pub(crate) from: Option<PathBuf>,

    /// Let the agent have the name and the domain of an agent of PCP, or of this host, that it is to replace. Its
    /// domain is the default then
    #[arg(long)]
    pub(crate) replace: bool,

    /// Use the crates of this clone of the repository [default: the clone that this command was built from]
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,

    /// Options that the agent of --from is started with
    #[arg(last = true, requires = "from")]
    pub(crate) args: Vec<OsString>,
}

/// The package of the agent.
#[derive(Args, Default, Debug)]
pub(crate) struct Selection {
    /// Cargo.toml of the package [default: that of this folder or above]
    #[arg(long, value_name = "PATH")]
    pub(crate) manifest_path: Option<PathBuf>,

    /// Package of the workspace
    #[arg(short, long, value_name = "NAME")]
    pub(crate) package: Option<String>,

    /// Binary of the package, if it has several
    #[arg(long, value_name = "NAME")]
    pub(crate) bin: Option<String>,
}

/// How the package is built.
#[derive(Args, Debug)]
pub(crate) struct Build {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Build with optimizations
    #[arg(short, long, conflicts_with = "profile")]
    pub(crate) release: bool,

    /// Build with this profile
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,

    /// Features of the package to activate
    #[arg(short = 'F', long, value_name = "FEATURES")]
    pub(crate) features: Vec<String>,

    /// Use exactly the versions in Cargo.lock
    #[arg(long)]
    pub(crate) locked: bool,

    /// Use no network
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Agent to run, and how it is shown.
#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) build: Build,

    #[command(flatten)]
    pub(crate) view: ViewOptions,

    /// Options of the agent itself
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

/// Agent to check.
#[derive(Args, Debug)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) build: Build,

    /// Also store values that the agent must refuse
    #[arg(short, long)]
    pub(crate) store: bool,

    /// Seconds that an answer may take
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub(crate) limit: f64,

    /// Seconds to wait for an answer before giving up
    #[arg(short, long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) timeout: f64,

    /// Options of the agent itself
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

/// Parses a number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|e: ParseFloatError| e.to_string())?;
    Duration::try_from_secs_f64(seconds).map(|_| seconds).map_err(|e| e.to_string())
}

/// Checks the number of a port before the build. Install checks the name of a service.
fn port(text: &str) -> Result<String, String> {
    let is_name = text.contains(|c: char| !c.is_ascii_digit());
    let is_number = || text.parse::<u16>().is_ok_and(|port| port > 0);
    if is_name || is_number() { Ok(text.to_owned()) } else { Err("not a port from 1 to 65535".to_owned()) }
}

/// Agent that writes its name space and help.
#[derive(Args, Debug)]
pub(crate) struct Print {
    #[command(flatten)]
    pub(crate) build: Build,

    /// Options of the agent itself
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

/// How the agent is installed.
#[derive(Args, Debug)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) build: Build,

    /// Name of the agent in PCP, instead of its own
    #[arg(long)]
    pub(crate) name: Option<String>,

    /// Domain of the agent, instead of its own; the next install keeps it
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=510))]
    pub(crate) domain: Option<u16>,

    #[command(flatten)]
    pub(crate) transport: Transport,

    /// Replace an agent of pmcd that has this name or domain; remove restores it
    #[arg(long)]
    pub(crate) replace: bool,

    /// Write a Debian package that installs the agent, in the folder debian of the target folder, and change nothing
    /// here
    #[arg(long)]
    pub(crate) deb: bool,

    /// Options of the agent itself, which the next install keeps; -- without any clears them
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,

    /// The command line ends with -- and no options.
    #[arg(skip)]
    pub(crate) clears: bool,
}

/// How pmcd talks to the agent. Without an option as after the last installation, and at first over a pipe.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct Transport {
    /// pmcd starts the agent and talks to it over a pipe, as by default at the first installation
    #[arg(long)]
    pub(crate) pipe: bool,

    /// pmcd loads the agent as a shared object
    #[arg(long)]
    pub(crate) dso: bool,

    /// pmcd talks to the agent over an IPv4 socket
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub(crate) inet: Option<String>,

    /// pmcd talks to the agent over an IPv6 socket
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub(crate) ipv6: Option<String>,

    /// pmcd talks to the agent over a Unix domain socket
    #[arg(long, value_name = "FILE")]
    pub(crate) unix: Option<PathBuf>,
}

/// Agent to remove.
#[derive(Args, Debug)]
pub(crate) struct Remove {
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Name that the agent was installed under, instead of its own
    #[arg(long)]
    pub(crate) name: Option<String>,
}
