//! Files that appear, change and disappear, and files of several users.

#[path = "../../tests/common/raw.rs"]
mod raw;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pcp_pdu::print::Print;
use pmapi::{Error, Inst, Item};
use proptest::prelude::*;
use testkit::logged;
use tracing::Level;

use super::limits::Uid;
use super::snapshot::{Clusters, Snapshot};
use super::source::{Source, Values};
use super::{Collection, MetricDesc};
use crate::reader::Directory;
use raw::{INDOMS, INSTANCES, METRICS, MetricV1, Raw, STRINGS, VALUES};

const FILES: [&str; 5] = ["a", "a.b", "b", "control", "x"];
const METRIC_NAMES: [&str; 7] = ["x", "x.y", "b.x", "a.b.c", "control.z", "control.files", "a"];

/// A generated file, parts of which may also occur in other files.
#[derive(Clone, Debug)]
struct Described {
    is_prefixed: bool,
    cluster: u32,
    /// The domain has two instances. Metrics over it have a value for the first one.
    serial: Option<u32>,
    second: &'static str,
    /// Name, item, and whether the metric has instances.
    metrics: Vec<(usize, u32, bool)>,
}

fn described() -> impl Strategy<Value = Described> {
    // Some serial numbers clash with domains of other clusters.
    let serial = prop::option::of(prop::sample::select(vec![1, 1 << 11 | 1, 2 << 11 | 1]));
    let metrics = prop::collection::vec((0..METRIC_NAMES.len(), 1..4u32, any::<bool>()), 0..4);
    let cluster = prop::sample::select(vec![0, 1, 2, 3, 2049]);
    (any::<bool>(), cluster, serial, prop::sample::select(vec!["two", "zwei"]), metrics).prop_map(
        |(is_prefixed, cluster, serial, second, metrics)| Described { is_prefixed, cluster, serial, second, metrics },
    )
}

impl Described {
    fn bytes(&self, generation: u64) -> Vec<u8> {
        let count = self.metrics.len() as u64;
        let (indom, instances, metrics) = (104, 136, 296);
        let values = metrics + 104 * count;
        let mut raw = Raw::new((values + 32 * count) as usize, 4);
        raw.u64(8, generation).u64(16, generation).u32(28, u32::from(!self.is_prefixed)).u32(36, self.cluster);
        raw.toc(0, METRICS, count as i32, metrics).toc(1, VALUES, count as i32, values);
        raw.toc(2, INDOMS, i32::from(self.serial.is_some()), indom).toc(3, INSTANCES, 2, instances);
        raw.indom(indom, self.serial.unwrap_or(1), 2, instances);
        raw.instance(instances, indom, 1, "one").instance(instances + 80, indom, 2, self.second);
        for (i, &(name, item, is_each)) in (0..).zip(&self.metrics) {
            let at = metrics + 104 * i;
            let indom = self.serial.filter(|_| is_each).unwrap_or(u32::MAX);
            raw.metric(at, &MetricV1 { name: METRIC_NAMES[name], item, indom, ..MetricV1::default() });
            raw.value(values + 32 * i, generation * 10 + i, 0, at, instances);
        }
        raw.0
    }
}

type Fetched = Vec<(Option<Inst>, Result<String, Error>)>;

fn values(collection: &mut Collection, item: Item) -> Result<Fetched, Error> {
    let mut values = Vec::new();
    collection.fetch(
        item,
        |_| true,
        |inst, value| values.push((inst, value.map(|value| Print::new(value, 0).to_string()))),
    )?;
    Ok(values)
}

/// Returns the description and the values of each metric.
fn metrics(collection: &mut Collection) -> BTreeMap<String, (MetricDesc, Result<Fetched, Error>)> {
    let all: Vec<_> = collection.metrics().collect();
    assert_eq!(all.len(), collection.metric_count());
    let mut found = BTreeMap::new();
    for (name, desc) in all {
        assert_eq!((collection.item(&name), collection.name(desc.item)), (Ok(desc.item), Ok(name.clone())));
        assert_eq!(collection.desc(desc.item), Ok(desc));
        found.insert(name, (desc, values(collection, desc.item)));
    }
    assert_eq!(found.len(), collection.metric_count());
    found
}

/// Returns everything that a collection exports, as text.
fn all(collection: &mut Collection) -> String {
    let mut text = format!("{} files\n{:#?}", collection.file_count(), metrics(collection));
    collection.names().root().each_name(&mut |name| text.push_str(&format!("{name}\n")));
    for indom in collection.indoms() {
        let instances: Vec<_> = collection.instances(indom).unwrap().collect();
        writeln!(text, "{indom} {instances:?}").unwrap();
    }
    text
}

