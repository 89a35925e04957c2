//! A recorder that nothing uses. In a process of its own, without a subscriber of `tracing` in any thread.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use mmv::Registry;
use mmv::recorder::Recorder;

/// The facade of another version has a recorder of its own, so that this one is never used.
#[test]
fn a_recorder_that_is_not_used_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let before = nix::unistd::dup(std::io::stderr()).unwrap();
    nix::unistd::dup2_stderr(File::create(&told).unwrap()).unwrap();
    let exported = Recorder::of(Registry::builder("shop").directory(dir.path())).unwrap().install().unwrap();
    let start = Instant::now();
    while !fs::read_to_string(&told).unwrap().ends_with('\n') && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
    }
    drop(exported);
    nix::unistd::dup2_stderr(before).unwrap();
    let told = fs::read_to_string(told).unwrap();
    assert!(told.starts_with(
        "shop: nothing was recorded through the facade `metrics` so far. This recorder is for version 0.24"
    ));
    assert_eq!(told.lines().count(), 1, "{told}");
}
