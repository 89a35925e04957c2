//! Command line options of the agent.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use pmda::Setup;
use pmda::clap::{self, Args};

use crate::clock::FASTEST;

/// Domain of the agent when it serves an archive under a prefix, unless the option `-d` overrides it.
pub(crate) const DOMAIN: u16 = 405;

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Archive: its base name, or a list of archives of one host, separated by commas; a directory stands for all
    /// archives in it. The option may be repeated
    #[arg(short = 'a', long, value_name = "ARCHIVE")]
    pub(crate) archive: Vec<OsString>,

    /// Serve the recorded domain of option -d with its names and numbers, in place of all domains below replay
    #[arg(long)]
    pub(crate) original: bool,

    /// Speed: seconds of the recording in a second
    #[arg(long, value_name = "N", default_value = "1", value_parser = speed, allow_negative_numbers = true)]
    pub(crate) speed: f64,

    /// Where to begin, as the time after the start of the recording, such as 2hours
    #[arg(long, value_name = "TIME", value_parser = interval, allow_negative_numbers = true)]
    pub(crate) start: Option<Duration>,

    /// At the end, start over; counters continue
    #[arg(long = "loop")]
    pub(crate) repeat: bool,
}

impl Options {
    /// Returns the list of archives; `None` without an archive.
    pub(crate) fn archives(&self) -> Option<PathBuf> {
        let list = self.archive.join(OsStr::new(","));
        (!list.is_empty()).then(|| list.into())
    }
}

/// Parses a speed: seconds of the archive that pass in a second.
fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if is_speed(speed) => Ok(speed),
        _ => Err(format!("not a number above 0 and up to {FASTEST}")),
    }
}

pub(crate) fn is_speed(speed: f64) -> bool {
    speed > 0.0 && speed <= FASTEST
}

fn interval(text: &str) -> Result<Duration, String> {
    pmapi::interval::parse(text).map_err(|_| "not a time such as 2hours or 10min".to_owned())
}

/// Declares the options that Install asks for.
pub(crate) fn ask(setup: &mut Setup) {
    setup.argument("-a").prompt("Archive that is replayed").help(
        "The base name of an archive of PCP, such as /var/log/pcp/pmlogger/HOST/20260101. Several archives of one host have commas\n\
         between, and a directory stands for all archives in it. PCP's user must be able to read the files.",
    );
    setup.argument("--speed").prompt("Speed").default("1").help("Seconds of the recording in a second.");
}
