//! Agent mmv beside PCP's C agent, on the same files: `cargo bench -p pmda-mmv`.

#![allow(clippy::expect_used)]

#[path = "../../../pmda/benches/driver/mod.rs"]
mod driver;

use std::fs;
use std::path::Path;

use driver::{Contest, Goal, Home, Program, Requests, Shape, no_peer};
use mmv::{Counter, Family, Registry};
use testkit::Pcp;

/// Files with metrics over instances, or singular ones.
struct Scene {
    files: u16,
    metrics: u16,
    instances: u32,
}

fn main() {
    if !driver::begin("agent mmv") {
        return;
    }
    for (files, metrics, instances) in [(10, 1000, 0), (1, 10, 1000), (100, 100, 0), (1000, 10, 0), (1000, 10, 10)] {
        Scene { files, metrics, instances }.measure();
    }
    Scene { files: 1000, metrics: 100, instances: 0 }.measure_start();
}

impl Scene {
    /// The agents on the files of a home.
    fn agents(&self, home: &Home) -> (Option<Program>, Program, Vec<Registry>) {
        let tmp = home.path("tmp");
        let registries = self.write(&tmp.join("mmv"));
        let agent = |label, binary: &Path| home.agent(label, binary, &home.path("pmdas")).env("PCP_TMP_DIR", &tmp);
        let c = Pcp::locate().map(|pcp| pcp.path("PCP_PMDASADM_DIR").join("mmv/pmdammv")).ok();
        if c.is_none() {
            no_peer("PCP is not installed");
        }
        let c = c.map(|c| agent("C", &c));
        (c, agent("Rust", env!("CARGO_BIN_EXE_pmdammv").as_ref()), registries)
    }

    /// Start to the first answer, that to a fetch of one value.
    fn measure_start(&self) {
        let home = Home::new();
        let (c, ours, _registries) = self.agents(&home);
        println!("\n{} values in {} files", u32::from(self.files) * u32::from(self.metrics), self.files);
        Contest::new(&home, c, ours, Requests::of(70).fetch(&[(self.files, 0)])).starts(7, Goal::Cpu(0.25));
    }

    fn measure(&self) {
        let home = Home::new();
        let (c, ours, _registries) = self.agents(&home);
        let requests = Requests::of(70);
        let items: Vec<(u16, u16)> =
            (1..=self.files).flat_map(|file| (0..self.metrics).map(move |metric| (file, metric))).collect();
        let fetch = [requests.fetch(&items)];
        let mut contest = Contest::new(&home, c, ours, fetch[0].clone());
        contest.agree(&fetch);
        let values = items.len() * self.instances.max(1) as usize;
        let title = format!("fetch of {values} values in {} files", self.files);
        contest.run(&title, &fetch, Shape { blocks: 3, rounds: 10 }, Some(Goal::Cpu(0.3)));
        let desc: Vec<Vec<u8>> = items.iter().take(20).map(|item| requests.desc(*item)).collect();
        contest.run("desc", &desc, Shape { blocks: 3, rounds: 200 }, None);
    }

    fn write(&self, directory: &Path) -> Vec<Registry> {
        fs::create_dir_all(directory).expect("a directory");
        (1..=self.files).map(|file| self.write_file(directory, file)).collect()
    }

    fn write_file(&self, directory: &Path, file: u16) -> Registry {
        let builder = Registry::builder(&format!("file{file}")).directory(directory).cluster(file);
        let registry = builder.persistent().build().expect("a registry");
        let names: Vec<String> = (0..self.instances).map(|i| format!("instance{i}")).collect();
        let indom = registry.indom("i").serial(1).numbered((0..).zip(names.iter().map(String::as_str)));
        let indom = indom.register().expect("a domain");
        for metric in 0..self.metrics {
            let name = format!("m{metric}");
            let builder = registry.counter(&name).item(metric);
            if self.instances == 0 {
                let counter: Counter = builder.register().expect("a metric");
                counter.add(u64::from(file) << 32 | u64::from(metric));
            } else {
                let family: Family<Counter> = builder.over(&indom).expect("a metric");
                family.instance("instance0").expect("a value").add(1 << 40);
            }
        }
        registry.try_start().expect("a file");
        registry
    }
}
