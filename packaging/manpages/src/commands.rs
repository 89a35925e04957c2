//! All commands and agents, with their installed names.

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use pcp_tools::usage;
use pmda::Agent;

use crate::{admin, mmvdump, pmda_host, pmdumplog, pmlogderive};

/// Start of the installed names, which do not collide with PCP's.
const PREFIX: &str = "pcp-rs-";

/// Whether a program gets completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Command that users type.
    Command,
    /// Agent that pmcd starts.
    Agent,
    /// Command within another command, which has the completions for both.
    Part,
}

/// Man page of a program.
pub(crate) struct Page {
    pub(crate) command: Command,
    pub(crate) section: &'static str,
    pub(crate) kind: Kind,
}

/// Returns all pages.
pub(crate) fn all() -> Vec<Page> {
    let check = || dbpmda::check::cli::command().bin_name(format!("{PREFIX}dbpmda check"));
    let about_check = "Check an agent against the rules of the protocol and of PCP";
    let dbpmda = told("dbpmda", "Send an agent the requests of pmcd, from a prompt or a script", dbpmda::USAGE)
        .subcommand(check().name("check").about(about_check))
        .disable_help_subcommand(true);
    let pmnsadd = told("pmnsadd", "Add the names of an agent's metrics to a name space", usage::PMNSADD)
        .mut_arg("-d", |arg| arg.help("accept several names for one PMID (the default)"))
        .mut_arg("-n namespace", |arg| arg.help("file with the name space"));
    let mut pages = vec![
        user(pcp_agents::command()),
        user(pcp_view::cli::command()),
        user(dbpmda),
        Page { command: check().name(format!("{PREFIX}dbpmda-check")), section: "1", kind: Kind::Part },
        user(told("newhelp", "Compile help texts of metrics", usage::NEWHELP)),
        user(told("chkhelp", "Check and show compiled help texts of metrics", usage::CHKHELP)),
        user(pmnsadd),
        user(told("pmnsdel", "Remove names of metrics from a name space", usage::PMNSDEL)),
        user(told("pmnsmerge", "Merge name spaces of metrics into one", usage::PMNSMERGE)),
        user(told("pmgenmap", "Convert names of metrics to a C source", usage::PMGENMAP)),
        user(installed("mmvdump", mmvdump::Options::command())),
        user(installed("pmda-host", pmda_host::Options::command())),
        user(installed("pmlogderive", pmlogderive::Options::command())),
        user(told("pmdumplog", "Print archives", pmdumplog::USAGE)),
        user(told("pmlogdump", "Print archives", pmdumplog::USAGE)),
    ];
    pages.extend(with_parts(cargo_pmda::command().bin_name("cargo-pmda"), "1"));
    pages.extend(with_parts(admin::command(), "8"));
    pages.extend([
        agent::<pmda_trivial::Trivial>("Agent of Performance Co-Pilot: one metric, the time"),
        agent::<pmda_simple::Simple>("Agent of Performance Co-Pilot: counters, instances, store and configuration"),
        agent::<pmda_showcase::Showcase>("Agent of Performance Co-Pilot: every feature of the framework pcp-pmda"),
        agent::<pmda_mmv::Mmv>("Agent of Performance Co-Pilot: the memory mapped values of applications"),
        agent::<pmda_trace::Trace>(
            "Agent of Performance Co-Pilot: counts, rates and times of applications' trace events",
        ),
        agent::<pmda_derived::Derived>(
            "Agent of Performance Co-Pilot: derived metrics, evaluated on the collector host",
        ),
        agent::<pmda_openmetrics::Openmetrics>(
            "Agent of Performance Co-Pilot: what Prometheus exporters and scripts publish",
        ),
        agent::<pmda_replay::Replay>("Agent of Performance Co-Pilot: the metrics of an archive, as if they were live"),
    ]);
    pages
}

/// Returns the pages of a command and of the commands within it.
fn with_parts(command: Command, section: &'static str) -> Vec<Page> {
    let whole = command.get_name().to_owned();
    let part = |part: &Command| {
        let (name, shown) = (format!("{whole}-{}", part.get_name()), format!("{whole} {}", part.get_name()));
        let command = part.clone().bin_name(shown).name(name).disable_help_flag(true);
        Page { command, section, kind: Kind::Part }
    };
    let mut pages: Vec<Page> = command.get_subcommands().map(part).collect();
    pages.push(Page { command, section, kind: Kind::Command });
    pages
}

fn user(command: Command) -> Page {
    Page { command, section: "1", kind: Kind::Command }
}

fn installed(name: &str, command: Command) -> Command {
    let name = format!("{PREFIX}{name}");
    command.bin_name(name.clone()).name(name)
}

/// Returns the command that a usage message describes. All of these commands accept `--version` as the only argument.
fn told(name: &str, about: &'static str, usage: &str) -> Command {
    let command = installed(name, crate::usage::command(usage)).about(about);
    if command.get_arguments().any(|arg| arg.get_long() == Some("version")) {
        return command.after_help("With --version as the only argument, prints the version and exits.");
    }
    let version = Arg::new("--version").long("version").action(ArgAction::SetTrue);
    command.arg(version.help("print the version and exit, as the only argument"))
}

fn agent<A: Agent>(about: &'static str) -> Page {
    let program = format!("pmda{}", A::NAME);
    let command = match A::USAGE {
        Some(usage) => told(&program, about, usage).mut_arg("--version", |arg| arg.help("print the version and exit")),
        None => installed(&program, pmda::host::command::<A>(&program)).about(about),
    };
    let (name, domain) = (A::NAME, A::DOMAIN);
    let command = command.version(env!("CARGO_PKG_VERSION")).after_help(format!(
        "pmcd(1) starts this program, /usr/lib/pcp-rs/agents/{program}, as the user pcp and talks to it. pcp-rs-pmda(8) \
         installs it: pcp-rs-pmda install {name}. Its domain is {domain} unless the option -d chooses another one. Its \
         log is $PCP_LOG_DIR/pmcd/{name}.log."
    ));
    Page { command, section: "1", kind: Kind::Agent }
}
