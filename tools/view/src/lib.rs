//! Starts agents over pipes, as pmcd does, and shows their live metrics. It does not need PCP. It also shows the metrics
//! of a running pmcd, with [`Plan::host`].
//!
//! [`show`] takes a [`Plan`] for each agent or host. [`ViewOptions`] are the options of the command line: the time between
//! samples, their number, and the form of the output.

mod ask;
pub mod cli;
mod fleet;
mod json;
mod model;
mod options;
mod plain;
mod plan;
mod signals;
mod source;
mod tui;

use std::io::{self, ErrorKind, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;

use pmapi::escape::Output;
pub use pmda::Failure;

use fleet::Fleet;
pub use options::ViewOptions;
pub use plan::Plan;
use signals::Signals;

/// Starts agents and shows their metrics, until the number of samples is reached, a signal arrives, or the person at
/// the terminal quits. The agents then end.
///
/// `plans` gets a temporary directory for the files of the agents.
///
/// The exit code is a failure if an agent has failed, and 128 plus the signal's number after SIGHUP, SIGINT or SIGTERM.
///
/// # Errors
/// The error of `plans`, of the temporary directory, or of the output. It is no error if the reader of the output has
/// closed it.
pub fn show(
    options: &ViewOptions,
    plans: impl FnOnce(&Path) -> Result<Vec<Plan>, Failure>,
) -> Result<ExitCode, Failure> {
    let signals = Signals::catch()?;
    let scratch = tempfile::Builder::new().prefix("pcp-agents.").tempdir()?;
    let mut fleet = Fleet::start(plans(scratch.path())?);
    match samples(options, &mut fleet, &signals) {
        Err(e) if e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => {
            return Ok(ExitCode::SUCCESS);
        }
        shown => shown?,
    }
    let failed = fleet.agents().iter().any(|agent| agent.failure().is_some());
    drop(fleet);
    Ok(match signals.received() {
        Some(signal) => ExitCode::from(128u8.saturating_add(signal as u8)),
        None if failed => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}

fn samples(options: &ViewOptions, fleet: &mut Fleet, signals: &Signals) -> Result<(), Failure> {
    let live = !options.json && !options.plain && io::stdout().is_terminal() && io::stdin().is_terminal();
    if live {
        return Ok(tui::run(fleet, options.interval, options.samples, signals)?);
    }
    let samples = options.samples.unwrap_or(2);
    let out = Output::to(io::stdout().lock());
    if options.json {
        json::run(fleet, options.interval, samples, signals, out)?;
    } else {
        plain::run(fleet, options.interval, samples, signals, out)?;
    }
    Ok(())
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
