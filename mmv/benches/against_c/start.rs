//! How long it takes until a program's files are there.
//!
//! Each start is that of a process of its own with a directory of its own, the C library's and ours by
//! turns. Nothing is removed meanwhile: file systems remember for minutes which inodes were in use, and
//! look at all of them for each new file.

use std::env;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use mmv::{Counter, Family, Registry};

const ROUNDS: usize = 15;
const GOAL: f64 = 0.25;

/// So many files with so many metrics, over so many instances or none.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    files: usize,
    metrics: usize,
    instances: u32,
}

/// 100,000 values. PCP's agent reads no file with more than 1,023 metrics.
const SHAPES: [(Shape, Option<f64>); 3] = [
    (Shape { files: 100, metrics: 1000, instances: 0 }, Some(GOAL)),
    (Shape { files: 1, metrics: 10, instances: 10_000 }, Some(GOAL)),
    (Shape { files: 1000, metrics: 100, instances: 0 }, None),
];

/// Measures in each place that can be a temporary directory: what a file costs differs.
pub(crate) fn report(peer: Option<&Path>) {
    let Some(peer) = peer else { return };
    let places = [env::temp_dir(), "/dev/shm".into()];
    for place in places.iter().filter(|place| place.is_dir()) {
        for (shape, goal) in SHAPES {
            let [c, rust] = shape.contest(peer, place);
            let Shape { files, metrics, instances } = shape;
            let goal = goal.map_or(String::new(), |goal| format!("{goal:.2}"));
            println!(
                "start {files} x {metrics} x {:<6} in {:<10} {:>9.2} ms beside {:>9.2} ms {:>7.3} {goal:>7}",
                instances.max(1),
                place.display(),
                rust / 1e6,
                c / 1e6,
                rust / c
            );
        }
    }
}

impl Shape {
    /// The shape that this process was started to measure.
    pub(crate) fn asked_for() -> Option<Shape> {
        let mut numbers = env::args().skip(1).map_while(|argument| argument.parse().ok());
        Some(Shape { files: numbers.next()? as usize, metrics: numbers.next()? as usize, instances: numbers.next()? })
    }

    /// The median times of C and Rust.
    fn contest(self, peer: &Path, place: &Path) -> [f64; 2] {
        let dir = tempfile::tempdir_in(place).expect("a directory");
        let own = env::current_exe().expect("this program");
        let mut rounds = [(); ROUNDS].map(|()| [0.0; 2]);
        for (n, round) in rounds.iter_mut().enumerate() {
            for side in if n % 2 == 0 { [0, 1] } else { [1, 0] } {
                let dir = dir.path().join(format!("{n}.{side}"));
                std::fs::create_dir_all(dir.join("mmv")).expect("a directory");
                round[side] = self.start_of([peer, &own][side], &dir);
            }
        }
        [0, 1].map(|side| {
            let mut times = rounds.map(|round| round[side]);
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        })
    }

    fn start_of(self, program: &Path, dir: &Path) -> f64 {
        let numbers = [self.files.to_string(), self.metrics.to_string(), self.instances.to_string()];
        let output = Command::new(program).args(numbers).env("PCP_TMP_DIR", dir).output().expect("a start");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("nanoseconds")
    }

    /// The time until all files are there.
    pub(crate) fn start(self) -> f64 {
        let names: Vec<String> = (0..self.metrics).map(|i| format!("m.metric{i}")).collect();
        let instances: Vec<String> = (0..self.instances).map(|i| format!("inst{i}")).collect();
        let files: Vec<String> = (0..self.files).map(|i| format!("file{i}")).collect();
        let start = crate::now();
        if self.instances == 0 {
            let started: Vec<_> = files.iter().map(|file| singular(file, &names)).collect();
            let taken = crate::now() - start;
            black_box(started);
            return taken;
        }
        let started: Vec<_> = files.iter().map(|file| over_instances(file, &names, &instances)).collect();
        let taken = crate::now() - start;
        black_box(started);
        taken
    }
}

fn registry(file: &str) -> Registry {
    Registry::builder(file).cluster(50).persistent().build().expect("a registry")
}

fn singular(file: &str, names: &[String]) -> (Registry, Vec<Counter>) {
    let registry = registry(file);
    let handles = names.iter().map(|name| crate::metric(&registry, name)).collect();
    registry.try_start().expect("a file");
    (registry, handles)
}

fn over_instances(file: &str, names: &[String], instances: &[String]) -> (Registry, Vec<Family<Counter>>) {
    let registry = registry(file);
    let indom = registry.indom("indom").serial(1).help("short").long_help("help");
    let indom = indom.numbered((0..).zip(instances.iter().map(String::as_str))).register().expect("a domain");
    let family = |name: &String| registry.counter(name).help("short").long_help("help").over(&indom).expect("a metric");
    let families = names.iter().map(family).collect();
    registry.try_start().expect("a file");
    (registry, families)
}
