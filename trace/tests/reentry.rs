//! Values of fields that trace while they are recorded. A process of its own: its subscriber is the global one.

#![allow(clippy::unwrap_used)]

mod common;

use pcp_trace::shared_memory::{Directory, Reader};
use pcp_trace::{Options, Trace, Transport, layer::TraceLayer};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// A value whose `Display` traces.
#[derive(Debug)]
struct Traces;

impl std::fmt::Display for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        tracing::info!(name: "looked at", "");
        let _inner = tracing::info_span!("inner", by = 7);
        f.write_str("seen")
    }
}

#[test]
fn what_is_recorded_may_trace() {
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    let trace = Trace::new(Options::default().directory(directory.path()).transport(Transport::SharedMemory));
    // Two layers must not fail either.
    let layers = [0; 2].map(|_| TraceLayer::new(trace.clone()));
    // Only a global subscriber receives spans and events that are created inside of it.
    tracing_subscriber::registry().with(Vec::from(layers)).init();
    {
        let outer = tracing::info_span!("outer", by = %Traces, later = tracing::field::Empty).entered();
        outer.record("later", tracing::field::display(Traces));
        tracing::info!(name: "point", by = %Traces);
    }
    let file = common::files(directory.files()).remove(0);
    let tags = common::tags(&file);
    let (mut reader, mut fields) = (Reader::open(&common::ring(&file)).unwrap(), Vec::new());
    reader.look().unwrap();
    let missed = reader.records(u64::MAX, |record| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let tag = &tags[&record.tag];
        fields.extend(record.fields().map(|(key, value)| format!("{tag} {}={}", text(key), text(value))));
    });
    assert_eq!((missed.unwrap(), trace.status().missed), (0, 0));
    for field in ["outer by=seen", "outer later=seen", "point by=seen", "inner by=7"] {
        assert!(fields.iter().any(|f| f == field), "{fields:?}");
    }
}
