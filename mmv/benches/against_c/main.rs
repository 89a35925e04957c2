//! Updates and starts, compared with those of the C library in the same run:
//! `cargo bench -p pcp-mmv --bench against_c`.
//!
//! The C program is compiled here if `libpcp_mmv` is installed. It runs before and after the Rust measurement, so a
//! machine that becomes slower in between does not make the library look slower.
#![allow(clippy::expect_used)]

mod start;

use std::collections::HashMap;
use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use memmap2::MmapMut;
use mmv::{Counter, CounterWriter, Gauge, GaugeWriter, Registry, ShardedCounter, Text, Timer};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

const ROUNDS: usize = 11;
const N: u64 = 2_000_000;
const SHARED_N: u64 = 200_000;
const TRIES: u64 = 3000;

type Figures = HashMap<String, f64>;

fn main() {
    if let Some(shape) = start::Shape::asked_for() {
        let [all, starts] = shape.start();
        return println!("{all:.0} {starts:.0}");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let peer = compile(dir.path());
    let mut c = peer.as_ref().map(|peer| run(peer, dir.path())).unwrap_or_default();
    let rust = measure(dir.path());
    if let Some(peer) = &peer {
        for (name, later) in run(peer, dir.path()) {
            c.entry(name).and_modify(|first| *first = (*first + later) / 2.0);
        }
    } else {
        println!("libpcp_mmv is not installed: no ratios");
    }
    report(&rust, &c);
    start::report(peer.as_deref());
}

fn report(rust: &Figures, c: &Figures) {
    println!("{:<28} {:>12}   {:<24} {:>12} {:>7} {:>7}", "", "Rust ns", "beside", "ns", "ratio", "goal");
    for (name, beside, goal) in [
        ("writer_inc", "inc_value", Some(0.25)),
        ("writer_inc_in_memory", "inc_value", Some(0.25)),
        ("counter_inc", "atomic_add", Some(1.15)),
        ("counter_inc", "atomic_add_on_page", Some(1.15)),
        ("counter_inc", "inc_value", None),
        ("two_counter_inc", "two_atomic_add", Some(1.15)),
        ("two_counter_inc", "two_inc_value", None),
        ("two_sharded_inc", "two_counter_inc", Some(0.4)),
        ("writer_set", "set_value", None),
        ("gauge_set", "set_value", None),
        ("gauge_add", "set_value", None),
        ("timer_observe", "interval", None),
        ("text_set", "set_string", None),
        ("find_by_name", "lookup_by_name", None),
    ] {
        let Some(own) = rust.get(name) else { continue };
        let other = c.get(beside).or_else(|| rust.get(beside));
        let ratio = other.map_or(f64::NAN, |other| own / other);
        let goal = goal.map_or(String::new(), |goal| format!("{goal:.2}"));
        println!("{name:<28} {own:>12.2}   {beside:<24} {:>12.2} {ratio:>7.3} {goal:>7}", other.unwrap_or(&f64::NAN));
    }
    println!("C loses {:.1} % of the updates of two threads", c.get("two_inc_value_lost_percent").unwrap_or(&f64::NAN));
    println!("{:.1} bytes of file a value, 1,023 metrics that share their help", rust["bytes_a_value"]);
}

fn compile(dir: &Path) -> Option<std::path::PathBuf> {
    let peer = dir.join("peer");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/against_c/peer.c");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg("-o").arg(&peer).arg(source).args(["-lpcp_mmv", "-lpcp", "-lpthread"]);
    let compiled = cc.output().is_ok_and(|output| output.status.success());
    compiled.then_some(peer)
}

fn run(peer: &Path, dir: &Path) -> Figures {
    std::fs::create_dir_all(dir.join("mmv")).expect("a directory");
    let output = Command::new(peer).env("PCP_TMP_DIR", dir).output().expect("the peer runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .filter_map(|l| l.split_once(' '))
        .map(|(name, ns)| (name.into(), ns.parse().expect("a number")))
        .collect()
}

fn measure(dir: &Path) -> Figures {
    let mut figures = Figures::new();
    let mut put = |name: &str, ns: f64| _ = figures.insert(name.into(), ns);
    let registry = Registry::builder("rust").directory(dir).build().expect("a registry");
    let mut writer: CounterWriter = registry.metric("writer").register().expect("a metric");
    let mut gauge_writer: GaugeWriter = registry.metric("gauge_writer").register().expect("a metric");
    let counter: Counter = registry.counter("counter").register().expect("a metric");
    let gauge: Gauge = registry.gauge("gauge").register().expect("a metric");
    let timer: Timer = registry.timer("timer").register().expect("a metric");
    let text: Text = registry.text("text").register().expect("a metric");
    let sharded: ShardedCounter = registry.metric("sharded").register().expect("a metric");
    registry.try_start().expect("a file");

    put("writer_inc", each(N, |_| writer.inc()));
    // The writer as a field of a struct that other code sees between the updates.
    put("writer_inc_in_memory", each(N, |_| black_box(&mut writer).inc()));
    let bare = word_on_page(dir);
    let [own, bare] = by_turns(|| counter.inc(), || _ = bare.fetch_add(1, Relaxed));
    put("counter_inc", own);
    put("atomic_add_on_page", bare);
    put("writer_set", each(N, |i| gauge_writer.set(i as f64)));
    let own = gauge.clone();
    put("gauge_set", each(N, move |i| own.set(i as f64)));
    put("gauge_add", each(N, |_| gauge.add(1.0)));
    put("timer_observe", each(N / 10, |_| timer.time(|| ())));
    put("text_set", each(N / 10, |_| text.set("some words")));
    put("find_by_name", find_by_name(dir));
    let before = counter.get();
    let (ns, rounds) = two_threads(|| counter.inc());
    put("two_counter_inc", ns);
    assert_eq!(counter.get() - before, 2 * SHARED_N * rounds, "no update is lost");
    let (ns, rounds) = two_threads(|| sharded.inc());
    put("two_sharded_inc", ns);
    assert_eq!(sharded.get(), 2 * SHARED_N * rounds, "no update is lost");
    put("bytes_a_value", bytes_a_value(dir));
    figures
}

/// Returns the processor time in nanoseconds. Elapsed time would include other programs.
fn now() -> f64 {
    Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock")).as_nanos() as f64
}

fn median(mut round: impl FnMut() -> f64) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn each(n: u64, mut work: impl FnMut(u64)) -> f64 {
    median(|| round(n, &mut work))
}

/// Returns the time of one of `n` calls, in nanoseconds.
fn round(n: u64, mut work: impl FnMut(u64)) -> f64 {
    let start = now();
    for i in 0..n {
        work(i);
    }
    (now() - start) / n as f64
}

/// Measures two closures in alternating rounds, because the processor's clock rate changes.
fn by_turns(mut first: impl FnMut(), mut second: impl FnMut()) -> [f64; 2] {
    let mut seconds = Vec::new();
    let first = median(|| {
        seconds.push(round(N, |_| second()));
        round(N, |_| first())
    });
    let mut seconds = seconds.into_iter();
    [first, median(|| seconds.next().unwrap_or(f64::NAN))]
}

/// Returns a word in a mapped page of a file, like a value's.
#[allow(unsafe_code)]
fn word_on_page(dir: &Path) -> &'static AtomicU64 {
    let file = File::options().read(true).write(true).create_new(true).open(dir.join("page")).expect("a file");
    file.set_len(4096).expect("a page");
    // SAFETY: no other code has access to the file.
    let page = Box::leak(Box::new(unsafe { MmapMut::map_mut(&file) }.expect("a map")));
    // SAFETY: the page is never unmapped, its first word is aligned, and it is only used as an atomic.
    unsafe { AtomicU64::from_ptr(page.as_mut_ptr().cast()) }
}

/// Returns the time of an update by one of two threads, in nanoseconds, and the number of rounds that were needed.
fn two_threads(work: impl Fn() + Sync) -> (f64, u64) {
    let update = |cpu| {
        let mut set = CpuSet::new();
        set.set(cpu).expect("a processor");
        // With a single processor, both threads share it.
        _ = sched_setaffinity(Pid::from_raw(0), &set);
        (0..SHARED_N).for_each(|_| work());
    };
    let round = || {
        let (start, begin) = (now(), Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| update(0));
            scope.spawn(|| update(1));
        });
        let taken = now() - start;
        // Rounds in which the threads did not run in parallel do not measure contention.
        (taken > 1.7 * begin.elapsed().as_nanos() as f64).then_some(taken / (2 * SHARED_N) as f64)
    };
    let mut rounds = Vec::new();
    let mut tries = 0;
    while rounds.len() < ROUNDS && tries < TRIES {
        rounds.extend(round());
        tries += 1;
    }
    rounds.sort_by(f64::total_cmp);
    (rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN), tries)
}

fn metric(registry: &Registry, name: &str) -> Counter {
    registry.counter(name).help("short").long_help("help").register().expect("a metric")
}

/// Returns the time to find a metric among a thousand.
fn find_by_name(dir: &Path) -> f64 {
    let registry = Registry::builder("lookup").directory(dir).build().expect("a registry");
    for i in 0..1000 {
        metric(&registry, &format!("m.metric{i}"));
    }
    registry.try_start().expect("a file");
    each(20_000, |_| drop(black_box(registry.find::<Counter>("m.metric500"))))
}

fn bytes_a_value(dir: &Path) -> f64 {
    let registry = Registry::builder("size").directory(dir).build().expect("a registry");
    for i in 0..1023 {
        metric(&registry, &format!("m.metric{i}"));
    }
    registry.try_start().expect("a file");
    // A file has holes.
    let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(dir.join("size")).expect("a file"));
    (blocks * 512) as f64 / 1023.0
}
