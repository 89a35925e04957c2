//! Stage `endurance`: a hundred million fetches while instances change, clients and files come and go, and
//! configurations are reloaded. Memory must not grow after the first tenth, no descriptor may leak, and logs must stay
//! small.

mod line;
mod recording;
mod sources;
mod surroundings;

use std::time::Instant;

use pcp_pdu::PduType;
use pcp_pdu::handshake::{Attr, Attribute, encode_error};
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::profile::{Profile, ProfileState};
use pmapi::{Error, Inst, PmId};

use crate::honest::Honest;
use crate::host::{Host, Kind, Scene};
use crate::job::{Job, Pace};
use crate::pdus;
use crate::probe::Probe;
use crate::rng::Rng;
use crate::spec::Spec;
use crate::{Outcome, procs};

use line::Line;
use surroundings::Surroundings;

/// Number of fetches in a round.
const ROUND: u64 = 1000;
/// Number of rounds between changes of the surroundings.
const CHANGE: u64 = 20;
/// Number of rounds between requests whose answers are known.
const KNOWN: u64 = 10;
/// Number of samples of memory in a run.
const SAMPLES: u64 = 100;
/// Allowed growth of memory after the first tenth, in KiB. It is not zero, because the memory that an allocator keeps
/// varies.
const NOISE: f64 = 512.0;
/// Allowed number of additional descriptors at the end, for instance for connections and scripts of sources at that
/// time.
const DESCRIPTORS: usize = 16;
/// Allowed bytes of logs.
const LOG: u64 = 4 << 20;

/// Runs the stage for an agent.
pub(crate) fn run(job: &mut Job, spec: &'static Spec) -> Outcome {
    let scene = Scene::new(job)?.with(spec, &job.order.bin)?;
    let mut honest = Honest::new(&scene)?;
    let mut surroundings = Surroundings::new(spec, job, &scene)?;
    let mut host = pdus::start(job, spec, Kind::Pipe, &scene, Some(&honest))?;
    honest.go_on()?;
    let mut probes = pdus::probes(spec, &mut *host)?;
    probes.extend(surroundings.probes(&mut *host)?);
    let mut fetches = Fetches::new(spec, &mut *host)?;
    let mut samples = Samples::new(job, &*host);
    while let Some((round, mut rng)) = job.next_round() {
        if round % CHANGE == 0 {
            let outcome = surroundings.change(&mut rng, &mut *host);
            job.expect("change of the surroundings", outcome);
        }
        let outcome = fetches.round(&mut rng, &mut *host);
        if job.expect("fetches", outcome).is_none() {
            return Ok(());
        }
        job.tried(ROUND);
        if round % KNOWN == 0 {
            let start = Instant::now();
            let outcome = probes.iter().try_for_each(|probe| probe.ask(&mut *host));
            job.took(start.elapsed() / probes.len().max(1) as u32);
            job.expect("known values", outcome.and_then(|()| honest.check(spec, &mut *host)));
        }
        samples.take(job, &*host);
    }
    job.check_memory(host.pid(), spec.memory);
    surroundings.end();
    samples.judge(job, &*host, &scene);
    Ok(())
}

/// Returns the clusters and items of 100 metrics of agent openmetrics. The source of the last metric is read for each
/// fetch, those of the others are not.
fn openmetrics() -> Vec<(u16, u16)> {
    let sampled = [(1, 0), (1, 1), (0, 1), (0, 5), (2, 0), (4, 0), (4, 1), (5, 0), (6, 0), (6, 1), (7, 0)];
    let mut all: Vec<_> = sampled.into_iter().cycle().take(99).collect();
    all.push((8, 0));
    all
}

/// The fetches of an agent.
struct Fetches {
    spec: &'static Spec,
    pmids: Vec<PmId>,
    bytes: Vec<u8>,
    /// Identifier of the current client.
    clients: i32,
}

impl Fetches {
    fn new(spec: &'static Spec, host: &mut dyn Host) -> Outcome<Fetches> {
        let pmids = match spec.name {
            "trivial" => vec![(0, 0)],
            "simple" => vec![(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)],
            "showcase" => {
                vec![(3, 14), (3, 101), (4, 0), (5, 0), (6, 0), (7, 1), (9, 0), (10, 2), (11, 0), (13, 0), (15, 0)]
            }
            "mmv" => vec![(5, 7), (5, 8), (0, 2), (12, 1), (12, 2)],
            "openmetrics" => openmetrics(),
            "replay" => {
                recording::ITEMS.into_iter().map(|item| (1, item)).chain((0..6).map(|item| (0, item))).collect()
            }
            "trace" => vec![(0, 0), (0, 1), (0, 6), (0, 7), (0, 10), (0, 19), (1, 1), (3, 0)],
            _ => Vec::new(),
        };
        let mut pmids: Vec<PmId> = pmids.into_iter().map(|(cluster, item)| spec.pmid(cluster, item)).collect();
        if spec.name == "derived" {
            // Each fetch of derived.twice reaches the other agent. derived.rate is sampled, and fetched more often.
            pmids.extend([spec.pmid(0, 5), spec.pmid(0, 3)]);
            pmids.extend([Probe::lookup_when_bound(host, "derived.rate")?; 14]);
            pmids.push(Probe::lookup_when_bound(host, "derived.twice")?);
        }
        Ok(Fetches { spec, pmids, bytes: Vec::new(), clients: 0 })
    }

