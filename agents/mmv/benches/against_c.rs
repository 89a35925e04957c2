//! Agent mmv compared with PCP's C agent, on the same files: `cargo bench -p pmda-mmv`.

#![allow(clippy::expect_used)]

#[path = "../../../pmda/benches/driver/mod.rs"]
mod driver;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

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
    // The measurements named on the command line, or all.
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let unknown = named.iter().find(|name| !["fetch", "start", "change"].contains(&name.as_str()));
    assert!(unknown.is_none(), "no measurement {unknown:?}");
    let wanted = |part: &str| named.is_empty() || named.iter().any(|name| name == part);
    if wanted("fetch") {
        for (files, metrics, instances) in
            [(10, 1000, 0), (1, 10, 1000), (100, 100, 0), (1000, 10, 0), (1000, 10, 10), (1000, 100, 0)]
        {
            Scene { files, metrics, instances }.measure();
        }
    }
    for (files, metrics) in [(1000, 100), (100, 1000)] {
        let scene = Scene { files, metrics, instances: 0 };
        if wanted("start") {
            scene.measure_start();
        }
        if wanted("change") {
            scene.measure_changes();
        }
    }
}

impl Scene {
    /// Returns the C agent, if it is installed, and this agent, both for the files of a home directory.
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

    fn title(&self) {
        println!("\n{} values in {} files", u32::from(self.files) * u32::from(self.metrics), self.files);
    }

    /// Measures the time from the start to the first answer: to a fetch of one value, and to a list of all names.
    fn measure_start(&self) {
        let home = Home::new();
        let (c, ours, _registries) = self.agents(&home);
        self.title();
        for (what, first) in
            [("a value", Requests::of(70).fetch(&[(self.files, 0)])), ("all names", Requests::of(70).names("mmv"))]
        {
            print!("\nfirst answer: {what}");
            Contest::new(&home, c.clone(), ours.clone(), first).starts(7, Goal::Cpu(0.25));
        }
    }

    /// Measures a fetch of one value after one file has appeared, disappeared or been written again.
    fn measure_changes(&self) {
        let home = Home::new();
        let (c, ours, _registries) = self.agents(&home);
        self.title();
        let directory = home.path("tmp").join("mmv");
        let (file, away) = (directory.join("file1"), home.path("tmp").join("away"));
        let mut contest = Contest::new(&home, c, ours, Vec::new());
        let fetch = Requests::of(70).fetch(&[(self.files, 0)]);
        let (mut time, mut generation) = (0, 1 << 32);
        let mut come_or_go = || {
            let (from, to) = if file.exists() { (&file, &away) } else { (&away, &file) };
            fs::rename(from, to).expect("a file that moves");
            // The C agent compares whole seconds.
            time += 1;
            let past = UNIX_EPOCH + Duration::from_secs(time);
            let directory = fs::File::open(&directory).expect("a directory");
            directory.set_modified(past).expect("a time");
        };
        contest.after("a file comes or goes", &mut come_or_go, &fetch, 20, Goal::Cpu(0.25));
        let mut write = || {
            generation += 1u64;
            let open = fs::File::options().write(true).open(directory.join("file2")).expect("a file");
            let generations = [generation.to_ne_bytes(), generation.to_ne_bytes()].concat();
            open.write_all_at(&generations, 8).expect("generations");
        };
        contest.after("a file is written again", &mut write, &fetch, 20, Goal::Cpu(0.25));
        contest.after("nothing has changed", || {}, &fetch, 20, Goal::Cpu(1.0));
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
