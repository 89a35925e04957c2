//! Changes around an agent while it answers: of instances, files, processes and configurations.

use std::fs;
use std::path::PathBuf;

use mmv::Registry;
use pcp_pdu::handshake::{Attr, Attribute};
use pmapi::{Atom, PmId};
use trace::{Options, Tag, Trace, Transport};

use crate::Outcome;
use crate::host::{Host, Scene};
use crate::job::Job;
use crate::probe::Probe;
use crate::rng::Rng;
use crate::spec::Spec;

use super::recording;
use super::sources::Sources;

/// The surroundings of an agent: files, processes and configurations that change.
pub(super) struct Surroundings {
    spec: &'static Spec,
    scene: Scene,
    bin: PathBuf,
    /// Applications that export metrics now.
    registries: Vec<Registry>,
    /// Applications that trace now.
    traces: Vec<Trace>,
    /// Sources of agent openmetrics.
    sources: Option<Sources>,
}

impl Surroundings {
    /// Prepares the surroundings, before the agent starts.
    pub(super) fn new(spec: &'static Spec, job: &Job, scene: &Scene) -> Outcome<Surroundings> {
        let sources = if spec.name == "openmetrics" { Some(Sources::new(scene)?) } else { None };
        if spec.name == "replay" {
            recording::write(&scene.recording())?;
        }
        let (scene, bin) = (scene.clone(), job.order.bin.clone());
        Ok(Surroundings { spec, scene, bin, registries: Vec::new(), traces: Vec::new(), sources })
    }

    /// Returns further probes for the agent.
    pub(super) fn probes(&self, host: &mut dyn Host) -> Outcome<Vec<Probe>> {
        self.sources.as_ref().map_or(Ok(Vec::new()), |_| Sources::probes(host))
    }

    /// Makes one random change that fits the agent.
    pub(super) fn change(&mut self, rng: &mut Rng, host: &mut dyn Host) -> Outcome {
        match self.spec.name {
            "simple" => {
                let conf = rng.pick(&["sec\n", "sec,min\n", "hour,min,sec\n", "\n"]);
                Ok(fs::write(self.scene.dir().join("pmdas/simple/simple.conf"), conf)?)
            }
            "showcase" => match rng.below(3) {
                0 => self.store(host, 7, 0, Atom::U32(1 + rng.below(60) as u32)),
                // The agent may refuse to add a name that it already has, or to remove one that it lacks.
                1 => self.store_text(host, 0, &format!("some.name{}", rng.below(50))).or(Ok(())),
                _ => self.store_text(host, 1, &format!("some.name{}", rng.below(50))).or(Ok(())),
            },
            "mmv" => self.applications(rng),
            "trace" => self.tracers(rng),
            "openmetrics" => self.sources.as_ref().map_or(Ok(()), |sources| sources.change(rng)),
            "replay" => {
                let (item, value) = recording::change(rng);
                self.store(host, 0, item, value)
            }
            "derived" if rng.one_in(25) => self.reload(rng, host),
            _ => Ok(()),
        }
    }

    fn pmid(&self, cluster: u16, item: u16) -> PmId {
        self.spec.pmid(cluster, item)
    }

    fn store(&self, host: &mut dyn Host, cluster: u16, item: u16, value: Atom<'_>) -> Outcome {
        let mut probe = Probe::default();
        Attr { attribute: Attribute::USERID, value: b"0" }.encode(&mut probe.pdus, 99)?;
        probe.store(self.pmid(cluster, item), value)?.ask(host)
    }

    fn store_text(&self, host: &mut dyn Host, item: u16, text: &str) -> Outcome {
        self.store(host, 10, item, Atom::String(text.as_bytes()))
    }

    /// Starts an application with metrics and instances, or ends one.
    fn applications(&mut self, rng: &mut Rng) -> Outcome {
        if self.registries.len() > 4 || rng.one_in(3) {
            if !self.registries.is_empty() {
                self.registries.swap_remove(rng.below(self.registries.len()));
            }
            return Ok(());
        }
        let name = format!("passing{}", rng.below(1000));
        if self.scene.mmv().join(&name).exists() {
            return Ok(());
        }
        let registry = Registry::builder(&name).directory(self.scene.mmv()).cluster(12).build()?;
        registry.counter("count").item(1).register()?.inc();
        let rows = registry.indom("rows").register()?;
        let family = registry.counter("rows").item(2).over(&rows)?;
        registry.try_start()?;
        for n in 0..rng.below(20) {
            family.instance(&format!("row {n}"))?.inc();
        }
        self.registries.push(registry);
        Ok(())
    }

    /// Starts an application that traces, through shared memory or over TCP, or ends one.
    fn tracers(&mut self, rng: &mut Rng) -> Outcome {
        if self.traces.len() > 2 || rng.one_in(3) {
            if !self.traces.is_empty() {
                self.traces.swap_remove(rng.below(self.traces.len()));
            }
            return Ok(());
        }
        let options = Options::default()
            .host("127.0.0.1")
            .port(self.scene.trace_port)
            .directory(self.scene.trace())
            .ring_len(4096);
        let transport = if rng.one_in(2) { Transport::Tcp } else { Transport::SharedMemory };
        let trace = Trace::new(options.transport(transport));
        for n in 0..rng.below(20) {
            let tag = Tag::new(&format!("passing{}", n + rng.below(30)))?;
            trace.point(&tag);
            trace.observe(&tag, 0.5);
            trace.transact(&tag, std::time::Duration::from_millis(1));
        }
        self.traces.push(trace);
        Ok(())
    }

    /// Replaces the configuration by one with another valid or invalid metric, and reloads it.
    fn reload(&mut self, rng: &mut Rng, host: &mut dyn Host) -> Outcome {
        let more =
            ["", "x = \"showcase.bin.size * 3\"\n", "y = \"rate(\"\n", "z = \"delta(showcase.counter.fetches)\"\n"];
        self.scene.configure(&self.bin, rng.pick(&more))?;
        self.store(host, 0, 8, Atom::U32(1))
    }

    /// Ends all applications.
    pub(super) fn end(&mut self) {
        self.registries.clear();
        self.traces.clear();
    }
}
