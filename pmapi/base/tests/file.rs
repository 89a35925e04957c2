//! Replacing and reading files in directories that other users may write to.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use pcp_base::file::{self, Dir, NewFile};

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn replaced_files_keep_their_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    file::replace(&path, b"one").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    file::replace(&path, b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"two");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn a_failure_leaves_the_old_content_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "old").unwrap();
    let mut new = NewFile::create(&path).unwrap();
    new.write_all(b"new").unwrap();
    drop(new);
    fs::create_dir_all(dir.path().join("directory/full")).unwrap();
    assert!(file::replace(&dir.path().join("directory"), b"new").is_err());
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(dir.path()), ["directory", "file"]);
}

#[test]
fn what_a_killed_process_has_left_goes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let left = dir.path().join(".file.new");
    for make in [|left: &Path| fs::write(left, "half"), |left: &Path| symlink("nowhere", left)] {
        make(&left).unwrap();
        file::replace(&path, b"whole").unwrap();
        assert_eq!(names(dir.path()), ["file"]);
    }
}

#[test]
fn a_lock_of_a_stranger_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let _held = Flock::lock(File::create(dir.path().join(".file.new")).unwrap(), FlockArg::LockExclusive).unwrap();
    let _directory = Flock::lock(File::open(dir.path()).unwrap(), FlockArg::LockExclusive).unwrap();
    file::replace(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    let late = NewFile::lock(&path, Duration::ZERO).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn one_at_a_time_changes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "0").unwrap();
    let count = || {
        for _ in 0..20 {
            let mut new = NewFile::lock(&path, Duration::from_secs(60)).unwrap();
            assert_eq!(new.file().metadata().unwrap().mode() & 0o077, 0, "nobody else may open it");
            let n: u32 = fs::read_to_string(&path).unwrap().parse().unwrap();
            write!(new, "{}", n + 1).unwrap();
            new.commit().unwrap();
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(count))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "80");
}

#[test]
fn a_link_that_is_swapped_in_is_not_followed() {
    let attacker = testkit::Attacker::swaps(["file", "file.new", ".file.new"]);
    let path = attacker.dir().join("file");
    for _ in 0..200 {
        // May fail: other users may rename and remove the files of their own directory.
        let _ = file::replace(&path, b"new");
    }
    attacker.has_failed();
}

#[test]
fn a_directory_stays_the_one_that_was_opened() {
    let parent = tempfile::tempdir().unwrap();
    let [path, away, other] = ["dir", "away", "other"].map(|name| parent.path().join(name));
    fs::create_dir(&path).unwrap();
    fs::create_dir(&other).unwrap();
    let dir = Dir::open(&path).unwrap();
    fs::rename(&path, &away).unwrap();
    symlink(&other, &path).unwrap();
    let mut new = NewFile::create_in(&dir, "file".as_ref()).unwrap();
    new.write_all(b"new").unwrap();
    new.commit().unwrap();
    assert_eq!(names(&away), ["file"]);
    assert!(names(&other).is_empty());
}