fn write(directory: &Path, name: &str, bytes: &[u8]) {
    let new = directory.join(".new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, directory.join(name)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Files that share a cluster have different items for different names here. Otherwise a file keeps its cluster, and
    /// a first look cannot know it.
    #[test]
    // Slow: many random sequences of changes, each read twice.
    fn a_change_shows_what_a_first_look_shows(
        changes in prop::collection::vec((0..FILES.len(), prop::option::weighted(0.8, described())), 1..12)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        for (generation, (file, change)) in (1..).zip(changes) {
            match change {
                Some(mut described) => {
                    described.cluster = if described.is_prefixed { 0 } else { 2049 + described.cluster % 2 };
                    described.metrics.iter_mut().for_each(|(name, item, _)| *item = 1 + *name as u32);
                    write(dir.path(), FILES[file], &described.bytes(generation));
                }
                None => _ = fs::remove_file(dir.path().join(FILES[file])),
            }
            // New and replaced files are found by every request.
            _ = if generation % 2 == 0 { collection.refresh() } else { collection.refresh_for(&mut [].into_iter()) };
            let mut first = Collection::new("mmv", dir.path());
            first.refresh();
            prop_assert_eq!(all(&mut collection), all(&mut first));
        }
    }

    /// Any file can have the cluster and the items of any other one.
    #[test]
    fn files_of_one_cluster_are_all_exported_and_keep_their_numbers(
        changes in prop::collection::vec((0..FILES.len(), prop::option::weighted(0.7, 0..3u32)), 1..20)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        let mut expected: BTreeMap<&str, (u64, Option<Item>)> = BTreeMap::new();
        for (generation, (file, change)) in (1..).zip(changes) {
            let name = ["a", "b", "c", "d", "e"][file];
            match change {
                Some(cluster) => {
                    let item = 1 + file as u32 % 2;
                    let described = Described { serial: Some(1), metrics: vec![(0, item, true)], ..one(7 + cluster / 2, 1) };
                    write(dir.path(), name, &described.bytes(generation));
                    expected.insert(name, (generation * 10, None));
                }
                None => {
                    _ = fs::remove_file(dir.path().join(name));
                    expected.remove(name);
                }
            }
            collection.refresh();
            prop_assert_eq!(collection.metric_count(), expected.len());
            for (name, (value, known)) in &mut expected {
                let item = collection.item(&format!("mmv.{name}.x")).unwrap();
                let shown = values(&mut collection, item).unwrap();
                prop_assert_eq!(&shown[0], &(Inst::from_word(1), Ok(value.to_string())), "{}", name);
                prop_assert!(known.is_none_or(|known| known == item), "{} {:?} {:?}", name, known, item);
                *known = Some(item);
            }
        }
    }
}

/// Describes a file with one metric below its own name.
fn one(cluster: u32, item: u32) -> Described {
    Described { is_prefixed: true, cluster, serial: None, second: "two", metrics: vec![(0, item, false)] }
}

#[test]
fn the_log_says_why_a_file_has_another_cluster_or_no_values() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Described { is_prefixed: false, ..one(9, 1) };
    for (name, file) in [("till1", one(7, 1)), ("till2", one(7, 1)), ("u1", shared.clone()), ("u2", shared)] {
        write(dir.path(), name, &file.bytes(1));
    }
    let mut collection = Collection::new("mmv", dir.path());
    let lines = logged(Level::INFO, || {
        for _ in 0..5 {
            collection.set_reload(1);
            collection.refresh();
        }
    });
    assert_eq!(
        lines,
        [
            "INFO: mmv: till2: its metrics have cluster 1, because till1 has other metrics with these numbers in cluster 7",
            "ERROR: mmv: u2: metric \"x\" is left out: another file has its value",
        ]
    );
}

