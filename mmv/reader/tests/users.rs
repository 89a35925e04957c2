//! Files of several users in one directory: files of one user do not reduce the share of another. Only root can create
//! them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "common/raw.rs"]
mod raw;

use std::fs;
use std::os::unix::fs::{FileExt, chown, lchown};
use std::path::Path;

use mmv::{Error, Registry};
use mmv_reader::File;
use mmv_reader::collection::{Collection, Limit, Limits};

const STRANGER: u32 = 2001;
const HONEST: u32 = 2002;

/// Writes a file of one metric that belongs to a user and requests a cluster.
fn file_of(uid: u32, path: &Path, cluster: u32) {
    fs::write(path, &raw::one_metric("x").u32(36, cluster).0).unwrap();
    chown(path, Some(uid), None).unwrap();
}

/// Returns the number of files of a directory that this process has open and whose names begin with `start`.
fn open(dir: &Path, start: &str) -> usize {
    let targets = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    targets
        .filter(|path| path.parent() == Some(dir) && path.file_name().unwrap().to_str().unwrap().starts_with(start))
        .count()
}

#[test]
#[ignore = "needs root"]
fn many_files_of_one_user_do_not_close_those_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    (0..200).for_each(|i| file_of(STRANGER, &path.join(format!("a{i:03}")), 0));
    let mut collection = Collection::new("mmv", path);
    collection.keep_open(16);
    while collection.refresh() {}
    assert_eq!(open(path, "a"), 9);
    // Honest files that come later. Their names sort before and after the others.
    for name in ["A", "z0", "z1", "z2"] {
        file_of(HONEST, &path.join(name), 0);
        while collection.refresh() {}
    }
    // Half of the descriptors are kept for users with few files: the first honest file stays open.
    let shares =
        |collection: &Collection| (collection.file_count(), open(path, "A") + open(path, "z"), open(path, "a"));
    assert_eq!(shares(&collection), (204, 1, 9));
    drop(collection);
    // The first look at all of them.
    let mut collection = Collection::new("mmv", path);
    collection.keep_open(16);
    while collection.refresh() {}
    assert_eq!(shares(&collection), (204, 1, 9));
}

#[test]
#[ignore = "needs root"]
fn bad_files_of_one_user_delay_no_completed_file_of_another() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..1000 {
        let path = dir.path().join(format!("a{i:04}"));
        fs::write(&path, "MMV?").unwrap();
        chown(&path, Some(STRANGER), None).unwrap();
    }
    let path = dir.path().join("z");
    fs::write(&path, &raw::one_metric("x").u64(16, 0).0).unwrap();
    chown(&path, Some(HONEST), None).unwrap();
    // While the directory may change unnoticed, each request checks all files.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut collection = Collection::new("mmv", dir.path());
    (0..3).for_each(|_| _ = collection.refresh());
    assert_eq!(collection.file_count(), 0);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&1u64.to_ne_bytes(), 16).unwrap();
    collection.refresh();
    assert_eq!(collection.file_count(), 1);
}

/// Starts a registry named `app`, and returns the cluster of its file.
fn start(dir: &Path) -> Result<i32, Error> {
    let registry = Registry::builder("app").directory(dir).build()?;
    registry.counter("x").register()?;
    registry.try_start()?;
    Ok(File::open(dir.join("app")).unwrap().header().cluster)
}

#[test]
#[ignore = "needs root"]
fn a_strangers_file_in_the_way_has_no_say_in_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let own = start(dir.path()).unwrap();
    for cluster in [1, 300, 4095, 4096, 60_000, 1 << 20] {
        file_of(STRANGER, &dir.path().join("app"), cluster);
        assert_eq!(start(dir.path()).unwrap(), own, "{cluster}");
    }
}

#[test]
fn a_file_in_the_way_may_have_an_impossible_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let own = start(dir.path()).unwrap();
    for (cluster, expected) in [(300, 300), (4095, 4095), (4096, own), (60_000, own), (1 << 20, own)] {
        fs::write(dir.path().join("app"), &raw::one_metric("x").u32(36, cluster).0).unwrap();
        assert_eq!(start(dir.path()).unwrap(), expected, "{cluster}");
    }
}

/// Half of each total is kept for users with few files.
#[test]
#[ignore = "needs root"]
fn users_with_few_files_are_served_beside_greedy_ones() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: String, uid: u32, cluster: u32| file_of(uid, &dir.path().join(name), cluster);
    let exported = |collection: &Collection| {
        let names: Vec<String> = collection.metrics().map(|(name, _)| name).collect();
        ["mmv.a", "mmv.b", "mmv.c", "mmv.honest"].map(|user| names.iter().filter(|name| name.starts_with(user)).count())
    };
    let limits = Limits { files: 200, user_files: 150, ..Limits::default() };
    let mut collection = Collection::new("mmv", dir.path());
    collection.set_limits(limits);
    for (uid, user) in (2000..).zip(["a", "b", "c"]) {
        (0..200).for_each(|i| write(format!("{user}{i}"), uid, 0));
        while collection.refresh() {}
    }
    // Three floors of 32 files are kept. The oldest files stay, first come, first served.
    assert_eq!(exported(&collection), [32 + 104, 32, 32, 0]);
    (0..20).for_each(|i| write(format!("honest{i}"), 3000, 0));
    while collection.refresh() {}
    assert_eq!(exported(&collection), [136, 32, 32, 0], "as many floors as there are");
    // One of the users goes.
    (0..200).for_each(|i| fs::remove_file(dir.path().join(format!("c{i}"))).unwrap());
    while collection.refresh() {}
    assert_eq!(exported(&collection), [136, 32, 0, 20]);
    let left_out = collection.left_out(Limit::Files);
    assert!(left_out >= 64 + 168 + 168 + 20, "{left_out}");
}

