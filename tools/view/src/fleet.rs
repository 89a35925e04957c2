//! Running agents. Each agent has a thread of its own, so that an agent that hangs does not delay the others.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcp_collector::{End, Error, Launch};
use pmapi::Domain;

use crate::ask::{Asked, Recording};
use crate::model::{Board, Metric, Readings, clean};
use crate::plan::Plan;
use crate::record::Recorder;

/// Message from an agent's thread.
#[derive(Debug)]
enum News {
    Metrics(Vec<Metric>),
    Sample(Instant, Vec<Readings>),
    /// The request for a sample has been handled.
    Done,
    NotReady,
    Failed(String),
}

/// State of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Starting,
    Running,
    NotReady,
    /// The agent has ended, for this reason.
    Failed(String),
}

/// Agent that has been started.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) domain: Option<Domain>,
    pub(crate) status: Status,
    pub(crate) board: Board,
    pid: Arc<OnceLock<u32>>,
    /// Requests samples. When it is dropped, the thread ends the agent.
    ticks: Option<Sender<()>>,
    /// Whether a sample has been requested and is not complete.
    busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    /// Creates an agent without a thread.
    pub(crate) fn idle(name: &str, domain: Option<Domain>, status: Status, board: Board, pid: Option<u32>) -> Agent {
        let pid = Arc::new(pid.map_or_else(OnceLock::new, OnceLock::from));
        Agent { name: name.to_owned(), domain, status, board, pid, ticks: None, busy: false, thread: None }
    }

    /// Returns the reason why the agent has ended.
    pub(crate) fn failure(&self) -> Option<&str> {
        match &self.status {
            Status::Failed(reason) => Some(reason),
            _ => None,
        }
    }

    /// Returns the process identifier.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }
}

/// All agents.
#[derive(Debug)]
pub(crate) struct Fleet {
    agents: Vec<Agent>,
    recorder: Option<Arc<Recorder>>,
    news: Receiver<(usize, News)>,
}

impl Fleet {
    /// Starts the agents, whose samples are recorded. They end when the fleet is dropped.
    pub(crate) fn start(plans: Vec<Plan>, recorder: Option<&Arc<Recorder>>) -> Fleet {
        let (tell, news) = mpsc::channel();
        let agents = plans.into_iter().enumerate().map(|(at, plan)| {
            let (ticks, ticked) = mpsc::channel();
            let pid = Arc::new(OnceLock::new());
            let name = plan.name.clone();
            let domain = plan.names.root().leaves().find_map(|leaf| {
                let pmid = leaf.pmid()?;
                Some(pmid.dynamic_root().unwrap_or(pmid.domain()))
            });
            let (tell, known) = (tell.clone(), pid.clone());
            let recording = recorder.map(|recorder| Recording::new(recorder.clone(), &plan.name));
            let thread =
                thread::spawn(move || tend(plan, recording, &ticked, &known, |news| _ = tell.send((at, news))));
            Agent {
                name,
                domain,
                status: Status::Starting,
                board: Board::default(),
                pid,
                ticks: Some(ticks),
                busy: false,
                thread: Some(thread),
            }
        });
        Fleet { agents: agents.collect(), recorder: recorder.cloned(), news }
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
            if asked && agent.ticks.as_ref().is_some_and(|ticks| ticks.send(()).is_ok()) {
                agent.busy = true;
            }
        }
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
        match news {
            News::Metrics(metrics) => agent.board.set_metrics(metrics),
            News::Sample(at, sample) => {
                agent.status = Status::Running;
                agent.board.update(at, sample);
            }
            News::NotReady => agent.status = Status::NotReady,
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
        /// Time for the threads to end. It is longer than a collector waits for its agent to end.
        const GRACE: Duration = Duration::from_millis(400);
        for agent in &mut self.agents {
            agent.ticks = None;
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

/// Runs an agent from its start to its end.
fn tend(plan: Plan, recording: Option<Recording>, ticked: &Receiver<()>, pid: &OnceLock<u32>, tell: impl Fn(News)) {
    let log = plan.log.clone();
    let started = Launch::pipe(plan.command).start().inspect(|collector| {
        collector.pid().map(|started| pid.set(started));
    });
    let failure = match started {
        Ok(collector) => {
            let mut agent = Asked::new(collector, plan.names, recording);
            match serve(&mut agent, ticked, &tell) {
                Ok(()) => None,
                Err(e) => Some(match (&e, agent.end()) {
                    (Error::Closed | Error::CutShort(_), End::Exited(status)) => format!("{e} ({status})"),
                    _ => e.to_string(),
                }),
            }
        }
        Err(e) => Some(e.to_string()),
    };
    if let Some(reason) = failure {
        let said = last_line(&log).map(|line| format!("; its log: {line}"));
        tell(News::Failed(reason + &said.unwrap_or_default()));
    }
}

/// Handles requests for samples until the sender is dropped.
fn serve(agent: &mut Asked, ticked: &Receiver<()>, tell: &impl Fn(News)) -> Result<(), Error> {
    let mut discovered = false;
    while ticked.recv().is_ok() {
        match sample(agent, &mut discovered, tell) {
            Ok(()) => {}
            Err(Error::NotReady) => tell(News::NotReady),
            Err(e) => return Err(e),
        }
        tell(News::Done);
    }
    Ok(())
}

fn sample(agent: &mut Asked, discovered: &mut bool, tell: &impl Fn(News)) -> Result<(), Error> {
    if !*discovered {
        tell(News::Metrics(agent.discover()?));
        *discovered = true;
    }
    let (readings, renamed) = agent.sample()?;
    tell(News::Sample(Instant::now(), readings));
    *discovered = !renamed;
    Ok(())
}

/// Returns the last line of a log that is neither empty nor PCP's header or footer.
fn last_line(log: &Path) -> Option<String> {
    let text = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with("Log ")).map(|line| clean(line.trim()))
}
