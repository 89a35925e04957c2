//! Files of several users in one directory: the files of one take nothing from another. Only root can create them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[path = "common/raw.rs"]
mod raw;

use std::fs;
use std::os::unix::fs::{FileExt, chown};
use std::path::Path;

use mmv::{Error, Registry};
use mmv_reader::File;
use mmv_reader::collection::Collection;

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
    assert_eq!(open(path, "a"), 16);
    // Honest files that come later, and some before and some behind the others by name.
    for name in ["a", "z0", "z1", "z2"] {
        file_of(HONEST, &path.join(name), 0);
        while collection.refresh() {}
    }
    assert_eq!((collection.file_count(), open(path, "z"), open(path, "a")), (204, 3, 13));
    drop(collection);
    // The first look at all of them.
    let mut collection = Collection::new("mmv", path);
    collection.keep_open(16);
    while collection.refresh() {}
    assert_eq!((collection.file_count(), open(path, "z"), open(path, "a")), (204, 3, 13));
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
    // While the directory may change unnoticed, each request looks at all files.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let mut collection = Collection::new("mmv", dir.path());
    (0..3).for_each(|_| _ = collection.refresh());
    assert_eq!(collection.file_count(), 0);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&1u64.to_ne_bytes(), 16).unwrap();
    (0..3).for_each(|_| _ = collection.refresh());
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

#[test]
#[ignore = "needs root"]
fn users_get_equal_shares_of_what_is_scarce() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: String, uid: u32, cluster: u32| file_of(uid, &dir.path().join(name), cluster);
    let mut limits = Collection::new("mmv", dir.path()).limits();
    (limits.files, limits.user_files) = (40, 30);
    let exported = |collection: &Collection| {
        let names: Vec<String> = collection.metrics().map(|(name, _)| name.to_owned()).collect();
        ["mmv.a", "mmv.b", "mmv.c", "mmv.honest"].map(|user| names.iter().filter(|name| name.starts_with(user)).count())
    };
    let mut collection = Collection::new("mmv", dir.path());
    collection.set_limits(limits);
    for (uid, user) in (2000..).zip(["a", "b", "c"]) {
        (0..25).for_each(|i| write(format!("{user}{i}"), uid, 100 * (uid - 1999) + i));
        while collection.refresh() {}
    }
    assert_eq!(exported(&collection), [14, 13, 13, 0], "whoever comes later gets as much");
    (0..10).for_each(|i| write(format!("honest{i}"), 3000, 1000 + i));
    while collection.refresh() {}
    assert_eq!(exported(&collection), [10, 10, 10, 10]);
    assert!(collection.take_left_out().iter().all(|left_out| left_out.uid < 3000));
    // Another agent, which knows nothing of who came first.
    let mut other = Collection::new("mmv", dir.path());
    other.set_limits(limits);
    other.refresh();
    assert_eq!(exported(&other), [10, 10, 10, 10]);
    // Memory and values are shared as files are.
    (limits.files, limits.values, limits.user_values) = (4000, 400, 300);
    other.set_limits(limits);
    other.set_reload(1);
    while other.refresh() {}
    let [a, b, c, honest] = exported(&other);
    assert_eq!(honest, 10);
    assert!(a.abs_diff(b) <= 1 && b.abs_diff(c) <= 1 && a > 10, "{a} {b} {c}");
}

/// In a PID namespace below the one of `/proc`, the number of this process is there another one's.
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
    let names: Vec<&str> = collection.metrics().map(|(name, _)| name).collect();
    assert_eq!(names, ["mmv.app.x", "mmv.link.x"]);
}
