//! Samples as plain text, in the format of pminfo(1).

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use pmapi::{Desc, Semantics};

use crate::fleet::{Agent, Status};
use crate::model::{Board, Kind, Series, Shown};
use crate::signals::Signals;
use crate::stage::Stage;
use crate::time::local;

/// Longest time to wait for a sample. It is longer than the time limit for agents that do not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest time to wait until an agent is ready.
const EARLY: Duration = Duration::from_secs(10);

/// Time between checks for signals.
const SLICE: Duration = Duration::from_millis(50);

/// Returns whether there is nothing to show because the agents are not ready yet. An agent that reads its source in the
/// background is ready after the first reading.
fn is_early(stage: &dyn Stage) -> bool {
    let mut left = stage.agents().iter().filter(|agent| agent.failure().is_none()).peekable();
    left.peek().is_some() && left.all(|agent| agent.status == Status::NotReady)
}

/// Calls `show` for each sample, with its number from 1. `samples` is the number of samples, or 0 for no end. Ends
/// early after a signal, when all agents have ended, and at the end of a recording.
pub(crate) fn each_sample(
    stage: &mut dyn Stage,
    interval: Duration,
    samples: u64,
    signals: &Signals,
    mut show: impl FnMut(&dyn Stage, u64) -> io::Result<()>,
) -> io::Result<()> {
    let mut next = Instant::now();
    for sample in 1.. {
        let begin = Instant::now();
        let goes_on = |most| begin.elapsed() < most && signals.received().is_none();
        loop {
            stage.tick();
            while !stage.gather(SLICE) && goes_on(PATIENCE) {}
            if sample > 1 || !is_early(stage) || !goes_on(EARLY) {
                break;
            }
            thread::sleep(SLICE);
        }
        if signals.received().is_some() {
            break;
        }
        show(stage, sample)?;
        stage.print_warnings();
        if sample == samples || stage.has_ended() || stage.failure().is_some() {
            break;
        }
        if stage.is_immediate() {
            continue;
        }
        next = (next + interval).max(Instant::now());
        while Instant::now() < next && signals.received().is_none() {
            thread::sleep(SLICE.min(next.saturating_duration_since(Instant::now())));
        }
    }
    Ok(())
}

/// Prints samples. The first sample contains all data about the metrics. Later samples contain values and changes.
pub(crate) fn run(
    stage: &mut dyn Stage,
    interval: Duration,
    samples: u64,
    signals: &Signals,
    mut out: impl Write,
) -> io::Result<()> {
    each_sample(stage, interval, samples, signals, |stage, sample| {
        let of = if samples == 0 { String::new() } else { format!(" of {samples}") };
        let blank = if sample == 1 { "" } else { "\n" };
        let (date, clock) = local(stage.time());
        writeln!(out, "{blank}# sample {sample}{of}, {date} {clock}")?;
        for agent in stage.agents() {
            print_agent(&mut out, agent, sample == 1)?;
        }
        out.flush()
    })
}

fn print_agent(out: &mut impl Write, agent: &Agent, full: bool) -> io::Result<()> {
    match &agent.status {
        Status::Failed(reason) | Status::NoPmcd(reason) => return writeln!(out, "\n# {}: {reason}", agent.name),
        Status::NotReady => return writeln!(out, "\n# {}: not ready", agent.name),
        Status::Starting => return writeln!(out, "\n# {}: no answer yet", agent.name),
        Status::Running => {}
    }
    for shown in &agent.board.metrics {
        writeln!(out)?;
        print_metric(out, &agent.board, shown, full)?;
    }
    Ok(())
}

fn print_metric(out: &mut impl Write, board: &Board, shown: &Shown, full: bool) -> io::Result<()> {
    let Shown { metric, values, .. } = shown;
    let desc = match metric.desc {
        Ok(desc) => desc,
        Err(code) => return writeln!(out, "{}: {code}", metric.name),
    };
    write!(out, "{}", metric.name)?;
    if full && !metric.oneline.is_empty() {
        write!(out, " [{}]", metric.oneline)?;
    }
    writeln!(out)?;
    if full {
        print_desc(out, &desc)?;
    }
    match values {
        Err(code) => writeln!(out, "Error: {}", shown.text_of(*code)),
        Ok(values) if values.is_empty() => writeln!(out, "No value(s) available!"),
        Ok(values) => values.iter().try_for_each(|series| {
            print_value(out, &desc, series)?;
            print_event(out, board, series)
        }),
    }
}

