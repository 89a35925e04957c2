//! A file system without room.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pcp_trace::light::Directory;
use pcp_trace::{Options, Tag, Trace};

/// This test again, with a small file system of its own.
fn in_small_file_system(path: &Path) {
    let script = "mount -t tmpfs -o size=1m small \"$SMALL\" && exec \"$0\" --include-ignored --nocapture";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).env("SMALL", path);
    assert!(command.status().unwrap().success());
}

#[test]
#[ignore = "needs PCP"]
fn a_mark_without_room_is_missed_until_there_is_some() {
    let Some(small) = std::env::var_os("SMALL").map(PathBuf::from) else {
        return in_small_file_system(tempfile::tempdir().unwrap().path());
    };
    let directory = Directory::open(small.join("4323")).unwrap();
    let trace = Trace::new(Options { directory: Some(directory.path().to_owned()), ..Options::default() }.light());
    let tag = Tag::new("tag").unwrap();
    trace.point(&tag);
    let other = small.join("other");
    assert!(fs::write(&other, vec![1; 1 << 20]).is_err());
    // A thread that has its lane needs no more room; another one has none.
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
