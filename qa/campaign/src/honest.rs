//! The honest application, which runs beside the hostile ones. Agents must report exactly the numbers that it has
//! counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mmv::{Counter, Family, Registry};
use pcp_pdu::Pdu;
use pcp_pdu::instance::InstanceReq;
use pmapi::{InDom, Inst, Type};
use trace::{Options, Tag, Trace, Transport};

use crate::Outcome;
use crate::host::{Host, Scene};
use crate::patience::scaled;
use crate::probe::{Answer, Probe, first_number};
use crate::spec::Spec;

/// Cluster of the honest application's metrics.
pub(crate) const CLUSTER: u16 = 5;
/// Item and value of the counter that is constant.
pub(crate) const FIXED: (u16, u64) = (7, 12_345);
/// Item of the counter that increases.
pub(crate) const LIVE: u16 = 8;
/// Serial number of the instance domain, and item of the counter over it. Its values are 1 and 2.
pub(crate) const ROWS: (u32, u16) = (9, 9);
/// Number of points that are recorded once, with the tag `honest`.
pub(crate) const POINTS: u64 = 1000;

/// Longest pause of agent trace between two reads of a user's files.
const RESTS: Duration = Duration::from_secs(3);

/// An application that counts, with `pcp-mmv`, and records points, with `pcp-trace`.
#[derive(Debug)]
pub(crate) struct Honest {
    registry: Registry,
    live: Counter,
    trace: Trace,
    /// Points of the tag `live` whose call has begun.
    begun: Arc<AtomicU64>,
    /// Points of the tag `live` whose call has returned.
    ended: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Honest {
    pub(crate) fn new(scene: &Scene) -> Outcome<Honest> {
        let registry = Registry::builder("honest").directory(scene.mmv()).cluster(CLUSTER).build()?;
        registry.counter("count").help("Known to the campaign").item(FIXED.0).register()?.add(FIXED.1);
        let live = registry.counter("live").item(LIVE).register()?;
        let rows = registry.indom("rows").serial(ROWS.0).instances(["one", "two"]).register()?;
        let family: Family<Counter> = registry.counter("rows").item(ROWS.1).over(&rows)?;
        for (name, value) in [("one", 1), ("two", 2)] {
            family.instance(name)?.add(value);
        }
        registry.try_start()?;
        let options = Options::default().directory(scene.trace());
        let flag = || Arc::new(AtomicU64::new(0));
        Ok(Honest {
            registry,
            live,
            trace: Trace::new(options.transport(Transport::SharedMemory)),
            begun: flag(),
            ended: flag(),
            stop: Arc::default(),
            thread: None,
        })
    }

    /// Records the points of the tag `honest`. Agent trace must be running. An agent that replaces it later reads the
    /// points from the same file.
    pub(crate) fn mark(&self) -> Outcome {
        let tag = Tag::new("honest")?;
        (0..POINTS).for_each(|_| self.trace.point(&tag));
        let status = self.trace.status();
        if status.missed > 0 { Err(format!("points were missed: {status:?}").into()) } else { Ok(()) }
    }

    /// Starts a thread that counts until this object is dropped.
    pub(crate) fn go_on(&mut self) -> Outcome {
        let tag = Tag::new("live")?;
        let (live, trace) = (self.live.clone(), self.trace.clone());
        let (begun, ended, stop) = (Arc::clone(&self.begun), Arc::clone(&self.ended), Arc::clone(&self.stop));
        self.thread = Some(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                live.inc();
                begun.fetch_add(1, Ordering::SeqCst);
                trace.point(&tag);
                ended.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(500));
            }
        }));
        Ok(())
    }

    /// Compares the current values of the application in an agent. Agents without such values pass.
    pub(crate) fn check(&self, spec: &Spec, host: &mut dyn Host) -> Outcome {
        match spec.name {
            "mmv" => {
                let least = self.live.get();
                let seen = ask_number(host, &Probe::default().fetch(spec.pmid(CLUSTER, LIVE), Answer::Any)?)?;
                within("mmv.honest.live", least, seen, self.live.get())?;
                check_rows(spec, host)
            }
            "trace" => {
                // The agent pauses reading a user's files after they have cost it too much processor time.
                let begin = Instant::now();
                loop {
                    match self.check_points(spec, host) {
                        Err(_) if begin.elapsed() < scaled(RESTS) => thread::sleep(Duration::from_millis(20)),
                        outcome => return outcome,
                    }
                }
            }
            _ => Ok(()),
        }
    }

    fn check_points(&self, spec: &Spec, host: &mut dyn Host) -> Outcome {
        let least = self.ended.load(Ordering::SeqCst);
        if least == 0 {
            return Ok(());
        }
        let inst = instance(spec, host, "live")?;
        let probe = Probe::default().fetch_one(spec.pmid(0, 6), spec.indom(1), inst, Answer::Any)?;
        let seen = ask_number(host, &probe)?;
        within("trace.point.count of live", least, seen, self.begun.load(Ordering::SeqCst))
    }

    /// Returns the number of trace events that were lost for lack of space.
    pub(crate) fn missed(&self) -> u64 {
        self.trace.status().missed
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.registry.stop();
    }
}

fn within(what: &str, least: u64, seen: u64, most: u64) -> Outcome {
    if (least..=most).contains(&seen) { Ok(()) } else { Err(format!("{what} is {seen}, not {least} to {most}").into()) }
}

/// Compares the values of the counter with instances.
fn check_rows(spec: &Spec, host: &mut dyn Host) -> Outcome {
    let probe = Probe::default().fetch(spec.pmid(CLUSTER, ROWS.1), Answer::Any)?;
    let mut seen = Vec::new();
    host.exchange(&probe.pdus, 1, &mut |header, bytes| {
        let Pdu::Result(result) = Pdu::decode(header, bytes)? else { return Err("no values of instances".into()) };
        for (inst, value) in result.sets().flat_map(|set| set.values()) {
            seen.push((value.atom(Type::U64)?.to_string(), inst.is_some()));
        }
        Ok(())
    })?;
    seen.sort();
    let expected = ["1", "2"].map(|value| (value.to_owned(), true));
    if seen == expected { Ok(()) } else { Err(format!("mmv.honest.rows is {seen:?}").into()) }
}

/// Sends a fetch of one value and returns it.
pub(crate) fn ask_number(host: &mut dyn Host, probe: &Probe) -> Outcome<u64> {
    let mut seen = 0;
    host.exchange(&probe.pdus, 1, &mut |header, bytes| {
        seen = first_number(header, bytes, Type::U64)? as u64;
        Ok(())
    })?;
    Ok(seen)
}

/// Returns the instance of a tag in the instance domain of points.
pub(crate) fn instance(spec: &Spec, host: &mut dyn Host, name: &str) -> Outcome<Inst> {
    instance_of(spec.indom(1), host, name)
}

/// Returns the instance of a name in an instance domain.
pub(crate) fn instance_of(indom: InDom, host: &mut dyn Host, name: &str) -> Outcome<Inst> {
    let mut request = Vec::new();
    InstanceReq { indom: Some(indom), inst: None, name: Some(name.as_bytes()) }.encode(&mut request, 99)?;
    let mut found = None;
    host.exchange(&request, 1, &mut |header, bytes| {
        match Pdu::decode(header, bytes)? {
            Pdu::Instance(instances) => found = instances.iter().next().and_then(|(inst, _)| inst),
            Pdu::Error(e) => e.status()?,
            _ => {}
        }
        Ok(())
    })?;
    found.ok_or_else(|| format!("there is no tag {name}").into())
}
