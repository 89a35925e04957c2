//! Applications under conditions that need root: full disks, other users' links, dropped privileges. Each test mounts
//! its file systems in a separate mount namespace.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, unsafe_code)]

#[path = "common/all.rs"]
mod all;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use all::{All, as_nobody, open_dir, read, registry, word};
use metrics::{Key, Label, Level, Metadata, Recorder as _};
use mmv::recorder::Recorder;
use mmv::{Counter, Error, Family, Registry};
use mmv_reader::File;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Uid;
use testkit::{Child, Taken};

/// Returns a directory on a new file system of `size` MiB, which disappears with this process's mount name space.
/// Returns `None` if the machine cannot create such a file system.
fn mounted(system: &str, size: u32) -> Option<tempfile::TempDir> {
    let dir = open_dir();
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(u64::from(size) << 20).unwrap();
    let runs = |command: &str, arguments: &[&str]| {
        let output = std::process::Command::new(command).args(arguments).output();
        output.inspect_err(|e| eprintln!("{command}: {e}")).is_ok_and(|output| {
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            output.status.success()
        })
    };
    let (image_path, path) = (image.path().to_str().unwrap(), dir.path().to_str().unwrap());
    let there = if system == "tmpfs" {
        runs("mount", &["-t", "tmpfs", "-o", &format!("size={size}m,mode=777"), "tmpfs", path])
    } else {
        runs(&format!("mkfs.{system}"), &["-q", image_path]) && runs("mount", &["-o", "loop", image_path, path])
    };
    there.then_some(dir)
}

/// Mounts an overlay over a directory; changes are written to another one.
fn overlaid(changes: &Path) -> tempfile::TempDir {
    let dir = open_dir();
    let at = |name: &str| {
        let path = changes.join(name);
        fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let arguments = ["-t", "overlay", "-o", &options, "overlay", dir.path().to_str().unwrap()];
    assert!(std::process::Command::new("mount").args(arguments).status().unwrap().success());
    dir
}

/// Counts on a disk that becomes full. Returns whether the file showed the first counts at once.
fn count_on_full_disk(dir: &Path, disk: &Path) -> bool {
    let registry = registry(dir);
    let all = All::new(&registry);
    let indom =
        registry.indom("indom").instances((0..300).map(|i| &*String::leak(format!("i{i}")))).register().unwrap();
    let family: Family<Counter> = registry.counter("family").over(&indom).unwrap();
    registry.try_start().unwrap();
    all.update(0);
    let at_once = word(&read(dir), "counter") == 1;
    registry.flush();
    let filler = fs::File::create(disk.join("filler")).unwrap();
    for size in [1 << 20, 4096, 1] {
        let block = vec![0x5a; size];
        while std::io::Write::write_all(&mut &filler, &block).is_ok() {}
    }
    let sync = || {
        let disk = fs::File::open(disk).unwrap();
        // SAFETY: the call writes pending data only.
        unsafe { nix::libc::syncfs(std::os::fd::AsRawFd::as_raw_fd(&disk)) };
    };
    sync();
    // More values than the file has blocks for. They are in memory until there is room.
    let domain =
        registry.indom("many").instances((0..2000).map(|i| &*String::leak(format!("m{i}")))).register().unwrap();
    let many: Family<Counter> = registry.counter("many").over(&domain).unwrap();
    (0..2000).for_each(|i| many.get(&format!("m{i}")).unwrap().add(i));
    for n in 0..12 {
        all.update(n);
        (0..300).for_each(|i| family.get(&format!("i{i}")).unwrap().inc());
        _ = registry.counter(&format!("later{n}")).register().unwrap();
        registry.flush();
        if n % 4 == 0 {
            sync();
        }
    }
    assert_eq!((all.counter.get(), family.get("i7").unwrap().get()), (13, 12));
    drop(filler);
    fs::remove_file(disk.join("filler")).unwrap();
    sync();
    registry.flush();
    assert_eq!(text(&read(dir), "text"), "11");
    all.check(&read(dir), 13);
    assert_eq!(word(&read(dir), "later11"), 0);
    let file = read(dir);
    let of_many = file.metrics().iter().find(|metric| file.name(metric) == b"many").unwrap();
    let words = of_many.values().iter().map(|value| file.value(value.index).unwrap().word);
    assert!(words.eq(0..2000));
    at_once
}

#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn a_full_disk_stops_no_application() {
    in_name_space(|| {
        for (system, size) in [("tmpfs", 4), ("ext4", 8), ("btrfs", 110)] {
            for overlay in [false, true] {
                let Some(disk) = mounted(system, size) else {
                    assert_ne!(system, "tmpfs");
                    eprintln!("{system}: not tried, as this machine cannot make such a disk");
                    continue;
                };
                let over = overlay.then(|| overlaid(disk.path()));
                let dir = over.as_ref().map_or(disk.path(), |over| over.path());
                let at_once = count_on_full_disk(dir, disk.path());
                assert_eq!(at_once, system != "btrfs", "{system}, overlay: {overlay}");
                std::mem::forget((over, disk));
            }
        }
    });
}

