//! Stage `pdus`: damaged PDUs, and valid ones in any order, for each agent in each host.

mod damage;
mod known;
mod valid;

use std::collections::VecDeque;
use std::time::Instant;

use pcp_pdu::{Header, Pdu, PduType};
use pmapi::Error;

use crate::honest::Honest;
use crate::host::{self, Host, Kind, Scene, answer_to};
use crate::job::Job;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;
use crate::{Outcome, procs};

pub(crate) use known::probes;
pub(crate) use valid::Valid;

/// Number of PDUs in a round.
const ROUND: usize = 2048;
/// Number of rounds between checks of memory, logs and descriptors.
const CHECK: u64 = 16;
/// Number of rounds between broken streams.
const BREAK: u64 = 64;

/// A batch of PDUs and the expected answers.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    expected: VecDeque<Expected>,
}

enum Expected {
    /// An error, or an answer of the type that belongs to this type of request. The number is the number of metrics in
    /// a fetch.
    To(PduType, usize),
    /// The answer to a probe.
    Known(Answer),
}

impl Batch {
    fn probe(&mut self, probe: &Probe) {
        self.bytes.extend_from_slice(&probe.pdus);
        self.expected.extend(probe.answers.iter().cloned().map(Expected::Known));
    }
}

/// Checks an answer to a request that may be damaged and has `pmids` metrics if it is a fetch.
pub(crate) fn check_any(request: PduType, pmids: usize, header: Header, bytes: &[u8]) -> Outcome {
    let pdu = Pdu::decode(header, bytes)?;
    match &pdu {
        // pmcd would mistake this code for its own timeout and drop the agent.
        Pdu::Error(e) if e.status() == Err(Error::TIMEOUT) => Err("PM_ERR_TIMEOUT as an answer".into()),
        Pdu::Error(_) => Ok(()),
        Pdu::Result(result) if request == PduType::FETCH && result.len() != pmids => {
            Err(format!("{} sets of values for {pmids} metrics", result.len()).into())
        }
        _ if answer_to(request) == Some(header.pdu) => Ok(()),
        _ => Err(format!("{} PDU in answer to {request}", header.pdu).into()),
    }
}

/// Runs the stage for one agent in one host.
pub(crate) fn run(job: &mut Job, spec: &'static Spec, kind: Kind) -> Outcome {
    let scene = Scene::new(job)?.with(spec, &job.order.bin)?;
    let honest = Honest::new(&scene)?;
    let mut stage = Stage::start(job, spec, kind, &scene, Some(&honest))?;
    while let Some((round, mut rng)) = job.next_round() {
        let outcome = stage.round(job, &mut rng);
        let broken = outcome.is_err() || (stage.is_stream() && round % BREAK == BREAK - 1);
        job.expect("round", outcome);
        if round % CHECK == 0 {
            job.check_memory(stage.host.pid(), spec.memory);
            job.check_log(&scene.logs());
            stage.check_descriptors(job);
        }
        if broken {
            let outcome = stage.host.break_off(&damage::broken_stream(&mut rng));
            job.expect("broken stream", outcome);
            drop(stage);
            stage = Stage::start(job, spec, kind, &scene, None)?;
        }
    }
    job.check_memory(stage.host.pid(), spec.memory);
    Ok(())
}

struct Stage {
    host: Box<dyn Host>,
    kind: Kind,
    valid: valid::Valid,
    probes: Vec<Probe>,
    untouched: Vec<u32>,
    batch: Batch,
    descriptors: usize,
}

impl Stage {
    fn start(job: &Job, spec: &'static Spec, kind: Kind, scene: &Scene, honest: Option<&Honest>) -> Outcome<Stage> {
        let mut host = start(job, spec, kind, scene, honest)?;
        let probes = probes(spec, &mut *host)?;
        let untouched = spec.untouched.iter().map(|(cluster, item)| spec.pmid(*cluster, *item).word()).collect();
        for probe in &probes {
            probe.ask(&mut *host)?;
        }
        let descriptors = procs::descriptors(host.pid()).unwrap_or(0);
        Ok(Stage {
            host,
            kind,
            valid: valid::Valid::new(spec),
            probes,
            untouched,
            batch: Batch::default(),
            descriptors,
        })
    }

    fn is_stream(&self) -> bool {
        !matches!(self.kind, Kind::Object | Kind::Local)
    }

