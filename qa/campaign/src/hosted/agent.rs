//! The agent of `bad.c` behind `pmda-host`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pcp_collector::{Collector, End, Error, Launch, Process};
use pcp_pdu::metadata::{Subject, TextKind};
use pmapi::{Atom, Domain, InDom, Item, PmId, Serial};

use crate::Outcome;
use crate::host::Scene;
use crate::job::Job;

/// Domain of the agent's metrics.
const DOMAIN: u16 = 400;
/// How long the collector waits for an answer: longer than the job waits.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns whether this machine can compile the agent.
pub(super) fn is_possible() -> bool {
    Command::new("gcc").arg("--version").output().is_ok() && Path::new("/usr/include/pcp/pmda.h").exists()
}

/// The host's program and the shared object.
pub(super) struct Objects {
    host: PathBuf,
    object: PathBuf,
    scene: Scene,
}

impl Objects {
    /// Compiles the shared object.
    pub(super) fn new(job: &Job) -> Outcome<Objects> {
        let scene = Scene::new(job)?;
        let dir = job.dir("objects")?;
        let (source, object) = (dir.join("bad.c"), dir.join("pmda_bad.so"));
        fs::write(&source, include_str!("bad.c"))?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-w", "-fPIC", "-shared", "-o"]).arg(&object).arg(&source);
        let output = gcc.args(["-lpcp_pmda", "-lpcp", "-lpthread"]).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        Ok(Objects { host: job.order.bin.join("pmda-host"), object, scene })
    }

    /// Returns the path of the shared object, which is on the command line of all processes of the agent.
    pub(super) fn object(&self) -> String {
        self.object.display().to_string()
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.scene.logs()
    }

    /// Starts the host.
    pub(super) fn start(&self) -> Outcome<Hosted> {
        let mut command = Command::new(&self.host);
        command.arg("--so").arg(&self.object).args(["--patience", "0.3", "-d", &DOMAIN.to_string(), "-l"]);
        command.arg(self.scene.log("bad")).current_dir(self.scene.logs());
        let agent = Launch::pipe(command).timeout(Some(TIMEOUT)).handshake_timeout(Some(TIMEOUT)).start()?;
        Ok(Hosted { agent })
    }
}

/// Kind of the agent's answer.
pub(super) enum Answer {
    /// A valid answer.
    Given,
    /// An error, which may be that the agent is not ready.
    Refused,
    /// The connection has ended, or pmcd would end it after this answer.
    Broken(Error),
}

/// A running host.
pub(super) struct Hosted {
    agent: Collector<Process>,
}

fn domain() -> Outcome<Domain> {
    Domain::new(DOMAIN).ok_or_else(|| format!("{DOMAIN} is no domain").into())
}

fn pmid(cluster: u16, item: u16) -> Outcome<PmId> {
    Ok(PmId::new(domain()?, Item::new(cluster, item)))
}

fn answer<T>(result: Result<T, Error>) -> Answer {
    match result {
        Ok(_) => Answer::Given,
        // An answer with other metrics than requested is not an error of the host: it passes the answer on.
        Err(Error::Agent(_) | Error::NotReady | Error::Count { .. }) => Answer::Refused,
        Err(e) => Answer::Broken(e),
    }
}

impl Hosted {
    pub(super) fn pid(&self) -> u32 {
        self.agent.pid().unwrap_or_default()
    }

    /// Waits until the agent is ready, and checks its value.
    pub(super) fn is_right(&mut self) -> Outcome {
        if !self.agent.wait_ready(Some(TIMEOUT))? {
            return Err("the agent stays not ready".into());
        }
        match self.agent.value(pmid(0, 0)?)? {
            Atom::U32(42) => Ok(()),
            other => Err(format!("{other:?} in place of 42").into()),
        }
    }

    /// Stores the amount of the harm.
    pub(super) fn set_amount(&mut self, amount: u32) -> Outcome {
        Ok(self.agent.store(pmid(0, 0)?, None, Atom::U32(amount))?)
    }

    pub(super) fn fetch(&mut self, cluster: u16, item: u16) -> Outcome<Answer> {
        Ok(answer(self.agent.fetch(&[pmid(cluster, item)?])))
    }

    pub(super) fn desc(&mut self) -> Outcome<Answer> {
        Ok(match self.agent.desc(pmid(1, 0)?) {
            // pmcd passes types and semantics that it does not know to clients.
            Err(Error::Decode(_)) => Answer::Given,
            other => answer(other),
        })
    }

    pub(super) fn text(&mut self) -> Outcome<Answer> {
        Ok(answer(self.agent.text(Subject::Metric(pmid(0, 0)?), TextKind::OneLine)))
    }

    pub(super) fn instances(&mut self) -> Outcome<Answer> {
        Ok(answer(self.agent.instances(InDom::new(domain()?, Serial::new(1)))))
    }

    /// Closes the connection. Returns an error if the host does not end by itself.
    pub(super) fn end(self) -> Outcome {
        match self.agent.close_within(TIMEOUT) {
            End::Exited(status) if status.code().is_some_and(|code| code < 100) => Ok(()),
            other => Err(format!("the host has not ended by itself: {other:?}").into()),
        }
    }
}