/// Prints a descriptor in pminfo's format, including the fields of a metric without support.
fn print_desc(out: &mut impl Write, desc: &Desc) -> io::Result<()> {
    let indom = match desc.indom {
        Some(indom) => format!("{indom} {:#x}", indom.word()),
        None => "PM_INDOM_NULL 0xffffffff".to_owned(),
    };
    writeln!(out, "    Data Type: {}  InDom: {indom}", desc.ty.description())?;
    let units = match desc.units.to_string() {
        none if none.is_empty() => "none".to_owned(),
        units => units,
    };
    writeln!(out, "    Semantics: {}  Units: {units}", desc.semantics)
}

fn print_value(out: &mut impl Write, desc: &Desc, series: &Series) -> io::Result<()> {
    write!(out, "    ")?;
    if let Some(inst) = series.inst {
        match &*series.instance {
            "" => write!(out, "inst [{inst} or ???] ")?,
            name => write!(out, "inst [{inst} or \"{name}\"] ")?,
        }
    }
    write!(out, "value {}", series.value.text)?;
    match difference(desc, series) {
        Some(difference) => writeln!(out, "  ({difference})"),
        None => writeln!(out),
    }
}

/// Prints the parameters of the last event, as pminfo does with -x.
fn print_event(out: &mut impl Write, board: &Board, series: &Series) -> io::Result<()> {
    let Kind::Event(params) = &series.value.kind else { return Ok(()) };
    params.iter().try_for_each(|(pmid, value)| writeln!(out, "        {} {}", board.name_of(*pmid), value.text))
}

/// Formats the rate of a counter, or the change of another number. Returns `None` if there is neither.
pub(crate) fn difference(desc: &Desc, series: &Series) -> Option<String> {
    if let Some(rate) = series.rate {
        return Some(format!("{} {}", round(rate), per_second(desc)));
    }
    if desc.semantics == Semantics::Counter { None } else { change(series) }
}

/// Formats the change of a number since the last sample, unless it is zero.
pub(crate) fn change(series: &Series) -> Option<String> {
    let delta = series.delta.filter(|delta| *delta != 0.0)?;
    Some(format!("{}{}", if delta > 0.0 { "+" } else { "" }, round(delta)))
}

/// Returns the units of a counter's rate.
fn per_second(desc: &Desc) -> String {
    match desc.units.to_string() {
        none if none.is_empty() => "/s".to_owned(),
        units => format!("{units}/s"),
    }
}

/// Formats a number with three significant digits, or with all digits of its integer part.
pub(crate) fn round(v: f64) -> String {
    match v.abs() {
        a if a >= 1e9 || (a < 1e-6 && a != 0.0) => format!("{v:.2e}"),
        _ if v.fract() == 0.0 => format!("{v:.0}"),
        a => {
            let decimals = (2.0 - a.log10().floor()).max(0.0) as usize;
            format!("{v:.decimals$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_has_its_parameters() {
        let board = crate::model::tests::with_events();
        let mut out = Vec::new();
        print_metric(&mut out, &board, &board.metrics[0], false).unwrap();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert!(lines[1].starts_with("    value [3 event records"), "{out}");
        assert_eq!(lines[2..], ["        door.name \"b b\"", "        1.0.9 3"]);
    }

    #[test]
    fn numbers_in_a_few_digits() {
        let rounded = [0.0, 1.0, -1.0, 0.5, 1.234, 12345.6, 1.5e9, 0.000012, 0.99970001];
        let expected = ["0", "1", "-1", "0.500", "1.23", "12346", "1.50e9", "0.0000120", "1.000"];
        assert_eq!(rounded.map(round), expected);
    }
}
