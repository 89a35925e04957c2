//! Command line options of the agent.

use std::time::Duration;

use pcp_client::HostSpec;
use pmda::{
    BoxError, Setup,
    clap::{Arg, ArgAction, ArgMatches, Command, value_parser},
};

/// Domain of the agent, unless the option `-d` overrides it.
pub(crate) const DOMAIN: u16 = 404;

#[derive(Debug)]
pub(crate) struct Options {
    /// Colon-separated files and directories with definitions.
    pub(crate) path: String,
    pub(crate) host: HostSpec,
    pub(crate) interval: Duration,
    /// Longest time that a sample may wait for agents that this one has started.
    pub(crate) agent_timeout: Duration,
}

pub(crate) fn augment(command: Command) -> Command {
    let path = Arg::new("config").short('c').long("config").value_name("PATH");
    let host = Arg::new("host").long("host").value_name("HOST").default_value("local:");
    let interval = Arg::new("interval").short('t').long("interval").value_name("TIME").default_value("1s");
    let timeout = Arg::new("agent_timeout").long("agent-timeout").value_name("TIME").default_value("2s");
    add_check(command)
        .arg(path.help("Definitions: colon-separated files and directories [default: $PCP_SYSCONF_DIR/pmdaderived]"))
        .arg(host.help("The pmcd whose metrics expressions refer to").value_parser(str::parse::<HostSpec>))
        .arg(interval.help("Time between samples").value_parser(time))
        .arg(timeout.help("Longest time that a sample waits for agents that this one starts").value_parser(time))
}

fn add_check(command: Command) -> Command {
    let path = Arg::new("check").long("check").value_name("PATH");
    let tsv = Arg::new("tsv").long("tsv").requires("check").action(ArgAction::SetTrue);
    let samples = Arg::new("samples").long("samples").value_name("N").requires("check").default_value("0");
    command
        .arg(path.help("Check the definitions in PATH, print their descriptors or errors, and exit"))
        .arg(tsv.help("--check: print one line for each definition, with tab-separated fields"))
        .arg(samples.help("--check: also print the values after N samples").value_parser(value_parser!(u32)))
}

/// Declares the options that Install asks for.
pub(crate) fn ask(setup: &mut Setup) {
    setup.argument("-c").prompt("Definitions: files and directories, with colons between").help(
        "Files *.conf have the format of pmRegisterDerived(3), and files *.toml that of this agent. Without an answer, those\n\
         in its directory below PCP_SYSCONF_DIR are read.",
    );
    let host = setup.argument("--host").prompt("The pmcd whose metrics expressions refer to").default("local:");
    host.help("A host as in pmcd's clients, see PCPIntro(1): HOST, HOST:PORT or local:.");
    let interval = setup.argument("-t").prompt("Time between samples").default("1s");
    interval.help("Seconds, or an interval with its unit, such as 500msec or 2min.");
}

/// Longest time that can be set. The agent adds small multiples of it to the present time, which must not overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Parses a time longer than zero and at most 366 days. With a time of zero the sampler would never pause.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match pmapi::interval::parse(text) {
        Ok(Duration::ZERO) => Err("the time must not be zero".into()),
        Ok(time) if time > LONGEST => Err("the time must not be longer than 366 days".into()),
        parsed => parsed.map_err(|e| e.to_string()),
    }
}

impl Options {
    pub(crate) fn new(setup: &Setup) -> Result<Options, BoxError> {
        let given: &ArgMatches = setup.options();
        let default =
            || setup.config().sysconf_dir().join(format!("pmda{}", setup.name())).to_string_lossy().into_owned();
        let missing = "an option is missing";
        Ok(Options {
            path: given.get_one("config").cloned().unwrap_or_else(default),
            host: given.get_one("host").cloned().ok_or(missing)?,
            interval: given.get_one("interval").copied().ok_or(missing)?,
            agent_timeout: given.get_one("agent_timeout").copied().ok_or(missing)?,
        })
    }
}
