//! The metrics of an application that forks, as the application, its children and other processes see them.
#![cfg(target_os = "linux")]
#![allow(clippy::panic, clippy::unwrap_used, unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mmv::format::{Flags, HEADER_LEN, Header, MAGIC};
use mmv::recorder::Recorder;
use mmv::{Counter, CounterWriter, Error, Gauge, Registry, ShardedCounter, Text};
use mmv_reader::File;
use nix::sched::{CloneFlags, unshare};
use testkit::{Child, as_process_1, logged};
use tracing::Level;

fn registry(dir: &Path) -> Registry {
    Registry::builder("app").directory(dir).flush_every(Duration::ZERO).build().unwrap()
}

/// Returns the words of a file's metrics by name.
fn words(path: impl AsRef<Path>) -> BTreeMap<String, u64> {
    let begin = Instant::now();
    let file = loop {
        match File::open(&path) {
            Ok(file) => break file,
            // Another process may be writing it.
            Err(e) => assert!(begin.elapsed() < Duration::from_secs(30), "{e}"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(file.problems().first(), []);
    let words = file.metrics().iter().flat_map(|metric| {
        let name = String::from_utf8(file.name(metric).to_vec()).unwrap();
        let file = &file;
        metric.values().iter().map(move |value| (name.clone(), file.value(value.index).unwrap().word))
    });
    words.collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Waits until a condition holds in another process.
fn wait_for(what: impl Fn() -> bool) {
    let begin = Instant::now();
    while !what() {
        assert!(begin.elapsed() < Duration::from_secs(30), "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn workers_of_a_server_have_files_beside_their_parents() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, go) = (dir.path(), dir.path().join("go"));
    let registry = registry(dir);
    let counter = registry.counter("requests").register().unwrap();
    let sharded = registry.metric::<ShardedCounter>("bytes").register().unwrap();
    let text = registry.text("state").register().unwrap();
    text.set("parent");
    registry.try_start().unwrap();
    counter.add(1_000);
    // This belongs to the parent, although no flush has written it to the file.
    sharded.add(5);
    let workers: Vec<Child> = (1..=4)
        .map(|n| {
            Child::new(|| {
                registry.try_start().unwrap();
                assert_eq!(registry.path(), Some(dir.join(format!("app.p{}", std::process::id()))));
                counter.add(n);
                sharded.add(n);
                text.set("worker");
                let later = registry.counter("later").register().unwrap();
                later.add(7);
                registry.flush();
                wait_for(|| go.exists());
            })
        })
        .collect();
    let all: Vec<String> = workers.iter().map(|worker| format!("app.p{}", worker.process())).collect();
    wait_for(|| all.iter().all(|name| dir.join(name).exists() && words(dir.join(name)).get("later") == Some(&7)));
    for (name, n) in all.iter().zip(1..) {
        wait_for(|| words(dir.join(name))["bytes"] == n);
        assert_eq!(words(dir.join(name))["requests"], 1_000 + n);
    }
    counter.inc();
    registry.counter("more").register().unwrap();
    registry.flush();
    let own = words(dir.join("app"));
    assert_eq!((own["requests"], own["bytes"], own.contains_key("later")), (1_001, 5, false));
    assert_eq!(text.get(), "parent");
    fs::write(&go, "").unwrap();
    workers.iter().for_each(Child::ends);
}

#[test]
fn children_that_do_not_start_add_to_their_parents_file_and_leave_it() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
    let times = registry.histogram("times").quantiles(&[0.5]).unwrap();
    registry.try_start().unwrap();
    sharded.add(5);
    times.record(1.0);
    let both = registry.clone();
    Child::new(move || {
        counter.inc();
        sharded.add(2);
        times.record(100.0);
        assert_eq!(sharded.get(), 2);
        registry.counter("unseen").register().unwrap();
        registry.flush();
        // As at the end of `main`.
        registry.stop();
        drop(registry);
    })
    .ends();
    both.flush();
    let words = words(dir.path().join("app"));
    assert_eq!([words["counter"], words["sharded"], words["times.count"]], [1, 7, 1]);
    assert!(f64::from_bits(words["times.quantile"]) < 1.1 && !words.contains_key("unseen"));
    assert_eq!(names(dir.path()), ["app"]);
}

#[test]
fn only_one_of_the_workers_has_the_name_that_the_parent_has_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, go) = (dir.path(), dir.path().join("go"));
    // The file of an earlier process with the same name.
    let mut left = Child::new(|| {
        let earlier = registry(dir);
        earlier.counter("counter").register().unwrap();
        earlier.try_start().unwrap();
        std::mem::forget(earlier);
    });
    for round in 0..3 {
        left.ends();
        let registry = registry(dir);
        let counter = registry.counter("counter").register().unwrap();
        let workers: Vec<Child> = (1..=6u64)
            .map(|n| {
                Child::new(|| {
                    registry.try_start().unwrap();
                    counter.add(n << 32);
                    registry.counter("later").register().unwrap();
                    fs::write(registry.path().unwrap().with_extension(format!("done{n}")), "").unwrap();
                    wait_for(|| go.exists());
                })
            })
            .collect();
        let files = || names(dir).into_iter().filter(|name| name.starts_with("app") && !name.contains("done"));
        wait_for(|| names(dir).iter().filter(|name| name.contains("done")).count() == workers.len());
        assert_eq!(files().count(), workers.len(), "round {round}: {:?}", names(dir));
        assert!(files().any(|name| name == "app"));
        fs::write(&go, "").unwrap();
        workers.iter().for_each(Child::ends);
        // The children exit without removing their files. The next start removes these, except for the one with the
        // registry's name.
        names(dir)
            .iter()
            .filter(|name| name.contains("done"))
            .for_each(|name| fs::remove_file(dir.join(name)).unwrap());
        fs::remove_file(&go).unwrap();
        left = Child::new(|| {
            let next = self::registry(dir);
            // Only the parent has read the directory within the last seconds; this child must read it again.
            next.try_start().unwrap();
            assert_eq!(names(dir), ["app"], "round {round}");
            std::mem::forget(next);
        });
    }
    left.ends();
}

#[test]
fn a_daemon_has_the_name_of_the_process_that_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    counter.add(3);
    Child::new(|| {
        registry.try_start().unwrap();
        counter.inc();
        assert_eq!(registry.path(), Some(dir.path().join("app")));
        assert_eq!(words(dir.path().join("app"))["counter"], 4);
    })
    .ends();
}

#[test]
fn a_child_whose_metrics_would_have_its_parents_names_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("app").directory(dir.path()).no_prefix().build().unwrap();
    let counter = registry.counter("counter").register().unwrap();
    registry.try_start().unwrap();
    Child::new(|| {
        assert!(matches!(registry.try_start(), Err(Error::Forked(_))));
        counter.inc();
    })
    .ends();
    assert_eq!(words(dir.path().join("app"))["counter"], 1);
}

#[test]
fn a_child_flushes_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let registry =
        Registry::builder("app").directory(dir.path()).flush_every(Duration::from_millis(5)).build().unwrap();
    let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
    registry.try_start().unwrap();
    wait_for(|| fs::read_dir("/proc/self/task").unwrap().count() > 2);
    Child::new(|| {
        registry.try_start().unwrap();
        sharded.add(42);
        let path = registry.path().unwrap();
        wait_for(|| words(&path)["sharded"] == 42);
    })
    .ends();
}