#[test]
fn a_fetch_looks_at_the_files_of_its_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let described = |cluster| one(cluster, 1);
    write(dir.path(), "a", &described(1).bytes(1));
    write(dir.path(), "b", &described(2).bytes(2));
    // So long ago that a further change must have another time.
    fs::File::open(dir.path()).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    assert!(collection.refresh());
    let [a, b] = [Item::new(1, 1), Item::new(2, 1)];
    let value = |collection: &mut Collection, item| values(collection, item).unwrap()[0].1.clone().unwrap();
    // The file is replaced.
    fs::write(dir.path().join("b"), described(2).bytes(3)).unwrap();
    assert!(!collection.refresh_for(&mut [a].into_iter()));
    assert_eq!(value(&mut collection, a), "10");
    assert!(collection.refresh_for(&mut [a, b, b].into_iter()));
    assert_eq!(value(&mut collection, b), "30");
    assert!(!collection.refresh_for(&mut [a, b].into_iter()));
    // Changed values alone need no new tables.
    let mut bytes = described(2).bytes(3);
    let at = bytes.len() - 32;
    bytes[at..at + 8].copy_from_slice(&7u64.to_ne_bytes());
    fs::write(dir.path().join("b"), bytes).unwrap();
    assert!(!collection.refresh_for(&mut [b].into_iter()));
    assert_eq!(value(&mut collection, b), "7");
}

#[test]
fn a_file_that_has_changed_gives_no_value_of_the_old_layout() {
    let dir = tempfile::tempdir().unwrap();
    for open in [0, 16] {
        write(dir.path(), "a", &one(7, 1).bytes(1));
        let mut collection = Collection::new("mmv", dir.path());
        collection.keep_open(open);
        collection.refresh();
        fs::write(dir.path().join("a"), one(7, 1).bytes(2)).unwrap();
        // As if the file had been changed after the request's check.
        collection.begin();
        let item = Item::new(7, 1);
        assert_eq!(values(&mut collection, item), Ok(vec![(None, Err(Error::GENERIC))]));
        assert!(collection.refresh_for(&mut [].into_iter()));
        assert_eq!(values(&mut collection, item), Ok(vec![(None, Ok("20".to_owned()))]));
        // Truncated under the reader.
        fs::File::options().write(true).open(dir.path().join("a")).unwrap().set_len(100).unwrap();
        collection.begin();
        assert_eq!(values(&mut collection, item), Ok(vec![(None, Err(Error::GENERIC))]));
    }
}

/// Returns a collection of all files of a directory. `owners` has the user of each file, and the scan that found it.
fn of_users(dir: &Path, owners: &[(&str, u32, u64)], before: &Clusters) -> Collection {
    let directory = Arc::new(Directory::open(dir).unwrap());
    let sources = owners.iter().map(|(name, uid, since)| {
        let account = (Uid(*uid), *since);
        let (source, handle) =
            Source::load("mmv", &directory, name.as_ref(), account, 1 << 20, &mut Vec::new()).unwrap();
        source.keep_open(handle);
        Arc::new(source)
    });
    let snapshot = Snapshot::build("mmv", sources.collect(), before);
    let mut collection = Collection::new("mmv", dir);
    collection.begin();
    collection.values.resize_with(snapshot.sources.len(), Values::default);
    collection.snapshot = Arc::new(snapshot);
    collection
}

