//! The agent as a process, with hostile sources that change all the time, and honest ones that must keep their values.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pcp_collector::{Collector, Launch, Process};
use pmapi::{Inst, PmId};

use super::{damage, scripts, servers};
use crate::host::{PATIENCE, Scene, command};
use crate::job::Job;
use crate::patience::scaled;
use crate::probe::number;
use crate::rng::Rng;
use crate::spec::Spec;
use crate::{Outcome, procs};

/// Number of hostile sources.
const SOURCES: usize = 12;
/// Largest number of descriptors of the agent: two for each of its threads, one for each connection that it keeps, and
/// its own.
const DESCRIPTORS: usize = 200;
/// Memory for all sources, in MiB. They may need twice as much for a short time, which leaves most of the limit of
/// [`Spec::memory`] for documents and threads.
const MEMORY: &str = "24";
/// Metrics that the agent must always have, with their values.
const HONEST: [(&str, f64); 3] =
    [("openmetrics.honest.count", 12_345.0), ("openmetrics.server.count", 12_345.0), ("openmetrics.steady.count", 5.0)];

/// The agent, and the directory of its sources.
struct Stage {
    agent: Collector<Process>,
    pid: u32,
    scene: Scene,
    port: u16,
    honest: Vec<PmId>,
    calls: PmId,
    /// Number of readings at the end of the last round.
    called: f64,
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?.with_openmetrics()?;
    let spec = Spec::of("openmetrics").ok_or("no agent openmetrics")?;
    let port = scene.trace_port + 5;
    servers::start(port)?;
    // On a busy machine, honest sources may take longer than the limit for the others.
    fs::write(scene.config().join("server.url"), format!("http://127.0.0.1:{port}/honest\nTIMEOUT: 20sec\n"))?;
    fs::write(scene.config().join("steady.conf"), "TIMEOUT: 20sec\n")?;
    write_script(&scene.config().join("steady"), "#!/bin/sh\necho count 5\n", 0o755)?;
    let mut stage = Stage::start(job, spec, &scene, port)?;
    while let Some((round, mut rng)) = job.next_round() {
        for source in 0..SOURCES {
            if rng.one_in(3) {
                stage.replace(&mut rng, source)?;
            }
        }
        let outcome = stage.ask(job, &mut rng);
        if job.expect("round", outcome).is_none() {
            drop(stage);
            stage = Stage::start(job, spec, &scene, port)?;
        }
        if round % 16 == 0 {
            stage.check(job, spec);
        }
    }
    stage.check(job, spec);
    for source in 0..SOURCES {
        stage.remove(source)?;
    }
    let outcome = stage.no_children_but(Duration::from_secs(20));
    job.expect("processes of scripts", outcome);
    Ok(())
}

fn write_script(path: &Path, text: &str, mode: u32) -> Outcome {
    // A script that is open for writing cannot be run.
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, Permissions::from_mode(mode))?;
    Ok(fs::rename(new, path)?)
}

impl Stage {
    fn start(job: &Job, spec: &'static Spec, scene: &Scene, port: u16) -> Outcome<Stage> {
        let mut command = command(spec, &job.order.bin, scene);
        command.args(["--notready", "-t", "500msec", "--script-timeout", "500msec", "--bytes", "1000000"]);
        command.args(["--instances", "2000", "--memory", MEMORY]);
        let mut agent = Launch::pipe(command).not_ready().timeout(Some(scaled(PATIENCE))).start()?;
        if !agent.wait_ready(Some(scaled(PATIENCE)))? {
            return Err("the agent is not ready in time".into());
        }
        let pid = agent.pid().ok_or("no process")?;
        let mut honest = Vec::new();
        for (name, _) in HONEST {
            honest.push(found(&mut agent, name)?);
        }
        let calls = found(&mut agent, "openmetrics.control.calls")?;
        let mut stage = Stage { agent, pid, scene: scene.clone(), port, honest, calls, called: 0.0 };
        stage.called = stage.value(stage.calls)?;
        Ok(stage)
    }

    fn value(&mut self, pmid: PmId) -> Outcome<f64> {
        let values = self.agent.values(pmid)?;
        let value = values.get(Inst::new(0)).or_else(|| values.iter().next().map(|(_, atom)| atom));
        number(value.ok_or("no value")?)
    }

