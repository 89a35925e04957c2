//! Metrics recorded through the facade appear in the file, whatever their names are.

use pcp_pdu::print::Print;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, gauge, histogram, with_local_recorder};
use mmv_reader::TextKind;
use mmv_reader::collection::Collection;

use super::state::QUANTILES;
use super::*;

/// Returns values by metric and instance, and help texts by metric.
fn seen(dir: &Path) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let mut collection = Collection::new("mmv", dir);
    collection.refresh();
    let (mut values, mut help) = (BTreeMap::new(), BTreeMap::new());
    let metrics: Vec<_> = collection.metrics().map(|(name, desc)| (name.to_owned(), desc)).collect();
    for (name, desc) in metrics {
        let name = name.trim_start_matches("mmv.test.");
        if let Ok(text) = collection.help(desc.item, TextKind::OneLine) {
            help.insert(name.to_owned(), format!("{} [{}]", String::from_utf8_lossy(text), desc.units));
        }
        let names: BTreeMap<_, _> = desc.indom.map_or_else(BTreeMap::new, |indom| {
            let instances = collection.instances(indom).unwrap();
            instances.map(|(id, name)| (id, String::from_utf8_lossy(name).into_owned())).collect()
        });
        let mut put = |inst: Option<_>, value: pmapi::Result<pmapi::Atom<'_>>| {
            let instance = inst.map_or(String::new(), |inst| format!("[{}]", names[&inst]));
            values.insert(format!("{name}{instance}"), Print::new(value.unwrap(), 0).to_string());
        };
        collection.fetch(desc.item, |_| true, &mut put).unwrap();
    }
    (values, help)
}

fn recorder(dir: &Path) -> Recorder {
    let builder = Registry::builder("test").directory(dir).flush_every(Duration::ZERO);
    let recorder = Recorder::of(builder).unwrap();
    recorder.registry().try_start().unwrap();
    recorder
}