    /// Sends a batch, and then one probe whose duration is recorded.
    fn round(&mut self, job: &mut Job, rng: &mut Rng) -> Outcome {
        let tried = self.fill(rng)?;
        let Batch { bytes, expected } = &mut self.batch;
        let answers = expected.len();
        self.host.exchange(bytes, answers, &mut |header, bytes| match expected.pop_front() {
            Some(Expected::To(request, pmids)) => {
                check_any(request, pmids, header, bytes).map_err(|e| format!("after {request}: {e}").into())
            }
            Some(Expected::Known(answer)) => answer.check(header, bytes),
            None => Err("one answer too many".into()),
        })?;
        job.tried(tried);
        if let Some(probe) = self.probes.get(rng.below(self.probes.len())) {
            let start = Instant::now();
            probe.ask(&mut *self.host)?;
            job.took(start.elapsed());
        }
        Ok(())
    }

    /// Fills the batch. Returns the number of its PDUs that are not probes.
    fn fill(&mut self, rng: &mut Rng) -> Outcome<u64> {
        let Stage { valid, batch, probes, untouched, .. } = self;
        batch.bytes.clear();
        batch.expected.clear();
        let decodes = self.host.decodes();
        let mut tried = 0;
        for n in 0..ROUND {
            let start = batch.bytes.len();
            valid.append(rng, &mut batch.bytes)?;
            if !rng.one_in(6) {
                damage::damage(rng, &mut batch.bytes, start);
            }
            let pdu = batch.bytes.get(start..).unwrap_or_default();
            let Some(header) = damage::header(pdu) else { return Err("a PDU without a frame was made".into()) };
            let decoded = Pdu::decode(header, pdu);
            let spoils = header.pdu == PduType::RESULT && damage::mentions(pdu, untouched);
            if spoils || (decodes && decoded.is_err()) {
                batch.bytes.truncate(start);
                continue;
            }
            tried += 1;
            if answer_to(header.pdu).is_some() {
                let pmids = if let Ok(Pdu::Fetch(fetch)) = decoded { fetch.pmids().len() } else { 0 };
                batch.expected.push_back(Expected::To(header.pdu, pmids));
            }
            if n % 128 == 0
                && let Some(probe) = probes.get(rng.below(probes.len()))
            {
                batch.probe(probe);
            }
        }
        Ok(tried)
    }

    /// Checks that descriptors do not leak. The limit is the number at the start, plus the few that an agent opens
    /// once.
    fn check_descriptors(&mut self, job: &mut Job) {
        let now = procs::descriptors(self.host.pid()).unwrap_or(0);
        if now > self.descriptors + 8 {
            job.fail(format_args!("{now} descriptors, {} at the start", self.descriptors));
            self.descriptors = now;
        }
    }
}

/// Starts an agent. For agent trace, also waits until it listens, and records the honest points.
pub(crate) fn start(
    job: &Job,
    spec: &'static Spec,
    kind: Kind,
    scene: &Scene,
    honest: Option<&Honest>,
) -> Outcome<Box<dyn Host>> {
    let mut host = host::start(spec, kind, job, scene)?;
    if spec.name == "trace" {
        // An answer means that the agent listens on its port.
        let port = Answer::Number(pmapi::Type::U32, scene.trace_port.into());
        Probe::default().fetch(spec.pmid(0, 14), port)?.ask(&mut *host)?;
        honest.map_or(Ok(()), Honest::mark)?;
    }
    Ok(host)
}

/// Sends random valid requests without stores, and checks the types of the answers.
pub(crate) fn ask_valid(rng: &mut Rng, host: &mut dyn Host, valid: &mut Valid, count: usize) -> Outcome {
    let mut bytes = Vec::new();
    let mut expected = VecDeque::new();
    for _ in 0..count {
        let start = bytes.len();
        valid.append(rng, &mut bytes)?;
        let pdu = bytes.get(start..).unwrap_or_default();
        let Some(header) = damage::header(pdu) else { return Err("a PDU without a frame was made".into()) };
        if header.pdu == PduType::RESULT {
            bytes.truncate(start);
        } else if answer_to(header.pdu).is_some() {
            let pmids = if let Pdu::Fetch(fetch) = Pdu::decode(header, pdu)? { fetch.pmids().len() } else { 0 };
            expected.push_back((header.pdu, pmids));
        }
    }
    let answers = expected.len();
    host.exchange(&bytes, answers, &mut |header, bytes| match expected.pop_front() {
        Some((request, pmids)) => check_any(request, pmids, header, bytes),
        None => Err("one answer too many".into()),
    })
}