#[test]
fn nothing_is_locked_in_a_child() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::of(Registry::builder("app").directory(dir.path())).unwrap();
    let registry = recorder.registry().clone();
    let text: Text = registry.text("text").register().unwrap();
    let times = registry.histogram("times").quantiles(&[0.5]).unwrap();
    let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
    let mut writer = registry.metric::<CounterWriter>("writer").register().unwrap();
    let gauge = registry.metric::<Gauge>("gauge").register().unwrap();
    registry.try_start().unwrap();
    let running = AtomicBool::new(true);
    let count = |n: u64| metrics::counter!("c", "k" => (n % 500).to_string()).absolute(n);
    let name = |n: u64| format!("m{}", n % 700);
    // Each lock is held by some thread at any time.
    let busy: [Box<dyn Fn(u64) + Sync + '_>; 6] = [
        Box::new(|_| text.set("x")),
        Box::new(|n| times.record(n as f64)),
        Box::new(|_| _ = sharded.get()),
        Box::new(|_| registry.flush()),
        Box::new(|n| _ = registry.metric::<Counter>(&name(n)).register()),
        Box::new(|n| metrics::with_local_recorder(&recorder, || count(n))),
    ];
    thread::scope(|scope| {
        for work in &busy {
            let running = &running;
            scope.spawn(move || (0..).take_while(|_| running.load(Relaxed)).for_each(work));
        }
        let children = || {
            for _ in 0..12 {
                Child::new(|| {
                    text.set("child");
                    (0..300).for_each(|n| times.record(f64::from(n)));
                    sharded.inc();
                    sharded.get();
                    gauge.add(1.0);
                    writer.inc();
                    metrics::with_local_recorder(&recorder, || {
                        metrics::counter!("new", "k" => "v").absolute(1);
                        metrics::histogram!("new.times", "k" => "v").record(1.0);
                    });
                    registry.try_start().unwrap();
                    registry.counter("child").register().unwrap();
                    registry.flush();
                    assert_eq!(text.get(), "child");
                    registry.stop();
                })
                .ends();
            }
        };
        let result = catch_unwind(AssertUnwindSafe(children));
        running.store(false, Relaxed);
        result.unwrap();
    });
    registry.stop();
    assert_eq!(names(dir.path()), [""; 0]);
}

