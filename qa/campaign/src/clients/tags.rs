//! Tags that a hostile client has introduced and fills with extreme values, and that an honest client uses as well.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use pmapi::{Inst, Type};
use trace::{Options, Tag, Trace, Transport};

use super::strangers::{Strangers, append_data};
use crate::Outcome;
use crate::honest::instance_of;
use crate::host::{Host, Kind, PATIENCE, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::pdus::start;
use crate::probe::{Answer, Probe, first_number};
use crate::procs;
use crate::rng::Rng;
use crate::spec::Spec;

/// Number of tags that both clients use. They fit into the limit of every host.
const TAGS: usize = 8;
/// Number of transactions of the honest client in each round, and their duration in seconds.
const MARKS: u64 = 4;
const SECONDS: f64 = 0.25;
/// Kinds of trace events. A kind is the number of its instance domain, and one less than the number in PDUs.
const TRANSACT: u32 = 1;
const OBSERVE: u32 = 3;
/// Items of the metrics of transactions and observations.
const COUNT: u16 = 0;
const AVERAGE: u16 = 2;
const SHORTEST: u16 = 3;
const LONGEST: u16 = 4;
const TOTAL: u16 = 5;
const VALUE: u16 = 10;
/// Longest transaction that the agent counts, in seconds.
const YEAR: f64 = 366.0 * 24.0 * 3600.0;

/// Runs until the end of the job.
pub(super) fn run(job: &mut Job, spec: &'static Spec) -> Outcome {
    let scene = Scene::new(job)?;
    let mut host = start(job, spec, Kind::Pipe, &scene, None)?;
    let options = Options::default().host("127.0.0.1").port(scene.trace_port).transport(Transport::Tcp);
    let trace = Trace::new(options);
    let strangers = Strangers::new(scene.trace_port);
    while let Some((round, mut rng)) = job.next_round() {
        let name = format!("shared{}", rng.below(TAGS));
        // The agent may refuse a connection. All PDUs have been counted when the last one is acknowledged.
        let outcome = strangers.connect(&mut rng).and_then(|stream| fill(&mut rng, stream, &name));
        let sent = job.expect("a stranger", outcome);
        job.tried(sent.unwrap_or(0));
        let begin = Instant::now();
        let outcome = check(spec, &mut *host, &trace, &name);
        job.took(begin.elapsed() / (2 * MARKS as u32));
        job.expect("an honest client", outcome);
        if round % 64 == 0 {
            job.check_memory(host.pid(), spec.memory);
            job.check_log(&scene.logs());
        }
        if !procs::runs(host.pid()) {
            host = start(job, spec, Kind::Pipe, &scene, None)?;
        }
    }
    job.check_memory(host.pid(), spec.memory);
    Ok(())
}

/// Sends extreme values of a tag, and waits for the acknowledgement of the last one. Returns the number of PDUs.
fn fill(rng: &mut Rng, mut stream: TcpStream, name: &str) -> Outcome<u64> {
    let (mut bytes, count) = (Vec::new(), 2 + rng.below(400));
    for n in 0..count {
        let value = match rng.below(10) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => f64::MAX,
            3 => -f64::MAX,
            4 => f64::MIN_POSITIVE,
            5 => YEAR * (1.0 + f64::EPSILON),
            6 => f64::from_bits(rng.next()),
            _ => YEAR - rng.below(1000) as f64 / 7.0,
        };
        let last = n + 1 == count;
        // The tag exists once one event with a valid value has been counted.
        let (kind, value) = match n {
            0 => (TRANSACT, 1.0),
            1 => (OBSERVE, 1.0),
            _ => (rng.pick(&[TRANSACT, TRANSACT, OBSERVE]), value),
        };
        append_data(&mut bytes, kind, name.as_bytes(), value, u32::from(last));
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(scaled(PATIENCE)))?;
    stream.write_all(&bytes)?;
    // The greeting, and the acknowledgement.
    let mut acks = [0; 2 * ACK];
    stream.read_exact(&mut acks).map_err(|e| format!("no acknowledgement of {count} PDUs: {e}"))?;
    Ok(count as u64)
}

/// Length of an acknowledgement.
const ACK: usize = 16;

/// Records transactions and an observation, and compares what they add to the metrics.
fn check(spec: &Spec, host: &mut dyn Host, trace: &Trace, name: &str) -> Outcome {
    let kinds = [TRANSACT, OBSERVE].map(|kind| spec.indom(kind - 1));
    let [transact, observe] = kinds;
    let (inst, observed) = (instance_of(transact, host, name)?, instance_of(observe, host, name)?);
    let mut number = |item: u16, ty: Type| {
        let (indom, inst) = if item == VALUE { (observe, observed) } else { (transact, inst) };
        value(spec, host, (item, ty), indom, inst)
    };
    let before = (number(COUNT, Type::U64)?, number(TOTAL, Type::Double)?);
    let (tag, missed) = (Tag::new(name)?, trace.status().missed);
    (0..MARKS).for_each(|_| trace.transact(&tag, Duration::from_secs_f64(SECONDS)));
    trace.observe(&tag, SECONDS);
    if trace.status().missed > missed {
        return Err(format!("honest events were missed: {:?}", trace.status()).into());
    }
    let count = number(COUNT, Type::U64)? - before.0;
    let total = number(TOTAL, Type::Double)?;
    // The larger the sum, the fewer digits are exact.
    let (added, exact) = (total - before.1, MARKS as f64 * SECONDS);
    if count != MARKS as f64 || (added - exact).abs() > 4.0 * f64::EPSILON * total {
        return Err(format!("{count} transactions of {added} s are counted, not {MARKS} of {exact} s").into());
    }
    let last = number(VALUE, Type::Double)?;
    if last != SECONDS {
        return Err(format!("the last observation is {last}").into());
    }
    for item in [AVERAGE, SHORTEST, LONGEST] {
        // There is no value before the end of the first interval.
        match number(item, Type::Float) {
            Ok(time) if !(0.0..=YEAR * 1.001).contains(&time) => return Err(format!("item {item} is {time}").into()),
            _ => {}
        }
    }
    Ok(())
}

fn value(spec: &Spec, host: &mut dyn Host, (item, ty): (u16, Type), indom: pmapi::InDom, inst: Inst) -> Outcome<f64> {
    let probe = Probe::default().fetch_one(spec.pmid(0, item), indom, inst, Answer::Any)?;
    let mut seen = 0.0;
    host.exchange(&probe.pdus, 1, &mut |header, bytes| {
        seen = first_number(header, bytes, ty)?;
        Ok(())
    })?;
    Ok(seen)
}
