//! Every order of accesses of handles and of a move to a larger file (`src/lib.rs`).
#![cfg(mmv_loom)]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use loom::model::Builder;
use loom::thread;
use mmv::{Counter, CounterWriter, Gauge, GaugeWriter, Handle, Registry, ShardedCounter, Text, Timer};

/// The crate's placeholder for values that have not moved yet, which is also a valid number.
const MARK: u64 = 0xfff6_a5c3_5eed_0b1e;

/// A registry whose values the test moves.
struct Scene(Registry);

/// Runs a test in all orders of accesses.
fn check(test: impl Fn(Scene) + Send + Sync + 'static) {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(move || test(Scene::new(dir.path())));
}

impl Scene {
    fn new(dir: &Path) -> Scene {
        // No flush thread: only loom's threads run.
        let builder = Registry::builder("loom").directory(dir).cluster(1).persistent().flush_every(Duration::ZERO);
        Scene(builder.build().unwrap())
    }

    /// Registers a metric, and starts the export.
    fn value<H: Handle>(&self) -> H {
        let handle = self.0.metric("value").register().unwrap();
        self.0.try_start().unwrap();
        handle
    }

    /// Moves all values to a larger file, while threads do the work.
    fn move_beside<T: 'static, const N: usize>(&self, work: [Work<T>; N]) -> [T; N] {
        let threads = work.map(thread::spawn);
        let _: Counter = self.0.counter("another").register().unwrap();
        threads.map(|thread| thread.join().unwrap())
    }
}

/// Runs a test in which renaming the larger file fails, so that all values move back.
fn check_back(test: impl Fn(Scene) + Send + Sync + 'static) {
    let dir = tempfile::tempdir().unwrap();
    let (path, name) = (dir.path().to_owned(), dir.path().join("loom"));
    let mut model = Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 10_000;
    model.check(move || {
        _ = std::fs::remove_dir(&name);
        test(Scene::new(&path));
    });
}

/// Replaces the file by a directory, so that renaming a new file fails.
fn obstruct(scene: &Scene) {
    let path = scene.0.path().unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
}

#[test]
fn additions_are_exact_when_values_move_back() {
    check_back(|scene| {
        let counter: Counter = scene.value();
        obstruct(&scene);
        counter.add(10);
        let add = |counter: Counter| {
            work(move || {
                counter.inc();
                assert!((11..=12).contains(&counter.get()));
            })
        };
        scene.move_beside([add(counter.clone()), add(counter.clone())]);
        assert_eq!(counter.get(), 12);
    });
}

#[test]
fn values_of_one_owner_move_back() {
    check_back(|scene| {
        let mut counter: CounterWriter = scene.value();
        obstruct(&scene);
        counter.add(10);
        let own = work(move || {
            counter.inc();
            counter.inc();
            counter
        });
        let [counter] = scene.move_beside([own]);
        assert_eq!(counter.get(), 12);
    });
}

#[test]
fn the_last_value_set_stays_when_values_move_back() {
    check_back(|scene| {
        let gauge: Gauge<u64> = scene.value();
        obstruct(&scene);
        gauge.set(1);
        let set = gauge.clone();
        scene.move_beside([work(move || {
            set.set(2);
            set.set(3);
        })]);
        assert_eq!(gauge.get(), 3);
    });
}

type Work<T> = Box<dyn FnOnce() -> T>;

fn work<T>(work: impl FnOnce() -> T + Send + 'static) -> Work<T> {
    Box::new(work)
}

#[test]
fn shared_additions_are_exact() {
    check(|scene| {
        let counter: Counter = scene.value();
        counter.add(10);
        let add = |counter: Counter| {
            work(move || {
                counter.inc();
                // A count that was read before never decreases.
                assert!((11..=12).contains(&counter.get()));
            })
        };
        scene.move_beside([add(counter.clone()), add(counter.clone())]);
        assert_eq!(counter.get(), 12);
    });
}

