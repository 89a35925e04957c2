//! Command line options.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pmda::clap::{self, Args as _, Command};
use pmda::{Setup, Start};

use crate::budget::Budget;
use crate::config_dir::{ConfigDir, Order};
use crate::document;
use crate::metric::Likeness;
use crate::reader::Defaults;
use crate::source::Waits;
use crate::sources::tables;
use crate::store::Store;
use crate::trust::Owners;
use crate::url_file::{time, time_or_zero};

/// Options of the agent.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Directory with the sources: files NAME.url, and scripts [default: config.d in the agent's directory]
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
    /// Memory for the metrics, instances and samples of all sources together, in MiB. If it is short, the sources that
    /// need most of it lose instances [default: a quarter of what the process may use, at most 1024]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..))]
    memory: Option<u32>,
    /// Largest number of threads that read sources
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=1000))]
    threads: u16,
    /// Accept files and directories of any owner, and those that others may write to
    #[arg(long)]
    any_owner: bool,
    /// Export only the control metrics of PCP's agent, leave out labels with characters for which PCP's agent leaves
    /// them out, and do not escape control characters in names of instances
    #[arg(long)]
    pcp: bool,
    /// Print the metrics of a document or source, and the lines that are refused, and exit
    #[arg(long, value_name = "FILE|URL")]
    pub(crate) check: Option<String>,
}

pub(crate) fn augment(command: Command) -> Command {
    Options::augment_args(command)
}

impl Options {
    pub(crate) fn likeness(&self) -> Likeness {
        if self.pcp { Likeness::Exact } else { Likeness::Better }
    }

    pub(crate) fn wait(&self) -> (Duration, Waits) {
        (self.wait, if self.fresh { Waits::Fully } else { Waits::AsUsual })
    }

    pub(crate) fn refresh(&self) -> Option<Duration> {
        self.refresh
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.into()
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

    /// Sets the limit of the memory for documents: the usual one, or more if a document may be longer, but never more
    /// than the sources may have.
    pub(crate) fn limit_documents(&self) {
        let longest = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        document::limit(self.memory().min(longest.max(document::MOST)));
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

    pub(crate) fn defaults(&self, setup: &Setup) -> Start<Defaults> {
        let config = setup.config();
        self.limit_documents();
        Ok(Defaults {
            timeout: self.timeout,
            script_timeout: self.script_timeout,
            bytes: self.bytes,
            instances: self.instances,
            owners: self.owners(),
            likeness: self.likeness(),
            store: Store::new(tables(&config.var_dir()), setup.domain()),
            budget: Budget::new(self.memory()),
        })
    }
}

/// Converts the command line of PCP's agent: `-D` without a value, `-u USER`, `-r NAME`, `--debug`, `--user` and
/// `--root`. A value of `-u` with a slash is the path of a socket. With PCP's agent, pmcd waits for the agent to be
/// ready, so `--notready` is added to a command line with its options.
pub fn of_pcp(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter().peekable();
    let mut converted: Vec<OsString> = args.next().into_iter().collect();
    let mut is_pcps = false;
    while let Some(arg) = args.next() {
        let next = args.peek().map(|next| next.to_string_lossy().into_owned());
        let word = arg.to_string_lossy().into_owned();
        match (&*word, next) {
            ("-D" | "--debug", next) if next.as_ref().is_none_or(|next| next.starts_with('-')) => {
                converted.extend(["-D".into(), "appl0".into()]);
            }
            ("-u", Some(user)) if user.contains('/') => converted.push(arg),
            ("-u" | "--user", _) => converted.push("-U".into()),
            ("-r" | "--root", _) => converted.push("--name".into()),
            _ if word.starts_with("--root=") => converted.push(word.replacen("--root", "--name", 1).into()),
            _ if word.starts_with("--user=") => converted.push(word.replacen("--user", "--username", 1).into()),
            _ => {
                converted.push(arg);
                continue;
            }
        }
        is_pcps |= converted.last().is_some_and(|last| last != "appl0" && last != "-u");
    }
    if is_pcps && converted.iter().all(|word| word != "--notready") {
        converted.insert(1, "--notready".into());
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_pcps_agent() {
        let convert = |line: &str| {
            let words: Vec<String> =
                of_pcp(line.split(' ').map(OsString::from)).iter().map(|w| w.to_string_lossy().into_owned()).collect();
            words.join(" ")
        };
        for (line, converted) in [
            ("x -D -u pcp -c dir", "x --notready -D appl0 -U pcp -c dir"),
            ("x -d 144 -l log -u root -D", "x --notready -d 144 -l log -U root -D appl0"),
            ("x -u /run/socket -D pdu", "x -u /run/socket -D pdu"),
            ("x -r other --user=me --root=a", "x --notready --name other --username=me --name=a"),
            ("x --check file -D", "x --check file -D appl0"),
        ] {
            assert_eq!(convert(line), converted);
        }
    }
}
