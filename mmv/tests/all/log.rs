//! An application's log on a machine without PCP.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use mmv::recorder::Recorder;
use mmv::{Counter, Registry};
use testkit::logged;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Counts log lines through the facade, each in a separate metric.
struct Counted(AtomicU32);

impl<S: Subscriber> Layer<S> for Counted {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        let line = self.0.fetch_add(1, Relaxed);
        metrics::counter!(format!("line{line}")).increment(1);
    }
}

#[test]
fn a_log_may_be_counted_by_what_writes_it() {
    let (done, ends) = mpsc::channel();
    let work = move || {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::of(Registry::builder("shop").directory(dir.path())).unwrap();
        let log = tracing_subscriber::registry().with(Counted(AtomicU32::default()));
        tracing::subscriber::with_default(log, || {
            metrics::with_local_recorder(&recorder, || {
                metrics::counter!("sales.books").increment(1);
                // This metric cannot be registered, which logs a line.
                metrics::counter!("sales").increment(1);
                recorder.registry().try_start().unwrap();
                fs::remove_dir_all(dir.path()).unwrap();
                // No file can be written, which logs another line.
                metrics::counter!("more").increment(1);
                recorder.registry().flush();
            });
        });
        let lines = ["line0", "line1"].map(|name| recorder.registry().find::<Counter>(name).unwrap().get());
        done.send(lines).unwrap();
    };
    thread::spawn(work);
    assert_eq!(ends.recv_timeout(Duration::from_secs(60)), Ok([1, 1]));
}

/// Counts log lines through the facade, each in a separate instance.
struct Labelled(AtomicU32);

impl<S: Subscriber> Layer<S> for Labelled {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        let line = self.0.fetch_add(1, Relaxed);
        metrics::counter!("lines", "line" => line.to_string()).increment(1);
    }
}

#[test]
fn a_log_line_about_the_limits_may_be_counted_beyond_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    testkit::Child::new(|| {
        let recorder = Recorder::of(Registry::builder("shop").directory(dir.path())).unwrap().limits(1, 10);
        let log = tracing_subscriber::registry().with(Labelled(AtomicU32::default()));
        tracing::subscriber::with_default(log, || {
            metrics::with_local_recorder(&recorder, || {
                // A leaf of the name space: the recorder's metric `recorder.left_out` cannot be registered.
                metrics::counter!("recorder").increment(1);
                for n in 0..100 {
                    metrics::counter!("sales", "shop" => n.to_string()).increment(1);
                    metrics::counter!("lines", "line" => format!("own{n}")).increment(1);
                }
            });
        });
        let lines = recorder.registry().find_family::<Counter>("lines").unwrap();
        assert_eq!(lines.get("other").unwrap().get(), 100);
    })
    .ends();
}

#[test]
fn a_file_of_another_process_is_not_taken_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Registry::builder("shop").directory(dir.path()).build().unwrap().try_start().unwrap();
    let first = Registry::builder("shop").directory(dir.path()).build().unwrap();
    first.try_start().unwrap();
    let mut bytes = fs::read(dir.path().join("shop")).unwrap();
    drop(first);
    assert_eq!(logged(Level::TRACE, start), [""; 0]);
    bytes[32..36].copy_from_slice(&1i32.to_ne_bytes());
    fs::write(dir.path().join("shop"), bytes).unwrap();
    assert_eq!(
        logged(Level::TRACE, start),
        ["WARN: shop: replaced the file of process 1, which is still running: each process needs a name of its own"]
    );
}

#[test]
fn no_directory_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let lines = logged(Level::TRACE, || {
        let registry = Registry::builder("shop").directory(&missing).build().unwrap();
        let sales = registry.counter("sales").register().unwrap();
        registry.start();
        for i in 0..10 {
            sales.inc();
            registry.counter(&format!("more{i}")).register().unwrap().inc();
        }
        registry.flush();
        registry.stop();
    });
    let expected = format!(
        "WARN: shop: metrics are not exported to PCP: {:?}: No such file or directory (os error 2); mkdir -p {} creates \
         the directory",
        missing.join("shop"),
        missing.display()
    );
    assert_eq!(lines, [expected]);
}

#[test]
fn a_directory_that_goes_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("mmv");
    std::fs::create_dir(&files).unwrap();
    let lines = logged(Level::TRACE, || {
        let registry = Registry::builder("shop").directory(&files).build().unwrap();
        let sales = registry.counter("sales").register().unwrap();
        registry.try_start().unwrap();
        std::fs::remove_dir_all(&files).unwrap();
        for i in 0..10 {
            sales.inc();
            registry.counter(&format!("more{i}")).register().unwrap().inc();
        }
        assert_eq!(sales.get(), 10);
        // The directory exists again.
        std::fs::create_dir(&files).unwrap();
        registry.counter("last").register().unwrap();
        let file = mmv_reader::File::open(files.join("shop")).unwrap();
        assert_eq!((file.metrics().len(), file.value(0).unwrap().word), (12, 10));
    });
    let expected = "WARN: shop: new metrics are not exported to PCP: No such file or directory (os error 2)";
    assert_eq!(lines, [expected]);
}

#[test]
fn a_healthy_application_logs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let lines = logged(Level::TRACE, || {
        let registry = Registry::builder("shop").directory(dir.path()).build().unwrap();
        registry.start();
        registry.counter("sales").register().unwrap().inc();
    });
    assert_eq!(lines, Vec::<String>::new());
}