#[test]
fn what_is_recorded_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    with_local_recorder(&recorder, || {
        describe_counter!("http_requests_total", "Requests served");
        describe_histogram!("latency", Unit::Milliseconds, "Time to serve");
        counter!("http_requests_total", "method" => "GET", "status" => "200").increment(3);
        counter!("http_requests_total", "status" => "200", "method" => "GET").increment(1);
        counter!("http_requests_total", "method" => "a b,c", "status" => "404").absolute(7);
        counter!("http_requests_total", "method" => "a b,c", "status" => "404").absolute(5);
        counter!("http_requests_total").increment(1);
        gauge!("queue::depth").set(4.0);
        gauge!("queue::depth").increment(1.5);
        gauge!("queue::depth").decrement(2.0);
        for i in 1..=100 {
            histogram!("latency", "path" => "/").record(f64::from(i));
        }
    });
    recorder.registry().flush();
    let (values, help) = seen(dir.path());
    let expected = [
        ("http_requests_total[method=GET+status=200]", "4"),
        ("http_requests_total[method=a_b_c+status=404]", "7"),
        ("http_requests_total_unlabelled", "1"),
        ("latency.count[path=/]", "100"),
        ("latency.sum[path=/]", "5050"),
        ("queue__depth", "3.5"),
    ];
    for (name, value) in expected {
        assert_eq!(values.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(values.len(), expected.len() + QUANTILES.len() + 1);
    let p90: f64 = values["latency.p90[path=/]"].parse().unwrap();
    assert!((p90 / 90.0 - 1.0).abs() < 0.01, "{p90}");
    assert_eq!(help["http_requests_total"], "Requests served [count]");
    assert_eq!(help["latency.max"], "Time to serve [millisec]");
    assert_eq!(help["latency.count"], "Time to serve [count]");
}

#[test]
fn labels_are_labels() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    with_local_recorder(&recorder, || {
        counter!("c", "tier" => "web", "2nd" => "x\"y").increment(1);
    });
    recorder.registry().flush();
    let file = mmv_reader::File::open(dir.path().join("test")).unwrap();
    let labels: Vec<_> = file.labels().iter().map(|label| (file.payload(label), label.flags)).collect();
    assert_eq!(labels, [(&br#"{"m2nd":"x\"y"}"#[..], 32), (&br#"{"tier":"web"}"#[..], 32)]);
}

#[test]
fn more_labels_than_fit_are_instances_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    with_local_recorder(&recorder, || {
        for i in 0..300 {
            counter!("c", "id" => i.to_string()).increment(i);
        }
    });
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    assert_eq!(values.len(), 300);
    assert_eq!(values["c[id=299]"], "299");
}

#[test]
fn names_that_become_the_same_stay_apart() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    with_local_recorder(&recorder, || {
        counter!("a-b").increment(1);
        counter!("a_b").increment(2);
        counter!("l", "k" => "a b").increment(3);
        counter!("l", "k" => "a_b").increment(4);
        // A gauge with the name of a counter is logged, and records nothing.
        gauge!("a_b").set(9.0);
    });
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    let expected = [("a_b", "1"), ("a_b_", "2"), ("l[k=a_b]", "3"), ("l[k=a_b~]", "4")];
    assert_eq!(values, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
}

/// Runs `work`, which must end within a time limit, whatever names it uses.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).expect("it goes on for ever, or panicked");
}

#[test]
fn label_sets_that_agree_in_all_that_a_name_holds_stay_apart() {
    ends(|| {
        let dir = tempfile::tempdir().unwrap();
        let recorder = recorder(dir.path());
        let starts = ["/".repeat(300), "é".repeat(300), "~".repeat(255), format!("{}a", "€".repeat(84))];
        with_local_recorder(&recorder, || {
            for start in &starts {
                (0..20u64).for_each(|n| counter!("c", "path" => format!("{start}{n}")).increment(n + 1));
            }
        });
        recorder.registry().flush();
        let (values, _) = seen(dir.path());
        assert_eq!(values.len(), 20 * starts.len());
        let sum: u64 = values.values().map(|value| value.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, 210 * starts.len() as u64);
    });
}

#[test]
fn names_that_all_become_the_same_take_no_longer_than_others() {
    ends(|| {
        let dir = tempfile::tempdir().unwrap();
        let recorder = recorder(dir.path());
        // Twelve characters from pairs that become equal.
        let name =
            |n: u32, [a, b]: [char; 2]| (0..12).map(|bit| if n >> bit & 1 == 0 { a } else { b }).collect::<String>();
        with_local_recorder(&recorder, || {
            for n in 0..1500 {
                counter!("c", "k" => name(n, [' ', ','])).increment(1);
                counter!(format!("a{}", name(n, ['-', '+']))).increment(1);
            }
        });
        recorder.registry().flush();
        let (values, _) = seen(dir.path());
        // The file has room for no more metrics.
        assert_eq!(values.len(), 1500 + 1022);
        assert!(values.values().all(|value| value == "1"));
    });
}

#[test]
fn label_sets_beyond_the_limits_are_counted_together() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Registry::builder("test").directory(dir.path()).flush_every(Duration::ZERO);
    let recorder = Recorder::of(builder).unwrap().limits(3, 7);
    recorder.registry().try_start().unwrap();
    with_local_recorder(&recorder, || {
        for user in 0..10u32 {
            counter!("requests", "user" => user.to_string()).increment(2);
            histogram!("latency", "user" => user.to_string()).record(1.0);
            gauge!("open", "user" => user.to_string()).set(f64::from(user));
        }
        // A label set from before the limit was reached still counts.
        counter!("requests", "user" => "1").increment(1);
    });
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    let value = |name: &str| values.get(name).map(String::as_str);
    assert_eq!([value("requests[user=0]"), value("requests[user=1]")], [Some("2"), Some("3")]);
    assert_eq!([value("requests[user=9]"), value("requests[other]")], [None, Some("14")]);
    assert_eq!([value("latency.count[user=1]"), value("latency.count[other]")], [Some("1"), Some("8")]);
    assert_eq!([value("open[user=1]"), value("open[user=2]"), value("open[other]")], [Some("1"), None, None]);
    assert_eq!(value("recorder.left_out"), Some("23"));
}

/// Requests decide on label sets, but not on what the program counts later.
#[test]
fn label_sets_never_use_up_the_place_of_later_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Registry::builder("test").directory(dir.path()).flush_every(Duration::ZERO);
    let recorder = Recorder::of(builder).unwrap().limits(60, 250);
    recorder.registry().try_start().unwrap();
    let log = testkit::logged(tracing::Level::TRACE, || {
        with_local_recorder(&recorder, || {
            for path in 0..70u32 {
                counter!("requests", "path" => path.to_string()).increment(1);
                gauge!("size", "path" => path.to_string()).set(1.0);
                histogram!("time", "path" => path.to_string()).record(1.0);
                counter!("bytes", "path" => path.to_string()).increment(1);
                counter!("hits", "path" => path.to_string()).increment(1);
            }
            counter!("errors").increment(3);
            gauge!("depth").set(4.0);
            histogram!("pause").record(5.0);
            for kind in 0..4u32 {
                counter!("panics", "kind" => kind.to_string()).increment(1);
                gauge!("open", "kind" => kind.to_string()).set(2.0);
            }
        });
    });
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    let value = |name: &str| values.get(name).map(String::as_str);
    assert_eq!([value("errors"), value("depth"), value("pause.sum")], [Some("3"), Some("4"), Some("5")]);
    assert_eq!(["panics[kind=0]", "panics[kind=1]", "panics[other]"].map(value), [Some("1"), Some("1"), Some("2")]);
    assert_eq!(["open[kind=1]", "open[kind=2]"].map(value), [Some("2"), None]);
    assert_eq!(["requests[path=49]", "requests[path=50]", "requests[other]"].map(value), [Some("1"), None, Some("20")]);
    for line in [
        "requests: more than 250 metrics and label sets in all: what is beyond counts in the instance `other`",
        "size: more than 250 metrics and label sets in all: what is beyond is not exported to PCP",
        "open: more than 250 metrics and label sets in all: what is beyond is not exported to PCP",
    ] {
        assert_eq!(log.iter().filter(|other| other.ends_with(line)).count(), 1, "{line} is not in {log:#?}");
    }
    assert_eq!(log.len(), 7, "{log:#?}");
}

