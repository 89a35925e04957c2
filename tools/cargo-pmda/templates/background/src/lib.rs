//! Agent `template`: a slow source, which a thread reads while the agent answers from the latest
//! snapshot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmda::PollSet;
use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;

/// Options of this agent, besides those of every agent: `cargo pmda run -- --dir /var/log`, and
/// `cargo pmda install -- --dir /var/log`, which the next installation keeps.
#[derive(clap::Args, Debug)]
struct Options {
    /// Directory whose files are counted
    #[arg(long, default_value = "/etc")]
    dir: PathBuf,
    /// Seconds from the start of one count to the start of the next
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
}

/// The snapshot: what the source returns.
#[derive(Debug, Default)]
struct Usage {
    files: u64,
    bytes: u64,
}

/// The agent, with its source.
#[derive(Debug)]
pub struct Template {
    usage: Background<Usage>,
}

impl Agent for Template {
    const NAME: &'static str = "template";
    // From 1 to 510. Each agent of a host has its own.
    const DOMAIN: u16 = 510;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    /// Declares the metrics. This also runs while `cargo pmda install` writes the agent's files, which
    /// does not start the thread.
    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let Options { dir, every } = Options::from_arg_matches(setup.options())?;
        // pmcd waits until `is_ready`. Otherwise the first clients, and Install, find no values.
        setup.not_ready();
        // Install adds the domain to `stdpmid`, the host's list of domains.
        setup.reserve_domain();
        // Archives refer to metrics by number, so do not reuse or change a number (cluster and item)
        // when you add or remove metrics. `latest` never waits: if the last read has failed, it
        // returns the error.
        let files = setup.gauge("template.files", Item::new(0, 0), |agent: &Self| {
            agent.usage.latest().map(|usage| usage.files)
        });
        files.units(Units::COUNT).help(
            "Files in the directory",
            "Those in the directory of the option --dir and below.",
        );
        let bytes = setup.gauge("template.bytes", Item::new(0, 1), |agent: &Self| {
            agent.usage.latest().map(|usage| usage.bytes)
        });
        bytes.units(Units::BYTES).help(
            "Size of the files",
            "The sum of their sizes, without holes or blocks.",
        );
        let age = setup.gauge("template.age", Item::new(0, 2), |agent: &Self| {
            agent.usage.age().ok_or(Error::AGAIN)
        });
        age.units(Units::SECONDS).help(
            "Time since the files were counted",
            "It grows while the count takes longer.",
        );
        let usage = Background::spawn(Duration::from_secs(every), move || Ok(count(&dir)?))?;
        Ok(Template { usage })
    }

    fn is_ready(&self) -> bool {
        self.usage.is_ready()
    }

    /// Wakes the agent when the first snapshot has arrived, so that pmcd is notified that the agent is ready.
    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        set.first_snapshot(&self.usage);
    }
}

/// Counts the files in a directory and below. Directories that pmcd's user may not read are skipped, except for the
/// first one.
fn count(dir: &Path) -> io::Result<Usage> {
    let mut usage = Usage::default();
    for entry in fs::read_dir(dir)?.flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_dir() {
            let below = count(&entry.path()).unwrap_or_default();
            usage.files += below.files;
            usage.bytes += below.bytes;
        } else {
            usage.files += 1;
            usage.bytes += metadata.len();
        }
    }
    Ok(usage)
}

// Lets pmcd load the agent as a shared object: cargo pmda install --dso.
pmda::dso!(template_init, Template);

#[cfg(test)]
mod tests {
    use std::thread;

    use pcp_collector::Local;

    use super::*;

    #[test]
    fn files_are_counted() {
        let usage = count(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
        assert!(usage.files >= 2 && usage.bytes > 100, "{usage:?}");
        assert!(count(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn values_come_when_the_agent_is_ready() {
        let mut agent = Local::<Template>::collector().unwrap();
        while !agent.agent().is_ready() {
            thread::sleep(Duration::from_millis(10));
        }
        let files = agent.metric("template.files").unwrap();
        let Atom::U64(files) = agent.value(files).unwrap() else {
            panic!("not a U64")
        };
        assert!(files > 0);
    }
}
