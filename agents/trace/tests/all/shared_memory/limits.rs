//! Limits on what the files of a user can cost the agent.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{Uid, chown};
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

    /// Returns the path and contents of the only file.
    fn file(&self) -> (PathBuf, Vec<u8>) {
        let file = fs::read_dir(self.place()).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(&file).unwrap();
        (file, bytes)
    }
}

/// Indexes of words in a file's header.
const PID: usize = 2;
const END: usize = 4;

/// Creates a file as processes do, and locks it until the returned handle is dropped.
fn put(place: &Path, name: &str, bytes: &[u8], more: impl FnOnce(&File)) -> Flock<File> {
    let hidden = place.join(format!(".{name}"));
    fs::write(&hidden, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&hidden).unwrap();
    more(&file);
    let file = Flock::lock(file, FlockArg::LockExclusive).unwrap();
    fs::rename(hidden, place.join(name)).unwrap();
    file
}

fn with_word(bytes: &[u8], at: usize, word: u64) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[8 * at..][..8].copy_from_slice(&word.to_ne_bytes());
    bytes
}

/// Appends blocks of sums in which every entry is used.
fn add_sums(file: &File, blocks: u64) {
    const LEN: u64 = 8192;
    let from = file.metadata().unwrap().len();
    let words = (0..LEN / 8).map(|at| [3, LEN, 0, 0, 0, 0, 0, 0].get(at as usize).copied().unwrap_or(1));
    let block: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    (0..blocks).for_each(|n| file.write_all_at(&block, from + n * LEN).unwrap());
    file.write_all_at(&(from + blocks * LEN).to_ne_bytes(), 8 * END as u64).unwrap();
}

#[test]
fn a_file_costs_memory_up_to_a_limit_and_others_count_on() {
    let mut served = Served::start(&["--limit", "memory-each=2000000", "--limit", "file-memory=1000000"]);
    let good = served.shared_memory();
    // 63 tags. Entries without a tag do not count.
    (0..63).for_each(|n| good.point(&tag(&format!("tag {n}"))));
    assert_eq!(served.points("tag 0"), 1);
    let (_, bytes) = served.file();
    let bytes = with_word(&bytes, PID, u32::MAX.into());
    let before = served.memory();
    // Each file has 4 MB of sums.
    let place = served.place();
    let files = [0, 1, 2].map(|n| put(&place, &n.to_string(), &bytes, |file| add_sums(file, 500)));
    wait_for("the files", || served.own(3, 0) == 4);
    wait_for("the limit", || served.left_out(MEMORY) > 3 * 63 * 250);
    let left_out = served.left_out(MEMORY);
    (0..5).for_each(|_| _ = served.points("tag 0"));
    assert!(served.memory() < before + (16 << 20), "{before} {}", served.memory());
    // Sums beyond the limit are counted and logged once.
    assert_eq!((served.left_out(MEMORY), served.log().matches("memory for files").count()), (left_out, 1));
    let points = served.points("tag 0");
    good.point(&tag("tag 0"));
    wait_for("the point", || served.points("tag 0") > points);
    drop(files);
    wait_for("the end of the files", || served.own(3, 0) == 1);
}

#[test]
fn a_long_ring_costs_no_memory_of_its_length() {
    let mut served = Served::start(&[]);
    let good = served.shared_memory();
    good.point(&tag("tag"));
    let _ = served.records(1);
    assert_eq!(served.points("tag"), 1);
    let (_, bytes) = served.file();
    let (bytes, from) = (with_word(&bytes, PID, u32::MAX.into()), bytes.len() as u64);
    let before = served.memory();
    let (ring, place) = (16_u64 << 20, served.place());
    let files: Vec<_> = (0..20)
        .map(|n| {
            put(&place, &n.to_string(), &bytes, |file| {
                // The ring claims many cells written. It is a hole in the file.
                let words = [2, ring, 0, 0, 1 << 40].map(u64::to_ne_bytes).concat();
                file.write_all_at(&words, from).unwrap();
                file.set_len(from + ring).unwrap();
                file.write_all_at(&(from + ring).to_ne_bytes(), 8 * END as u64).unwrap();
            })
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
    (0..100).for_each(|n| fs::write(names(n), "no such file").unwrap());
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
    // Each file is read once, or twice if it was being written the first time.
    let (start, mut looks) = (Instant::now(), served.left_out(BAD_FILES));
    while looks < 100 && start.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_millis(20));
        looks = served.left_out(BAD_FILES);
    }
    assert!((100..=200).contains(&looks), "{looks}");
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
    assert_eq!(served.log().matches("files of processes").count(), 1);
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
fn a_user_with_many_files_leaves_room_for_others() {
    let mut served = Served::start(&["--limit", "files=64"]);
    let (good, place) = (served.shared_memory(), served.place());
    good.point(&tag("tag"));
    assert_eq!(served.points("tag"), 1);
    let bytes = with_word(&served.file().1, PID, u32::MAX.into());
    drop(good);
    wait_for("no files", || served.files() == 0);
    let nobody = Some(Uid::from_raw(65534));
    let owned = |name: String| {
        let own = |_: &File| chown(&place.join(format!(".{name}")), nobody, None).unwrap();
        put(&place, &name, &bytes, own)
    };
    let files: Vec<_> = (0..50).map(|n| owned(n.to_string())).collect();
    // Half of all, and the floor.
    wait_for("the files", || served.own(3, 0) == 33);
    wait_for("the limit", || served.left_out(FILES) == 17);
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
    let nobody = Some(Uid::from_raw(65534));
    let owned = |name: &str, bytes: &[u8]| {
        put(&place, name, bytes, |_| chown(&place.join(format!(".{name}")), nobody, None).unwrap())
    };
    let foreign = owned("foreign", &bytes);
    wait_for("the file", || served.left_out(BAD_FILES) == 1);
    assert_eq!((served.points("tag"), served.own(3, 0)), (1, 1));
    assert!(served.log().contains("foreign: damaged: it names a process of another user: file of uid 65534"));
    // A file whose process is not visible on this host counts. Its records have no process identifier.
    let unseen = owned("unseen", &with_word(&bytes, PID, 1));
    wait_for("the file", || served.own(3, 0) == 2);
    wait_for("its points", || served.points("tag") == 2);
    let file = fs::metadata(place.join("unseen")).unwrap();
    assert_eq!(file.uid(), 65534);
    drop((foreign, unseen));
    wait_for("its end", || served.own(3, 0) == 1);
}