#[test]
fn each_metric_beyond_a_limit_is_named_up_to_ten() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path()).limits(1, 1000);
    let log = testkit::logged(tracing::Level::TRACE, || {
        with_local_recorder(&recorder, || {
            for n in 0..60u32 {
                counter!(format!("m{}", n / 3), "n" => n.to_string()).increment(1);
            }
        });
    });
    let told = (0..10).map(|n| format!("WARN: m{n}: more than 1 label sets of the metric"));
    assert!(log.len() == 10 && log.iter().zip(told).all(|(line, told)| line.starts_with(&told)), "{log:#?}");
    let last = |line: &String| line.ends_with("; further metrics like this are not logged");
    assert_eq!(log.iter().position(last), Some(9), "{log:#?}");
}

#[test]
fn the_version_that_the_hint_names_is_that_of_the_facade() {
    let manifest = include_str!("../../Cargo.toml");
    assert!(manifest.contains(&format!("metrics = {{ version = \"{FACADE}\"")));
}

#[test]
fn a_recorder_is_used_by_descriptions_and_by_handles() {
    let dir = tempfile::tempdir().unwrap();
    let used = |work: fn()| {
        let recorder = recorder(dir.path());
        assert!(is_unused(&recorder.state, &recorder.known));
        with_local_recorder(&recorder, work);
        !is_unused(&recorder.state, &recorder.known)
    };
    assert!(used(|| describe_counter!("a", "A")));
    assert!(used(|| crate::metrics::gauge!("b", "k" => "v").set(1.0)));
}

#[test]
fn a_label_set_too_long_to_be_kept_is_one_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    with_local_recorder(&recorder, || {
        (0..5).for_each(|n| counter!("c", "body" => format!("{}{n}", "x".repeat(5000))).increment(1));
    });
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    assert_eq!(values.get("c[other]").map(String::as_str), Some("5"));
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
// Slow: the names have 400 MB.
fn names_too_long_to_be_kept_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    let before = resident();
    with_local_recorder(&recorder, || {
        for n in 0..500 {
            let name = |kind| format!("{kind}{n}{}", "x".repeat(1 << 18));
            counter!(name("c")).increment(1);
            counter!(name("l"), "k" => "v").increment(1);
            histogram!(name("h"), "k" => "v").record(1.0);
            // Labels may be empty, and then there may be any number of them.
            let labels = vec![metrics::Label::new("", ""); 4096 + n];
            counter!("empty", labels).increment(1);
        }
    });
    let more = resident().saturating_sub(before);
    // Other tests run at the same time. The names alone have 400 MB.
    assert!(more < 200 << 20, "{more} bytes");
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    assert_eq!(values.get("recorder.left_out").map(String::as_str), Some("2000"), "{values:?}");
    assert_eq!(values.get("empty[other]").map(String::as_str), Some("500"), "{values:?}");
}

#[test]
fn a_new_key_waits_for_a_file_that_is_being_written_for_a_limited_time() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = recorder(dir.path());
    with_local_recorder(&recorder, || counter!("known").increment(1));
    // As a flush whose disk hangs.
    let inner = recorder.registry().inner();
    let (disk, state) = (inner.lock_disk_within(Duration::ZERO).unwrap(), inner.lock().unwrap());
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..8_u64 {
            let (done, recorder) = (done.clone(), &recorder);
            scope.spawn(move || {
                let start = std::time::Instant::now();
                with_local_recorder(recorder, || {
                    counter!("new", "number" => number.to_string()).increment(1);
                    counter!("known").increment(1);
                });
                done.send(start.elapsed()).unwrap();
            });
        }
        let all: Vec<_> = (0..8).map_while(|_| is_done.recv_timeout(Duration::from_secs(20)).ok()).collect();
        drop((state, disk));
        assert_eq!(all.len(), 8);
        assert!(all.iter().all(|time| *time < Duration::from_secs(10)), "{all:?}");
    });
    thread::sleep(Duration::from_millis(1100));
    with_local_recorder(&recorder, || counter!("new", "number" => "1").increment(5));
    recorder.registry().flush();
    let (values, _) = seen(dir.path());
    let shown = |name: &str| values.get(name).map(String::as_str);
    assert_eq!((shown("known"), shown("new[number=1]")), (Some("9"), Some("5")), "{values:?}");
}
