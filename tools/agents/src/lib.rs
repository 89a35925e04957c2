//! Program `pcp-agents`: starts agents over pipes, as pmcd does, and shows their live metrics. It does not need PCP.
//!
//! A library, so that other programs can read its command line, for instance to write its man page.

mod builtin;
mod cli;

use std::process::ExitCode;

use clap::CommandFactory as _;
use pcp_base::escape::{self, Escaped};

use cli::Options;
use pcp_view::Printed;

/// Runs the program.
pub fn main() -> ExitCode {
    if let Some(code) = builtin::agent(std::env::args_os()) {
        return code;
    }
    let options: Options = match pcp_view::cli::parse(std::env::args_os()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    pcp_view::show(&options.view, |scratch| options.plans(scratch)).unwrap_or_else(|e| {
        if let Some(Printed(text)) = e.downcast_ref() {
            escape::print(text);
            return ExitCode::SUCCESS;
        }
        escape::eprint(format_args!("pcp-agents: {}\n", Escaped(e)));
        ExitCode::FAILURE
    })
}

/// Returns the command line of the program.
pub fn command() -> clap::Command {
    Options::command()
}
