//! Hostile files, and files of other users.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::unistd::{User, chown};

use super::scene::*;

#[test]
fn hostile_files_harm_nobody() {
    let mut served = Served::start(&[]);
    let (good, directory) = (served.shared_memory(), served.place());
    good.point(&tag("good"));
    assert_eq!(served.points("good"), 1);
    let (_, copy) = served.file();
    fs::write(directory.join("text"), "no such file, but long enough for the header of one").unwrap();
    fs::write(directory.join("empty"), "").unwrap();
    fs::create_dir(directory.join("directory")).unwrap();
    nix::unistd::mkfifo(&directory.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/dev/zero", directory.join("zero")).unwrap();
    let damaged = |bytes: &[u8], at: usize| {
        let mut damaged = bytes.to_vec();
        damaged.iter_mut().skip(at).take(64).for_each(|byte| *byte = 0xff);
        damaged
    };
    let [sums, records] = &copy;
    // Beyond the first page, files of sums are holes for the most part.
    for at in (0..8192).step_by(1 << 9) {
        drop(put(&directory, &format!("sums{at}"), &[damaged(sums, at), records.clone()], None));
        drop(put(&directory, &format!("records{at}"), &[sums.clone(), damaged(records, at)], None));
    }
    // Files of a process that has exited, and files that are truncated while they are read.
    drop(put(&directory, "gone", &with_word(&copy, PID, u32::MAX.into()), None));
    let _shorter = put(&directory, "shorter", &copy, None);
    let before = served.points("good");
    wait_for("one that is gone", || {
        let _ = served.points("good");
        !directory.join("gone").exists()
    });
    let shorter = fs::OpenOptions::new().write(true).open(directory.join("shorter")).unwrap();
    shorter.set_len(5000).unwrap();
    let records = fs::OpenOptions::new().write(true).open(ring(&directory.join("shorter"))).unwrap();
    records.set_len(5000).unwrap();
    records.write_all_at(&[0xff; 32], 4096).unwrap();
    wait_for("the end of all turns", || {
        let before = served.points("good");
        std::thread::sleep(std::time::Duration::from_millis(1100));
        served.points("good") == before
    });
    let before = before.max(served.points("good"));
    (0..10).for_each(|_| good.point(&tag("good")));
    assert_eq!(served.points("good"), before + 10);
    let log = fs::read_to_string(served.dir.path().join("trace.log")).unwrap();
    assert!(log.contains("shorter: ") && log.contains("text: "), "{log}");
}

/// A file counts once, even if it has several names.
#[test]
fn other_names_of_a_file_change_nothing() {
    let mut served = Served::start(&[]);
    let (good, directory) = (served.shared_memory(), served.place());
    good.point(&tag("good"));
    assert_eq!(served.points("good"), 1);
    let (file, _) = served.file();
    (0..10).for_each(|n| fs::hard_link(&file, directory.join(n.to_string())).unwrap());
    assert_eq!((served.points("good"), served.own(3, 0)), (1, 1));
    (0..10).for_each(|n| fs::remove_file(directory.join(n.to_string())).unwrap());
    fs::rename(&file, directory.join("other")).unwrap();
    fs::write(&file, "another file").unwrap();
    good.point(&tag("good"));
    assert_eq!((served.points("good"), served.own(3, 0)), (2, 1));
    drop(good);
    wait_for("the file's end", || !directory.join("other").exists());
    assert_eq!((served.points("good"), served.own(3, 0)), (2, 0));
    assert!(file.exists());
}

/// Files with many tags of one user leave the files of other users as they are.
#[test]
#[ignore = "needs root"]
// Slow: the agent reads 30 files of 2,000 tags.
fn files_that_take_long_leave_time_for_others() {
    let mut served = Served::start(&[]);
    let (big, directory) = (served.shared_memory(), served.place());
    (0..2000).for_each(|n| big.point(&tag(&format!("tag {n}"))));
    // Each file names a process that does not exist. Locks make the processes look alive.
    let copy = with_word(&served.file().1, PID, u32::MAX.into());
    let locked: Vec<_> = (0..30).map(|n| put(&directory, &format!("big{n}"), &copy, Some(65534))).collect();
    wait_for("all of them", || served.own(3, 0) == 31);
    let good = served.shared_memory();
    good.point(&tag("good"));
    wait_for("its file", || served.points("good") == 1);
    for n in 2..50 {
        good.point(&tag("good"));
        assert_eq!(served.points("good"), n);
    }
    wait_for("all turns", || served.points("tag 1999") == 31);
    drop(locked);
}

#[test]
fn a_host_that_may_not_connect_has_no_directory() {
    let served = Served::start(&["-A", "disallow:127.*"]);
    assert!(!served.directory().exists());
    let served = Served::start(&["-A", "disallow:*", "-A", "allow:localhost:2"]);
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(served.directory()), mode(served.place())), (0o755, 0o3777));
}

/// The agent runs as user `pcp`, the process as user `nobody`. Neither can write files of the other.
#[test]
#[ignore = "needs PCP"]
fn any_user_may_trace_and_the_agent_cleans_up() {
    let dir = tempfile::tempdir().unwrap();
    let pcp = User::from_name("pcp").unwrap().unwrap();
    let nobody = User::from_name("nobody").unwrap().unwrap();
    chown(dir.path(), Some(pcp.uid), Some(pcp.gid)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = dir.path().join("marker");
    testkit::copy_executable(std::env::current_exe().unwrap(), &program, 0o755);
    let mut served = Served::in_directory(dir, &["-M", "pcp"]);
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(program);
    command.uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw());
    let mut marker = Marker::of(command, &served.directory(), "tag");
    marker.begin(10);
    marker.wait();
    assert_eq!(served.points("tag"), 20);
    let file = fs::read_dir(served.place()).unwrap().next().unwrap().unwrap().metadata().unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (nobody.uid.as_raw(), pcp.gid.as_raw(), 0o640));
    for directory in [served.directory(), served.place()] {
        assert_eq!(fs::metadata(directory).unwrap().uid(), pcp.uid.as_raw());
    }
    drop(marker);
    wait_for("the file's end", || served.files() == 0);
    assert_eq!(served.points("tag"), 20);
}

/// A process in a PID namespace, as in a container: it has another number on the host.
#[test]
#[ignore = "needs PCP"]
fn a_process_in_another_name_space_is_not_taken_for_gone() {
    let mut served = Served::start(&[]);
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--kill-child", "--mount-proc"]).arg(std::env::current_exe().unwrap());
    let mut marker = Marker::of(command, &served.directory(), "tag");
    for round in 1..=3 {
        marker.begin(10);
        marker.wait();
        assert_eq!(served.points("tag"), 20 * round);
        // The agent checks for exited processes in between.
        std::thread::sleep(std::time::Duration::from_millis(1100));
    }
    assert_eq!((served.files(), served.own(3, 0)), (2, 1));
    drop(marker);
    wait_for("the file's end", || served.files() == 0);
    assert_eq!(served.points("tag"), 60);
}