#[test]
fn additions_of_floats_are_exact() {
    check(|scene| {
        let counter: Counter<f64> = scene.value();
        counter.add(1.0);
        let add = |counter: Counter<f64>| work(move || counter.add(0.5));
        scene.move_beside([add(counter.clone()), add(counter.clone())]);
        assert_eq!(counter.get(), 2.0);
    });
}

#[test]
fn a_count_of_one_owner_is_exact() {
    check(|scene| {
        let mut counter: CounterWriter = scene.value();
        counter.add(10);
        let own = work(move || {
            counter.inc();
            counter.inc();
            counter
        });
        let [counter] = scene.move_beside([own]);
        assert_eq!(counter.get(), 12);
    });
}

#[test]
fn a_count_passes_the_mark() {
    check(|scene| {
        let mut counter: CounterWriter = scene.value();
        counter.add(MARK - 1);
        let own = work(move || {
            counter.inc();
            assert_eq!(counter.get(), MARK);
            counter.inc();
            counter
        });
        let [counter] = scene.move_beside([own]);
        assert_eq!(counter.get(), MARK + 1);
    });
}

#[test]
fn the_last_value_set_stays() {
    check(|scene| {
        let gauge: Gauge<u64> = scene.value();
        gauge.set(1);
        let set = gauge.clone();
        let other = gauge.clone();
        let read = work(move || assert!([1, MARK, 3].contains(&other.get())));
        let set = work(move || {
            set.set(MARK);
            set.set(3);
        });
        scene.move_beside([set, read]);
        assert_eq!(gauge.get(), 3);
    });
}

#[test]
fn sums_and_differences_are_exact() {
    check(|scene| {
        let gauge: Gauge<i64> = scene.value();
        gauge.set(5);
        let (up, down) = (gauge.clone(), gauge.clone());
        scene.move_beside([work(move || up.add(3)), work(move || down.sub(1))]);
        assert_eq!(gauge.get(), 7);
    });
}

#[test]
fn a_gauge_of_one_owner_keeps_its_value() {
    check(|scene| {
        let mut gauge: GaugeWriter<u64> = scene.value();
        gauge.set(5);
        let own = work(move || {
            gauge.add(1);
            assert_eq!(gauge.get(), 6);
            gauge.set(MARK);
            gauge
        });
        let [gauge] = scene.move_beside([own]);
        assert_eq!(gauge.get(), MARK);
    });
}

#[test]
fn a_timer_loses_no_nanoseconds() {
    check(|scene| {
        let timer: Timer = scene.value();
        let observe = |timer: Timer| work(move || timer.observe(Duration::from_nanos(1500)));
        scene.move_beside([observe(timer.clone()), observe(timer.clone())]);
        assert_eq!(timer.get(), Duration::from_micros(3));
    });
}

#[test]
fn shards_are_summed_once() {
    check(|scene| {
        let counter: ShardedCounter = scene.value();
        let (add, both) = (counter.clone(), counter.clone());
        let add = work(move || add.add(2));
        let both = work(move || {
            both.inc();
            assert!([1, 3].contains(&both.get()));
        });
        let threads = [add, both].map(thread::spawn);
        scene.0.flush();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(counter.get(), 3);
    });
}

#[test]
fn shards_move_along() {
    check(|scene| {
        let counter: ShardedCounter = scene.value();
        let add = |counter: ShardedCounter| {
            work(move || {
                counter.inc();
                counter.get();
            })
        };
        scene.move_beside([add(counter.clone()), add(counter.clone())]);
        assert_eq!(counter.get(), 2);
    });
}

#[test]
fn texts_are_whole() {
    check(|scene| {
        let text: Text = scene.value();
        text.set("one");
        let (set, read) = (text.clone(), text.clone());
        let read = work(move || assert!(["one", "two"].contains(&read.get().as_str())));
        scene.move_beside([work(move || set.set("two")), read]);
        assert_eq!(text.get(), "two");
    });
}
