//! Agent `script`: the output of a command, whose lines are a name and a number, as metrics.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pmda::PollSet;
use pmda::clap::{self, Args as _, FromArgMatches as _};
use pmda::prelude::*;

#[derive(clap::Args)]
struct Options {
    /// Command of the shell, which prints lines such as "files 42"
    #[arg(long, default_value = "df -P | awk 'NR > 1 { print $6, $3 * 1024 }'")]
    command: String,
    /// Seconds from one start of the command to the next
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// Seconds that the command may take
    #[arg(long, default_value_t = 20)]
    limit: u64,
}

/// What a run of the command has printed.
struct Output {
    values: BTreeMap<String, f64>,
    took: Duration,
}

/// Agent script.
pub struct Script {
    runs: Background<Output>,
    values: Table<f64>,
}

impl Agent for Script {
    const NAME: &'static str = "script";
    const DOMAIN: u16 = 494;

    fn options(command: clap::Command) -> clap::Command {
        Options::augment_args(command)
    }

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let Options { command, every, limit } = Options::from_arg_matches(setup.options())?;
        setup.not_ready();
        let mut values = setup.table(Serial::new(0), |script: &Script| &script.values).persistent().whole_names();
        values.help("Names that the command has printed", "Everything before the last blank of a line.");
        let value = values.gauge("script.value", Item::new(0, 0), |value| *value);
        value.help("Numbers that the command has printed", "Those of its last run.");
        let values = values.finish(setup);
        let took = setup.gauge("script.time", Item::new(0, 1), |it: &Script| it.runs.latest().map(|run| run.took));
        took.units(Units::SECONDS).help("Time that the last run took", "");
        let runs = Background::spawn(Duration::from_secs(every), move || run(&command, limit))?.named("command");
        Ok(Script { runs, values })
    }

    fn refresh(&mut self, request: Request<'_>, _: Client) -> Result {
        let latest = self.runs.latest();
        self.values.refresh(request, |rows| {
            latest?.values.iter().for_each(|(name, value)| _ = rows.add(name, *value));
            Ok(())
        });
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.runs.is_ready()
    }

    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        set.first_snapshot(&self.runs);
    }
}

fn run(command: &str, limit: u64) -> Result<Output, BoxError> {
    let start = Instant::now();
    let words = [&limit.to_string(), "sh", "-c", command];
    let output = Command::new("timeout").args(words).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("{}: {command}", output.status).into());
    }
    let words = text.lines().filter_map(|line| line.trim().rsplit_once(' '));
    let values = words.filter_map(|(name, number)| Some((name.trim().to_owned(), number.parse().ok()?))).collect();
    Ok(Output { values, took: start.elapsed() })
}
