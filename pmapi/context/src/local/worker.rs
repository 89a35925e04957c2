//! The thread that calls the agents of local contexts. It publishes nothing, unlike the one of a `pmda::Background`: each
//! request gives it a job, and waits for the answer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::unistd::{getgid, getuid};
use pcp_collector::{Channel, Collector, Launch, SharedObject};
use pcp_pdu::Header;
use pcp_pdu::handshake::{Attr, Attribute, Features};
use pmapi::{Domain, Error};
use pmns::Tree;

use super::{LocalAgent, LocalAgents};

/// Why a local context cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocalError {
    /// This process already has a local context, which can be duplicated. A second one would initialize the agents
    /// again, and call them from another thread.
    #[error("this process has a local context already")]
    InUse,
    /// The names of the metrics cannot be loaded.
    #[error("{}: {reason}", path.display())]
    Names {
        /// Path of the file.
        path: PathBuf,
        /// Reason why the agent is refused.
        reason: String,
    },
    /// The thread for the agents cannot be started.
    #[error("cannot start the thread that calls the agents: {0}")]
    Thread(String),
}

/// Connection to an agent, in this process or another.
pub(super) struct AgentChannel(Box<dyn Channel>);

impl Channel for AgentChannel {
    fn send(&mut self, bytes: &[u8], timeout: Option<Duration>) -> pcp_collector::Result {
        self.0.send(bytes, timeout)
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> pcp_collector::Result<Header> {
        self.0.receive(pdu, timeout)
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// Loads an agent, or starts the program that serves it.
#[allow(unsafe_code, reason = "agents are shared objects")]
fn started(list: &LocalAgents, agent: &LocalAgent) -> Result<Collector<AgentChannel>, String> {
    let (file, domain) = (list.file(agent), agent.domain.get());
    let Some(program) = &list.host else {
        // SAFETY: without a host, the list is from `Context::open_local`, whose caller trusts these files.
        let object = unsafe { SharedObject::open(&file, &agent.init, domain.into()) }.map_err(|e| e.to_string())?;
        let features = object.features();
        return Ok(Collector::with_features(AgentChannel(Box::new(object)), features));
    };
    let mut command = Command::new(program);
    command.arg("--so").arg(file).args(["--entry", &agent.init, "-d", &domain.to_string(), "-l", "-"]);
    let process = Launch::pipe(command).isolated().open().map_err(|e| e.to_string())?;
    Collector::connect(AgentChannel(Box::new(process))).map_err(|e| format!("{}: {e}", program.display()))
}

/// State of the thread.
pub(super) struct Agents {
    pub(super) names: Tree,
    pub(super) by_domain: BTreeMap<Domain, Collector<AgentChannel>>,
    /// Why agents could not be loaded.
    failures: Vec<String>,
}

impl Agents {
    /// Returns the agent of a domain, whose next requests are those of a client.
    pub(super) fn get(&mut self, domain: Domain, client: i32) -> Result<&mut Collector<AgentChannel>, Error> {
        Ok(self.by_domain.get_mut(&domain).ok_or(Error::NOAGENT)?.as_client(client))
    }

    /// Sends user, group and process to the agents that ask for attributes of a client.
    pub(super) fn introduce(&mut self, client: i32) {
        let attributes = [
            (Attribute::USERID, getuid().to_string()),
            (Attribute::GROUPID, getgid().to_string()),
            (Attribute::PROCESSID, std::process::id().to_string()),
        ];
        for agent in self.by_domain.values_mut().filter(|agent| agent.features().intersects(Features::AUTHORIZE)) {
            for (attribute, value) in &attributes {
                let attr = Attr { attribute: *attribute, value: value.as_bytes() };
                // As in libpcp, an agent that refuses an attribute does not get the remaining ones.
                if agent.as_client(client).send_raw(|out, from| attr.encode(out, from)).is_err() {
                    break;
                }
            }
        }
    }

    fn load(names: Tree, list: &LocalAgents) -> Agents {
        let mut agents = Agents { names, by_domain: BTreeMap::new(), failures: Vec::new() };
        for agent in list.iter() {
            match started(list, agent) {
                Ok(collector) => _ = agents.by_domain.insert(agent.domain, collector),
                Err(e) => agents.failures.push(format!("agent of domain {}: {e}", agent.domain.get())),
            }
        }
        agents
    }
}

type Job = Box<dyn FnOnce(&mut Agents) + Send>;

/// The thread. Agents in C are called only by this thread.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the process has a worker.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Records, when dropped, that the process no longer has a worker.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        IN_USE.store(false, Ordering::Release);
    }
}

impl Worker {
    /// Loads the agents. Also returns the reasons why some of them could not be loaded.
    pub(super) fn start(list: LocalAgents) -> Result<(Worker, Vec<String>), LocalError> {
        if IN_USE.swap(true, Ordering::AcqRel) {
            return Err(LocalError::InUse);
        }
        let release = Release;
        let names = pmns::Loader::new().include_dir(&list.includes).load(&list.names).map_err(|e| {
            let reason = e.to_string().lines().next().unwrap_or_default().to_owned();
            LocalError::Names { path: list.names.clone(), reason }
        })?;
        let (jobs, received) = channel::<Job>();
        let (report, reported) = channel();
        let thread = std::thread::Builder::new()
            .name("pcp-local".into())
            .spawn(move || {
                // Dropped last, after the agents.
                let _release = release;
                let mut agents = Agents::load(names, &list);
                _ = report.send(std::mem::take(&mut agents.failures));
                for job in received {
                    job(&mut agents);
                }
            })
            .map_err(|e| LocalError::Thread(e.to_string()))?;
        let worker = Worker { jobs: Some(jobs), thread: Some(thread) };
        let failures =
            reported.recv().unwrap_or_else(|_| vec!["an agent has ended the thread that calls it".to_owned()]);
        Ok((worker, failures))
    }

    /// Runs a function with the agents.
    ///
    /// # Errors
    /// `PM_ERR_IPC` if an agent has ended the thread by a panic.
    pub(super) fn ask<T: Send + 'static>(&self, f: impl FnOnce(&mut Agents) -> T + Send + 'static) -> Result<T, Error> {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |agents| _ = answer.send(f(agents)));
        self.jobs.as_ref().ok_or(Error::IPC)?.send(job).map_err(|_| Error::IPC)?;
        answered.recv().map_err(|_| Error::IPC)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}
