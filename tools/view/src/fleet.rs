//! Running agents and hosts. Each has a separate thread, so an agent that hangs does not delay the others. Each
//! message of a thread counts, so they come over a channel rather than from a `pmda::Background`, which has the last
//! snapshot only. An agent that ends stays so, and the view shows how: a `pcp_collector::Supervisor` would start it again.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcp_collector::{End, Error, Launch};
use pmapi::Domain;

use crate::ask::Asked;
use crate::model::{Board, Metric, Readings, clean};
use crate::plan::{Begin, Plan};
use crate::record::{Recorder, Recording};
use crate::source::{Interruption, Source, StartedAgent};

/// Message from an agent's thread.
#[derive(Debug)]
enum News {
    Metrics(Vec<Metric>),
    Sample(Instant, Vec<Readings>),
    /// One-line help of metrics, with their numbers.
    OneLines(Vec<(usize, String)>),
    /// Full help of the metric with a number.
    Help(usize, String),
    /// What the agent's log says about failures of metrics, with their numbers.
    Reasons(Vec<(usize, String)>),
    /// The request for a sample has been handled.
    Done,
    NotReady,
    NoPmcd(String),
    Failed(String),
}

/// Request to an agent's thread.
#[derive(Clone, Copy, Debug)]
enum Request {
    Sample,
    /// Full help of the metric with a number.
    Help(usize),
}

/// State of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Starting,
    Running,
    NotReady,
    /// There is no connection to pmcd, for this reason. The next sample tries to connect again.
    NoPmcd(String),
    /// The agent has ended, for this reason.
    Failed(String),
}

