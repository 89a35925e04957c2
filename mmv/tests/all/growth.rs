//! A registry that grows while its handles are in use: no update is lost, and no reader sees half a file.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

use mmv::{Counter, CounterWriter, Error, Family, Gauge, GaugeWriter, Registry, ShardedCounter, Text, Timer};
use mmv_reader::File;

const UPDATES: u64 = 60_000;

fn registry(dir: &Path) -> Registry {
    Registry::builder("grow").directory(dir).cluster(9).build().unwrap()
}

/// Returns the word of a metric's first value, as readers see it.
fn word(dir: &Path, name: &str) -> u64 {
    let file = File::open(dir.join("grow")).unwrap();
    assert_eq!(file.problems().first(), []);
    let metric = file.metrics().iter().find(|m| file.name(m) == name.as_bytes()).unwrap();
    file.value(metric.values()[0].index).unwrap().word
}

/// Updates a registry from several threads while metrics are added.
fn race(threads: u64, registry: &Registry, update: impl Fn(u64) + Sync) {
    let (running, grown) = (AtomicBool::new(true), AtomicU32::new(0));
    thread::scope(|scope| {
        let work = || {
            (0..UPDATES).for_each(|i| {
                // On a busy machine, waits until the registry has grown.
                while i == UPDATES / 2 && grown.load(Relaxed) == 0 {
                    thread::yield_now();
                }
                update(i);
            });
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        scope.spawn(|| {
            while running.load(Relaxed) && grown.load(Relaxed) < 400 {
                let _: Counter = registry.counter(&format!("added{}", grown.load(Relaxed))).register().unwrap();
                (0..100).for_each(|_| registry.flush());
                grown.fetch_add(1, Relaxed);
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        running.store(false, Relaxed);
    });
}

#[test]
fn no_update_is_lost() {
    for threads in [2, 4, 16] {
        let dir = tempfile::tempdir().unwrap();
        let registry = registry(dir.path());
        let counter = registry.counter("counter").register().unwrap();
        let small = registry.metric::<Counter<u32>>("small").register().unwrap();
        let float = registry.metric::<Counter<f64>>("float").register().unwrap();
        let gauge = registry.metric::<Gauge<i64>>("gauge").register().unwrap();
        let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
        registry.try_start().unwrap();
        race(threads, &registry, |i| {
            counter.add(3);
            small.inc();
            float.add(0.5);
            if i % 3 == 0 {
                gauge.sub(2)
            } else {
                gauge.add(4)
            }
            sharded.inc();
        });
        registry.flush();
        let all = threads * UPDATES;
        assert_eq!(counter.get(), 3 * all);
        assert_eq!(word(dir.path(), "counter"), 3 * all);
        assert_eq!(u64::from(small.get()), all);
        assert_eq!(f64::from_bits(word(dir.path(), "float")), all as f64 / 2.0);
        assert_eq!(word(dir.path(), "gauge"), 2 * all, "two thirds of 4 less one third of 2");
        assert_eq!((sharded.get(), word(dir.path(), "sharded")), (all, all));
    }
}

#[test]
fn the_last_value_set_is_the_last_seen() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let mut counter: CounterWriter = registry.metric("counter").register().unwrap();
    let mut writer: GaugeWriter<i64> = registry.metric("writer").register().unwrap();
    let gauge: Gauge<u64> = registry.metric("gauge").register().unwrap();
    registry.try_start().unwrap();
    for round in 0..30u32 {
        thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..5_000 {
                    counter.inc();
                    writer.set(i - 2_500);
                    gauge.set(i as u64 ^ 0x5a5a);
                }
            });
            for i in 0..10 {
                let _: Counter = registry.counter(&format!("added{round}_{i}")).register().unwrap();
            }
        });
        assert_eq!(word(dir.path(), "counter"), 5_000 * u64::from(round + 1));
        assert_eq!(word(dir.path(), "writer") as i64, 2_499);
        assert_eq!((word(dir.path(), "gauge"), gauge.get()), (4_999 ^ 0x5a5a, 4_999 ^ 0x5a5a));
    }
}

