//! Command line of the program `pcp-view`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use pcp_base::build;
use pcp_base::escape::{self, Escaped};

use crate::{Plan, ViewOptions, show};

/// Shows the live metrics of a pmcd
///
/// In a terminal the values are refreshed until q or Ctrl-C, and ? shows the keys. Elsewhere two samples are printed.
#[derive(Parser, Debug)]
#[command(name = "pcp-view", version = build::version(env!("CARGO_PKG_VERSION")), after_help = EXAMPLES)]
struct Options {
    /// Metrics to show, and names above metrics [default: all but proc and hotproc]
    #[arg(value_name = "METRIC", conflicts_with = "replay")]
    metrics: Vec<String>,

    /// Host of the pmcd, in the syntax of PCPIntro(1)
    #[arg(short = 'H', long, value_name = "HOST", default_value = "local:", conflicts_with = "replay")]
    host: String,

    #[command(flatten)]
    view: ViewOptions,
}

const EXAMPLES: &str = "Examples:
  pcp-view
  pcp-view --host db1.example.org disk network.interface
  pcp-view --host db1.example.org --record db1 -t 10 disk
  pcp-view --replay db1
  pcp-view -t 5 --json -s 0 mmv | jq -c '[.metric, .values]'";

/// Parses a command line.
///
/// # Errors
/// The exit code, after a message or the help has been printed.
pub fn parse<T: Parser>(words: impl IntoIterator<Item = OsString>) -> Result<T, ExitCode> {
    T::try_parse_from(words).map_err(|e| pmda::host::print_clap_error(e, 2))
}

/// Runs the program.
pub fn main() -> ExitCode {
    let options: Options = match parse(std::env::args_os()) {
        Ok(options) => options,
        Err(code) => return code,
    };
    show(&options.view, |_| Ok(vec![Plan::host(&options.host, &options.metrics)?])).unwrap_or_else(|e| {
        escape::eprint(format_args!("pcp-view: {}\n", Escaped(e)));
        ExitCode::FAILURE
    })
}

/// Returns the command line of the program.
pub fn command() -> clap::Command {
    Options::command()
}