/// Runs `work` as process 1 of a new PID namespace, created by fork(2).
fn as_process_1_by_fork(work: impl FnOnce()) {
    unshare(CloneFlags::CLONE_NEWPID).unwrap();
    Child::new(|| {
        assert_eq!(std::process::id(), 1);
        work();
    })
    .ends();
}

/// Returns the beginning of a file of a process.
fn header_of(process: i32) -> [u8; HEADER_LEN] {
    let (version, tocs, cluster, flags) = (1, 2, 7, Flags::PROCESS);
    Header { magic: MAGIC, version, g1: 1, g2: 1, tocs, flags, process, cluster }.bytes()
}

/// Uses the registry of the parent, which is process 1 of another PID namespace, in process 1 of this one.
fn add_beside_the_parent(dir: &Path, registry: &Registry, counter: &Counter) {
    registry.counter("unseen").register().unwrap();
    registry.flush();
    assert!(!words(dir.join("app")).contains_key("unseen"));
    registry.try_start().unwrap();
    let path = registry.path().unwrap();
    assert_ne!(path, dir.join("app"));
    counter.add(10);
    assert_eq!((words(&path)["counter"], words(dir.join("app"))["counter"]), (11, 1));
    registry.stop();
    assert!(!path.exists());
}

#[test]
#[ignore = "needs PCP"] // And root.
fn process_1_of_each_pid_name_space_has_its_own_file() {
    Child::new(|| {
        as_process_1_by_fork(|| {
            let dir = tempfile::tempdir().unwrap();
            let (dir, registry) = (dir.path(), registry(dir.path()));
            let go = dir.join("go");
            let sibling = Child::new(|| wait_for(|| go.exists()));
            let siblings_file = dir.join(format!("app.p{}", sibling.process()));
            fs::write(&siblings_file, header_of(sibling.process())).unwrap();
            let counter = registry.counter("counter").register().unwrap();
            registry.try_start().unwrap();
            counter.inc();
            as_process_1(|| add_beside_the_parent(dir, &registry, &counter));
            as_process_1_by_fork(|| add_beside_the_parent(dir, &registry, &counter));
            assert_eq!(words(dir.join("app"))["counter"], 1);
            registry.flush();
            assert!(words(dir.join("app")).len() == 1);
            assert!(
                siblings_file.exists(),
                "its process runs, although process 1 of the inner name spaces cannot see it"
            );
            fs::write(&go, "").unwrap();
            sibling.ends();
        });
    })
    .ends();
}

/// Starts a process that exports under the same name as `first`, lets the parent look, and ends it as `end` does.
fn run_second(dir: &Path, first: &Registry, mut look: impl FnMut(&str), end: fn(Registry)) {
    let (started, over) = (dir.join("started"), dir.join("over"));
    let child = Child::new(|| {
        let second = registry(dir);
        second.counter("second").register().unwrap().add(2);
        second.try_start().unwrap();
        fs::write(&started, "").unwrap();
        wait_for(|| over.exists());
        end(second);
    });
    wait_for(|| started.exists());
    let process = child.process();
    assert_eq!(
        logged(Level::WARN, || first.flush()),
        [format!(
            "WARN: app: process {process} has the same name, and its file hides the metrics of this process until it ends"
        )]
    );
    look(&format!("process {process} exports under the same name"));
    assert_eq!(words(dir.join("app")), [("second".to_owned(), 2)].into());
    fs::write(&over, "").unwrap();
    child.ends();
    fs::remove_file(started).unwrap();
    fs::remove_file(over).unwrap();
}

#[test]
fn metrics_that_another_process_of_the_same_name_has_hidden_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let first = registry(dir.path());
    let count = first.counter("first").register().unwrap();
    first.try_start().unwrap();
    // The second process removes its file, or leaves it after a crash.
    for (round, end) in [drop::<Registry>, std::mem::forget].into_iter().enumerate() {
        count.inc();
        run_second(dir.path(), &first, |_| assert_eq!(logged(Level::WARN, || first.flush()), [""; 0]), end);
        count.inc();
        assert_eq!(logged(Level::WARN, || first.flush()), [""; 0]);
        assert_eq!(words(dir.path().join("app"))["first"], 2 * (round as u64 + 1));
    }
}

#[test]
fn a_registration_does_not_replace_the_file_of_another_running_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = registry(dir.path());
    first.counter("first").register().unwrap().inc();
    first.try_start().unwrap();
    let register = |why: &str| {
        let lines = logged(Level::WARN, || {
            ["more", "most"].iter().for_each(|name| first.counter(name).register().unwrap().add(3));
        });
        assert_eq!(lines, [format!("WARN: app: new metrics are not exported to PCP: {why}")]);
    };
    run_second(dir.path(), &first, register, std::mem::forget);
    first.flush();
    let expected = [("first", 1), ("more", 3), ("most", 3)].map(|(name, value)| (name.to_owned(), value));
    assert_eq!(words(dir.path().join("app")), expected.into());
}
