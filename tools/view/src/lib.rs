//! Starts agents over pipes, as pmcd does, and shows their live metrics. It does not need PCP. It also shows the
//! metrics of a running pmcd, with [`Plan::host`].
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
mod printed;
mod record;
mod refused;
mod replay;
mod signals;
mod source;
mod stage;
mod time;
mod trial;
mod tui;

use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use nix::errno::Errno;
use pcp_archive::{Archive, ArchiveError};
use pcp_base::escape::{self, Escaped, Output};
use pmapi::Error;
pub use pmda::BoxError;

use fleet::Fleet;
pub use options::ViewOptions;
pub use plan::Plan;
pub use printed::Printed;
use record::Recorder;
use replay::Replay;
use signals::Signals;
use stage::Stage;
pub use trial::trial;

/// Starts agents and shows their metrics, until the number of samples is reached, a signal arrives, or the user quits.
/// The agents then end.
///
/// The argument of `plans` is a temporary directory for the files of the agents. [`ViewOptions::record`] writes the
/// samples to an archive. [`ViewOptions::replay`] shows an archive, and starts no agents.
///
/// The exit code is a failure if an agent or the replay has failed, and 128 plus the signal's number after SIGHUP,
/// SIGINT or SIGTERM.
///
/// # Errors
/// The error of `plans`, of the temporary directory, of the archive, or of the output. If the reader has closed the
/// output, that is not an error. [`ViewOptions::record`] refuses more than one plan if one of them is a host.
pub fn show(
    options: &ViewOptions,
    plans: impl FnOnce(&Path) -> Result<Vec<Plan>, BoxError>,
) -> Result<ExitCode, BoxError> {
    let signals = Signals::catch()?;
    if let Some(path) = &options.replay {
        let archive = Archive::open(path).map_err(|e| no_archive(path, &e))?;
        let mut replay = Replay::new(&archive, options.interval, 0)?;
        replay.print_warnings();
        let shown = samples(options, &mut replay, &signals);
        replay.print_warnings();
        shown?;
        return Ok(ended(&signals).unwrap_or_else(|| outcome(&replay)));
    }
    let scratch = tempfile::Builder::new().prefix("pcp-agents.").tempdir()?;
    let plans = plans(scratch.path())?;
    let recorder = options.record.as_deref().map(|base| recorder(base, &plans)).transpose()?;
    let mut fleet = Fleet::start(plans, recorder.as_ref());
    let shown = samples(options, &mut fleet, &signals);
    let outcome = outcome(&fleet);
    drop(fleet);
    if let Some(recorder) = recorder {
        // In a terminal, warnings would have overwritten the view.
        recorder.print_warnings();
        // Samples shown before a failure are recorded too.
        recorder.finish()?;
    }
    shown?;
    Ok(ended(&signals).unwrap_or(outcome))
}

/// Returns the error of an archive that cannot be opened.
fn no_archive(path: &Path, error: &ArchiveError) -> String {
    let hint = "--replay needs an archive: its name without .meta, .index or .0, or a directory of archives";
    if path.is_file() || error.code() == Error::from_errno(Errno::ENOENT as i32) {
        format!("{error}; {hint}")
    } else {
        error.to_string()
    }
}

/// Creates the archive for a recording.
fn recorder(base: &Path, plans: &[Plan]) -> Result<Arc<Recorder>, BoxError> {
    let host = plans.iter().find_map(|plan| Some((plan.name.as_str(), plan.asked()?)));
    if host.is_some() && plans.len() > 1 {
        return Err(
            format!("{}: an archive cannot record a host together with other hosts or agents", base.display()).into()
        );
    }
    let host = host.map(|(name, host)| (name, host.timezone.as_deref()));
    let created = Recorder::create(base, host).map_err(|e| {
        format!("{e}; --record needs the base name of new files in a directory that exists, such as /tmp/monday")
    });
    Ok(Arc::new(created?))
}

/// Returns the exit code without a signal.
fn outcome(stage: &dyn Stage) -> ExitCode {
    let has_failed = stage.agents().iter().any(|agent| agent.failure().is_some());
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Returns the exit code after a signal.
fn ended(signals: &Signals) -> Option<ExitCode> {
    signals.received().map(|signal| ExitCode::from(128u8.saturating_add(signal as u8)))
}

/// Returns whether the samples are shown in the live view, which needs a terminal that can move its cursor.
fn is_live(options: &ViewOptions) -> bool {
    let is_known =
        std::env::var_os("TERM").is_some_and(|term| !["", "dumb", "unknown"].map(OsStr::new).contains(&&*term));
    !options.json && !options.plain && is_known && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Shows samples. If the reader has closed the output, that is not an error.
fn samples(options: &ViewOptions, stage: &mut dyn Stage, signals: &Signals) -> io::Result<()> {
    if is_live(options) {
        let shown = tui::run(stage, options.interval, options.samples, signals);
        // The view is gone from the terminal, and its reasons with it.
        for agent in stage.agents() {
            if let Some(reason) = agent.failure() {
                escape::eprint(format_args!("{}: {}\n", Escaped(&agent.name), Escaped(reason)));
            }
        }
        return shown;
    }
    let samples = options.samples.unwrap_or(2);
    let out = Output::to(io::stdout().lock());
    let run = if options.json { json::run } else { plain::run };
    match run(stage, options.interval, samples, signals, out) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        shown => shown,
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
