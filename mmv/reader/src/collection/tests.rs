//! Files that appear, change and disappear: the tables after each step equal those of a first scan, and those of a
//! single group of all files.

#[path = "../../tests/common/raw.rs"]
mod raw;

use pcp_pdu::print::Print;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pmapi::Item;

use super::Collection;
use proptest::prelude::*;
use raw::{INDOMS, INSTANCES, METRICS, MetricV1, Raw, VALUES};

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

/// Returns everything that a collection exports, as text.
fn all(collection: &mut Collection) -> String {
    let mut text = format!("{} files\n", collection.file_count());
    let metrics: Vec<_> = collection.metrics().map(|(name, desc)| (name.to_owned(), desc)).collect();
    assert_eq!(metrics.len(), collection.metric_count());
    for (name, desc) in metrics {
        assert_eq!((collection.item(&name), collection.name(desc.item)), (Ok(desc.item), Ok(&*name)));
        assert_eq!(collection.desc(desc.item), Ok(desc));
        let mut values = Vec::new();
        let fetched = collection.fetch(
            desc.item,
            |_| true,
            |inst, value| values.push((inst, value.map(|v| Print::new(v, 0).to_string()))),
        );
        writeln!(text, "{name} {desc:?} {fetched:?} {values:?}").unwrap();
    }
    for indom in collection.indoms() {
        let instances: Vec<_> = collection.instances(indom).unwrap().collect();
        writeln!(text, "{indom} {instances:?}").unwrap();
    }
    let heads: Vec<&str> = collection.heads().map(|(head, _)| head).collect();
    writeln!(text, "{heads:?}").unwrap();
    for (head, part) in collection.heads() {
        let below = format!("mmv.{head}.");
        let metrics: Vec<_> = part.metrics().filter(|(name, _)| format!("{name}.").starts_with(&below)).collect();
        assert!(!metrics.is_empty());
        writeln!(text, "{head} {metrics:?}").unwrap();
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

    #[test]
    fn a_change_shows_what_a_first_look_shows(
        changes in prop::collection::vec((0..FILES.len(), prop::option::weighted(0.8, described())), 1..12)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = Collection::new("mmv", dir.path());
        for (generation, (file, change)) in (1..).zip(changes) {
            match change {
                Some(described) => write(dir.path(), FILES[file], &described.bytes(generation)),
                None => _ = fs::remove_file(dir.path().join(FILES[file])),
            }
            // New and replaced files are found by every request.
            _ = if generation % 2 == 0 { collection.refresh() } else { collection.refresh_for(&mut [].into_iter()) };
            let mut first = Collection::new("mmv", dir.path());
            first.refresh();
            let found = all(&mut first);
            prop_assert_eq!(&all(&mut collection), &found);
            first.groups.join();
            prop_assert_eq!(&all(&mut first), &found);
        }
    }
}

#[test]
fn a_fetch_looks_at_the_files_of_its_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let described = |cluster| {
        let metrics = vec![(0, 1, false)];
        Described { is_prefixed: true, cluster, serial: None, second: "two", metrics }
    };
    write(dir.path(), "a", &described(1).bytes(1));
    write(dir.path(), "b", &described(2).bytes(2));
    // So old that no further change can have the same time.
    fs::File::open(dir.path()).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut collection = Collection::new("mmv", dir.path());
    assert!(collection.refresh());
    let [a, b] = [Item::new(1, 1), Item::new(2, 1)];
    let value = |collection: &mut Collection, item| {
        let mut values = Vec::new();
        collection.fetch(item, |_| true, |_, value| values.push(Print::new(value.unwrap(), 0).to_string())).unwrap();
        values
    };
    // The file is replaced.
    fs::write(dir.path().join("b"), described(2).bytes(3)).unwrap();
    assert!(!collection.refresh_for(&mut [a].into_iter()));
    assert_eq!(value(&mut collection, a), ["10"]);
    assert!(collection.refresh_for(&mut [a, b, b].into_iter()));
    assert_eq!(value(&mut collection, b), ["30"]);
    assert!(!collection.refresh_for(&mut [a, b].into_iter()));
    // Changed values alone need no new tables.
    let mut bytes = described(2).bytes(3);
    let at = bytes.len() - 32;
    bytes[at..at + 8].copy_from_slice(&7u64.to_ne_bytes());
    fs::write(dir.path().join("b"), bytes).unwrap();
    assert!(!collection.refresh_for(&mut [b].into_iter()));
    assert_eq!(value(&mut collection, b), ["7"]);
}

