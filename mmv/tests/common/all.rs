//! An application with a handle of each kind.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use mmv::{Counter, CounterWriter, Gauge, GaugeWriter, Interval, Registry, ShardedCounter, Text, Timer};
use mmv_reader::File;
use nix::unistd::{Uid, setresuid};

pub(crate) fn registry(dir: &Path) -> Registry {
    Registry::builder("app").directory(dir).flush_every(Duration::ZERO).build().unwrap()
}

pub(crate) fn word(file: &File, name: &str) -> u64 {
    let metric = file.metrics().iter().find(|m| file.name(m) == name.as_bytes()).unwrap();
    file.value(metric.values()[0].index).unwrap().word
}

pub(crate) fn read(dir: &Path) -> File {
    let file = File::open(dir.join("app")).unwrap();
    assert_eq!(file.problems().first(), []);
    file
}

/// Drops root's rights, because no limit applies to root.
pub(crate) fn as_nobody() {
    if Uid::current().is_root() {
        let nobody = Uid::from_raw(65534);
        setresuid(nobody, nobody, nobody).unwrap();
    }
}

/// Creates a directory that all users may write.
pub(crate) fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// A handle of each kind, and updates by several threads.
pub(crate) struct All {
    pub(crate) counter: Counter,
    small: Counter<i32>,
    float: Counter<f64>,
    gauge: Gauge<u64>,
    text: Text,
    timer: Timer,
    sharded: ShardedCounter,
    own: Mutex<(CounterWriter, GaugeWriter<i64>, Interval)>,
}

impl All {
    pub(crate) fn new(registry: &Registry) -> All {
        All {
            counter: registry.counter("counter").register().unwrap(),
            small: registry.metric("small").register().unwrap(),
            float: registry.metric("float").register().unwrap(),
            gauge: registry.metric("gauge").register().unwrap(),
            text: registry.text("text").register().unwrap(),
            timer: registry.timer("timer").register().unwrap(),
            sharded: registry.metric("sharded").register().unwrap(),
            own: Mutex::new((
                registry.metric("writer").register().unwrap(),
                registry.metric("set").register().unwrap(),
                registry.metric("interval").register().unwrap(),
            )),
        }
    }

    pub(crate) fn update(&self, n: u64) {
        self.counter.inc();
        self.small.add(-1);
        self.float.add(0.5);
        self.timer.observe(Duration::from_micros(1));
        self.sharded.inc();
        self.gauge.add(1);
        let mut own = self.own.lock().unwrap();
        own.0.inc();
        own.1.sub(1);
        own.2.start();
        own.2.stop();
        self.text.set(&n.to_string());
    }

    /// Asserts that a file has this number of updates.
    pub(crate) fn check(&self, file: &File, updates: u64) {
        self.text.set("last");
        assert_eq!((self.counter.get(), word(file, "counter")), (updates, updates));
        assert_eq!(self.small.get(), -(updates as i32));
        assert_eq!(f64::from_bits(word(file, "float")), updates as f64 / 2.0);
        assert_eq!((self.gauge.get(), word(file, "gauge")), (updates, updates));
        assert_eq!((self.sharded.get(), word(file, "timer")), (updates, updates));
        let own = self.own.lock().unwrap();
        assert_eq!((own.0.get(), word(file, "writer")), (updates, updates));
        assert_eq!(word(file, "set") as i64, -(updates as i64));
        assert_eq!(u128::from(word(file, "interval")), own.2.get().as_micros());
    }
}
