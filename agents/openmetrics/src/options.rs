//! Command line options.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use pmda::clap::{self, Arg, Args as _, Command, FromArgMatches as _};
use pmda::{BoxError, CommandLine, Setup};

use crate::access::Owners;
use crate::budget::Budget;
use crate::config_dir::{ConfigDir, Order};
use crate::metric::Likeness;
use crate::reader::Defaults;
use crate::runtime::Permits;
use crate::source::Waits;
use crate::sources::tables;
use crate::store::Store;
use crate::url_file::{time, time_or_zero};

/// Options of the agent.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Directory with the sources: files NAME.url, and scripts [default: config.d in PCP's directory of the agent]
    #[arg(short, long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Do not sort the sources before they get their numbers
    #[arg(short, long)]
    nosort: bool,
    /// Longest time for the document of a URL
    #[arg(short, long, value_name = "TIME", default_value = "2s", value_parser = time)]
    timeout: Duration,
    /// Longest time for the document of a script
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = time)]
    script_timeout: Duration,
    /// Longest time that a request waits for its sources
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time_or_zero)]
    wait: Duration,
    /// Time since their last reading after which all sources are read again when a client asks for names. Then also
    /// removes the names of metrics that a document no longer has
    #[arg(short = 'R', long, value_name = "TIME", value_parser = time)]
    refresh: Option<Duration>,
    /// Wait up to --wait for every source, however long it usually takes
    #[arg(long)]
    fresh: bool,
    /// Longest document of a source in bytes, uncompressed
    #[arg(long, value_name = "N", default_value_t = 64 << 20)]
    bytes: u64,
    /// Largest number of instances of a source, over all its metrics
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    instances: usize,
    /// Memory for the metrics, instances and samples of all sources together, in MiB. A source has a quarter of it at
    /// most. New instances beyond that are left out [default: a quarter of what the process may use, at most 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    memory: Option<u32>,
    /// Largest number of scripts that start at a time, and of files that are read at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=1000))]
    threads: u16,
    /// Accept files and directories of any owner, and those that others may write to
    #[arg(long)]
    any_owner: bool,
    /// Export only the control metrics of PCP's agent, leave out labels with characters for which PCP's agent leaves
    /// them out, do not escape control characters in names of instances, read nothing from the first bad line of a
    /// document on, and show the last of several samples of an instance
    #[arg(long)]
    pcp: bool,
    /// Print the metrics of a document or source, and the lines that are refused, and exit
    #[arg(long, value_name = "FILE|URL", group = "task")]
    check: Option<String>,
    /// Run as USER, and notify pmcd when the agent is ready, as PCP's agent does
    #[arg(short = 'u', long, value_name = "USER", value_parser = user, conflicts_with = "username")]
    user: Option<String>,
    /// Name of the agent in PCP, and notify pmcd when the agent is ready, as PCP's agent does
    #[arg(short = 'r', long, value_name = "NAME", conflicts_with = "name")]
    root: Option<String>,
}

/// Checks the value of `-u`, which is a socket in other agents.
fn user(text: &str) -> Result<String, String> {
    if text.contains('/') { Err("not a user; the socket is --unix FILE".to_owned()) } else { Ok(text.to_owned()) }
}

/// Adds the options: those of this agent, and those of PCP's agent, in which `-D` has no value.
pub(crate) fn augment(command: Command) -> Command {
    let without_value = |arg: Arg| arg.num_args(0..=1).default_missing_value("appl0").allow_negative_numbers(false);
    let command = command.mut_arg("debug", without_value);
    let names = command.get_arguments().find(|arg| arg.get_id() == "name").map(|arg| arg.get_value_parser().clone());
    let command = Options::augment_args(command);
    match names {
        Some(names) => command.mut_arg("root", |arg| arg.value_parser(names)),
        None => command,
    }
}

impl Options {
    /// Returns what to check instead of running as an agent.
    pub(crate) fn check(&self) -> Option<&str> {
        self.check.as_deref()
    }

    pub(crate) fn likeness(&self) -> Likeness {
        if self.pcp { Likeness::Exact } else { Likeness::Better }
    }

    pub(crate) fn wait(&self) -> (Duration, Waits) {
        (self.wait, if self.fresh { Waits::Fully } else { Waits::AsUsual })
    }

