//! The shared-memory transport on a full file system.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pcp_trace::shared_memory::Directory;
use pcp_trace::{Options, Tag, Trace, Transport};

use crate::common::serve;

/// Returns the mount point of a small file system.
///
/// Runs the test again in a mount namespace with such a file system. Returns `None` in the outer process, after that.
fn small_file_system(test: &str) -> Option<PathBuf> {
    if let Some(small) = std::env::var_os("SMALL") {
        return Some(small.into());
    }
    in_mount_namespace("mount -t tmpfs -o size=1m small \"$SMALL\"", test);
    None
}

/// Runs the test again in a mount namespace, after a command that mounts a file system on `$SMALL`.
fn in_mount_namespace(mount: &str, test: &str) {
    let dir = tempfile::tempdir().unwrap();
    let script = format!("{mount} && exec \"$0\" --include-ignored --nocapture --exact \"$1\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(std::env::current_exe().unwrap()).arg(test);
    assert!(command.env("SMALL", dir.path()).status().unwrap().success());
}

#[test]
#[ignore = "needs PCP"]
fn a_mark_without_room_is_missed_until_there_is_some() {
    let Some(small) = small_file_system("full::a_mark_without_room_is_missed_until_there_is_some") else { return };
    let directory = Directory::open(small.join("4323"), &small).unwrap();
    let trace = Trace::new(Options::default().directory(directory.path()).transport(Transport::SharedMemory));
    let tag = Tag::new("tag").unwrap();
    trace.point(&tag);
    let other = small.join("other");
    assert!(fs::write(&other, vec![1; 1 << 20]).is_err());
    // A thread with a lane needs no more storage. A new thread cannot get a lane.
    trace.point(&tag);
    std::thread::scope(|scope| _ = scope.spawn(|| (0..100).for_each(|_| trace.point(&tag))));
    assert_eq!((trace.status().sent, trace.status().missed), (2, 100));
    fs::remove_file(other).unwrap();
    let start = Instant::now();
    while trace.status().sent == 2 {
        assert!(start.elapsed() < Duration::from_secs(30));
        std::thread::scope(|scope| _ = scope.spawn(|| trace.point(&tag)));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(trace.status().missed > 100);
}

#[test]
#[ignore = "needs PCP"]
fn without_room_for_a_thread_marks_go_over_tcp_until_there_is_some() {
    let Some(small) = small_file_system("full::without_room_for_a_thread_marks_go_over_tcp_until_there_is_some") else {
        return;
    };
    let directory = Directory::open(small.join("4323"), &small).unwrap();
    let other = small.join("other");
    fs::write(&other, vec![1; (1 << 20) - (64 << 10)]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let agent = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let (directory, reconnect) = (directory.path(), [Duration::from_millis(10)]);
    let trace = Trace::new(Options::default().port(port).directory(directory).reconnect(reconnect));
    let tag = Tag::new("tag").unwrap();
    (0..100).for_each(|_| trace.point(&tag));
    assert_eq!((trace.status().sent, trace.status().missed), (100, 0));
    fs::remove_file(other).unwrap();
    // The agent finishes when the library closes the connection.
    let mut marked = 100;
    while !agent.is_finished() {
        trace.point(&tag);
        marked += 1;
    }
    trace.point(&tag);
    assert_eq!((trace.status().sent, trace.status().missed), (marked + 1, 0));
    assert!((100..=marked).contains(&agent.join().unwrap()));
}

/// A store to a mapping would need room on the disk, and would end the process if there is none.
#[test]
#[ignore = "needs PCP"]
fn no_file_is_mapped_on_a_file_system_that_copies_on_write() {
    let Some(small) = std::env::var_os("SMALL").map(PathBuf::from) else {
        if Command::new("mkfs.btrfs").arg("--version").output().is_err() {
            eprintln!("not tried, as this machine has no mkfs.btrfs");
            return;
        }
        let mount = "image=$(mktemp) && truncate -s 110M \"$image\" && mkfs.btrfs -q \"$image\" &&
            mount -o loop \"$image\" \"$SMALL\" && rm \"$image\"";
        in_mount_namespace(mount, "full::no_file_is_mapped_on_a_file_system_that_copies_on_write");
        return;
    };
    fs::set_permissions(&small, fs::Permissions::from_mode(0o1777)).unwrap();
    let refused = Directory::open(small.join("4323"), &small).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
    // An agent of an earlier version has accepted such a file system.
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::open(dir.path().join("4323"), dir.path()).unwrap();
    let bind = Command::new("mount").arg("--bind").args([&small, directory.files()]).status();
    assert!(bind.unwrap().success());
    let trace = Trace::new(Options::default().directory(directory.path()).transport(Transport::SharedMemory));
    let tag = Tag::new("tag").unwrap();
    trace.point(&tag);
    fill(&small);
    for _ in 0..10 {
        (0..1000).for_each(|_| trace.point(&tag));
        assert!(Command::new("sync").arg("-f").arg(&small).status().unwrap().success());
    }
    assert_eq!((trace.status().sent, trace.status().missed), (0, 10_001));
}

/// Writes a file until the disk is full.
fn fill(disk: &Path) {
    let filler = fs::File::create(disk.join("filler")).unwrap();
    for size in [1 << 20, 4096, 1] {
        let block = vec![0x5a; size];
        while (&filler).write_all(&block).is_ok() {}
    }
    let _ = filler.sync_all();
}
