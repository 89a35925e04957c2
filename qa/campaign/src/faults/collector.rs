//! The real pmcd with three agents, one of them a shared object. pmcd and its agents are killed and stopped, and pmcd
//! reloads its configuration.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcp_client::{Context, HostSpec, Settings};
use pmapi::{Atom, PmId, Type};
use testkit::{Agent, Pcp, Pmcd};
use trace::{Options, Tag, Trace, Transport};

use crate::Outcome;
use crate::honest::{FIXED, Honest};
use crate::host::{PATIENCE, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::probe::number;
use crate::rng::Rng;

/// Longest wait of a client for pmcd's own metrics, and of an application for a trace event.
const PROMPT: Duration = Duration::from_millis(100);

const NAMES: [&str; 4] = ["pmcd.version", "mmv.honest.count", "simple.numfetch", "trace.point.count"];

/// Starts the collector.
fn start(job: &Job, scene: &Scene) -> Outcome<Pmcd> {
    let pcp = Pcp::locate()?;
    let binary = |name: &str| job.order.bin.join(format!("pmda{name}"));
    let log = |name: &str| ["-l".to_owned(), scene.log(name).display().to_string()];
    let object = job.order.bin.join("libpmda_mmv.so");
    let mmv = Agent::new("mmv", 70, object).names("root {\n    mmv MMV:*:*\n}\n").dso("mmv_init");
    let simple = Agent::new("simple", 253, binary("simple"))
        .names("root {\n    simple\n}\nsimple {\n    numfetch SIMPLE:0:0\n}\n")
        .args(log("simple"));
    let trace = Agent::new("trace", 10, binary("trace"))
        .names("root {\n    trace\n}\ntrace {\n    point\n}\ntrace.point {\n    count TRACE:0:6\n}\n")
        .args(["-I".to_owned(), scene.trace_port.to_string()])
        .args(log("trace"));
    let base = &job.order.dir;
    let pmcd = pcp.pmcd().env("PCP_TMP_DIR", base.join("tmp")).env("PCP_RUN_DIR", base.join("run"));
    let pmcd = pmcd.env("PCP_VAR_DIR", base.join("var")).env("PCP_PMDAS_DIR", base.join("pmdas"));
    Ok(pmcd.agent(mmv).agent(simple).agent(trace).start())
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let honest = Honest::new(&scene)?;
    let mut pmcd = start(job, &scene)?;
    // Agent trace accepts files only after its first answer.
    let begin = Instant::now();
    while scene.marks().is_err() && begin.elapsed() < scaled(PATIENCE) {
        sleep(Duration::from_millis(5));
    }
    honest.mark()?;
    let options = Options::default().host("127.0.0.1").port(scene.trace_port).transport(Transport::Tcp);
    let marks = Trace::new(options);
    let tag = Tag::new("synchronous")?;
    let mut client = Client::new(&pmcd)?;
    while let Some((round, mut rng)) = job.next_round() {
        let outcome = strike(job, &mut rng, &mut pmcd, &mut client, &marks, &tag);
        job.tried(1);
        job.expect("a fault of pmcd or its agents", outcome);
        let outcome = client.settles(job, &pmcd);
        if job.expect("after a fault of pmcd or its agents", outcome).is_none() {
            pmcd.restart();
            client = Client::new(&pmcd)?;
        }
        if round % 16 == 0 {
            job.check_memory(pmcd.pid().as_raw().cast_unsigned(), 192 << 10);
            job.check_log(&scene.logs());
            job.check_log(&pmcd.log_dir());
        }
    }
    pmcd.stop();
    for name in ["simple", "trace"] {
        job.expect("agents of a pmcd that has ended", super::restart::gone(&scene.log(name).display().to_string()));
    }
    Ok(())
}

/// Causes one fault.
fn strike(job: &mut Job, rng: &mut Rng, pmcd: &mut Pmcd, client: &mut Client, marks: &Trace, tag: &Tag) -> Outcome {
    let agent = rng.pick(&["simple", "trace"]);
    match rng.below(6) {
        0 => {
            pmcd.kill_agent(agent);
            // pmcd notices the end of an agent at its next request.
            let _ = client.fetch();
            client.prompt(job)?;
            pmcd.sighup();
        }
        1 => stopped(pmcd.pid(), rng, || {
            // A pmcd that hangs must not delay applications. A busy machine may delay one of them once.
            let mut late = 0;
            for _ in 0..5 {
                let begin = Instant::now();
                marks.point(tag);
                job.took(begin.elapsed());
                late += usize::from(begin.elapsed() > scaled(PROMPT));
            }
            if late > 1 {
                Err(format!("{late} of 5 points take over {:?} while pmcd is stopped", scaled(PROMPT)).into())
            } else {
                Ok(())
            }
        })?,
        2 => {
            let pid = pmcd.agent_pid(agent).ok_or("no process of the agent")?;
            stopped(Pid::from_raw(pid), rng, || client.prompt(job))?;
        }
        3 => {
            kill(pmcd.pid(), Signal::SIGKILL)?;
            pmcd.restart();
            *client = Client::new(pmcd)?;
        }
        4 => pmcd.sighup(),
        _ => {
            let mut crowd: Vec<Client> = (0..20).filter_map(|_| Client::new(pmcd).ok()).collect();
            crowd.iter_mut().try_for_each(|other| other.fetch().map(drop))?;
        }
    }
    Ok(())
}

/// Runs `work` while a process is stopped.
fn stopped(pid: Pid, rng: &mut Rng, work: impl FnOnce() -> Outcome) -> Outcome {
    kill(pid, Signal::SIGSTOP)?;
    sleep(Duration::from_millis(1 + rng.below(50) as u64));
    let outcome = work();
    kill(pid, Signal::SIGCONT)?;
    outcome
}

/// A client of pmcd that has looked up the metrics of [`NAMES`].
struct Client {
    context: Context,
    pmids: Vec<PmId>,
}

impl Client {
    fn new(pmcd: &Pmcd) -> Outcome<Client> {
        let mut context = Context::new(pmcd.host().parse::<HostSpec>()?, Settings::default())?;
        let begin = Instant::now();
        let pmids = loop {
            let found: Result<Vec<PmId>, _> = NAMES.iter().map(|name| context.lookup_name(name)).collect();
            match found {
                Err(_) if begin.elapsed() < scaled(PATIENCE) => sleep(Duration::from_millis(5)),
                found => break found?,
            }
        };
        Ok(Client { context, pmids })
    }

    /// Fetches all metrics and checks the known values.
    fn fetch(&mut self) -> Outcome {
        let sample = self.context.fetch(&self.pmids)?;
        let set = |at: usize| sample.set(at).ok_or("a value is missing");
        let mmv = set(1)?;
        mmv.error.map_or(Ok(()), Err)?;
        let (_, value) = mmv.values().next().ok_or("no value of mmv.honest.count")?;
        let value = number(value.atom(Type::U64)?)?;
        if value != FIXED.1 as f64 {
            return Err(format!("mmv.honest.count is {value}, not {}", FIXED.1).into());
        }
        for (at, name) in NAMES.iter().enumerate().skip(2) {
            set(at)?.error.map_or(Ok(()), Err).map_err(|e| format!("{name}: {e}"))?;
        }
        let most = set(3)?.values().filter_map(|(_, value)| match value.atom(Type::U64) {
            Ok(Atom::U64(points)) => Some(points),
            _ => None,
        });
        // The honest application's file still contains its points.
        if most.max() < Some(crate::honest::POINTS) {
            return Err("trace.point.count has lost points".into());
        }
        Ok(())
    }

    /// Fetches a metric of pmcd itself, which no agent may delay.
    fn prompt(&mut self, job: &mut Job) -> Outcome {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let begin = Instant::now();
            self.context.fetch(self.pmids.get(..1).unwrap_or_default())?;
            best = best.min(begin.elapsed());
            if best <= scaled(PROMPT) {
                job.took(best);
                return Ok(());
            }
        }
        Err(format!("pmcd.version takes {best:?}").into())
    }

    /// Repeats [`Client::fetch`] until it succeeds, for at most 5 s.
    fn settles(&mut self, job: &mut Job, pmcd: &Pmcd) -> Outcome {
        let begin = Instant::now();
        loop {
            let outcome = self.fetch();
            match outcome {
                Ok(()) => return self.prompt(job),
                Err(e) if begin.elapsed() > scaled(PATIENCE) => return Err(e),
                Err(_) => {
                    sleep(Duration::from_millis(10));
                    // Connects again, because pmcd may have closed the connection.
                    if let Ok(client) = Client::new(pmcd) {
                        *self = client;
                    }
                }
            }
        }
    }
}

/// Returns whether PCP is installed.
pub(crate) fn is_possible() -> bool {
    Pcp::locate().is_ok()
}