    /// Fetches on behalf of clients that connect and disconnect.
    fn round(&mut self, rng: &mut Rng, host: &mut dyn Host) -> Outcome {
        self.bytes.clear();
        for n in 0..ROUND {
            if n % 50 == 0 {
                encode_error(&mut self.bytes, self.clients, Err(Error::NOTCONN))?;
                self.clients = (self.clients + 1) % 500;
                Attr { attribute: Attribute::USERID, value: b"1000" }.encode(&mut self.bytes, self.clients)?;
            }
            if n % 10 == 0 {
                let mut profile = Profile::default();
                if rng.one_in(2) {
                    let insts = [Inst::new(rng.below(4) as u32), Inst::new(rng.below(40) as u32)];
                    profile.set(self.spec.indom(rng.below(4) as u32), ProfileState::Exclude, &insts);
                }
                profile.encode(&mut self.bytes, self.clients, 0)?;
            }
            let count = 1 + rng.below(3);
            let start = rng.below(self.pmids.len());
            let some = self.pmids.iter().cycle().skip(start).take(count).map(|pmid| Some(*pmid));
            encode_fetch(&mut self.bytes, self.clients, 0, some.collect::<Vec<_>>().into_iter())?;
        }
        host.exchange(&self.bytes, ROUND as usize, &mut |header, _| match header.pdu {
            PduType::RESULT => Ok(()),
            other => Err(format!("{other} in answer to a fetch").into()),
        })
    }
}

/// Samples of an agent's memory over the run.
struct Samples {
    /// Inputs between two samples.
    every: u64,
    /// Number of inputs at the next sample.
    next: u64,
    /// Millions of inputs, and resident memory in KiB.
    memory: Vec<(f64, f64)>,
    /// Open descriptors at the start.
    descriptors: usize,
}

impl Samples {
    fn new(job: &Job, host: &dyn Host) -> Samples {
        let every = match job.order.pace {
            Pace::Inputs(inputs) => (inputs / SAMPLES).max(1),
            _ => ROUND,
        };
        Samples { every, next: 0, memory: Vec::new(), descriptors: procs::descriptors(host.pid()).unwrap_or(0) }
    }

    fn take(&mut self, job: &Job, host: &dyn Host) {
        if job.inputs() >= self.next {
            self.next += self.every;
            if let Some(resident) = procs::resident(host.pid()) {
                self.memory.push((job.inputs() as f64 / 1e6, resident as f64));
            }
        }
    }

    /// Checks memory, after the first tenth of the run, and descriptors and logs at its end.
    fn judge(&self, job: &mut Job, host: &dyn Host, scene: &Scene) {
        let rest = self.memory.get(self.memory.len() / 10..).unwrap_or_default();
        let Some(line) = Line::fit(rest) else { return job.fail("too few fetches to judge") };
        let descriptors = procs::descriptors(host.pid()).unwrap_or(0);
        let log = procs::bytes_of(&scene.logs(), ".log");
        println!(
            "note {:<8} {:>11} fetches: {:+.0} bytes a million fetches (± {:.0}), {:.1} MiB at the end, {} descriptors, {} at \
             the start, {} bytes of log",
            job.order.name.rsplit(':').next().unwrap_or_default(),
            job.inputs(),
            line.slope * 1024.0,
            line.error * 1024.0,
            self.memory.last().map_or(0.0, |last| last.1 / 1024.0),
            descriptors,
            self.descriptors,
            log,
        );
        // Growth must be significant and exceed the noise.
        if line.slope > 4.0 * line.error && line.rise() > NOISE {
            job.fail(format_args!("memory grows by {:.0} KiB after the first tenth", line.rise()));
        }
        if descriptors > self.descriptors + DESCRIPTORS {
            job.fail(format_args!("{descriptors} descriptors at the end, {} at the start", self.descriptors));
        }
        if log > LOG {
            job.fail(format_args!("{log} bytes of log, {LOG} are the limit"));
        }
    }
}