#[test]
#[ignore = "needs root, whom alone strangers' links do not lead"]
fn root_does_not_follow_a_link_of_another_user() {
    let dir = tempfile::tempdir().unwrap();
    let [target, link] = ["target", "link"].map(|name| dir.path().join(name));
    fs::create_dir(&target).unwrap();
    symlink(&target, &link).unwrap();
    assert!(Dir::open(&link).is_ok());
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    assert_eq!(Dir::open(&link).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert!(file::replace(&link.join("file"), b"").is_err() && names(&target).is_empty());
}

#[test]
fn directories_that_every_user_can_change_are_not_trusted() {
    let parent = tempfile::tempdir().unwrap();
    let (public, link) = (parent.path().join("public"), parent.path().join("link"));
    let dir = public.join("dir");
    fs::create_dir_all(&dir).unwrap();
    symlink(&dir, &link).unwrap();
    let is_trusted = |path: &Path, mode: u32| {
        fs::set_permissions(&public, fs::Permissions::from_mode(mode)).unwrap();
        Dir::open_trusted(path, |_| true).map(|_| ()).map_err(|e| e.kind())
    };
    for path in [&dir, &link] {
        for mode in [0o755, 0o775, 0o1777] {
            assert_eq!(is_trusted(path, mode), Ok(()), "{mode:o}");
        }
        assert_eq!(is_trusted(path, 0o777), Err(io::ErrorKind::PermissionDenied));
    }
    assert_eq!(is_trusted(&public, 0o777), Err(io::ErrorKind::PermissionDenied));
    assert_eq!(is_trusted(&public.join("missing"), 0o755), Err(io::ErrorKind::NotFound));
}

#[test]
#[ignore = "needs root"]
fn directories_and_links_of_strangers_are_not_trusted() {
    let parent = tempfile::tempdir().unwrap();
    let (above, link) = (parent.path().join("above"), parent.path().join("link"));
    let dir = above.join("dir");
    fs::create_dir_all(&dir).unwrap();
    symlink(&dir, &link).unwrap();
    let chown = |path: &Path, uid| std::os::unix::fs::lchown(path, Some(uid), None).unwrap();
    for (changed, opened) in [(&above, &dir), (&dir, &dir), (&link, &link), (&above, &link)] {
        assert!(Dir::open_trusted(opened, |uid| uid == 0).is_ok());
        chown(changed, 65534);
        let refused = Dir::open_trusted(opened, |uid| uid == 0).unwrap_err();
        assert!(refused.kind() == io::ErrorKind::PermissionDenied && refused.to_string().contains("user 65534"));
        assert!(Dir::open_trusted(opened, |uid| [0, 65534].contains(&uid)).is_ok());
        chown(changed, 0);
    }
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let [path, fifo] = ["file", "fifo"].map(|name| dir.path().join(name));
    fs::write(&path, "1234").unwrap();
    assert_eq!(file::read(&path, 4).unwrap(), b"1234");
    assert_eq!(file::read(&path, 3).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert!(!file::read("/proc/self/status".as_ref(), 1 << 20).unwrap().is_empty());
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for other in [&*fifo, dir.path(), "/dev/zero".as_ref()] {
        assert_eq!(file::read(other, 4).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(file::read_text(other).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(file::read_text("/dev/null").unwrap(), "");
    assert_eq!(file::read_text(&path).unwrap(), "1234");
    fs::write(&path, [b'1', 0xff]).unwrap();
    assert_eq!(file::read_text(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(file::read_text(&path).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
}

/// `mkfifo`, `<(command)`, `command |`, and their absence.
#[test]
fn input_may_be_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let [path, fifo] = ["file", "fifo"].map(|name| dir.path().join(name));
    fs::write(&path, "1234").unwrap();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let kind = |path: &Path, limit| file::read_input(path, limit).unwrap_err().kind();
    assert_eq!(kind(&fifo, 4), io::ErrorKind::TimedOut);
    assert_eq!(
        (kind(&path, 3), kind("/dev/zero".as_ref(), 9)),
        (io::ErrorKind::FileTooLarge, io::ErrorKind::FileTooLarge)
    );
    assert_eq!(
        (kind(dir.path(), 9), kind("/nonexistent".as_ref(), 9)),
        (io::ErrorKind::InvalidInput, io::ErrorKind::NotFound)
    );
    assert_eq!(file::read_input(&path, 4).unwrap(), b"1234");
    assert_eq!(file::read_input("/dev/null".as_ref(), 4).unwrap(), b"");
    let (read, write) = (fifo.clone(), fifo.clone());
    let reader = std::thread::spawn(move || file::read_input(&read, 1 << 20));
    fs::write(write, vec![b'x'; 1 << 20]).unwrap();
    assert_eq!(reader.join().unwrap().unwrap().len(), 1 << 20);
    // The writer has ended before, as in `<(true)`, or writes when the reader waits already.
    for text in ["", "late"] {
        let (read, mut write) = std::io::pipe().unwrap();
        let of_shell = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
        let writer = std::thread::spawn(move || {
            if !text.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(1100));
            }
            write.write_all(text.as_bytes()).unwrap();
        });
        if text.is_empty() {
            writer.join().unwrap();
            assert_eq!(file::read_input(of_shell.as_ref(), 9).unwrap(), b"");
        } else {
            assert_eq!(file::read_input(of_shell.as_ref(), 9).unwrap(), b"late");
            writer.join().unwrap();
        }
    }
}

#[test]
fn directories_change_places_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    fs::create_dir_all(one.join("first")).unwrap();
    fs::create_dir_all(other.join("second")).unwrap();
    file::exchange(&one, &other).unwrap();
    assert_eq!((names(&one), names(&other)), (vec!["second".into()], vec!["first".into()]));
    assert!(file::exchange(&one, &dir.path().join("missing")).is_err());
}

#[test]
fn the_owner_can_read_a_locked_file_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    testkit::Child::new(|| {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o777));
        let mut new = NewFile::lock(&path, Duration::ZERO).unwrap();
        assert_eq!(new.file().metadata().unwrap().mode() & 0o777, 0o600);
        write!(new, "text").unwrap();
        new.commit().unwrap();
    })
    .ends();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
}
