//! Command line of the script `packaging/pcp-rs-pmda`, which prints this help.

use clap::{Arg, ArgAction, ArgGroup, Command};

/// Returns the command line of `pcp-rs-pmda`.
pub(crate) fn command() -> Command {
    let about = "Installs the agents of the package pcp-rs-agents into the Performance Co-Pilot of this host";
    let more = "The agents of this package do not touch the files of PCP's own agents: their directories are in \
                /var/lib/pcp-rs/pmdas, and pmcd's configuration refers to these. pmcd runs the agents as PCP's user, pcp. \
                Agent openmetrics reads the sources of PCP's agent, in /var/lib/pcp/pmdas/openmetrics/config.d. \
                The program asks no questions.";
    Command::new("pcp-rs-pmda")
        .about(about)
        .long_about(format!("{about}.\n\n{more}"))
        .subcommand_required(true)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .flatten_help(true)
        .arg(flag("help", "Print this help and exit").short('?').global(true))
        .arg(flag("version", "Print the version and exit"))
        .subcommand(Command::new("list").about("List the agents of the package and those that are installed"))
        .subcommand(install())
        .subcommand(
            Command::new("remove")
                .about("Remove an agent, and restore the agents that it has replaced")
                .arg(Arg::new("NAME").required(true).help("Name of the agent in PCP, or --all"))
                .arg(flag("library", "With mmv: programs load PCP's libpcp_mmv.so.1 again")),
        )
        .subcommand(Command::new("configure").about(
            "Install the agents of /etc/default/pcp-rs-agents that are not installed, and replace installed agents by \
             the package's version. The package runs this after its installation and upgrade. It never starts pmcd",
        ))
        .after_help(
            "/etc/default/pcp-rs-agents lists the agents that the package installs, with their options. pmcd is never \
             restarted: an agent that pmcd runs is ended, and pmcd starts its new version. pmcd keeps an agent that it \
             has loaded as a shared object until pmcd is restarted.\n\nExit code: 0 for success, 1 for a failure, 2 for \
             wrong arguments.",
        )
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

fn install() -> Command {
    let value =
        |name: &'static str, value: &'static str, help: &'static str| Arg::new(name).value_name(value).help(help);
    Command::new("install")
        .about("Install an agent, or install it again with other options")
        .arg(Arg::new("AGENT").required(true).help("Agent of the package"))
        .arg(
            value("domain", "N", "Domain of the metrics, 1 to 510, instead of the agent's own")
                .short('d')
                .long("domain"),
        )
        .arg(
            value("name", "NAME", "Name in PCP, of metrics, directory and log, instead of the agent's own")
                .long("name"),
        )
        .arg(flag("pipe", "pmcd talks to the agent over a pipe (the default of the first installation)").short('p'))
        .arg(flag("dso", "pmcd loads the agent as a shared object").short('D'))
        .arg(value("inet", "PORT", "pmcd talks to the agent over this port").short('i'))
        .arg(value("ipv6", "PORT", "pmcd talks to the agent over this IPv6 port").short('6'))
        .arg(value("unix", "PATH", "pmcd talks to the agent over this Unix socket").short('u'))
        .group(ArgGroup::new("transport").args(["pipe", "dso", "inet", "ipv6", "unix"]))
        .arg(flag(
            "library",
            "With mmv: all programs of this host that start from now on load the package's libpcp_mmv.so.1. PCP's own \
             library stays",
        ))
        .arg(flag("replace", "Replace the agent of pmcd that has this name or domain; remove restores it").short('r'))
        .arg(
            Arg::new("ARGUMENT")
                .last(true)
                .num_args(0..)
                .help("Options of the agent itself, which later installations and upgrades keep; -- alone clears them"),
        )
}