    /// Requests the honest values, and all values of the hostile sources.
    fn ask(&mut self, job: &mut Job, rng: &mut Rng) -> Outcome {
        for at in 0..self.honest.len() {
            let (Some(pmid), Some((name, expected))) = (self.honest.get(at).copied(), HONEST.get(at)) else { continue };
            let start = Instant::now();
            let value = self.value(pmid).map_err(|e| format!("{name}: {e}"))?;
            job.took(start.elapsed());
            if value != *expected {
                return Err(format!("{name} is {value}, not {expected}").into());
            }
        }
        let names = self.agent.traverse("openmetrics")?;
        let from = rng.below(names.len());
        let some: Vec<&String> = names.iter().skip(from).take(100).collect();
        let mut pmids = Vec::new();
        for name in some.iter().take(30) {
            // A source may be gone since.
            pmids.extend(self.agent.pmid(name).ok());
        }
        if !pmids.is_empty() {
            self.agent.fetch(&pmids)?;
        }
        if let Some(pmid) = pmids.get(rng.below(pmids.len())).copied()
            && let Ok(desc) = self.agent.desc(pmid)
            && let Some(indom) = desc.indom
        {
            let _ = self.agent.instances(indom);
            let _ = self.agent.labels(pcp_collector::LabelTarget::Instances(Some(indom)));
            let _ = self.agent.labels(pcp_collector::LabelTarget::Item(pmid));
        }
        let called = self.value(self.calls)?;
        job.tried((called - self.called).max(0.0) as u64);
        self.called = called;
        Ok(())
    }

    fn check(&self, job: &mut Job, spec: &Spec) {
        job.check_memory(self.pid, spec.memory);
        job.check_log(&self.scene.logs());
        let descriptors = procs::descriptors(self.pid).unwrap_or(0);
        if descriptors > DESCRIPTORS {
            job.fail(format_args!("{descriptors} descriptors"));
        }
    }

    /// Waits until no script runs any more.
    fn no_children_but(&mut self, time: Duration) -> Outcome {
        let begin = Instant::now();
        loop {
            let left = procs::descendants(self.pid);
            if left.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > time {
                return Err(format!("{left:?} go on").into());
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn path(&self, source: usize, end: &str) -> PathBuf {
        self.scene.config().join(format!("h{source}{end}"))
    }

    fn remove(&self, source: usize) -> Outcome {
        for end in [".url", ".sh", ".conf"] {
            let path = self.path(source, end);
            if path.symlink_metadata().is_ok() {
                fs::remove_file(&path).or_else(|_| fs::remove_dir(&path))?;
            }
        }
        Ok(())
    }

    /// Replaces a source by another one.
    fn replace(&self, rng: &mut Rng, source: usize) -> Outcome {
        self.remove(source)?;
        let document = self.scene.dir().join(format!("h{source}.txt"));
        let (url, script) = (self.path(source, ".url"), self.path(source, ".sh"));
        match rng.below(16) {
            0..=5 => {
                let scheme = if rng.one_in(6) { "https" } else { "http" };
                fs::write(&url, format!("{scheme}://127.0.0.1:{}/{}\n", self.port, rng.next() >> 1))?;
            }
            6..=8 => {
                fs::write(&document, damage::document(rng))?;
                let more = if rng.one_in(2) { damage::url_file(rng) } else { String::new() };
                let more = more.split_once('\n').map_or("", |(_, more)| more);
                fs::write(&url, format!("file://{}\n{more}", document.display()))?;
            }
            9..=11 => {
                fs::write(&document, damage::document(rng))?;
                let mode = rng.pick(&[0o755, 0o755, 0o755, 0o755, 0o777, 0o100, 0o6755]);
                if rng.one_in(3) {
                    fs::write(self.path(source, ".conf"), damage::url_file(rng))?;
                }
                write_script(&script, &scripts::script(rng, &document.display().to_string()), mode)?;
            }
            12 => fs::write(&url, damage::url_file(rng))?,
            13 => {
                let odd = ["/dev/zero", "/proc/self/mem", "/nonexistent", "/", "", "/etc/shadow", "/proc/self/environ"];
                fs::write(&url, format!("file://{}\n", rng.pick(&odd)))?;
            }
            14 => match rng.below(5) {
                0 => symlink("/dev/zero", &url)?,
                1 => symlink(&url, &url)?,
                2 => mkfifo(&url, Mode::from_bits_truncate(0o644))?,
                3 => fs::create_dir(&url)?,
                _ => fs::write(&url, vec![b'#'; 2 << 20])?,
            },
            _ => {}
        }
        Ok(())
    }
}

/// Requests a name until the agent has it.
fn found(agent: &mut Collector<Process>, name: &str) -> Outcome<PmId> {
    let begin = Instant::now();
    loop {
        match agent.pmid(name) {
            Ok(pmid) => return Ok(pmid),
            Err(e) if begin.elapsed() > scaled(PATIENCE) => return Err(format!("{name}: {e}").into()),
            Err(_) => sleep(Duration::from_millis(5)),
        }
    }
}
