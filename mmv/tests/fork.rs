//! The metrics of an application that forks, as the application, its children and other processes see them.
#![cfg(target_os = "linux")]
#![allow(clippy::panic, clippy::unwrap_used, unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mmv::recorder::Recorder;
use mmv::{Counter, CounterWriter, Error, Family, Gauge, Registry, ShardedCounter, Text};
use mmv_reader::File;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
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

/// Asserts that nothing can be registered or started, and that this says what to do instead.
fn assert_refused<T>(result: Result<T, Error>) {
    let error = result.err().unwrap();
    assert!(matches!(error, Error::Forked(_)), "{error}");
    assert_eq!(error.to_string(), "not possible in a forked child: create a registry after the fork");
}

#[test]
fn children_add_to_their_parents_file_and_leave_it() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    let float = registry.metric::<Counter<f64>>("float").register().unwrap();
    let gauge = registry.metric::<Gauge<u64>>("gauge").register().unwrap();
    let timer = registry.timer("timer").register().unwrap();
    let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
    let text = registry.text("text").register().unwrap();
    let buckets = registry.histogram("buckets").buckets(&[1.0]).unwrap();
    let times = registry.histogram("times").quantiles(&[0.5]).unwrap();
    registry.try_start().unwrap();
    sharded.add(5);
    times.record(1.0);
    // This process and three generations of children update at the same time.
    let update = || {
        for _ in 0..1_000 {
            counter.inc();
            float.add(0.5);
            gauge.add(2);
            timer.observe(Duration::from_micros(1));
            sharded.inc();
            buckets.record(0.5);
            text.set("one of them");
            times.record(100.0);
        }
    };
    let families: Vec<Child> = (0..2)
        .map(|_| {
            Child::new(|| {
                Child::new(|| {
                    update();
                    Child::new(update).ends();
                })
                .ends();
                update();
            })
        })
        .collect();
    families.iter().for_each(Child::ends);
    // The child's own threads count, too.
    Child::new(|| thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(update)))).ends();
    let both = registry.clone();
    Child::new(move || {
        registry.flush();
        // As at the end of `main`.
        registry.stop();
        drop(registry);
    })
    .ends();
    both.flush();
    let words = words(dir.path().join("app"));
    assert_eq!(["counter", "timer", "buckets.count"].map(|name| words[name]), [10_000; 3]);
    assert_eq!((f64::from_bits(words["float"]), words["gauge"], words["sharded"]), (5_000.0, 20_000, 10_005));
    assert_eq!((text.get().as_str(), words["text"]), ("one of them", 11));
    // Distributions are this process's own.
    assert_eq!(words["times.count"], 1);
    assert_eq!(names(dir.path()), ["app"]);
}

#[test]
fn a_registration_in_a_child_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for started in [false, true] {
        let registry = registry(dir.path());
        let counter = registry.counter("counter").register().unwrap();
        let indom = registry.indom("indom").instances(["a"]).register().unwrap();
        let family: Family<Counter> = registry.counter("family").over(&indom).unwrap();
        if started {
            registry.try_start().unwrap();
        }
        Child::new(|| {
            assert_refused(registry.counter("more").register());
            assert_refused(registry.counter("more").over(&indom));
            assert_refused(registry.indom("more").register());
            assert_refused(registry.histogram("more").buckets(&[1.0]));
            assert_refused(registry.label("more", 1));
            assert_refused(indom.add("b"));
            assert_refused(indom.label_instance("a", "more", 1));
            assert_refused(family.instance("a"));
            assert_refused(registry.try_start());
            let lines = logged(Level::WARN, || registry.start());
            assert!(lines.len() == 1 && lines[0].ends_with("create a registry after the fork"), "{lines:?}");
            drop(registry.batch());
            assert!(registry.find::<Counter>("counter").is_none() && family.get("a").is_none());
            assert_eq!((registry.path(), indom.names().len()), (None, 0));
            counter.inc();
        })
        .ends();
        assert_eq!(counter.get(), 1);
        registry.counter("more").register().unwrap();
        registry.try_start().unwrap();
        assert_eq!(words(dir.path().join("app")).len(), 3);
    }
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn workers_of_a_server_have_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, go) = (dir.path(), dir.path().join("go"));
    let registry = registry(dir);
    let counter = registry.counter("requests").register().unwrap();
    registry.try_start().unwrap();
    let own = || Registry::builder("app").directory(dir).per_process().flush_every(Duration::ZERO).build().unwrap();
    let workers: Vec<Child> = (1..=4)
        .map(|n| {
            Child::new(|| {
                counter.add(n);
                let own = own();
                let bytes = own.counter("bytes").register().unwrap();
                own.try_start().unwrap();
                assert_eq!(own.path(), Some(dir.join(format!("app.p{}", std::process::id()))));
                bytes.add(10 * n);
                own.counter("later").register().unwrap().add(7);
                wait_for(|| go.exists());
            })
        })
        .collect();
    let all: Vec<String> = workers.iter().map(|worker| format!("app.p{}", worker.process())).collect();
    wait_for(|| all.iter().all(|name| dir.join(name).exists() && words(dir.join(name)).get("later") == Some(&7)));
    for (name, n) in all.iter().zip(1..) {
        assert_eq!(words(dir.join(name))["bytes"], 10 * n);
    }
    counter.inc();
    registry.counter("more").register().unwrap();
    let parents = words(dir.join("app"));
    assert_eq!((parents["requests"], parents.len()), (11, 2));
    fs::write(&go, "").unwrap();
    workers.iter().for_each(Child::ends);
    // The children exit without removing their files. The start of the next worker removes these.
    Child::new(|| {
        let next = own();
        next.try_start().unwrap();
        let left: Vec<String> = names(dir).into_iter().filter(|name| name.starts_with("app.p")).collect();
        assert_eq!(left, [format!("app.p{}", std::process::id())]);
    })
    .ends();
}

