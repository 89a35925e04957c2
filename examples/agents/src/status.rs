//! Agent `status`: what a server writes about itself into a JSON file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;
use serde::Deserialize;

#[derive(clap::Args, Debug)]
struct Options {
    /// File that the server writes
    #[arg(long, default_value = "/run/server/status.json")]
    file: PathBuf,
}

/// The file. A field that is not there has no value.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct Report {
    version: Option<String>,
    uptime: Option<f64>,
    requests: Option<u64>,
    errors: Option<u64>,
    queues: BTreeMap<String, Queue>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(default)]
struct Queue {
    length: Option<u64>,
    oldest_ms: Option<u64>,
}

/// Agent status.
#[derive(Debug)]
pub struct Status {
    file: PathBuf,
    report: Report,
    queues: Table<Queue>,
}

impl Agent for Status {
    const NAME: &'static str = "status";
    const DOMAIN: u16 = 490;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let Options { file } = Options::from_arg_matches(setup.options())?;
        let version = setup.discrete("status.version", Item::new(0, 0), |s: &Status| s.report.version.clone());
        version.help("Version of the server", "");
        let uptime = setup.gauge("status.uptime", Item::new(0, 1), |s: &Status| s.report.uptime);
        uptime.units(Units::SECONDS).help("Time since the server started", "");
        let requests = setup.counter("status.requests", Item::new(0, 2), |s: &Status| s.report.requests);
        requests.units(Units::COUNT).help("Requests since the server started", "");
        let errors = setup.counter("status.errors", Item::new(0, 3), |s: &Status| s.report.errors);
        errors.units(Units::COUNT).help("Requests that failed", "Counted in status.requests, too.");
        let mut queues = setup.table(Serial::new(0), |s: &Status| &s.queues).persistent();
        queues.help("Queues of the server", "By their names.");
        let length = queues.gauge("status.queue.length", Item::new(1, 0), |queue| queue.length);
        length.units(Units::COUNT).help("Entries that wait", "");
        let age = queues.gauge("status.queue.age", Item::new(1, 1), |queue| queue.oldest_ms.map(Duration::from_millis));
        age.units(Units::SECONDS).help("Time that the oldest entry has waited", "");
        let queues = queues.finish(setup);
        Ok(Status { file, report: Report::default(), queues })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        if let Request::Fetch(_) | Request::Instance(_) = request {
            let read = read(&self.file).inspect_err(|e| pmda::tracing::warn!("{}: {e}", self.file.display()));
            self.report = read.unwrap_or_default();
            let queues = std::mem::take(&mut self.report.queues);
            self.queues.refresh(request, |rows| {
                queues.into_iter().for_each(|(name, queue)| _ = rows.add(&name, queue));
                Ok(())
            });
        }
        Ok(())
    }
}

/// Reads at most 1 MiB, whatever is there.
fn read(file: &Path) -> std::io::Result<Report> {
    Ok(serde_json::from_reader(File::open(file)?.take(1 << 20))?)
}