#[test]
fn readers_see_whole_files_and_counters_that_never_fall() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    let text: Text = registry.text("text").register().unwrap();
    text.set("aaaa");
    registry.try_start().unwrap();
    let running = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut last, mut metrics) = (0, 0);
            while running.load(Relaxed) {
                // Another file may replace this one between opening and reading.
                let Ok(file) = File::open(dir.path().join("grow")) else { continue };
                assert_eq!(file.problems().first(), []);
                assert!(file.metrics().len() >= metrics);
                metrics = file.metrics().len();
                let of = |name: &str| file.metrics().iter().find(|m| file.name(m) == name.as_bytes()).unwrap();
                let count = file.value(of("counter").values()[0].index).unwrap().word;
                assert!(count >= last, "{count} after {last}");
                last = count;
                let value = file.value(of("text").values()[0].index).unwrap();
                let text = file.string(&value).unwrap();
                assert!([b"aaaa".as_slice(), b"bb"].contains(&text), "{text:?}");
            }
        });
        scope.spawn(|| {
            for i in 0..UPDATES {
                counter.inc();
                if i % 100 == 0 {
                    text.set(if i % 200 == 0 { "bb" } else { "aaaa" });
                }
            }
        });
        for i in 0..300 {
            let _: Counter = registry.counter(&format!("added{i}")).register().unwrap();
        }
        running.store(false, Relaxed);
    });
    assert_eq!(word(dir.path(), "counter"), UPDATES);
}

#[test]
fn registrations_are_appended_to_the_file_that_readers_have_open() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    registry.try_start().unwrap();
    let open = fs::File::open(dir.path().join("grow")).unwrap();
    let generation = File::read(&open).unwrap().header().g1;
    let indom = registry.indom("indom").instances(["a"]).register().unwrap();
    let family: Family<Counter> = registry.counter("family").over(&indom).unwrap();
    family.instance("b").unwrap().add(3);
    let file = File::read(&open).unwrap();
    assert_eq!(file.problems().first(), []);
    assert_eq!((file.metrics().len(), file.metrics()[0].values().len()), (1, 2));
    assert!(file.header().g1 > generation);
    assert_eq!(word(dir.path(), "family"), 0);
}

/// Domains that grow by turns get other places for their instances, but values keep theirs.
#[test]
fn domains_that_grow_by_turns_have_all_their_instances() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let families: Vec<Family<Counter>> = (0..5)
        .map(|n| {
            let indom = registry.indom(&format!("indom{n}")).register().unwrap();
            registry.counter(&format!("family{n}")).over(&indom).unwrap()
        })
        .collect();
    registry.try_start().unwrap();
    let mut handles = Vec::new();
    for round in 0..100 {
        for (n, family) in families.iter().enumerate() {
            handles.push(family.instance(&format!("{round} of {n}")).unwrap());
        }
        handles.iter().for_each(Counter::inc);
    }
    let file = File::open(dir.path().join("grow")).unwrap();
    assert_eq!(file.problems().first(), []);
    for (indom, n) in file.indoms().iter().zip(0..) {
        let names = indom.instances().iter().map(|instance| String::from_utf8_lossy(file.instance_name(instance)));
        assert!(names.eq((0..100).map(|round| format!("{round} of {n}"))));
        let metric = file.metrics().iter().find(|m| file.name(m) == format!("family{n}").as_bytes()).unwrap();
        let ids = indom.instances().iter().map(|instance| instance.id);
        assert!(metric.values().iter().map(|value| value.instance).eq(ids));
        let words = metric.values().iter().map(|value| file.value(value.index).unwrap().word);
        assert!(words.eq((1..=100).rev()));
    }
}

#[test]
fn what_has_no_room_is_an_error_that_names_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("grow").directory(dir.path()).room(100).build().unwrap();
    registry.try_start().unwrap();
    let indom = registry.indom("indom").register().unwrap();
    let family: Family<Counter> = registry.counter("family").over(&indom).unwrap();
    let texts: Family<Text> = registry.text("texts").over(&indom).unwrap();
    for n in 0..100 {
        family.instance(&n.to_string()).unwrap().inc();
        texts.instance(&n.to_string()).unwrap().set("text");
    }
    let error = family.instance("one more").unwrap_err();
    assert!(matches!(error, Error::Full { max: 100, .. }));
    assert!(error.to_string().contains("has room for 100 texts: RegistryBuilder::room"), "{error}");
    assert!(matches!(registry.text("text").register(), Err(Error::Full { what: "texts", .. })));
    let many = (0..100).map(|n| n.to_string()).collect::<Vec<_>>();
    let many = registry.indom("many").instances(many.iter().map(String::as_str)).register();
    assert!(matches!(many, Err(Error::Full { what: "instances", max: 100 })));
    // What there is goes on, and what fits is added.
    family.instance("7").unwrap().inc();
    let metrics = (0..1100).map_while(|n| registry.counter(&format!("m{n}")).register().ok()).count();
    assert_eq!(metrics, 398, "four for each instance");
    assert!(matches!(registry.counter("more").register(), Err(Error::Full { what: "metrics", max: 400 })));
    let file = File::open(dir.path().join("grow")).unwrap();
    assert_eq!((file.problems().count(), file.metrics().len(), file.indoms()[0].instances().len()), (0, 400, 100));
    for room in [0, 15, 131_073] {
        let built = Registry::builder("grow").room(room).build();
        assert!(matches!(built, Err(Error::Range { what: "room", .. })));
    }
    assert!(Registry::builder("grow").room(131_072).build().is_ok());
}