#[test]
fn a_daemon_creates_its_registry_after_the_fork() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    registry.try_start().unwrap();
    Child::new(|| {
        // SAFETY: the call forks, and the child goes on without other threads.
        assert_eq!(unsafe { nix::libc::daemon(1, 1) }, 0);
        counter.inc();
        assert_refused(registry.counter("more").register());
        let own = Registry::builder("daemon").directory(dir.path()).build().unwrap();
        let count = own.counter("count").register().unwrap();
        own.try_start().unwrap();
        count.add(3);
        own.counter("later").register().unwrap().add(4);
        let words = words(dir.path().join("daemon"));
        assert_eq!((words["count"], words["later"]), (3, 4));
        fs::write(&done, "").unwrap();
    })
    .ends();
    wait_for(|| done.exists());
    assert_eq!(words(dir.path().join("app")), [("counter".to_owned(), 1)].into());
}

#[test]
fn a_child_flushes_its_own_registry() {
    let dir = tempfile::tempdir().unwrap();
    let every = Duration::from_millis(5);
    let start = |name: &str| {
        let registry = Registry::builder(name).directory(dir.path()).flush_every(every).build().unwrap();
        let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
        registry.try_start().unwrap();
        (registry, sharded)
    };
    let (_registry, _) = start("app");
    wait_for(|| fs::read_dir("/proc/self/task").unwrap().count() > 2);
    Child::new(|| {
        let (registry, sharded) = start("child");
        sharded.add(42);
        let path = registry.path().unwrap();
        wait_for(|| words(&path)["sharded"] == 42);
    })
    .ends();
}

#[test]
fn commands_run_beside_threads_that_register() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    registry.try_start().unwrap();
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..900).take_while(|_| running.load(Relaxed)) {
                registry.counter(&format!("m{n}")).register().unwrap();
                registry.flush();
            }
        });
        for _ in 0..20 {
            // By posix_spawn(3), and by vfork(2).
            assert!(Command::new("true").status().unwrap().success());
            // SAFETY: the child of the vfork calls only `execv` or `_exit`.
            #[allow(deprecated, reason = "programs in C use it")]
            let child = unsafe {
                match nix::libc::vfork() {
                    0 => {
                        nix::libc::execv(c"/bin/true".as_ptr(), [c"true".as_ptr(), std::ptr::null()].as_ptr());
                        nix::libc::_exit(1);
                    }
                    child => child,
                }
            };
            let status = waitpid(Pid::from_raw(child), None).unwrap();
            assert_eq!(status, WaitStatus::Exited(Pid::from_raw(child), 0));
            counter.inc();
        }
        running.store(false, Relaxed);
    });
    registry.counter("last").register().unwrap();
    assert_eq!(words(dir.path().join("app"))["counter"], 20);
}

#[test]
// Slow: six threads hold each lock in turn while the process forks.
fn nothing_is_waited_for_in_a_child() {
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
                    assert_refused(registry.try_start());
                    assert_refused(registry.counter("child").register());
                    registry.flush();
                    registry.stop();
                    let own = Recorder::of(Registry::builder("app").directory(dir.path()).per_process()).unwrap();
                    own.registry().try_start().unwrap();
                    metrics::with_local_recorder(&own, || metrics::counter!("own", "k" => "v").increment(1));
                    own.registry().flush();
                    assert_eq!(words(own.registry().path().unwrap())["own"], 1);
                    own.registry().stop();
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

#[test]
fn what_the_recorder_has_counted_before_a_fork_counts_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::of(Registry::builder("app").directory(dir.path())).unwrap();
    let count = || {
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("plain").increment(1);
            metrics::counter!("labelled", "k" => "v").increment(2);
        });
    };
    count();
    recorder.registry().try_start().unwrap();
    Child::new(|| {
        count();
        metrics::with_local_recorder(&recorder, || metrics::counter!("new").increment(1));
    })
    .ends();
    recorder.registry().flush();
    let words = words(dir.path().join("app"));
    assert_eq!((words["plain"], words["labelled"], words.get("new")), (2, 4, None));
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

/// Uses the registry of the parent, which is process 1 of another PID namespace, in process 1 of this one.
fn add_beside_the_parent(dir: &Path, registry: &Registry, counter: &Counter) {
    counter.add(10);
    assert_refused(registry.counter("unseen").register());
    assert_refused(registry.try_start());
    registry.flush();
    registry.stop();
    let own = Registry::builder("inner").directory(dir).build().unwrap();
    own.counter("own").register().unwrap().add(3);
    own.try_start().unwrap();
    assert_eq!(words(dir.join("inner")), [("own".to_owned(), 3)].into());
}

#[test]
#[ignore = "needs PCP"] // And root.
fn process_1_of_each_pid_name_space_is_another_process() {
    Child::new(|| {
        as_process_1_by_fork(|| {
            let dir = tempfile::tempdir().unwrap();
            let (dir, registry) = (dir.path(), registry(dir.path()));
            let counter = registry.counter("counter").register().unwrap();
            registry.try_start().unwrap();
            counter.inc();
            as_process_1(|| add_beside_the_parent(dir, &registry, &counter));
            as_process_1_by_fork(|| add_beside_the_parent(dir, &registry, &counter));
            registry.flush();
            assert_eq!(words(dir.join("app")), [("counter".to_owned(), 21)].into());
            assert_eq!(names(dir), ["app"]);
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
