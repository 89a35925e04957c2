//! Samples as JSON lines.

use std::io::{self, Write};
use std::time::Duration;

use pmapi::{Desc, Inst};
use serde::Serialize;

use crate::fleet::{Agent, Status};
use crate::model::{self, Board, Kind, Series, Shown};
use crate::plain::each_sample;
use crate::signals::Signals;
use crate::stage::Stage;

/// Line of output: a metric, or an agent without values.
#[derive(Serialize)]
struct Line<'a> {
    sample: u64,
    /// Seconds since 1970.
    time: f64,
    agent: &'a str,
    #[serde(flatten)]
    metric: Option<Metric<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Metric<'a> {
    metric: &'a str,
    help: &'a str,
    #[serde(flatten)]
    desc: Option<Desc>,
    values: Vec<Value<'a>>,
}

#[derive(Serialize)]
struct Value<'a> {
    #[serde(flatten)]
    instance: Option<Instance<'a>>,
    value: Scalar<'a>,
    /// Parameters of the last event.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    event: Vec<Param<'a>>,
}

#[derive(Serialize)]
struct Param<'a> {
    metric: String,
    value: Scalar<'a>,
}

#[derive(Serialize)]
struct Instance<'a> {
    inst: Inst,
    instance: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Scalar<'a> {
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a str),
}

/// Prints one line for each metric and sample, and one line for each agent without values.
pub(crate) fn run(
    stage: &mut dyn Stage,
    interval: Duration,
    samples: u64,
    signals: &Signals,
    mut out: impl Write,
) -> io::Result<()> {
    each_sample(stage, interval, samples, signals, |stage, sample| {
        let time = stage.time();
        let time = time.seconds as f64 + f64::from(time.nanoseconds / 1_000_000) / 1000.0;
        for agent in stage.agents() {
            for (metric, error) in lines(agent) {
                let line = Line { sample, time, agent: &agent.name, metric, error };
                serde_json::to_writer(&mut out, &line)?;
                writeln!(out)?;
            }
        }
        out.flush()
    })
}

fn lines(agent: &Agent) -> Vec<(Option<Metric<'_>>, Option<String>)> {
    let error = match &agent.status {
        Status::Failed(reason) | Status::NoPmcd(reason) => reason.as_str(),
        Status::NotReady => "not ready",
        Status::Starting => "no answer yet",
        Status::Running => return agent.board.metrics.iter().map(|shown| metric(&agent.board, shown)).collect(),
    };
    vec![(None, Some(error.to_owned()))]
}

fn metric<'a>(board: &Board, shown: &'a Shown) -> (Option<Metric<'a>>, Option<String>) {
    let Shown { metric, values, .. } = shown;
    let error = metric.desc.err().or(values.as_ref().err().copied());
    let values = values.iter().flatten().map(|series| value(board, series)).collect();
    let line = Metric { metric: &metric.name, help: &metric.oneline, desc: metric.desc.ok(), values };
    (Some(line), error.map(|code| shown.text_of(code)))
}

fn value<'a>(board: &Board, series: &'a Series) -> Value<'a> {
    let instance = series.inst.map(|inst| Instance { inst, instance: &series.instance });
    let event = match &series.value.kind {
        Kind::Event(params) => params.as_slice(),
        _ => &[],
    };
    let event =
        event.iter().map(|(pmid, value)| Param { metric: board.name_of(*pmid), value: scalar(value) }).collect();
    Value { instance, value: scalar(&series.value), event }
}

fn scalar(value: &model::Value) -> Scalar<'_> {
    match &value.kind {
        Kind::Integer(v) => match i64::try_from(*v) {
            Ok(v) => Scalar::Signed(v),
            Err(_) => Scalar::Unsigned(u64::try_from(*v).unwrap_or_default()),
        },
        Kind::Float(v) => Scalar::Float(*v),
        Kind::Text(v) => Scalar::Text(v),
        Kind::Event(_) | Kind::Opaque => Scalar::Text(&value.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_has_its_parameters() {
        let board = crate::model::tests::with_events();
        let line = serde_json::to_value(metric(&board, &board.metrics[0]).0).unwrap();
        let expected = serde_json::json!([
            { "metric": "door.name", "value": "b\u{1b}b" },
            { "metric": "1.0.9", "value": 3 },
        ]);
        assert_eq!(line["values"][0]["event"], expected);
        assert!(line["values"][0]["value"].as_str().unwrap().starts_with("[3 event records"));
    }
}
