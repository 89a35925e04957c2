//! Files that appear, change and disappear: the tables after each step equal those of a first scan, and those of a
//! single group of all files.

#[path = "../../tests/common/raw.rs"]
mod raw;

use pcp_pdu::print::Print;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pmapi::Item;

use super::Collection;
use super::group::Ready;
use super::limits::Tariff;
use proptest::prelude::*;
use raw::{INDOMS, INSTANCES, METRICS, MetricV1, Raw, VALUES};

const FILES: [&str; 5] = ["a", "a.b", "b", "control", "x"];
const METRIC_NAMES: [&str; 7] = ["x", "x.y", "b.x", "a.b.c", "control.z", "control.files", "a"];

/// A generated file, parts of which may also occur in other files.
#[derive(Clone, Debug)]
pub(super) struct Described {
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
    pub(super) fn bytes(&self, generation: u64) -> Vec<u8> {
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

pub(super) fn write(directory: &Path, name: &str, bytes: &[u8]) {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The requests have no time, so each of them does one step.
    #[test]
    fn tables_that_are_built_in_parts_show_the_old_files_and_then_what_a_first_look_shows(
        changes in prop::collection::vec((0..FILES.len(), prop::option::weighted(0.8, described())), 1..12),
        extra in prop::collection::vec((0..FILES.len(), 0..6usize), 1..12)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut collection = in_steps(dir.path());
        let mut before = all(&mut collection);
        for (generation, ((file, change), (other, wait))) in (1..).zip(changes.into_iter().zip(extra.iter().cycle())) {
            match change {
                // Free clusters are assigned in another order.
                Some(described) => {
                    let cluster = described.cluster.max(1);
                    write(dir.path(), FILES[file], &Described { cluster, ..described }.bytes(generation));
                }
                None => _ = fs::remove_file(dir.path().join(FILES[file])),
            }
            for _ in 0..*wait {
                let is_first = collection.groups.file_count() == 0;
                let changed = collection.refresh();
                let now = all(&mut collection);
                prop_assert!(changed || now == before || is_first, "{now} {before}");
                before = now;
            }
            // A file that goes while tables are built.
            if *wait == 3 {
                _ = fs::remove_file(dir.path().join(FILES[*other]));
            }
            let requests = (0..200).find(|_| {
                collection.refresh();
                collection.draft.is_none() && !collection.is_delayed && collection.listing.is_none()
            });
            prop_assert!(requests.is_some());
            let mut first = Collection::new("mmv", dir.path());
            first.refresh();
            before = all(&mut collection);
            prop_assert_eq!(&before, &all(&mut first));
        }
    }
}

/// Returns a collection whose requests, except for the first one, do one step.
pub(super) fn in_steps(dir: &Path) -> Collection {
    let mut collection = Collection::new("mmv", dir);
    collection.large = 0;
    collection.refresh();
    let mut limits = collection.limits();
    (limits.work, limits.user_work) = (0, u64::MAX >> 1);
    collection.set_limits(limits);
    collection
}

/// Describes a file with one metric below its own name.
pub(super) fn one(cluster: u32, item: u32) -> Described {
    Described { is_prefixed: true, cluster, serial: None, second: "two", metrics: vec![(0, item, false)] }
}

/// Describes a file with one metric below a name that all such files share.
pub(super) fn sharing(cluster: u32) -> Described {
    Described { is_prefixed: false, cluster, serial: None, second: "two", metrics: vec![(2, 1, false)] }
}

#[test]
fn a_request_builds_a_part_of_the_tables_of_a_large_group() {
    let dir = tempfile::tempdir().unwrap();
    // All claim one name, which the first one has.
    (1..=20).for_each(|cluster| write(dir.path(), &format!("f{cluster:02}"), &sharing(cluster).bytes(1)));
    let mut collection = in_steps(dir.path());
    let shown = |collection: &mut Collection| {
        let mut values = Vec::new();
        let put = |_, value: Result<pmapi::Atom<'_>, _>| values.push(Print::new(value.unwrap(), 0).to_string());
        collection.fetch(Item::new(1, 1), |_| true, put).unwrap();
        values
    };
    assert_eq!(shown(&mut collection), ["10"]);
    write(dir.path(), "f01", &sharing(1).bytes(2));
    let mut requests = 0;
    while !collection.refresh() {
        requests += 1;
        assert!(requests < 200);
        // The earlier contents stay, of the file and of the others.
        assert_eq!((shown(&mut collection), collection.file_count()), (vec!["10".to_owned()], 20));
    }
    // At least one request for the instances of each file, and one for its metrics.
    assert!(requests >= 40, "{requests}");
    assert_eq!((shown(&mut collection), collection.file_count()), (vec!["20".to_owned()], 20));
    assert!(!collection.refresh());
}

#[test]
#[ignore = "needs root"]
fn files_of_a_large_group_make_room_for_another_user() {
    let dir = tempfile::tempdir().unwrap();
    let add = |name: &str, cluster, uid| {
        write(dir.path(), name, &sharing(cluster).bytes(1));
        std::os::unix::fs::chown(dir.path().join(name), Some(uid), None).unwrap();
    };
    (1..=20).for_each(|n| add(&format!("a{n:02}"), n, 2001));
    let mut collection = in_steps(dir.path());
    let mut limits = collection.limits();
    limits.files = 20;
    collection.set_limits(limits);
    (1..=5).for_each(|n| add(&format!("z{n}"), 100 + n, 2002));
    let of = |collection: &Collection, uid| collection.groups.sources().filter(|source| source.uid == uid).count();
    let mut requests = 0;
    while of(&collection, 2002) < 5 {
        collection.refresh();
        requests += 1;
        assert!(requests < 2000, "{} {}", of(&collection, 2001), of(&collection, 2002));
    }
    // The shares stay the same, although files of the other user wait for room.
    (0..100).for_each(|_| _ = collection.refresh());
    assert_eq!((of(&collection, 2001), of(&collection, 2002)), (15, 5));
}

/// The tables that lose the file are built in parts, too, and at the expense of the user who had it.
#[test]
#[ignore = "needs root"]
fn a_file_that_gets_another_owner_leaves_the_tables_of_the_old_one_first() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, cluster, uid| {
        let new = dir.path().join(".new");
        fs::write(&new, sharing(cluster).bytes(1)).unwrap();
        std::os::unix::fs::chown(&new, Some(uid), None).unwrap();
        fs::rename(new, dir.path().join(name)).unwrap();
    };
    (1..=20).for_each(|n| put(&format!("a{n:02}"), n, 2001));
    (1..=20).for_each(|n| put(&format!("b{n:02}"), 100 + n, 2002));
    let mut collection = in_steps(dir.path());
    put("a05", 5, 2002);
    let (mut builders, mut requests) = (Vec::new(), 0);
    let is_changed =
        |collection: &Collection| collection.groups.sources().any(|source| source.name == "a05" && source.uid == 2002);
    while !is_changed(&collection) {
        collection.refresh();
        builders.extend(collection.draft.as_ref().map(|draft| draft.uid));
        requests += 1;
        assert!(requests < 2000, "{builders:?}");
    }
    builders.dedup();
    assert_eq!(builders, [2001, 2002]);
    assert_eq!(collection.file_count(), 40);
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

/// Reads files as if they belonged to the given users.
fn load_of_users(dir: &Path, files: &[(&str, u32)]) -> Vec<super::source::Source> {
    let directory = std::sync::Arc::new(crate::reader::Directory::open(dir).unwrap());
    let load = |(name, uid): &(&str, u32)| {
        super::source::SourceFile::load(&directory, name.as_ref(), *uid, 1 << 20, &mut Vec::new()).unwrap()
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
        super::clusters::assign_clusters(&mut sources, u64::MAX);
        assert_eq!(clusters(&sources), [1, 2]);
        // Adds files whose names are before and between the others.
        let more = load_of_users(dir.path(), &[files[0], files[2]]);
        sources.extend(more);
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        super::clusters::assign_clusters(&mut sources, u64::MAX);
        assert_eq!(clusters(&sources), expected);
    }
}

/// Creates a collection of all files of a directory. `owners` has the user of each file, in the order of names, and the
/// request that first read the file.
fn of_users(dir: &Path, owners: &[(u32, u64)]) -> Collection {
    let mut collection = Collection::new("mmv", dir);
    collection.refresh();
    let mut sources = collection.groups.take_sources();
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    sources.iter_mut().zip(owners).for_each(|(source, owner)| (source.uid, source.since) = *owner);
    collection.groups = super::group::Groups::default();
    collection.groups.put_sources(sources, Tariff::Free, Ready::new());
    collection
}

/// Returns the metrics, with the ranks of their files, that a user's files alone would export.
fn of_user(collection: &Collection, dir: &Path, uid: u32) -> Vec<((bool, u64, OsString), String, Item)> {
    let mut groups = super::group::Groups::default();
    let mut sources = Vec::new();
    for (group, _, place) in collection.groups.files() {
        let source = &group.sources[place as usize];
        if source.uid == uid {
            let name = source.name.to_str().unwrap();
            let mut own = load_of_users(dir, &[(name, uid)]).remove(0);
            (own.cluster, own.since) = (source.cluster, source.since);
            sources.push(own);
        }
    }
    groups.put_sources(sources, Tariff::Free, Ready::new());
    let mut all = Vec::new();
    for (group, _, place) in groups.files() {
        let tables = group.tables("mmv");
        let source = &group.sources[place as usize];
        for entry in tables.metrics_of(place) {
            let rank = (uid != 0, source.since, source.name.clone());
            all.push((rank, tables.name(entry).to_owned(), entry.item));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn names_and_identifiers_belong_to_the_file_with_the_highest_rank(
        files in prop::collection::vec((described(), 0..3u32, 1..3u64), 1..FILES.len())
    ) {
        let dir = tempfile::tempdir().unwrap();
        files.iter().zip(FILES).for_each(|((file, ..), name)| write(dir.path(), name, &file.bytes(1)));
        let owners: Vec<(u32, u64)> = files.iter().map(|(_, uid, since)| (*uid, *since)).collect();
        let mut collection = of_users(dir.path(), &owners);
        let claims: Vec<_> = (0..3).flat_map(|uid| of_user(&collection, dir.path(), uid)).collect();
        let is_first = |claim: &&((bool, u64, OsString), String, Item)| {
            claims.iter().all(|other| other.0 >= claim.0 || (other.1 != claim.1 && other.2 != claim.2))
        };
        let mut expected: Vec<_> = claims.iter().filter(is_first).map(|(_, name, item)| (name.clone(), *item)).collect();
        let mut exported: Vec<_> = collection.metrics().map(|(name, desc)| (name.to_owned(), desc.item)).collect();
        expected.sort();
        exported.sort();
        prop_assert_eq!(&exported, &expected);
        // Each name is exported by one part.
        for (name, _) in &exported {
            let has = |part: &super::Part<'_>| part.metrics().any(|(own, item)| own == name && part.exports(own, item));
            prop_assert_eq!(collection.parts(name).filter(has).count(), 1);
        }
        all(&mut collection);
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
    // Each case has the users of both files with the requests in which the files appeared, the name of the second
    // instance, and the metrics that have values.
    for (owners, second, has_values) in [
        ([(1, 1), (1, 1)], "deux", [true, true]),
        ([(2, 2), (1, 1)], "two", [false, true]),
        ([(2, 1), (1, 2)], "deux", [true, false]),
        ([(2, 1), (1, 1)], "deux", [true, false]),
        ([(2, 1), (0, 2)], "two", [false, true]),
        ([(0, 2), (1, 1)], "deux", [true, false]),
    ] {
        let mut collection = of_users(dir.path(), &owners);
        let indom = collection.indoms().next().unwrap();
        let names: Vec<_> = collection.instances(indom).unwrap().map(|(_, name)| name.to_vec()).collect();
        assert_eq!(names, [b"one", second.as_bytes()], "{owners:?}");
        for (item, has_values) in [1, 2].map(|item| Item::new(9, item)).into_iter().zip(has_values) {
            let mut values = Vec::new();
            let fetched = collection.fetch(item, |_| true, |inst, value| values.push((inst, value.is_ok())));
            assert_eq!(fetched, Ok(()));
            assert_eq!(values.iter().any(|(_, is_ok)| *is_ok), has_values, "{owners:?} {item:?} {values:?}");
        }
    }
}

#[test]
fn a_change_of_one_users_file_keeps_the_tables_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let of = |item| Described {
        is_prefixed: false,
        cluster: 9,
        serial: Some(1),
        second: "two",
        metrics: vec![(0, item, true)],
    };
    write(dir.path(), "a", &of(1).bytes(1));
    write(dir.path(), "honest", &of(2).bytes(1));
    let mut collection = of_users(dir.path(), &[(2, 1), (1, 1)]);
    let version = |collection: &Collection| {
        let groups = collection.groups.all().iter();
        groups.filter(|group| group.sources[0].uid == 1).map(|group| group.version).collect::<Vec<_>>()
    };
    let before = version(&collection);
    assert_eq!(before.len(), 1);
    let mut sources = collection.groups.take_sources();
    sources.retain(|source| source.uid == 1);
    sources.extend(load_of_users(dir.path(), &[("a", 2)]));
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    collection.groups.put_sources(sources, Tariff::Charged, Ready::new());
    assert_eq!(version(&collection), before);
}

/// Several users with the same 100,000 names must not make a request for them slow.
#[test]
fn a_request_hides_a_limited_number_of_names() {
    let dir = tempfile::tempdir().unwrap();
    let file = Described { is_prefixed: false, cluster: 0, serial: None, second: "two", metrics: vec![(0, 1, false)] };
    ["a", "honest"].iter().for_each(|name| write(dir.path(), name, &file.bytes(1)));
    let mut collection = of_users(dir.path(), &[(1, 1), (2, 1)]);
    let (name, item) = collection.metrics().map(|(name, desc)| (name.to_owned(), desc.item)).next().unwrap();
    let listed = |collection: &Collection| {
        collection.parts(&name).filter(|part| part.item(&name).is_some_and(|item| part.exports(&name, item))).count()
    };
    assert_eq!((listed(&collection), collection.item(&name)), (1, Ok(item)));
    let requests = (0..1 << 20).take_while(|_| listed(&collection) == 1).count();
    assert!((500..1 << 19).contains(&requests), "{requests}");
    assert_eq!((listed(&collection), collection.item(&name)), (2, Ok(item)));
    collection.groups.begin();
    assert_eq!(listed(&collection), 1);
    all(&mut collection);
}