/// Room that is not used is a hole.
#[test]
fn a_file_takes_blocks_for_what_it_has() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::builder("grow").directory(dir.path()).room(131_072).build().unwrap();
    let handles: Vec<Counter> = (0..100).map(|n| registry.counter(&format!("m{n}")).register().unwrap()).collect();
    registry.try_start().unwrap();
    handles.iter().for_each(Counter::inc);
    let file = fs::metadata(dir.path().join("grow")).unwrap();
    assert!(file.len() > 32 << 20 && file.blocks() * 512 < 256 << 10, "{} of {}", file.blocks() * 512, file.len());
}

#[test]
fn a_text_is_written_beside_the_one_that_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let text: Text = registry.text("text").register().unwrap();
    registry.try_start().unwrap();
    text.set("old");
    let string = |at: i64| {
        let bytes = fs::read(dir.path().join("grow")).unwrap();
        let end = bytes.iter().skip(at as usize).position(|b| *b == 0).unwrap();
        String::from_utf8(bytes[at as usize..at as usize + end].to_vec()).unwrap()
    };
    let extra = || File::open(dir.path().join("grow")).unwrap().value(0).unwrap().extra;
    let old = extra();
    text.set("the new one");
    let new = extra();
    assert_eq!((string(old), string(new)), ("old".into(), "the new one".into()));
    text.set("x");
    assert_eq!((extra(), string(old), string(new)), (old, "x".into(), "the new one".into()));
}

#[test]
fn instances_appear_in_every_metric_over_the_domain() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let indom = registry.indom("routes").instances(["a"]).register().unwrap();
    let hits: Family<Counter> = registry.counter("hits").over(&indom).unwrap();
    let times: Family<Timer> = registry.timer("time").over(&indom).unwrap();
    registry.try_start().unwrap();
    let a = hits.instance("a").unwrap();
    a.add(5);
    for i in 0..600 {
        hits.instance(&format!("route{i}")).unwrap().add(i);
    }
    indom.add("z").unwrap();
    a.add(1);
    assert!(matches!(indom.add("z"), Err(mmv::Error::InUse { .. })));
    assert!(times.get("route599").is_some() && times.get("none").is_none());

    let file = File::open(dir.path().join("grow")).unwrap();
    assert_eq!(file.problems().first(), []);
    let domain = &file.indoms()[0];
    assert_eq!(domain.instances().len(), 602);
    let name_of = |id| domain.instances().iter().find(|i| i.id == id).map(|i| file.instance_name(i)).unwrap();
    let metric = file.metrics().iter().find(|m| file.name(m) == b"hits").unwrap();
    assert_eq!(metric.values().len(), 602);
    for value in metric.values() {
        let name = std::str::from_utf8(name_of(value.instance)).unwrap();
        let expected = match name {
            "a" => 6,
            "z" => 0,
            route => route.strip_prefix("route").unwrap().parse().unwrap(),
        };
        assert_eq!(file.value(value.index).unwrap().word, expected, "{name}");
    }
}

#[test]
fn a_batch_is_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    registry.try_start().unwrap();
    let generation = || File::open(dir.path().join("grow")).unwrap().header().g1;
    let before = generation();
    let handles: Vec<Counter> = {
        let _batch = registry.batch();
        let handles: Vec<Counter> = (0..500).map(|i| registry.counter(&format!("m{i}")).register().unwrap()).collect();
        handles.iter().zip(0..).for_each(|(handle, i)| handle.add(i));
        assert_eq!(generation(), before, "nothing is written before the batch ends");
        handles
    };
    let after = generation();
    assert_ne!(after, before);
    handles.iter().for_each(Counter::inc);
    for i in 0..500 {
        assert_eq!(word(dir.path(), &format!("m{i}")), i + 1);
    }
    assert_eq!(generation(), after);
}

#[test]
fn handles_outlive_the_registry() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let counter = registry.counter("counter").register().unwrap();
    let text = registry.text("text").register().unwrap();
    registry.try_start().unwrap();
    counter.inc();
    drop(registry);
    assert!(!dir.path().join("grow").exists());
    counter.inc();
    text.set("still here");
    assert_eq!((counter.get(), text.get().as_str()), (2, "still here"));
}

#[test]
fn a_lazy_registry_publishes_with_the_flush() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Registry::builder("grow").directory(dir.path()).lazy();
    let registry = builder.flush_every(std::time::Duration::ZERO).build().unwrap();
    registry.try_start().unwrap();
    let late = registry.counter("late").register().unwrap();
    late.add(7);
    assert_eq!(File::open(dir.path().join("grow")).unwrap().metrics().len(), 0);
    registry.flush();
    assert_eq!(word(dir.path(), "late"), 7);
}