/// Reads files as those of the given users.
fn load_of_users(dir: &Path, files: &[(&str, u32)]) -> Vec<super::source::Source> {
    let directory = std::sync::Arc::new(crate::reader::Directory::open(dir).unwrap());
    let load = |(name, uid): &(&str, u32)| {
        super::source::Source::load(&directory, name.as_ref(), *uid, 1 << 20, &mut Vec::new()).unwrap()
    };
    files.iter().map(load).collect()
}

#[test]
fn a_file_of_one_user_takes_no_cluster_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let described =
        Described { is_prefixed: true, cluster: 0, serial: None, second: "two", metrics: vec![(0, 1, false)] };
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| write(dir.path(), name, &described.bytes(1)));
    let clusters = |sources: &[super::source::Source]| sources.iter().map(|source| source.cluster).collect::<Vec<_>>();
    for (uids, expected) in [([1, 1, 1, 1], [1, 2, 3, 4]), ([2, 1, 2, 1], [3, 1, 4, 2])] {
        let files: Vec<(&str, u32)> = names.into_iter().zip(uids).collect();
        let mut sources = load_of_users(dir.path(), &[files[1], files[3]]);
        super::users::assign_clusters(&mut sources);
        assert_eq!(clusters(&sources), [1, 2]);
        // Files of names before and between them are added.
        let more = load_of_users(dir.path(), &[files[0], files[2]]);
        sources.extend(more);
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        super::users::assign_clusters(&mut sources);
        assert_eq!(clusters(&sources), expected);
    }
}

#[test]
fn a_user_joins_few_files_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..40).map(|i| format!("f{i}")).collect();
    let of = |cluster, is_prefixed, metrics| Described { is_prefixed, cluster, serial: None, second: "two", metrics };
    for (name, cluster) in names.iter().zip(1..) {
        write(dir.path(), name, &of(cluster, true, vec![(0, 1, false)]).bytes(1));
        // Each file shares a cluster with one file of the first user, and a name with all files of its own user.
        write(dir.path(), &format!("z{name}"), &of(cluster, false, vec![(0, 2, false)]).bytes(1));
    }
    let mut files: Vec<(String, u32)> = names.iter().map(|name| (name.clone(), 1)).collect();
    files.extend(names.iter().map(|name| (format!("z{name}"), 2)));
    let files: Vec<(&str, u32)> = files.iter().map(|(name, uid)| (&**name, *uid)).collect();
    let mut sources = load_of_users(dir.path(), &files);
    super::users::assign_clusters(&mut sources);
    // The files of the first user existed before the others.
    sources.iter_mut().for_each(|source| source.since = u64::from(source.uid));
    assert_eq!(super::users::intruders(&sources), (57..80).collect::<Vec<_>>());
    // Files of root may join any, and so may files of a single user.
    for uids in [[1, 0], [3, 3]] {
        sources.iter_mut().zip(0..).for_each(|(source, i)| source.uid = uids[i / 40]);
        assert_eq!(super::users::intruders(&sources), [0; 0]);
    }
}

#[test]
fn an_instance_domain_belongs_to_one_user() {
    let dir = tempfile::tempdir().unwrap();
    let of = |second, item| Described {
        is_prefixed: true,
        cluster: 9,
        serial: Some(1),
        second,
        metrics: vec![(0, item, true)],
    };
    write(dir.path(), "a", &of("deux", 1).bytes(1));
    write(dir.path(), "honest", &of("two", 2).bytes(1));
    // Which file the domain comes from, with the users of both files, and the requests in which these came.
    for (users, since, expected) in [
        ([1, 1], [1, 1], vec![(0, 0), (1, 0)]),
        ([2, 1], [2, 1], vec![(1, 0)]),
        ([2, 1], [1, 2], vec![(0, 0)]),
        ([2, 1], [1, 1], vec![(0, 0)]),
        ([2, 0], [1, 2], vec![(1, 0)]),
        ([0, 1], [2, 1], vec![(0, 0)]),
    ] {
        let mut sources = load_of_users(dir.path(), &[("a", users[0]), ("honest", users[1])]);
        sources.iter_mut().zip(since).for_each(|(source, since)| (source.cluster, source.since) = (9, since));
        let tables = super::tables::Tables::build("mmv", &sources);
        let parts: Vec<_> = tables.indoms.values().map(|indom| indom.parts.clone()).collect();
        assert_eq!(parts, [expected], "{users:?} {since:?}");
        for (source, item) in [(0, 1), (1, 2)] {
            let item = Item::new(9, item);
            let owns = parts[0].iter().any(|(owner, _)| *owner == source) || users[source] == 0;
            assert_eq!(!tables.values(item).unwrap().places.is_empty(), owns, "{users:?} {since:?} {item:?}");
            assert_eq!(!tables.instances_of(&sources, item).is_empty(), owns || users.contains(&0));
        }
    }
}
