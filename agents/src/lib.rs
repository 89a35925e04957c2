//! Program `pcp-agents`: starts agents over pipes, as pmcd does, and shows their live metrics. It does not need PCP.
//!
//! A library, so that `packaging/manpages` can write the man page of its command line.

mod ask;
mod builtin;
mod cli;
mod fleet;
mod json;
mod model;
mod plain;
mod signals;
mod tui;

use std::error::Error;
use std::io::{self, ErrorKind, IsTerminal as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use pmapi::escape::{Escaped, Output};

use cli::Options;
use fleet::Fleet;
use signals::Signals;

/// Runs the program.
pub fn main() -> ExitCode {
    if let Some(code) = builtin::agent(std::env::args_os()) {
        return code;
    }
    let options = Options::parse();
    match show(&options) {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&*e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("pcp-agents: {}", Escaped(e));
            ExitCode::FAILURE
        }
    }
}

/// Returns the command line of the program.
pub fn command() -> clap::Command {
    Options::command()
}

/// Returns whether the reader of the output has closed it.
fn is_broken_pipe(e: &(dyn Error + 'static)) -> bool {
    e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

fn show(options: &Options) -> Result<ExitCode, pmda::Failure> {
    let signals = Signals::catch()?;
    let scratch = tempfile::Builder::new().prefix("pcp-agents.").tempdir()?;
    let plans = options.plans(scratch.path())?;
    let mut fleet = Fleet::start(plans);
    let live = !options.json && !options.plain && io::stdout().is_terminal() && io::stdin().is_terminal();
    if live {
        tui::run(&mut fleet, options.interval, options.samples, &signals)?;
    } else {
        let samples = options.samples.unwrap_or(2);
        let out = Output::to(io::stdout().lock());
        if options.json {
            json::run(&mut fleet, options.interval, samples, &signals, out)?;
        } else {
            plain::run(&mut fleet, options.interval, samples, &signals, out)?;
        }
    }
    let failed = fleet.agents().iter().any(|agent| agent.failure().is_some());
    drop(fleet);
    Ok(match signals.received() {
        Some(signal) => ExitCode::from(128u8.saturating_add(signal as u8)),
        None if failed => ExitCode::FAILURE,
        None => ExitCode::SUCCESS,
    })
}
