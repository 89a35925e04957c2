//! Command-line options of this agent.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Command};
use pmda::limits::Setting;
use pmda::pmapi::{Units, interval};
use pmda::{BoxError, Setup};
use tracing::warn;

use crate::access::Spec;
use crate::limits::Limits;

/// Usage message. Its lines have the same order as those of PCP's agent, so that `qa/run` can replace each line.
pub(crate) const USAGE: &str = "\
Usage: pmdatrace [options]

Options:
  -D debug    debug options of pmdbg(1), separated by commas
  -d domain   domain number of the metrics
  -l logfile  log file, or - for standard error
  -A access   hosts that may connect: allow:HOST:MAXIMUM or disallow:HOST, may be repeated
  -I port     TCP port for applications, a number or a service (default 4323)
  -M username user that the agent changes to (default \"pcp\")
  -N buckets  number of buckets in the period (default 5)
  -T period   period of rates and times (default 60 seconds)
  -U units    units of observations: dimensions and scales, six numbers separated by commas
  -V units    units of counters, in the same form
  --limit NAME=NUMBER
              changes a limit on what clients may use, may be repeated
";

/// Options of this agent: those of PCP's agent, and `--limit`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[arg(short = 'A', allow_hyphen_values = true)]
    pub(crate) access: Vec<Spec>,
    #[arg(long = "limit", value_name = "NAME=NUMBER", allow_hyphen_values = true)]
    pub(crate) limits: Vec<Setting<Limits>>,
    #[arg(short = 'I', value_parser = port, allow_hyphen_values = true)]
    port: Option<u16>,
    #[arg(short = 'N', value_parser = buckets, default_value = "5", allow_hyphen_values = true)]
    pub(crate) buckets: NonZeroU32,
    #[arg(short = 'T', value_parser = period, default_value = "60", allow_hyphen_values = true)]
    pub(crate) period: Duration,
    #[arg(short = 'U', value_parser = units, default_value = "0,0,0,0,0,0", allow_hyphen_values = true)]
    pub(crate) observe: Units,
    #[arg(short = 'V', value_parser = units, default_value = "0,0,0,0,0,0", allow_hyphen_values = true)]
    pub(crate) counter: Units,
}

/// Adds the options. The option for the user is `-M` as in PCP's agent, because `-U` sets units.
pub(crate) fn augment(command: Command) -> Command {
    Options::augment_args(command.mut_arg("username", |arg| arg.short('M')))
}

/// Declares the options that Install asks for.
pub(crate) fn ask(setup: &mut Setup) {
    let units = "Six numbers separated by commas: the dimensions in space, time and count, and the scales of these, such as\n\
                 1,-1,0,0,3,0 for bytes in a second.";
    for (option, prompt, default, help) in [
        (
            "-A",
            "Hosts that may send trace events",
            "",
            "allow:HOST:MAXIMUM lets a host open up to MAXIMUM connections, disallow:HOST none. Without it all hosts may.\n\
             Several of these are given after -- on the command line of Install.",
        ),
        ("-I", "TCP port for applications", "", "A number or a service. The default is PCP_TRACE_PORT, or else 4323."),
        ("-N", "Buckets in the period", "5", "Rates and times move by a bucket at a time."),
        ("-T", "Period of rates and times", "60", "Seconds, or an interval with its unit, such as 2min."),
        ("-U", "Units of observations", "0,0,0,0,0,0", units),
        ("-V", "Units of counters", "0,0,0,0,0,0", units),
    ] {
        setup.argument(option).prompt(prompt).default(default).help(help);
    }
}

impl Options {
    /// Returns the TCP port: from `-I`, or else `$PCP_TRACE_PORT`, or else 4323.
    pub(crate) fn port(&self) -> Result<u16, BoxError> {
        if let Some(port) = self.port {
            return Ok(port);
        }
        let environment =
            trace::Options::from_vars(|name| (name == "PCP_TRACE_PORT").then(|| std::env::var_os(name))?);
        Ok(environment.map_or_else(
            |e| {
                warn!("env port is bogus ({})", e.value);
                trace::protocol::PORT
            },
            |options| options.port,
        ))
    }
}

fn port(text: &str) -> Result<u16, String> {
    pmda::host::inet_port(text).map_err(|e| format!("-I {text}: {e}"))
}

fn buckets(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "-N requires a positive number.".to_owned())
}

fn period(text: &str) -> Result<Duration, String> {
    let period = interval::parse(text).map_err(|e| format!("-T requires a time interval: {e}"))?;
    if period.is_zero() { Err("-T requires a time interval that is not 0".to_owned()) } else { Ok(period) }
}

/// Parses units: six numbers, separated by one or more commas. They are the dimensions in space, time and count, and
/// then the scales in the same order.
fn units(text: &str) -> Result<Units, String> {
    let mut numbers = [0_i32; 6];
    let mut words = text.split(',').filter(|word| !word.is_empty());
    for number in &mut numbers {
        let word = words.next().ok_or_else(|| format!("token parse error in string \"{text}\""))?;
        *number = word.trim_start().parse().map_err(|_| format!("integer parse error for substring \"{word}\""))?;
    }
    from_numbers(numbers).ok_or_else(|| format!("dimension or scale out of range in \"{text}\""))
}

fn from_numbers([space, time, count, scale_space, scale_time, scale_count]: [i32; 6]) -> Option<Units> {
    Units::from_dims(
        space.try_into().ok()?,
        time.try_into().ok()?,
        count.try_into().ok()?,
        scale_space.try_into().ok()?,
        scale_time.try_into().ok()?,
        scale_count.try_into().ok()?,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_numbers() {
        assert_eq!(units("1,-1,0,0,3,0").unwrap().to_string(), "byte / sec");
        assert_eq!(units("1,-2,1,0,0,-4").unwrap().to_string(), "byte count x 10^-4 / nanosec^2");
        assert_eq!(units("0,0,0,0,0,0").unwrap(), Units::NONE);
        let error = |text| units(text).unwrap_err();
        assert_eq!(error("1,1,1"), "token parse error in string \"1,1,1\"");
        assert_eq!(error("1,,1,1,1,1"), "token parse error in string \"1,,1,1,1,1\"");
        assert_eq!(error("1,3,foo,3,4,1"), "integer parse error for substring \"foo\"");
        assert_eq!(error("9,0,0,0,0,0"), "dimension or scale out of range in \"9,0,0,0,0,0\"");
    }

    #[test]
    fn own_options() {
        assert!(buckets("0").is_err() && buckets("-1").is_err() && buckets("5").is_ok());
        assert_eq!(period("2min"), Ok(Duration::from_secs(120)));
        assert!(period("0").is_err() && period("soon").is_err());
        assert!(port("4323").is_ok() && port("no-such-service").is_err());
    }
}