/// A disk that hangs delays registrations, and the thread that flushes, but neither updates nor look-ups of known handles.
#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn updates_do_not_wait_for_a_disk_that_hangs() {
    in_name_space(|| {
        let Some(disk) = mounted("btrfs", 110) else { return eprintln!("not tried: no btrfs") };
        let recorder = Recorder::of(Registry::builder("app").directory(disk.path())).unwrap();
        let registry = recorder.registry().clone();
        let text = registry.text("text").register().unwrap();
        let known = Key::from_parts("known", vec![Label::new("key", "value")]);
        let metadata = Metadata::new("", Level::INFO, None);
        recorder.register_counter(&known, &metadata).increment(1);
        text.set("before");
        registry.try_start().unwrap();
        let freeze = |option: &str| {
            assert!(std::process::Command::new("fsfreeze").arg(option).arg(disk.path()).status().unwrap().success());
        };
        freeze("-f");
        text.set("after");
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| registry.flush());
            std::thread::sleep(Duration::from_millis(300));
            // This thread waits for the one that flushes.
            scope.spawn(|| recorder.register_counter(&Key::from_name("new"), &metadata).increment(1));
            std::thread::sleep(Duration::from_millis(300));
            scope.spawn(|| {
                text.set("again");
                recorder.register_counter(&known, &metadata).increment(1);
                done.send(()).unwrap();
            });
            let is_done = is_done.recv_timeout(Duration::from_secs(5)).is_ok();
            freeze("-u");
            assert!(is_done);
        });
        registry.flush();
        let file = read(disk.path());
        assert_eq!((self::text(&file, "text"), word(&file, "known")), ("again".to_owned(), 2));
        std::mem::forget(disk);
    });
}

/// Returns the text of a metric's first value.
fn text(file: &File, name: &str) -> String {
    let metric = file.metrics().iter().find(|m| file.name(m) == name.as_bytes()).unwrap();
    let value = file.value(metric.values()[0].index).unwrap();
    String::from_utf8(file.string(&value).unwrap().to_vec()).unwrap()
}

#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn a_limit_of_file_size_ends_no_application_whose_file_is_not_mapped() {
    in_name_space(|| {
        let Some(disk) = mounted("btrfs", 110) else {
            eprintln!("btrfs: not tried, as this machine cannot make such a disk");
            return;
        };
        let registry = registry(disk.path());
        let all = All::new(&registry);
        registry.try_start().unwrap();
        all.update(0);
        registry.flush();
        let (soft, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, 100, hard).unwrap();
        all.update(1);
        registry.counter("later").register().unwrap().add(3);
        registry.flush();
        let file = read(disk.path());
        assert_eq!((word(&file, "counter"), text(&file, "text")), (1, "0".to_owned()));
        setrlimit(Resource::RLIMIT_FSIZE, soft, hard).unwrap();
        registry.flush();
        let file = read(disk.path());
        assert_eq!((text(&file, "text"), word(&file, "later")), ("1".to_owned(), 3));
        all.check(&read(disk.path()), 2);
        std::mem::forget(disk);
    });
}

