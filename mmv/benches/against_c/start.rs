//! The time until a program's files exist.
//!
//! Each start runs in a separate process and directory, alternately with the C library and this one. Files are removed
//! only at the end: file systems remember for minutes which inodes were in use, and search all of them for each new
//! file. The floor is the cost of the files alone: writing and renaming as many files of the same length.

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use mmv::{Counter, Family, Registry};

const ROUNDS: usize = 15;
const GOAL: f64 = 0.25;

/// Files with metrics over instances, or singular ones if `instances` is 0.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    files: usize,
    metrics: usize,
    instances: u32,
}

/// 100,000 values, in an explicit cluster: choosing one reads the headers of all other files. PCP's agent reads no file
/// with more than 1,023 metrics.
const SHAPES: [(Shape, Option<f64>); 3] = [
    (Shape { files: 100, metrics: 1000, instances: 0 }, Some(GOAL)),
    (Shape { files: 1, metrics: 10, instances: 10_000 }, Some(GOAL)),
    (Shape { files: 1000, metrics: 100, instances: 0 }, None),
];

/// Measures in each directory that may hold temporary files, because the cost of a file differs.
pub(crate) fn report(peer: Option<&Path>) {
    let Some(peer) = peer else { return };
    let places = [env::temp_dir(), "/dev/shm".into()];
    for place in places.iter().filter(|place| place.is_dir()) {
        println!("Files in {}, milliseconds", place.display());
        for (shape, goal) in SHAPES {
            let goal = goal.map_or(String::new(), |goal| format!("{goal:.2}"));
            let (times, floor) = shape.contest(peer, place);
            for (what, [c, rust]) in ["registered and started", "started"].iter().zip(times) {
                let Shape { files, metrics, instances } = shape;
                let (values, ratio) = (instances.max(1), rust / c);
                let [rust, c, floor] = [rust, c, floor].map(|ns| ns / 1e6);
                println!(
                    "{files:>4} files x {metrics:>4} x {values:<6} {what:<22} Rust {rust:>7.2}  C {c:>7.2}  ratio {ratio:.3} {goal:>5}  floor {floor:>6.2}"
                );
            }
        }
    }
}

impl Shape {
    /// Returns the shape that this process was started to measure.
    pub(crate) fn asked_for() -> Option<Shape> {
        let mut numbers = env::args().skip(1).map_while(|argument| argument.parse().ok());
        Some(Shape { files: numbers.next()? as usize, metrics: numbers.next()? as usize, instances: numbers.next()? })
    }

    /// Returns the median times of C and Rust with and without the registration, and of the files alone.
    fn contest(self, peer: &Path, place: &Path) -> ([[f64; 2]; 2], f64) {
        let dir = tempfile::tempdir_in(place).expect("a directory");
        let own = env::current_exe().expect("this program");
        let mut rounds = [[[0.0; 2]; 2]; ROUNDS];
        let mut floors = [0.0; ROUNDS];
        for ((n, round), floor) in rounds.iter_mut().enumerate().zip(&mut floors) {
            for side in if n % 2 == 0 { [0, 1] } else { [1, 0] } {
                let dir = dir.path().join(format!("{n}.{side}"));
                std::fs::create_dir_all(dir.join("mmv")).expect("a directory");
                round[side] = self.start_of([peer, &own][side], &dir);
            }
            let file = fs::metadata(dir.path().join(format!("{n}.1/mmv/file0"))).expect("a file");
            // A file has holes.
            let len = std::os::unix::fs::MetadataExt::blocks(&file) * 512;
            *floor = self.files_alone(len as usize, &dir.path().join(format!("{n}.floor")));
        }
        floors.sort_by(f64::total_cmp);
        let median = |what: usize, side: usize| {
            let mut times = rounds.map(|round| round[side][what]);
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        };
        ([0, 1].map(|what| [0, 1].map(|side| median(what, side))), floors[ROUNDS / 2])
    }

    /// Returns the time to write as many files of length `len`.
    fn files_alone(self, len: usize, dir: &Path) -> f64 {
        fs::create_dir(dir).expect("a directory");
        let bytes = vec![1; len];
        let begin = crate::now();
        for i in 0..self.files {
            let (before, after) = (dir.join(format!(".file{i}")), dir.join(format!("file{i}")));
            let mut file = File::create_new(&before).expect("a file");
            bytes.chunks(64 << 10).for_each(|chunk| file.write_all(chunk).expect("written"));
            fs::rename(before, after).expect("another name");
        }
        crate::now() - begin
    }

    fn start_of(self, program: &Path, dir: &Path) -> [f64; 2] {
        let numbers = [self.files.to_string(), self.metrics.to_string(), self.instances.to_string()];
        let output = Command::new(program).args(numbers).env("PCP_TMP_DIR", dir).output().expect("a start");
        let output = String::from_utf8_lossy(&output.stdout);
        let mut times = output.split_whitespace().map(|ns| ns.parse().expect("nanoseconds"));
        [(); 2].map(|()| times.next().expect("two times"))
    }

    /// Returns the time until all files exist, and the time of the starts alone.
    pub(crate) fn start(self) -> [f64; 2] {
        let names: Vec<String> = (0..self.metrics).map(|i| format!("m.metric{i}")).collect();
        let instances: Vec<String> = (0..self.instances).map(|i| format!("inst{i}")).collect();
        let files: Vec<String> = (0..self.files).map(|i| format!("file{i}")).collect();
        let (begin, mut starts, mut kept) = (crate::now(), 0.0, (Vec::new(), Vec::new(), Vec::new()));
        for file in &files {
            let registry = Registry::builder(file).cluster(50).persistent().build().expect("a registry");
            if self.instances == 0 {
                kept.0.push(names.iter().map(|name| crate::metric(&registry, name)).collect::<Vec<_>>());
            } else {
                kept.1.push(over_instances(&registry, &names, &instances));
            }
            let start = crate::now();
            registry.try_start().expect("a file");
            starts += crate::now() - start;
            kept.2.push(registry);
        }
        let taken = crate::now() - begin;
        black_box(kept);
        [taken, starts]
    }
}

fn over_instances(registry: &Registry, names: &[String], instances: &[String]) -> Vec<Family<Counter>> {
    let indom = registry.indom("indom").serial(1).help("short").long_help("help");
    let indom = indom.numbered((0..).zip(instances.iter().map(String::as_str))).register().expect("a domain");
    let family = |name: &String| registry.counter(name).help("short").long_help("help").over(&indom);
    names.iter().map(|name| family(name).expect("a metric")).collect()
}
