//! Program `pcp-agents`: starts agents over pipes, as pmcd does, and shows their live metrics. It does not need PCP.

mod builtin;
mod cli;

use std::process::ExitCode;

use clap::Parser as _;
use pmapi::escape::Escaped;

use cli::Options;

fn main() -> ExitCode {
    if let Some(code) = builtin::agent(std::env::args_os()) {
        return code;
    }
    let options = Options::parse();
    pcp_view::show(&options.view, |scratch| options.plans(scratch)).unwrap_or_else(|e| {
        eprintln!("pcp-agents: {}", Escaped(e));
        ExitCode::FAILURE
    })
}
