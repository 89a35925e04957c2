//! Limits on what the files of a user can cost the agent.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use trace::Trace;

use super::scene::*;

const FILES: u16 = 3;
const BAD_FILES: u16 = 4;
const MEMORY: u16 = 5;

impl Served {
    /// Returns the number of things left out by a limit, from the limit's metric.
    fn left_out(&mut self, of: u16) -> u64 {
        self.own(3, of)
    }

    /// Returns the agent's resident memory, in bytes.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.agent.pid().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("trace.log")).unwrap()
    }
}

#[test]
fn a_file_costs_memory_up_to_a_limit_and_others_count_on() {
    let mut served = Served::start(&["--limit", "file-memory=1000000"]);
    let (good, big) = (served.shared_memory(), served.shared_memory());
    good.point(&tag("good"));
    big.point(&tag("tag 0"));
    assert_eq!((served.points("good"), served.points("tag 0")), (1, 1));
    // More than 1 MB of names and values.
    (0..4000).for_each(|n| big.point(&tag(&format!("tag {n}"))));
    wait_for("the limit", || {
        let _ = served.points("good");
        served.left_out(MEMORY) == 1
    });
    good.point(&tag("good"));
    // Tags from before are counted on, new ones are not.
    assert_eq!((served.points("good"), served.points("tag 0"), served.points("tag 3999")), (2, 2, 0));
    let file = served.log().lines().filter(|line| line.contains("file of uid")).count();
    assert_eq!(file, 1, "{}", served.log());
    drop((good, big));
    wait_for("no files", || served.files() == 0);
}

#[test]
fn a_long_ring_costs_no_memory_of_its_length() {
    let mut served = Served::start(&[]);
    let good = served.shared_memory();
    good.point(&tag("tag"));
    let _ = served.records(1);
    assert_eq!(served.points("tag"), 1);
    let (_, bytes) = served.file();
    let (ring_len, place) = (16_u64 << 20, served.place());
    // The ring claims many cells written. It is a hole in the file.
    let [sums, mut records] = with_word(&bytes, PID, u32::MAX.into());
    let from = records.len() as u64;
    records.extend([2, ring_len, 0, 0, 1 << 40].map(u64::to_ne_bytes).concat());
    let bytes = with_word(&[sums, records], END, from + ring_len);
    let before = served.memory();
    let files: Vec<_> = (0..20)
        .map(|n| {
            let file = put(&place, &format!("long{n}"), &bytes, None);
            file.set_len(from + ring_len).unwrap();
            file
        })
        .collect();
    wait_for("the files", || served.own(3, 0) == 21);
    for _ in 0..10 {
        let _ = served.records(1);
    }
    assert!(served.memory() < before + (8 << 20), "{before} {}", served.memory());
    drop(files);
}

#[test]
fn names_that_change_all_the_time_fill_no_log_and_hold_up_nobody() {
    let mut served = Served::start(&[]);
    let (good, place) = (served.shared_memory(), served.place());
    good.point(&tag("good"));
    assert_eq!(served.points("good"), 1);
    let names = |n: u64| place.join(std::ffi::OsStr::from_bytes(format!("x\n[now] forged({n})\x1b[1m").as_bytes()));
    (0..100).for_each(|n| fs::write(names(n), "no such file, but long enough for the header of one").unwrap());
    let (start, mut renames, mut points) = (Instant::now(), 0, 1);
    while start.elapsed() < Duration::from_secs(2) {
        (0..100).for_each(|n| fs::rename(names(renames + n), names(renames + n + 100)).unwrap());
        renames += 100;
        if renames % 1000 == 0 {
            good.point(&tag("good"));
            points += 1;
            assert_eq!(served.points("good"), points);
        }
    }
    wait_for("the files", || served.left_out(BAD_FILES) >= 100);
    let log = served.log();
    assert!(log.len() < 64 << 10, "{} bytes after {renames} names", log.len());
    assert!(log.contains("file of uid ") && !log.lines().any(|line| line.starts_with("[now]")), "{log}");
    assert!(!log.contains('\x1b'));
}

#[test]
fn a_user_has_a_number_of_files_and_those_that_end_make_room() {
    let mut served = Served::start(&["--limit", "files-each=2"]);
    let mut traces: Vec<Trace> = (0..4).map(|_| served.shared_memory()).collect();
    for trace in &traces {
        trace.point(&tag("tag"));
        let _ = served.points("tag");
    }
    wait_for("the limit", || served.left_out(FILES) == 2);
    assert_eq!((served.points("tag"), served.own(3, 0)), (2, 2));
    assert_eq!(served.log().matches("files, at most 2 per user").count(), 1);
    traces.remove(0);
    wait_for("another one", || served.points("tag") == 3);
    traces.clear();
    wait_for("the last one", || served.points("tag") == 4);
    wait_for("no files", || served.files() == 0);
}

#[test]
fn files_that_do_not_stay_open_count_as_others_do() {
    let mut served = Served::start(&["--limit", "open-files=1"]);
    let traces: Vec<Trace> = (0..10).map(|_| served.shared_memory()).collect();
    let descriptors =
        |served: &Served| fs::read_dir(format!("/proc/{}/fd", served.agent.pid().unwrap())).unwrap().count();
    let before = descriptors(&served);
    for round in 1..=3 {
        traces.iter().for_each(|trace| trace.point(&tag("tag")));
        assert_eq!(served.points("tag"), 10 * round);
    }
    assert_eq!((served.own(3, 0), descriptors(&served)), (10, before + 1));
    // The agent finds the file under its new name, and counts nothing twice.
    let (file, _) = served.file();
    fs::rename(&file, served.place().join("renamed")).unwrap();
    traces.iter().for_each(|trace| trace.point(&tag("tag")));
    wait_for("all points", || served.points("tag") == 40);
    drop(traces);
    wait_for("no files", || served.files() == 0);
    assert_eq!((served.points("tag"), descriptors(&served)), (40, before));
}

