//! Stage `clients`: hostile TCP clients of agent trace from many addresses, beside an honest one.

mod strangers;
mod tags;

use std::time::{Duration, Instant};

use trace::{Options, Tag, Trace, Transport};

use crate::host::{Kind, PATIENCE, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::pdus::start;
use crate::probe::{Answer, Probe};
use crate::spec::Spec;
use crate::{Outcome, honest, procs};

use strangers::Strangers;

/// Longest duration of a synchronous trace event.
const PROMPT: Duration = Duration::from_millis(100);
/// Number of trace events of the honest client in each round.
const MARKS: u64 = 4;

/// Runs a part of the stage: clients that send anything, or `tags` that they share with the honest client.
pub(crate) fn run(job: &mut Job, spec: &'static Spec, how: &str) -> Outcome {
    if how == "tags" {
        return tags::run(job, spec);
    }
    let scene = Scene::new(job)?;
    let mut host = start(job, spec, Kind::Pipe, &scene, None)?;
    let options = Options::default().host("127.0.0.1").port(scene.trace_port).transport(Transport::Tcp);
    let trace = Trace::new(options);
    let tag = Tag::new("honest")?;
    trace.point(&tag);
    let inst = honest::instance(spec, &mut *host, "honest")?;
    let probe = Probe::default().fetch_one(spec.pmid(0, 6), spec.indom(1), inst, Answer::Any)?;
    let mut marked = 1;
    let descriptors = procs::descriptors(host.pid()).unwrap_or(0);
    let mut strangers = Strangers::new(scene.trace_port);
    while let Some((round, mut rng)) = job.next_round() {
        job.tried(strangers.come(&mut rng)?);
        let outcome = mark(job, &trace, &tag, &mut marked).and_then(|()| {
            let begin = Instant::now();
            let seen = honest::ask_number(&mut *host, &probe)?;
            job.took(begin.elapsed());
            if seen == marked { Ok(()) } else { Err(format!("{seen} of {marked} points are counted").into()) }
        });
        job.expect("round", outcome);
        if round % 64 == 0 {
            job.check_memory(host.pid(), spec.memory);
            job.check_log(&scene.logs());
        }
        if !procs::runs(host.pid()) {
            host = start(job, spec, Kind::Pipe, &scene, None)?;
            marked = 0;
        }
    }
    strangers.go();
    let begin = Instant::now();
    let outcome = loop {
        let open = procs::descriptors(host.pid()).unwrap_or(0);
        honest::ask_number(&mut *host, &probe)?;
        if open <= descriptors + 1 {
            break Ok(());
        }
        if begin.elapsed() > scaled(PATIENCE) {
            break Err(format!("{open} descriptors, {descriptors} before").into());
        }
    };
    job.expect("cleanup after clients", outcome);
    job.check_memory(host.pid(), spec.memory);
    Ok(())
}

/// Records points synchronously: the agent acknowledges each.
fn mark(job: &mut Job, trace: &Trace, tag: &Tag, marked: &mut u64) -> Outcome {
    let missed = trace.status().missed;
    for _ in 0..MARKS {
        let begin = Instant::now();
        trace.point(tag);
        let took = begin.elapsed();
        job.took(took);
        if took > scaled(PROMPT) {
            let again = Instant::now();
            trace.point(tag);
            *marked += 1;
            if again.elapsed() > scaled(PROMPT) {
                job.fail(format_args!("an honest point takes {took:?}, and then {:?}", again.elapsed()));
            }
        }
        *marked += 1;
    }
    let status = trace.status();
    if status.missed > missed {
        // The agent has not counted these events, and the library reports them.
        *marked = marked.saturating_sub(status.missed - missed);
        return Err(format!("{} honest points were missed: {status:?}", status.missed - missed).into());
    }
    Ok(())
}