/// In a PID namespace below that of `/proc`, the number of this process belongs to another process in `/proc`.
#[test]
#[ignore = "needs root"]
fn links_and_processes_are_found_in_a_pid_namespace() {
    const INSIDE: &str = "MMV_TEST_INSIDE";
    let Some(dir) = std::env::var_os(INSIDE) else {
        let dir = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "--ignored", "links_and_processes_are_found_in_a_pid_namespace"]);
        assert!(command.env(INSIDE, dir.path()).status().unwrap().success());
        return;
    };
    assert_ne!(fs::read_link("/proc/self").unwrap().to_str().unwrap(), std::process::id().to_string());
    let dir = Path::new(&dir);
    let registry = Registry::builder("app").directory(dir).build().unwrap();
    registry.counter("x").register().unwrap();
    registry.try_start().unwrap();
    file_of(0, &dir.join(".other"), 0);
    std::os::unix::fs::symlink(".other", dir.join("link")).unwrap();
    let mut collection = Collection::new("mmv", dir);
    // Often enough for a check of the start time.
    (0..200).for_each(|_| _ = collection.refresh());
    let names: Vec<String> = collection.metrics().map(|(name, _)| name).collect();
    assert_eq!(names, ["mmv.app.x", "mmv.link.x"]);
}

/// The default limits are enough for a host with 1,000 applications of 100 metrics, all of one user.
#[test]
// Slow: the promise is about a thousand applications with many values.
fn a_thousand_applications_are_exported_in_full() {
    let dir = tempfile::tempdir().unwrap();
    for app in 0..1000 {
        let registry = Registry::builder(&format!("app{app}")).directory(dir.path()).build().unwrap();
        for m in 0..100 {
            let name = format!("requests.of_kind_{m}");
            let _: mmv::Counter = registry.metric(&name).help("One of a hundred metrics").register().unwrap();
        }
        registry.try_start().unwrap();
        // The file stays when the registry is dropped.
        fs::hard_link(dir.path().join(format!("app{app}")), dir.path().join(format!(".app{app}"))).unwrap();
        drop(registry);
        fs::rename(dir.path().join(format!(".app{app}")), dir.path().join(format!("app{app}"))).unwrap();
    }
    let mut collection = Collection::new("mmv", dir.path());
    while collection.refresh() {}
    assert_eq!(collection.metrics().count(), 100_000);
    assert_eq!(Limit::ALL.map(|limit| collection.left_out(limit)), [0; 3]);
}

/// Values of an honest user stay, and grow within the floor, when other users have used up all values.
#[test]
#[ignore = "needs root"]
fn a_user_within_the_floor_of_values_keeps_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let registry = |name: &str, metrics: u32, uid| {
        let registry = Registry::builder(name).directory(path).persistent().build().unwrap();
        (0..metrics).for_each(|m| _ = registry.counter(&format!("m{m}")).register().unwrap());
        registry.try_start().unwrap();
        chown(path.join(name), Some(uid), None).unwrap();
        registry
    };
    let exported = |collection: &Collection, name: &str| {
        collection.metrics().filter(|(metric, _)| metric.starts_with(&format!("mmv.{name}"))).count()
    };
    let mut collection = Collection::new("mmv", path);
    collection.set_limits(Limits { values: 10_000, ..Limits::default() });
    let honest = registry("honest0", 500, HONEST);
    (0..20).for_each(|n| _ = registry(&format!("greedy{n}"), 800, STRANGER));
    while collection.refresh() {}
    let greedy = exported(&collection, "greedy");
    assert!((4000..=8000).contains(&greedy) && exported(&collection, "honest") == 500, "{greedy}");
    // More files, and a file with more metrics.
    _ = registry("honest1", 500, HONEST);
    (0..300).for_each(|m| _ = honest.counter(&format!("more{m}")).register().unwrap());
    chown(path.join("honest0"), Some(HONEST), None).unwrap();
    while collection.refresh() {}
    assert_eq!((exported(&collection, "honest"), exported(&collection, "greedy")), (1300, greedy));
    assert!(collection.left_out(Limit::Values) > 0);
}

/// Resolving a chain of 39 long links takes milliseconds, for each of a thousand links at every request.
#[test]
#[ignore = "needs root"]
fn a_strangers_link_is_a_short_path_without_further_links() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    fs::create_dir(&below).unwrap();
    for uid in [0, STRANGER] {
        file_of(uid, &below.join(format!("file{uid}")), 0);
    }
    let link = |name: &str, target: &str, uid| {
        std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        lchown(dir.path().join(name), Some(uid), None).unwrap();
    };
    let long = |file: &str| format!("{}below/{file}", "below/../".repeat(40));
    for (uid, user) in [(0, "root"), (STRANGER, "stranger")] {
        let file = format!("file{uid}");
        link(&format!("{user}_short"), &format!("below/{file}"), uid);
        link(&format!("{user}_absolute"), below.join(&file).to_str().unwrap(), uid);
        link(&format!("{user}_long"), &long(&file), uid);
        link(&format!("{user}_chain"), &format!("{user}_short"), uid);
    }
    let mut collection = Collection::new("mmv", dir.path());
    collection.refresh();
    let mut names: Vec<String> = collection.metrics().map(|(name, _)| name).collect();
    names.sort_unstable();
    let expected = ["root_absolute", "root_chain", "root_long", "root_short", "stranger_absolute", "stranger_short"];
    assert_eq!(names, expected.map(|name| format!("mmv.{name}.x")));
}