/// When files of another user have used up what is shared, a user within its floor is read nevertheless.
#[test]
#[ignore = "needs root"]
// Slow: there are more files than half of the limit and a floor of 32.
fn a_user_with_many_files_leaves_room_for_others() {
    let mut served = Served::start(&["--limit", "files=128"]);
    let (good, place) = (served.shared_memory(), served.place());
    good.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let bytes = with_word(&served.file().1, PID, u32::MAX.into());
    drop(good);
    wait_for("no files", || served.files() == 0);
    let files: Vec<_> = (0..110).map(|n| put(&place, &format!("many{n}"), &bytes, Some(65534))).collect();
    // Half of all is kept for users with few files, and its own share of that half.
    wait_for("the limit", || served.left_out(FILES) == 110 - 96);
    wait_for("the files", || served.own(3, 0) == 96);
    let points = served.points("tag");
    served.shared_memory().point(&tag("tag"));
    wait_for("the point", || served.points("tag") == points + 1);
    assert_eq!(served.log().matches("uid 65534 is over its limit").count(), 1);
    drop(files);
}

/// A file for which the agent has no free descriptor is read once a descriptor is free.
#[test]
fn a_moment_without_descriptors_costs_no_file() {
    let mut served = Served::start(&[]);
    let pid = served.agent.pid().unwrap().to_string();
    let limit = |limit: &str| {
        let status = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={limit}:")]).status();
        assert!(status.unwrap().success());
    };
    let first = served.shared_memory();
    first.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|fd| fd.unwrap().file_name());
    let fds: Vec<_> = fds.map(|fd| fd.to_str().unwrap().parse::<u32>().unwrap()).collect();
    let free = (0..).find(|fd| !fds.contains(fd)).unwrap();
    limit(&free.to_string());
    let second = served.shared_memory();
    second.point(&tag("tag"));
    for _ in 0..10 {
        assert_eq!(served.points("tag"), 1);
    }
    limit("1024");
    wait_for("the second file", || served.points("tag") == 2);
    assert_eq!(served.left_out(BAD_FILES), 0);
    drop((first, second));
    wait_for("no files", || served.files() == 0);
}

#[test]
fn a_directory_that_is_removed_is_made_again() {
    let mut served = Served::start(&[]);
    let first = served.shared_memory();
    first.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let before = served.place();
    for directory in [before.clone(), served.directory()] {
        fs::remove_dir_all(directory).unwrap();
        // Open files are still counted, and new processes find the new directory.
        first.point(&tag("tag"));
        wait_for("a directory", || {
            let _ = served.points("tag");
            served.directory().join("agent").exists() && served.place().exists()
        });
        let second = served.shared_memory();
        second.point(&tag("tag"));
        drop(second);
        wait_for("no files", || served.files() == 0);
    }
    assert_ne!(served.place(), before);
    assert_eq!(served.points("tag"), 5);
}

#[test]
fn directories_that_are_moved_are_made_again() {
    let mut served = Served::start(&[]);
    let first = served.shared_memory();
    first.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let (away, above) = (served.dir.path().join("away"), served.directory().parent().unwrap().to_owned());
    for (count, what) in (2..).zip([served.place(), above, served.directory(), served.directory().join("agent")]) {
        fs::rename(&what, &away).unwrap();
        wait_for("an agent", || {
            let _ = served.points("tag");
            served.directory().join("agent").exists() && served.place().exists()
        });
        // A process that has a file continues to use it, and a new process finds the agent.
        first.point(&tag("tag"));
        let second = served.shared_memory();
        second.point(&tag("tag"));
        assert_eq!(second.status().missed, 0, "{}", what.display());
        drop(second);
        let expected = 2 * count - 1;
        wait_for("the points", || served.points("tag") == expected);
        fs::remove_dir_all(&away).or_else(|_| fs::remove_file(&away)).unwrap();
    }
    // One for each directory of files that there was.
    let places = fs::read_dir(served.dir.path()).unwrap().flatten();
    let places = places.filter(|entry| entry.file_name().to_string_lossy().starts_with("pcp-trace-"));
    assert_eq!(places.count(), 1);
}

/// A file is ignored if it names a running process of a user other than the file's owner.
#[test]
#[ignore = "needs PCP"]
fn a_file_that_names_a_process_of_another_user_is_left_alone() {
    let mut served = Served::start(&[]);
    let (good, place) = (served.shared_memory(), served.place());
    good.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let (_, bytes) = served.file();
    let foreign = put(&place, "foreign", &bytes, Some(65534));
    wait_for("the file", || served.left_out(BAD_FILES) == 1);
    assert_eq!((served.points("tag"), served.own(3, 0)), (1, 1));
    assert!(served.log().contains("foreign: damaged: it names a process of another user: file of uid 65534"));
    // A file whose process is not visible on this host counts. Its records have no process identifier.
    let unseen = put(&place, "unseen", &with_word(&bytes, PID, 1), Some(65534));
    wait_for("the file", || served.own(3, 0) == 2);
    wait_for("its points", || served.points("tag") == 2);
    let file = fs::metadata(place.join("unseen")).unwrap();
    assert_eq!(file.uid(), 65534);
    drop((foreign, unseen));
    wait_for("its end", || served.own(3, 0) == 1);
}
