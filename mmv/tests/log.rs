//! What an application sees of PCP's absence in its log.
#![allow(clippy::unwrap_used)]

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use mmv::Registry;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Collects the lines of a log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(format!("{}: ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
}

fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(lines.clone()), work);
    let lines = lines.0.lock().unwrap();
    lines.clone()
}

#[test]
fn no_directory_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let lines = logged(|| {
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
        "WARN: metrics are not exported to PCP: {:?}: No such file or directory (os error 2)",
        missing.join("shop")
    );
    assert_eq!(lines, [expected]);
}

#[test]
fn a_directory_that_goes_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("mmv");
    std::fs::create_dir(&files).unwrap();
    let lines = logged(|| {
        let registry = Registry::builder("shop").directory(&files).build().unwrap();
        let sales = registry.counter("sales").register().unwrap();
        registry.try_start().unwrap();
        std::fs::remove_dir_all(&files).unwrap();
        for i in 0..10 {
            sales.inc();
            registry.counter(&format!("more{i}")).register().unwrap().inc();
        }
        assert_eq!(sales.get(), 10);
        // It comes back.
        std::fs::create_dir(&files).unwrap();
        registry.counter("last").register().unwrap();
        let file = mmv::reader::File::open(files.join("shop")).unwrap();
        assert_eq!((file.metrics().len(), file.value(0).unwrap().word), (12, 10));
    });
    let expected = "WARN: shop: new metrics are not exported to PCP: No such file or directory (os error 2)";
    assert_eq!(lines, [expected]);
}

#[test]
fn a_healthy_application_logs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let lines = logged(|| {
        let registry = Registry::builder("shop").directory(dir.path()).build().unwrap();
        registry.start();
        registry.counter("sales").register().unwrap().inc();
    });
    assert_eq!(lines, Vec::<String>::new());
}
