use std::path::Path;

use pmapi::Domain;

use super::*;
use crate::access::Owners;
use crate::budget::Budget;
use crate::http::Failure;
use crate::metric::Refused;
use crate::reader::Defaults;
use crate::runtime::Permits;
use crate::store::Store;
use crate::url_file::Limits;

fn source() -> Source {
    let defaults = Defaults {
        timeout: FIRST,
        script_timeout: FIRST,
        bytes: 0,
        instances: 0,
        owners: Owners::Any,
        likeness: crate::metric::Likeness::Better,
        store: Store::new("/nonexistent".into(), Domain::new(144).unwrap()),
        budget: Budget::new(usize::MAX),
        permits: Permits::new(1, 0, usize::MAX),
    };
    let found = Found { name: "a".into(), path: Path::new("/nonexistent/a.url").into(), kind: Kind::Url };
    let reader = Reader::new("a".into(), 1, Arc::clone(&found.path), Kind::Url, Arc::new(defaults));
    Source::new(found, reader)
}

/// Gives the source the outcome of a reading that lasted `took`.
fn read(source: &mut Source, took: Duration, limits: Limits, outcome: Result<Arc<Sample>, Failure>) {
    read_busily(source, (took, Duration::ZERO), limits, outcome);
}

/// Gives the source the outcome of a reading that lasted `took` and needed the processor for `busy`.
fn read_busily(
    source: &mut Source,
    (took, busy): (Duration, Duration),
    limits: Limits,
    outcome: Result<Arc<Sample>, Failure>,
) {
    let now = Instant::now();
    (source.asked, source.last_asked) = (now.checked_sub(took), Some(now));
    source.adopt(Report { outcome, took, busy, limits, ..Report::panicked(1, 0) });
}

fn sample() -> Arc<Sample> {
    let (metrics, values, taken) = (Arc::new([]), Vec::new(), Instant::now());
    let parsing = Duration::ZERO;
    Arc::new(Sample {
        metrics,
        values,
        taken,
        parsing,
        bytes: 0,
        lines: 0,
        left_out: 0,
        refused: Refused::default(),
        reordered: true,
    })
}

/// A source in a pause is not due. Otherwise the agent would check it in a loop.
#[test]
fn an_interval_waits_for_the_end_of_a_pause() {
    let mut source = source();
    let interval = Duration::from_millis(1);
    let limits = Limits { interval: Some(interval), ..Limits::default() };
    read(&mut source, interval, limits, Ok(sample()));
    assert_eq!(source.due(), source.last_asked.map(|asked| asked + interval));
    let late = Failure { code: 0, reason: String::new(), is_late: true };
    read(&mut source, interval, limits, Err(late));
    assert!(!source.pauses.is_due());
    assert!(source.due().unwrap() > source.last_asked.unwrap() + PAUSES[0] / 2);
    source.is_removed = true;
    assert_eq!(source.due(), None);
}

/// A source whose documents need much processor time rests, whether or not the reading has failed.
#[test]
fn readings_that_need_the_processor_for_long() {
    let limits = Limits { interval: Some(Duration::from_millis(1)), ..Limits::default() };
    for outcome in [Ok(sample()), Err("refused".to_owned().into())] {
        let mut source = source();
        read_busily(&mut source, (BUSY, BUSY / 2), limits, outcome.clone());
        assert!(source.may_be_read() && source.state() != "pausing");
        read_busily(&mut source, (BUSY, 100 * BUSY), limits, outcome.clone());
        assert!(!source.may_be_read() && source.state() == "pausing");
        let due = source.due().unwrap().duration_since(Instant::now());
        assert!(due > 290 * BUSY && due <= 300 * BUSY, "{due:?}");
        source.rest.succeeded();
        assert!(source.may_be_read());
    }
}

#[test]
fn one_late_reading_does_not_make_requests_wait_as_long() {
    let mut source = source();
    let patience = |source: &mut Source| {
        source.asked = Some(Instant::now());
        source.patience(Duration::from_secs(1), Waits::AsUsual).unwrap()
    };
    let usual = Duration::from_micros(500);
    for _ in 0..2 {
        read(&mut source, usual, Limits::default(), Ok(sample()));
    }
    source.usual = Some(usual);
    assert_eq!(patience(&mut source), SHORTEST);
    read(&mut source, Duration::from_millis(900), Limits::default(), Ok(sample()));
    assert!(patience(&mut source) < 5 * SHORTEST);
    // Requests wait for a source that has become slow, after some readings.
    for _ in 0..5 {
        read(&mut source, Duration::from_millis(400), Limits::default(), Ok(sample()));
    }
    assert!(patience(&mut source) >= Duration::from_millis(400));
}