#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn a_service_that_gives_up_root_keeps_what_it_exports() {
    in_name_space(|| {
        let dir = open_dir();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let registry = registry(dir.path());
        let all = All::new(&registry);
        registry.try_start().unwrap();
        all.update(0);
        as_nobody();
        (0..10).for_each(|n| {
            _ = registry.counter(&format!("later{n}")).register().unwrap();
            all.update(n);
        });
        registry.flush();
        all.check(&read(dir.path()), 11);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.lines().any(|line| line.contains("app") && line.contains("(deleted)")));
    });
}

#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn root_does_not_follow_what_strangers_link() {
    in_name_space(|| {
        let (parent, victim) = (open_dir(), open_dir());
        let link = parent.path().join("mmv");
        symlink(victim.path(), &link).unwrap();
        // Root's own link is followed.
        registry(&link).try_start().unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        let e = registry(&link).try_start().unwrap_err();
        assert!(matches!(&e, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied), "{e}");
        // Another user's file is not removed as a leftover, and its contents are ignored.
        fs::remove_file(&link).unwrap();
        fs::create_dir(&link).unwrap();
        let gone = Child::new(|| ());
        gone.ends();
        let space = fs::metadata("/proc/self/ns/pid").unwrap().ino();
        let left = link.join(format!(".app.{}.{space}.1", gone.process()));
        fs::write(&left, "").unwrap();
        std::os::unix::fs::chown(&left, Some(65534), None).unwrap();
        let persistent = || Registry::builder("app").directory(&link).cluster(7).persistent().build().unwrap();
        let first = persistent();
        first.counter("counter").item(1000).register().unwrap();
        first.try_start().unwrap();
        drop(first);
        let item = || {
            let next = persistent();
            next.counter("counter").register().unwrap();
            next.try_start().unwrap();
            read(&link).metrics()[0].item
        };
        assert_eq!(item(), 1000);
        std::os::unix::fs::chown(link.join("app"), Some(65534), None).unwrap();
        assert_ne!(item(), 1000);
        assert!(left.exists());
        assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 0);
    });
}

/// Runs `work` in a child that is root and has a separate mount namespace.
fn in_name_space(work: impl FnOnce()) {
    assert!(Uid::current().is_root(), "this needs root");
    Child::new(|| {
        use nix::mount::{MsFlags, mount};
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
        work();
    })
    .ends();
}

#[test]
#[ignore = "needs PCP"] // And root, in a copy of the machine.
fn an_application_that_has_closed_a_file_that_is_not_mapped_keeps_its_own_files() {
    in_name_space(|| {
        let Some(disk) = mounted("btrfs", 110) else {
            eprintln!("btrfs: not tried, as this machine cannot make such a disk");
            return;
        };
        let own = tempfile::tempdir().unwrap();
        Child::new(|| {
            let registry = registry(disk.path());
            let all = All::new(&registry);
            registry.try_start().unwrap();
            let taken = Taken::new(own.path());
            (0..5).for_each(|n| all.update(n));
            registry.flush();
            all.check(&read(disk.path()), 5);
            (0..3).for_each(|n| all.update(n));
            registry.counter("more").register().unwrap().add(7);
            registry.flush();
            let file = read(disk.path());
            all.check(&file, 8);
            assert_eq!(word(&file, "more"), 7);
            drop((registry, all));
            taken.assert_untouched();
            assert!(!disk.path().join("app").exists());
        })
        .ends();
        std::mem::forget(disk);
    });
}
