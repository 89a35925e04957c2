//! Options of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use pmapi::interval;

/// How often, how long and in which form samples are shown.
///
/// A command adds the options to its own with clap's `#[command(flatten)]`.
#[derive(Args, Clone, Debug)]
#[non_exhaustive]
pub struct ViewOptions {
    /// Time between samples, in seconds or with a unit such as 500msec
    #[arg(short = 't', long, value_name = "TIME", default_value = "1", value_parser = interval_of, allow_negative_numbers = true)]
    pub interval: Duration,

    /// Number of samples, 0 for no end [default: 2; in a terminal 0]
    #[arg(short, long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub samples: Option<u64>,

    /// Print plain text even in a terminal
    #[arg(long)]
    pub plain: bool,

    /// Print JSON: one line for each metric and sample
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,

    /// Record what is shown in an archive of PCP: files BASE.meta, BASE.index, BASE.0, which must not exist
    #[arg(long, value_name = "BASE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,

    /// Show an archive of PCP in place of live metrics, or several: names with commas between, or a directory
    #[arg(long, value_name = "ARCHIVE")]
    pub replay: Option<PathBuf>,
}

impl Default for ViewOptions {
    /// One sample a second, live in a terminal.
    fn default() -> Self {
        ViewOptions {
            interval: Duration::from_secs(1),
            samples: None,
            plain: false,
            json: false,
            record: None,
            replay: None,
        }
    }
}

fn interval_of(text: &str) -> Result<Duration, String> {
    let interval = interval::parse(text).map_err(|_| "not a time such as 2, 0.5 or 500msec".to_owned())?;
    if interval < Duration::from_millis(10) { Err("less than 10 milliseconds".to_owned()) } else { Ok(interval) }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a number from 0 to {}", u64::MAX))
}