#[test]
fn a_file_of_one_user_takes_no_cluster_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| write(dir.path(), name, &one(0, 1).bytes(1)));
    for (uids, expected) in [([1, 1, 1, 1], [1, 2, 3, 4]), ([2, 1, 2, 1], [3, 1, 4, 2])] {
        let files: Vec<(&str, u32, u64)> =
            names.into_iter().zip(uids).zip([2, 1, 2, 1]).map(|((a, b), c)| (a, b, c)).collect();
        let first = of_users(dir.path(), &[files[1], files[3]], &Clusters::new()).snapshot.clusters();
        assert_eq!(["b", "d"].map(|name| first[std::ffi::OsStr::new(name)].2), [1, 2]);
        // Adds files whose names are before and between the others.
        let clusters = of_users(dir.path(), &files, &first).snapshot.clusters();
        assert_eq!(names.map(|name| clusters[std::ffi::OsStr::new(name)].2), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Files that a user adds later change nothing of what was exported before.
    #[test]
    fn a_user_takes_nothing_from_the_files_of_another(
        files in prop::collection::vec(described(), 2..FILES.len()), strangers in 1..3usize
    ) {
        let dir = tempfile::tempdir().unwrap();
        files.iter().zip(FILES).for_each(|(file, name)| write(dir.path(), name, &file.bytes(1)));
        let (owners, count) = (FILES[..files.len()].iter().copied(), files.len() - strangers.min(files.len() - 1));
        // The later files may have names that come first.
        let mut owners: Vec<(&str, u32, u64)> = owners.map(|name| (name, 5, 1)).collect();
        owners.reverse();
        let mut before = of_users(dir.path(), &owners[..count], &Clusters::new());
        owners[count..].iter_mut().for_each(|owner| (owner.1, owner.2) = (6, 2));
        let mut after = of_users(dir.path(), &owners, &before.snapshot.clusters());
        let now = metrics(&mut after);
        for (name, exported) in metrics(&mut before) {
            prop_assert_eq!(now.get(&name), Some(&exported), "{}", name);
        }
        for indom in before.indoms() {
            let [before, now] = [&before, &after].map(|of| of.instances(indom).unwrap().collect::<Vec<_>>());
            prop_assert_eq!(before, now);
        }
    }
}

#[test]
fn an_instance_domain_belongs_to_one_user() {
    let dir = tempfile::tempdir().unwrap();
    // The number of a domain has all bits of the cluster and of the serial number.
    let of = |cluster, serial, second| Described {
        serial: Some(serial),
        second,
        metrics: vec![(0, 1, true)],
        ..one(cluster, 1)
    };
    write(dir.path(), "a", &of(1, 3 << 11 | 1, "deux").bytes(1));
    write(dir.path(), "honest", &of(2, 3 << 11 | 1, "two").bytes(1));
    // Each case has the users of both files with the scans in which the files appeared, the name of the second
    // instance, and the metrics that have values.
    for (owners, second, has_values) in [
        ([(1, 1), (1, 1)], "deux", [true, true]),
        ([(2, 2), (1, 1)], "two", [false, true]),
        ([(2, 1), (1, 2)], "deux", [true, false]),
        ([(2, 1), (1, 1)], "deux", [true, false]),
        ([(2, 1), (0, 2)], "two", [false, true]),
        ([(0, 2), (1, 1)], "deux", [true, false]),
    ] {
        let owners = [("a", owners[0].0, owners[0].1), ("honest", owners[1].0, owners[1].1)];
        let mut collection = of_users(dir.path(), &owners, &Clusters::new());
        let indom = collection.indoms().next().unwrap();
        let names: Vec<_> = collection.instances(indom).unwrap().map(|(_, name)| name.to_vec()).collect();
        assert_eq!(names, [b"one", second.as_bytes()], "{owners:?}");
        for (name, has_values) in ["mmv.a.x", "mmv.honest.x"].into_iter().zip(has_values) {
            let item = collection.item(name).unwrap();
            let values = values(&mut collection, item).unwrap();
            assert_eq!(values.iter().any(|(_, value)| value.is_ok()), has_values, "{owners:?} {name} {values:?}");
        }
    }
}

/// Only the application can correct such a value: it does not help to read the file again.
#[test]
fn a_text_beyond_the_end_is_an_error_and_no_reason_to_read_the_file_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut raw = Raw::new(480, 3);
    raw.toc(0, METRICS, 1, 88).toc(1, VALUES, 1, 192).toc(2, STRINGS, 1, 224);
    raw.metric(88, &MetricV1 { ty: 6, ..MetricV1::default() }).put(224, b"words");
    for (extra, expected) in [
        (224, Ok("\"words\"".to_owned())),
        (225, Err(Error::GENERIC)),
        (1 << 40, Err(Error::GENERIC)),
        (u64::MAX, Err(Error::GENERIC)),
    ] {
        write(dir.path(), "a", &raw.value(192, 0, 224, 88, 0).0);
        fs::File::open(dir.path()).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        collection.refresh();
        let item = collection.item("mmv.a.badmmv").unwrap();
        fs::write(dir.path().join("a"), &raw.u64(200, extra).0).unwrap();
        assert!(!collection.refresh_for(&mut [item].into_iter()));
        assert_eq!(values(&mut collection, item), Ok(vec![(None, expected)]), "{extra}");
        assert!(!collection.refresh_for(&mut [item].into_iter()), "{extra}");
    }
}

#[test]
fn a_file_that_gets_another_owner_is_charged_to_that_one() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", &one(7, 1).bytes(1));
    let mut collection = Collection::new("mmv", dir.path());
    let owner = Arc::new(AtomicU32::new(1));
    let now = Arc::clone(&owner);
    collection.charge(move |_| now.load(Relaxed));
    for uid in [1, 2] {
        owner.store(uid, Relaxed);
        collection.set_reload(1);
        assert!(collection.refresh());
        assert_eq!(collection.snapshot.sources[0].uid, Uid(uid));
        assert_eq!(values(&mut collection, Item::new(7, 1)), Ok(vec![(None, Ok("10".to_owned()))]));
    }
}