/// Agent that has been started, or host with a pmcd.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) domain: Option<Domain>,
    pub(crate) status: Status,
    pub(crate) board: Board,
    pid: Arc<OnceLock<u32>>,
    /// Requests samples and help. When it is dropped, the thread ends the agent.
    requests: Option<Sender<Request>>,
    /// Whether a sample has been requested and is not complete.
    busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Creates an agent without a thread.
    pub(crate) fn idle(name: &str, domain: Option<Domain>, status: Status, board: Board, pid: Option<u32>) -> Agent {
        let pid = Arc::new(pid.map_or_else(OnceLock::new, OnceLock::from));
        Agent { name: name.to_owned(), domain, status, board, pid, requests: None, busy: false, thread: None }
    }

    /// Returns the reason why the agent has ended.
    pub(crate) fn failure(&self) -> Option<&str> {
        match &self.status {
            Status::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the reason why there are no metrics to show.
    pub(crate) fn problem(&self) -> Option<&str> {
        match &self.status {
            Status::Failed(reason) | Status::NoPmcd(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the process identifier.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }
}

/// All running agents and hosts.
#[derive(Debug)]
pub(crate) struct Fleet {
    agents: Vec<Agent>,
    recorder: Option<Arc<Recorder>>,
    news: Receiver<(usize, News)>,
    /// Whether there was news since [`Fleet::take_changed`].
    has_changed: bool,
}

impl Fleet {
    /// Starts the agents, whose samples are recorded if there is a recorder. They end when the fleet is dropped.
    pub(crate) fn start(plans: Vec<Plan>, recorder: Option<&Arc<Recorder>>) -> Fleet {
        let (tell, news) = mpsc::channel();
        let agents = plans.into_iter().enumerate().map(|(at, plan)| {
            let (requests, requested) = mpsc::channel();
            let pid = Arc::new(OnceLock::new());
            let name = plan.name.clone();
            let domain = domain(&plan.begin);
            let (tell, known) = (tell.clone(), pid.clone());
            let recording = recorder.map(|recorder| Recording::new(recorder.clone(), &plan.name, plan.label()));
            let tell = move |news| _ = tell.send((at, news));
            let thread = thread::spawn(move || tend(plan, recording, &requested, &known, tell));
            Agent {
                name,
                domain,
                status: Status::Starting,
                board: Board::default(),
                pid,
                requests: Some(requests),
                busy: false,
                thread: Some(thread),
            }
        });
        Fleet { agents: agents.collect(), recorder: recorder.cloned(), news, has_changed: true }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    pub(crate) fn agents(&self) -> &[Agent] {
        &self.agents
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_deref()
    }

    /// Requests a sample from each agent that has completed the previous one.
    pub(crate) fn tick(&mut self) {
        for agent in &mut self.agents {
            let asked = agent.failure().is_none() && !agent.busy;
            if asked && agent.requests.as_ref().is_some_and(|requests| requests.send(Request::Sample).is_ok()) {
                agent.busy = true;
            }
        }
    }

    /// Requests the full help of a metric, by its number. The answer is in its [`Metric`] some time later.
    pub(crate) fn ask_help(&self, agent: usize, metric: usize) {
        if let Some(requests) = self.agents.get(agent).and_then(|agent| agent.requests.as_ref()) {
            // An agent that has ended has no help.
            let _ = requests.send(Request::Help(metric));
        }
    }

    /// Returns whether anything has changed since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Handles messages until all samples are complete, but at most for the time `wait`. Returns whether they are
    /// complete.
    pub(crate) fn gather(&mut self, wait: Duration) -> bool {
        let end = Instant::now() + wait;
        while self.agents.iter().any(|agent| agent.busy) {
            match self.news.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok((at, news)) => self.take(at, news),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
        // The end of an agent is also reported without a request.
        while let Ok((at, news)) = self.news.try_recv() {
            self.take(at, news);
        }
        true
    }

    fn take(&mut self, at: usize, news: News) {
        let Some(agent) = self.agents.get_mut(at) else { return };
        self.has_changed = true;
        match news {
            News::Metrics(metrics) => agent.board.set_metrics(metrics),
            News::Sample(at, sample) => {
                agent.status = Status::Running;
                agent.board.update(at, sample);
            }
            News::OneLines(texts) => agent.board.set_onelines(texts),
            News::Help(metric, text) => agent.board.set_help(metric, text),
            News::Reasons(reasons) => agent.board.set_reasons(reasons),
            News::NotReady => agent.status = Status::NotReady,
            News::NoPmcd(reason) => agent.status = Status::NoPmcd(reason),
            News::Failed(reason) => {
                agent.status = Status::Failed(reason);
                agent.busy = false;
            }
            News::Done => agent.busy = false,
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        /// Time for the threads to end. It is longer than the time that a collector waits for the end of its agent.
        const GRACE: Duration = Duration::from_millis(400);
        for agent in &mut self.agents {
            agent.requests = None;
        }
        let end = Instant::now() + GRACE;
        for agent in &mut self.agents {
            let Some(thread) = agent.thread.take() else { continue };
            while !thread.is_finished() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
            let pid = agent.pid.get().and_then(|pid| i32::try_from(*pid).ok());
            if let Some(pid) = pid.filter(|_| !thread.is_finished()) {
                // The thread waits for a reply. It has not reaped the process, so the identifier is still the agent's.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = thread.join();
        }
    }
}

/// Returns the domain of an agent's metrics.
fn domain(begin: &Begin) -> Option<Domain> {
    let Begin::Start { names, .. } = begin else { return None };
    names.root().leaves().find_map(|leaf| {
        let pmid = leaf.pmid()?;
        Some(pmid.dynamic_root().unwrap_or(pmid.domain()))
    })
}

/// Runs an agent from its start to its end.
fn tend(
    plan: Plan,
    recording: Option<Recording>,
    requested: &Receiver<Request>,
    pid: &OnceLock<u32>,
    tell: impl Fn(News),
) {
    let (source, log) = match plan.begin {
        Begin::Ask(host) => (Ok(Source::Host(host)), None),
        Begin::Start { command, names, log } => {
            let started = Launch::pipe(*command).start().inspect(|collector| {
                collector.pid().map(|started| pid.set(started));
            });
            (started.map(|collector| Source::Agent(Box::new(StartedAgent::new(collector, names)))), Some(log))
        }
    };
    let failure = match source {
        Ok(source) => {
            let mut asked = Asked::new(source, recording);
            serve(&mut asked, requested, log.as_deref(), &tell).err().map(|e| match (&e, asked.end()) {
                (Error::Closed | Error::CutShort(_), Some(End::Exited(status))) => (format!("{e} ({status})"), true),
                (Error::TimedOut(_), _) => (format!("{e}; {SLOW}"), false),
                _ => (e.to_string(), true),
            })
        }
        Err(e) => Some((e.to_string(), true)),
    };
    if let Some((reason, has_said_why)) = failure {
        let said =
            log.filter(|_| has_said_why).and_then(|log| last_line(&log)).map(|line| format!("; its log: {line}"));
        tell(News::Failed(reason + &said.unwrap_or_default()));
    }
}

/// Hint for the author of an agent that does not answer in time. Its log says nothing about that.
const SLOW: &str = "pmcd also drops an agent that is so slow (with crate pmda, a Background reads a slow source)";

/// Handles requests until the sender is dropped.
fn serve(
    asked: &mut Asked,
    requested: &Receiver<Request>,
    log: Option<&Path>,
    tell: &impl Fn(News),
) -> Result<(), Error> {
    let mut discovered = false;
    let mut failures = Failures { log, names: Vec::new(), known: Vec::new() };
    while let Ok(request) = requested.recv() {
        let handled = match request {
            Request::Sample => sample(asked, &mut discovered, &mut failures, tell),
            // The numbers of metrics are those of the last discovery.
            Request::Help(metric) => asked.help(metric).map(|text| tell(News::Help(metric, text))),
        };
        match handled {
            Ok(()) => {}
            Err(Interruption::NotReady) => tell(News::NotReady),
            Err(Interruption::NoPmcd(reason)) => {
                // Names, and the numbers of instances, may have another meaning after a restart of pmcd.
                discovered = false;
                asked.interrupt_recording();
                tell(News::NoPmcd(reason));
            }
            Err(Interruption::Ended(e)) => return Err(e),
        }
        if let Request::Sample = request {
            tell(News::Done);
        }
    }
    Ok(())
}

/// Failures of metrics whose reason is in the agent's log.
struct Failures<'a> {
    log: Option<&'a Path>,
    /// Names of the metrics.
    names: Vec<String>,
    /// Numbers of the metrics that have failed in the last sample.
    known: Vec<usize>,
}

impl Failures<'_> {
    /// Returns the reasons of the failures in a sample, unless they are those of the previous one.
    fn reasons(&mut self, readings: &[Readings]) -> Vec<(usize, String)> {
        let is_failure =
            |(_, readings): &(usize, &Readings)| matches!(readings, Err(code) if *code == pmapi::Error::GENERIC);
        let failed: Vec<usize> = readings.iter().enumerate().filter(is_failure).map(|(at, _)| at).collect();
        if failed == self.known {
            return Vec::new();
        }
        self.known.clone_from(&failed);
        let Some(text) = self.log.filter(|_| !failed.is_empty()).and_then(end_of) else { return Vec::new() };
        let reason = |at: usize| Some((at, panic_of(self.names.get(at)?, &text)?));
        failed.into_iter().filter_map(reason).collect()
    }
}

/// Returns what the last line of a log about a panic of a metric says, as agents of crate pmda write it.
fn panic_of<'a>(metric: &str, log: &'a str) -> Option<String> {
    // The PMID follows the name.
    let begin = format!(": {metric} (");
    let panic = |line: &'a str| Some(line.split_once(&begin)?.1.split_once("): the fetch panicked at ")?.1);
    let rest = log.lines().rev().find_map(panic)?;
    let (what, _) = rest.split_once("; this metric has no value").unwrap_or((rest, ""));
    Some(format!("the fetch panicked at {}", clean(what)))
}

fn sample(
    asked: &mut Asked,
    discovered: &mut bool,
    failures: &mut Failures<'_>,
    tell: &impl Fn(News),
) -> Result<(), Interruption> {
    if !*discovered {
        let metrics = asked.discover()?;
        failures.names = metrics.iter().map(|metric| metric.name.clone()).collect();
        failures.known.clear();
        tell(News::Metrics(metrics));
        *discovered = true;
    }
    let (readings, renamed) = asked.sample()?;
    let reasons = failures.reasons(&readings);
    tell(News::Sample(Instant::now(), readings));
    if !reasons.is_empty() {
        tell(News::Reasons(reasons));
    }
    let texts = asked.more_help()?;
    if !texts.is_empty() {
        tell(News::OneLines(texts));
    }
    *discovered = !renamed;
    Ok(())
}

/// Number of bytes at the end of a log that are read.
const LOG_END: u64 = 64 << 10;

/// Returns the last line of a log that is neither empty nor PCP's header or footer. A longer line is cut at its
/// beginning: an agent can write any number of bytes.
fn last_line(log: &Path) -> Option<String> {
    let text = end_of(log)?;
    text.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with("Log ")).map(|line| clean(line.trim()))
}

/// Returns the end of a log.
fn end_of(log: &Path) -> Option<String> {
    let mut log = pcp_base::file::open(log).ok()?;
    let start = log.metadata().ok()?.len().saturating_sub(LOG_END);
    log.seek(SeekFrom::Start(start)).ok()?;
    let mut text = Vec::new();
    log.take(LOG_END).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    #[test]
    fn the_reason_of_a_panic_is_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let line = |metric: &str, place: &str| {
            let end = "no; this metric has no value; other metrics are not affected";
            format!("[Fri Nov 27 05:00:00] pmdax(1) Error: {metric} (1.2.3): the fetch panicked at {place}: {end}")
        };
        fs::write(&log, [line("x.a", "a.rs:1:2"), line("x.b", "a.rs:3:4"), line("x.a", "a.rs:5:6")].join("\n"))
            .unwrap();
        let mut failures =
            Failures { log: Some(&log), names: vec!["x.a".into(), "x.ok".into(), "x.c".into()], known: vec![] };
        let sample = [Err(pmapi::Error::GENERIC), Ok(vec![]), Err(pmapi::Error::GENERIC)];
        assert_eq!(failures.reasons(&sample), [(0, "the fetch panicked at a.rs:5:6: no".to_owned())]);
        // The log is read again only after another metric has failed.
        assert_eq!(failures.reasons(&sample), []);
        assert_eq!(failures.reasons(&[Ok(vec![]), Ok(vec![]), Ok(vec![])]), []);
        assert_eq!(failures.reasons(&sample).len(), 1);
    }

    #[test]
    fn the_end_of_a_log_of_any_length_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "Log for me\nfirst\nlast\n\nLog finished\n").unwrap();
        assert_eq!(last_line(&log).unwrap(), "last");
        // A sparse file of a tebibyte does not fit into memory.
        let file = fs::File::options().write(true).open(&log).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(last_line(&log).unwrap().len() as u64 <= LOG_END);
        assert_eq!(last_line(&dir.path().join("none")), None);
    }
}