    pub(crate) fn refresh(&self) -> Option<Duration> {
        self.refresh
    }

    pub(crate) fn script_timeout(&self) -> Duration {
        self.script_timeout
    }

    pub(crate) fn instances(&self) -> usize {
        self.instances
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the limits of all readings together. Documents never have more memory than the sources.
    pub(crate) fn permits(&self) -> Permits {
        Permits::new(self.threads.into(), self.bytes, self.memory())
    }

    /// Returns the memory for all sources, in bytes.
    fn memory(&self) -> usize {
        self.memory.map_or_else(Budget::usual, |mib| (mib as usize) << 20)
    }

    fn owners(&self) -> Owners {
        if self.any_owner { Owners::Any } else { Owners::Trusted }
    }

    pub(crate) fn dir(&self, setup: &Setup) -> ConfigDir {
        // If the path is absolute, `join` returns it unchanged.
        let path = setup.dir().join(self.config.as_deref().unwrap_or("config.d".as_ref()));
        ConfigDir::new(path, if self.nosort { Order::Any } else { Order::ByName }, self.owners())
    }

    pub(crate) fn defaults(&self, setup: &Setup) -> Result<Defaults, BoxError> {
        let config = setup.config();
        Ok(Defaults {
            timeout: self.timeout,
            script_timeout: self.script_timeout,
            bytes: self.bytes,
            instances: self.instances,
            owners: self.owners(),
            likeness: self.likeness(),
            store: Store::new(tables(&config.var_dir()), setup.domain()),
            budget: Budget::new(self.memory()),
            permits: self.permits(),
        })
    }
}

/// Reads the options of PCP's agent, with which pmcd waits until the agent is ready.
pub(crate) fn command_line(line: &mut CommandLine<'_>) -> Result<Options, ExitCode> {
    let options = Options::from_arg_matches(line.options()).map_err(|e| pmda::host::print_clap_error(e, 1))?;
    if options.user.is_some() || options.root.is_some() {
        line.set_not_ready();
    }
    if let Some(user) = &options.user {
        line.set_user(user);
    }
    if let Some(root) = &options.root {
        line.set_name(root);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmda::clap::ArgMatches;

    fn parse(line: &str) -> Result<ArgMatches, String> {
        let command = pmda::host::command::<crate::Openmetrics>("x");
        command.try_get_matches_from(line.split(' ')).map_err(|e| e.to_string())
    }

    #[test]
    fn the_option_of_an_address_is_no_user() {
        let [option, value] = pmda::host::Address::Unix("/s".into()).option().map(|word| word.into_string().unwrap());
        let matches = parse(&format!("x {option} {value}")).unwrap();
        assert_eq!(matches.get_one::<std::path::PathBuf>("unix").map(|path| path.as_path()), Some("/s".as_ref()));
        assert!(parse("x -u /s").is_err());
    }

    #[test]
    fn command_lines_of_pcps_agent() {
        for (line, debug, user, root) in [
            ("x -D -u pcp -c dir", "appl0", Some("pcp"), None),
            ("x -nupcp -D", "appl0", Some("pcp"), None),
            ("x -d 144 -l log --user=root -D", "appl0", Some("root"), None),
            ("x -D pdu -r other --debug", "pdu,appl0", None, Some("other")),
            ("x --debug --root=a --user me", "appl0", Some("me"), Some("a")),
            ("x -U me --name a --unix /run/socket", "", None, None),
        ] {
            let matches = parse(line).unwrap();
            let options = Options::from_arg_matches(&matches).unwrap();
            assert_eq!((options.user.as_deref(), options.root.as_deref()), (user, root), "{line}");
            let words: Vec<_> =
                matches.get_raw("debug").into_iter().flatten().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(words.join(","), debug, "{line}");
        }
        let refused = |line: &str, reason: &str| assert!(parse(line).unwrap_err().contains(reason), "{line}");
        refused("x -u /run/socket", "--unix");
        refused("x -u me -U me", "cannot be used with");
        refused("x --name a -r b", "cannot be used with");
        refused("x --write-pmda dir --check a.url", "cannot be used with");
        refused("x -r a.b", "a name has letters");
    }
}
