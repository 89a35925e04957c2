//! Runs one C program alternately with C's library and with this one: `cargo bench -p pcp-mmv-capi --bench against_c`.
//!
//! The program is that of crate `mmv`'s bench; `LD_LIBRARY_PATH` chooses the library, as README.md describes. The
//! figures are processor time.
//!
//! The time of an update varies by half within each process, for both libraries, with what else the host of a virtual
//! machine does. So the figure of a process is that of its fastest round, and each figure here comes from many pairs of
//! processes, one with each library: the median of the ratios of all pairs, and the ratio of the shortest times.
#![allow(clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of pairs of processes for the updates by one thread, for the starts, and for all other figures.
const UPDATES: usize = 50;
const STARTS: usize = 9;
const OTHERS: usize = 3;

/// Numbers of files, of metrics in a file, and of instances of a metric (0 for none).
const SHAPES: [[&str; 3]; 3] = [["100", "1000", "0"], ["10", "10", "10000"], ["1000", "100", "0"]];

/// Nanoseconds, or percent, of all processes.
type Figures = BTreeMap<String, Vec<f64>>;

/// The program, and the directories of the bench.
struct Bench {
    program: PathBuf,
    /// Directory of this library.
    lib: PathBuf,
    /// Directories for files, by the names of their media.
    places: Vec<(&'static str, tempfile::TempDir)>,
}

fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(dir.path()) else {
        return println!("NOT RUN: cc or libpcp_mmv's headers are missing");
    };
    let lib = dir.path().join("lib");
    fs::create_dir(&lib).expect("a directory");
    // A copy, because another build may replace the file.
    fs::copy(testkit::built("pcp_mmv"), lib.join("libpcp_mmv.so.1")).expect("a copy");
    let memory = tempfile::tempdir_in("/dev/shm").ok().map(|dir| ("memory", dir));
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let bench = Bench { program, lib, places: memory.into_iter().chain([("disk", disk)]).collect() };
    let mut figures = [Figures::new(), Figures::new()];
    for _ in 0..OTHERS {
        bench.pair(&[], &mut figures);
    }
    let [own, c] = &figures;
    println!("{:<32} {:>10} {:>10} {:>7} {:>9} {:>6}", "", "this, ns", "C, ns", "ratio", "shortest", "goal");
    line("lookup_by_name", own, c, "lookup_by_name", Some(0.05));
    let bare = Figures::from([("two_inc_value".to_owned(), own.get("two_atomic_add").cloned().unwrap_or_default())]);
    line("two threads, to bare atomics", own, &bare, "two_inc_value", Some(1.2));
    let lost = "two_inc_value_lost_percent";
    println!("lost by two threads: {:.1} % here, {:.1} % in C", median(own.get(lost)), median(c.get(lost)));

    let mut figures = [Figures::new(), Figures::new()];
    for _ in 0..UPDATES {
        bench.pair(&["200000"], &mut figures);
    }
    let [own, c] = &figures;
    for (name, goal) in
        [("inc_value", Some(1.05)), ("inc", None), ("set_value", None), ("set_string", None), ("interval", None)]
    {
        line(name, own, c, name, goal);
    }
    bench.starts();
}

/// Prints a figure of this library and of C's, their ratio, and the goal.
fn line(title: &str, own: &Figures, c: &Figures, name: &str, goal: Option<f64>) {
    let (own, c) = (own.get(name), c.get(name));
    let ratios: Vec<f64> = own.into_iter().flatten().zip(c.into_iter().flatten()).map(|(own, c)| own / c).collect();
    let shortest = |all: Option<&Vec<f64>>| all.into_iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let (ratio, shortest) = (median(Some(&ratios)), shortest(own) / shortest(c));
    let goal = goal.map_or(String::new(), |goal| format!("{goal:.2}"));
    println!("{title:<32} {:>10.2} {:>10.2} {ratio:>7.3} {shortest:>9.3} {goal:>6}", median(own), median(c));
}

fn median(all: Option<&Vec<f64>>) -> f64 {
    let mut all = all.cloned().unwrap_or_default();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

fn compile(dir: &Path) -> Option<PathBuf> {
    let program = dir.join("peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/against_c/peer.c");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg("-o").arg(&program).arg(source).args(["-lpcp_mmv", "-lpcp", "-lpthread"]);
    cc.output().is_ok_and(|output| output.status.success()).then_some(program)
}

/// Removes the files of former processes, and waits until the disk has nothing to write. In memory this follows each
/// process, so that the next one gets pages that the kernel has used before; new ones take several times as long. On the
/// disk it follows each shape: after deletions, ext4 creates files several times more slowly.
fn clear(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        _ = fs::remove_dir_all(entry.path());
    }
    _ = Command::new("sync").arg("-f").arg(dir).status();
}

impl Bench {
    /// Measures starts in memory and on the disk.
    fn starts(&self) {
        for ((medium, dir), shape) in self.places.iter().flat_map(|place| SHAPES.map(|shape| (place, shape))) {
            let files: f64 = shape[0].parse().unwrap_or(1.0);
            let (mut own, mut c) = (Figures::new(), Figures::new());
            clear(dir.path());
            for _ in 0..STARTS {
                for (lib, figures) in [(None, &mut c), (Some(&*self.lib), &mut own)] {
                    let numbers = self.run(lib, dir.path(), &shape);
                    if *medium == "memory" {
                        clear(dir.path());
                    }
                    let numbers = numbers.split_whitespace().filter_map(|number| number.parse::<f64>().ok());
                    for (kind, number) in ["with registration", "start"].iter().zip(numbers) {
                        figures.entry((*kind).to_owned()).or_default().push(number / files);
                    }
                }
            }
            line(&format!("start {}, {medium}", shape.join(" ")), &own, &c, "start", Some(0.6));
            line("  with registration", &own, &c, "with registration", None);
        }
    }

    /// Runs the program with this library and with C's.
    fn pair(&self, arguments: &[&str], [own, c]: &mut [Figures; 2]) {
        let Some((_, dir)) = self.places.first() else { return };
        for (lib, figures) in [(None, c), (Some(&*self.lib), own)] {
            let lines = self.run(lib, dir.path(), arguments);
            for (name, number) in lines.lines().filter_map(|line| line.split_once(' ')) {
                figures.entry(name.to_owned()).or_default().extend(number.parse::<f64>());
            }
        }
    }

    /// Runs the program with C's library, or with the library in `lib`, and files in a new directory below `dir`.
    fn run(&self, lib: Option<&Path>, dir: &Path, arguments: &[&str]) -> String {
        let dir = tempfile::tempdir_in(dir).expect("a directory").keep();
        fs::create_dir(dir.join("mmv")).expect("a directory");
        let mut command = Command::new(&self.program);
        command.args(arguments).env("PCP_TMP_DIR", dir).env_remove("LD_LIBRARY_PATH");
        if let Some(lib) = lib {
            command.env("LD_LIBRARY_PATH", lib);
        }
        let output = command.output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
