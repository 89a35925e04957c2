//! `cargo pmda`: creates, runs, checks and installs agents (PMDAs) of Performance Co-Pilot.
//!
//! A library, so that other programs can read its command line, for instance to write its man page.

mod agent;
mod cli;
mod create;
mod deb;
mod install;
mod manifest;
mod names;
mod neighbours;
mod original;
mod package;
mod port;
mod template;

use std::process::ExitCode;

use clap::CommandFactory as _;
use pcp_base::escape::{self, Escaped};

use cli::{Options, Task};
use pcp_view::Printed;

/// Runs the command.
pub fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().collect();
    // `cargo pmda new` starts `cargo-pmda pmda new`.
    if words.get(1).is_some_and(|word| word == "pmda") {
        words.remove(1);
    }
    let ends_with_dashes = words.last().is_some_and(|word| word == "--");
    let mut options: Options = match pcp_view::cli::parse(words) {
        Ok(options) => options,
        Err(code) => return code,
    };
    if let Task::Install(install) = &mut options.task {
        install.clears = ends_with_dashes && install.args.is_empty();
    }
    let done = match &options.task {
        Task::New(new) => create::create(new).map(|()| ExitCode::SUCCESS),
        Task::Run(run) => agent::run(run),
        Task::Check(check) => agent::check(check),
        Task::Install(install) => install::install(install),
        Task::Remove(remove) => install::remove(remove),
        Task::Pmns(of) => agent::names(of),
        Task::Helptext(of) => agent::help(of),
    };
    done.unwrap_or_else(|e| {
        if let Some(Printed(text)) = e.downcast_ref() {
            escape::print(text);
            return ExitCode::SUCCESS;
        }
        // A closed terminal is not an error of its own.
        escape::eprint(format_args!("cargo-pmda: {}\n", Escaped(e)));
        ExitCode::FAILURE
    })
}

/// Returns the command line of the command.
pub fn command() -> clap::Command {
    Options::command()
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
