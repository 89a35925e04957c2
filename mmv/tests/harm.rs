//! Applications under attack and under pressure: obstacles that other users create, and failures of system calls.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, unsafe_code)]

#[path = "common/all.rs"]
mod all;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use all::{All, as_nobody, open_dir, read, registry, word};
use mmv::recorder::Recorder;
use mmv::{Counter, Error, Family, Registry, ShardedCounter};
use mmv_reader::File;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::mman::{MapFlags, MlockAllFlags, ProtFlags, mlockall, mmap_anonymous, munmap};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use testkit::Child;

/// Runs `work`, which must end within a minute.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(work()).unwrap());
    ended.recv_timeout(Duration::from_secs(60)).expect("it goes on for ever, or panicked")
}

#[test]
fn a_file_that_cannot_have_its_name_leaves_the_values_where_they_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let all = All::new(&registry);
    registry.try_start().unwrap();
    let seen = fs::File::open(dir.path().join("app")).unwrap();
    // A directory in place of the file, which has the same effect as a file of root in a sticky directory.
    fs::remove_file(dir.path().join("app")).unwrap();
    fs::create_dir(dir.path().join("app")).unwrap();
    let running = AtomicBool::new(true);
    let updates = thread::scope(|scope| {
        let update = || (0..).take_while(|_| running.load(Relaxed)).map(|n| all.update(n)).count() as u64;
        let threads = [scope.spawn(update), scope.spawn(update)];
        for n in 0..100 {
            registry.counter(&format!("later{n}")).register().unwrap().add(n);
            let now = File::read(&seen).unwrap();
            assert_eq!(now.problems().first(), []);
        }
        running.store(false, Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    registry.flush();
    let file = File::read(&seen).unwrap();
    all.check(&file, updates);
    let file = File::read(&seen).unwrap();
    let text = file.metrics().iter().find(|m| file.name(m) == b"text").unwrap().values()[0].index;
    assert_eq!(file.string(&file.value(text).unwrap()), Some(&b"last"[..]));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    // As soon as the file can be written, it contains everything.
    fs::remove_dir(dir.path().join("app")).unwrap();
    registry.flush();
    let file = read(dir.path());
    all.check(&file, updates);
    assert_eq!((word(&file, "later7"), word(&file, "sharded")), (7, updates));
}

/// Lets a filter of seccomp(2) refuse system calls of this process with an error code: of mmap(2) only shared mappings of
/// files.
fn refuse(calls: &[i64], code: i32) {
    use nix::libc::{self, sock_filter, sock_fprog};
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equal = |k, jt, jf| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let end = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let error = end(libc::SECCOMP_RET_ERRNO | code as u32);
    // Offsets in `seccomp_data`: of the number of the call, and of its flags and descriptor.
    let (number, flags, descriptor) = (0, 40, 48);
    let mut filter = Vec::new();
    for call in calls {
        filter.push(load(number));
        if *call == libc::SYS_mmap {
            let shared = step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, libc::MAP_SHARED as u32);
            filter.extend([equal(*call as u32, 0, 5), load(descriptor), equal(u32::MAX, 3, 0), load(flags), shared]);
        } else {
            filter.push(equal(*call as u32, 0, 1));
        }
        filter.push(error);
    }
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    let program = sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter lives as long as the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

/// A filter of system calls, or a security module, may refuse mappings and files in memory from the beginning or later. Values are
/// written all the same, and no line is logged.
#[test]
fn refused_mappings_do_not_stop_the_export() {
    use nix::libc::{EACCES, ENODEV, ENOMEM, ENOSYS, EPERM, SYS_memfd_create, SYS_mmap, SYS_mremap};
    let all = [SYS_mmap, SYS_mremap, SYS_memfd_create];
    let refused = [EPERM, EACCES, ENODEV, ENOSYS, ENOMEM].map(|code| (&[SYS_mmap][..], code)).into_iter();
    let others = [&[SYS_memfd_create][..], &[SYS_mremap], &all].into_iter();
    for (calls, code) in refused.chain(others.flat_map(|calls| [(calls, EPERM), (calls, ENOSYS)])) {
        for stage in 0..4 {
            let dir = open_dir();
            let child = Child::new(|| {
                let lines = testkit::logged(tracing::Level::TRACE, || {
                    let refuse_at = |now| {
                        if now == stage {
                            refuse(calls, code)
                        }
                    };
                    refuse_at(0);
                    let registry = registry(dir.path());
                    let all = All::new(&registry);
                    (0..10).for_each(|n| all.update(n));
                    refuse_at(1);
                    registry.try_start().unwrap();
                    (0..10).for_each(|n| all.update(n));
                    refuse_at(2);
                    // The first ones need no other segment of memory.
                    let later = [50, 2000].map(|size| {
                        let (indom, names) = (format!("indom{size}"), 0..size);
                        let names = names.map(|i| &*String::leak(i.to_string()));
                        let indom = registry.indom(&indom).instances(names).register().unwrap();
                        let family: Family<Counter> = registry.metric(&format!("of{size}")).over(&indom).unwrap();
                        family.get("49").unwrap().add(size);
                        refuse_at(3);
                        all.update(size);
                        family
                    });
                    all.update(20);
                    registry.flush();
                    let file = read(dir.path());
                    all.check(&file, 23);
                    let values = file.metrics().iter().filter(|m| file.name(m).starts_with(b"of"));
                    let last = values.map(|m| file.value(m.values()[49].index).unwrap().word);
                    assert_eq!(last.collect::<Vec<_>>(), [50, 2000]);
                    assert_eq!(later.map(|family| family.get("49").unwrap().get()), [50, 2000]);
                });
                assert_eq!(lines, [""; 0], "calls {calls:?} fail with {code} from stage {stage} on");
            });
            child.ends();
        }
    }
}

#[test]
fn the_owner_of_the_directory_is_not_told_that_only_its_owner_may_export() {
    use nix::libc::{EACCES, EPERM, SYS_linkat, SYS_renameat, SYS_renameat2};
    let dir = tempfile::tempdir().unwrap();
    for (code, reason) in [(EPERM, "Operation not permitted (os error 1)"), (EACCES, "Permission denied (os error 13)")]
    {
        Child::new(|| {
            let lines = testkit::logged(tracing::Level::TRACE, || {
                refuse(&[SYS_renameat, SYS_renameat2, SYS_linkat], code);
                registry(dir.path()).start();
            });
            let [line] = &*lines else { panic!("{lines:?}") };
            assert!(
                line.starts_with("WARN: app: metrics are not exported to PCP: ") && line.ends_with(reason),
                "{line}"
            );
        })
        .ends();
    }
}

#[test]
fn a_start_that_fails_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let registry = registry(dir.path());
    let all = All::new(&registry);
    (0..10).for_each(|n| all.update(n));
    fs::create_dir(dir.path().join("app")).unwrap();
    assert!(matches!(registry.try_start(), Err(Error::Io { .. })));
    (0..10).for_each(|n| all.update(n));
    fs::remove_dir(dir.path().join("app")).unwrap();
    registry.try_start().unwrap();
    registry.flush();
    all.check(&read(dir.path()), 20);
}

#[test]
fn a_file_that_is_removed_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("mmv");
    fs::create_dir(&files).unwrap();
    let registry = registry(&files);
    let all = All::new(&registry);
    registry.try_start().unwrap();
    all.update(0);
    fs::remove_dir_all(&files).unwrap();
    all.update(1);
    registry.flush();
    fs::create_dir(&files).unwrap();
    registry.flush();
    all.check(&read(&files), 2);
    // A file of another process stays.
    fs::write(files.join("other"), "other").unwrap();
    fs::rename(files.join("other"), files.join("app")).unwrap();
    registry.flush();
    assert_eq!(fs::read(files.join("app")).unwrap(), b"other");
}

#[test]
fn what_strangers_put_in_the_way_is_not_waited_for_nor_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = (dir.path().to_owned(), dir.path().join(".target"));
    fs::write(&target, "precious").unwrap();
    for n in 0..50 {
        mkfifo(&path.join(format!("fifo{n}")), Mode::S_IRWXU).unwrap();
        symlink(&target, path.join(format!("link{n}"))).unwrap();
    }
    symlink("/dev/zero", path.join("zero")).unwrap();
    let start = |path: &Path| {
        let path = path.to_owned();
        ends(move || registry(&path).try_start().unwrap());
    };
    start(&path);
    mkfifo(&path.join("app"), Mode::S_IRWXU).unwrap();
    start(&path);
    for to in [target.as_path(), Path::new("/dev/zero"), Path::new("app")] {
        symlink(to, path.join("app")).unwrap();
        start(&path);
    }
    // A sparse file of 200 GB that looks like a registry's file.
    let sparse = fs::File::create(path.join("app")).unwrap();
    sparse.set_len(200 << 30).unwrap();
    sparse.write_all_at(b"MMV\0\x01\0\0\0", 0).unwrap();
    sparse.write_all_at(&1i32.to_ne_bytes(), 24).unwrap();
    // A table of 2^31 - 1 metrics.
    sparse.write_all_at(&[3, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0, 1], 40).unwrap();
    start(&path);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

#[test]
fn a_file_that_becomes_a_fifo_while_the_directory_is_read_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    (0..200).for_each(|n| fs::write(path.join(format!("f{n}")), "").unwrap());
    fs::write(path.join("a"), b"MMV\0").unwrap();
    mkfifo(&path.join(".b"), Mode::S_IRWXU).unwrap();
    let running = Arc::new(AtomicBool::new(true));
    let swaps = {
        let (path, running) = (path.clone(), Arc::clone(&running));
        thread::spawn(move || {
            let swap =
                || renameat2(AT_FDCWD, &path.join("a"), AT_FDCWD, &path.join(".b"), RenameFlags::RENAME_EXCHANGE);
            (0..).take_while(|_| running.load(Relaxed)).for_each(|_| swap().unwrap());
        })
    };
    ends(move || (0..60).for_each(|_| registry(&path).try_start().unwrap()));
    running.store(false, Relaxed);
    swaps.join().unwrap();
}

#[test]
fn the_next_start_removes_what_a_crash_has_left() {
    let dir = tempfile::tempdir().unwrap();
    let gone = Child::new(|| ());
    gone.ends();
    let (dead, own) = (gone.process(), std::process::id());
    let name = |name: &str| dir.path().join(name);
    let space = fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let left = [format!(".app.{dead}.{space}.7"), format!(".app.{dead}.{space}.0")];
    let others = [
        // Files of another application, of a running process and of another container; and names that no registry
        // creates.
        format!(".apps.{dead}.{space}.7"),
        format!(".app.x.{dead}.{space}.7"),
        format!(".app.1.{space}.7"),
        format!(".app.{own}.{space}.123456"),
        format!(".app.{dead}.1.7"),
        format!(".app.{dead}.{space}"),
        format!(".app.{dead}.{space}.x"),
        format!("app.p{dead}"),
        format!("app.{dead}"),
    ];
    left.iter().chain(&others).for_each(|left| fs::write(name(left), "").unwrap());
    registry(dir.path()).try_start().unwrap();
    assert!(left.iter().all(|left| !name(left).exists()));
    assert!(others.iter().all(|other| name(other).exists()));
}

#[test]
fn memory_that_may_not_be_locked_is_an_error_and_no_end() {
    let dir = open_dir();
    Child::new(|| {
        as_nobody();
        let registry = registry(dir.path());
        let all = All::new(&registry);
        registry.try_start().unwrap();
        setrlimit(Resource::RLIMIT_MEMLOCK, 256 << 10, 256 << 10).unwrap();
        mlockall(MlockAllFlags::MCL_FUTURE).unwrap();
        let indom = registry.indom("indom").register().unwrap();
        let _family: Family<Counter> = registry.counter("family").over(&indom).unwrap();
        let mut refused = 0;
        for n in 0..20_000u64 {
            if n % 100 == 0 {
                all.update(n);
            }
            // Registrations may fail, or be missing from the file for now.
            if n < 1_000 || n % 500 == 0 {
                refused += u64::from(indom.add(&format!("instance{n}")).is_err());
            } else if n % 20 == 0 {
                let batch = registry.batch();
                refused += u64::from(indom.add(&format!("instance{n}")).is_err());
                std::mem::forget(batch);
            }
        }
        assert_eq!(all.counter.get(), 200);
        assert!(refused < 20_000);
        let file = read(dir.path());
        assert_eq!((word(&file, "counter"), word(&file, "gauge")), (200, 200));
    })
    .ends();
}

#[test]
fn a_process_that_may_map_no_more_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        let registry = registry(dir.path());
        let all = All::new(&registry);
        registry.try_start().unwrap();
        all.update(0);
        let page = || {
            // Adjacent pages with equal rights would be one mapping.
            static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let write = if COUNT.fetch_add(1, Relaxed) % 2 == 0 { ProtFlags::PROT_WRITE } else { ProtFlags::PROT_NONE };
            // SAFETY: the kernel chooses a free address.
            unsafe {
                mmap_anonymous(None, 4096.try_into().unwrap(), ProtFlags::PROT_READ | write, MapFlags::MAP_PRIVATE)
            }
        };
        let mut pages: Vec<_> = std::iter::from_fn(|| page().ok()).collect();
        assert!(pages.len() > 1000);
        let mut registered = 0;
        for n in 0..40u64 {
            all.update(n);
            let later = registry.counter(&format!("later{n}")).register();
            registered += u64::from(later.is_ok());
            // One mapping less in each round: in some round, the first mapping of a registration succeeds, and the
            // second one fails. SAFETY: nothing uses the page.
            unsafe { munmap(pages.pop().unwrap(), 4096) }.unwrap();
            let file = read(dir.path());
            all.check(&file, n + 2);
        }
        assert!(registered > 0);
        registry.counter("last").register().unwrap();
        all.check(&read(dir.path()), 41);
        assert!(read(dir.path()).metrics().iter().any(|m| read(dir.path()).name(m) == b"last"));
    })
    .ends();
}

#[test]
fn a_file_larger_than_the_process_may_write_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        let registry = registry(dir.path());
        let all = All::new(&registry);
        registry.try_start().unwrap();
        setrlimit(Resource::RLIMIT_FSIZE, 8 << 10, 8 << 10).unwrap();
        for n in 0..200 {
            all.update(n);
            _ = registry.counter(&format!("later{n}")).register();
        }
        all.check(&read(dir.path()), 200);
        assert!(registry_of(dir.path(), "other").try_start().is_err());
    })
    .ends();
}

/// Registers instances until there is no room for more. Returns their number.
fn fill(registry: &Registry) -> u64 {
    let indom = registry.indom("indom").register().unwrap();
    let family: Family<Counter> = registry.counter("family").over(&indom).unwrap();
    (0..10_000)
        .find(|n| match family.instance(&n.to_string()) {
            Ok(counter) => {
                counter.inc();
                false
            }
            Err(Error::Full { max, .. }) => {
                assert!(u64::from(max) >= *n, "{max}");
                true
            }
            Err(e) => panic!("{e}"),
        })
        .unwrap()
}

/// A limit is no error: the file has room for fewer instances, and what fits is exported.
#[test]
fn limits_of_the_process_make_the_room_of_a_file_smaller() {
    let limits =
        [(Resource::RLIMIT_FSIZE, 1 << 20), (Resource::RLIMIT_FSIZE, 100 << 10), (Resource::RLIMIT_MEMLOCK, 4 << 20)];
    for (limit, most) in limits {
        let dir = open_dir();
        Child::new(|| {
            as_nobody();
            setrlimit(limit, most, most).unwrap();
            if limit == Resource::RLIMIT_MEMLOCK {
                mlockall(MlockAllFlags::MCL_FUTURE).unwrap();
            }
            let registry = registry(dir.path());
            let all = All::new(&registry);
            registry.try_start().unwrap();
            (0..3).for_each(|n| all.update(n));
            let count = fill(&registry);
            assert!((16..16_384).contains(&count), "{limit:?} {most}: {count}");
            let file = read(dir.path());
            all.check(&file, 3);
            let family = file.metrics().iter().find(|m| file.name(m) == b"family").unwrap();
            assert!(family.values().iter().all(|value| file.value(value.index).unwrap().word == 1));
            assert_eq!(family.values().len() as u64, count);
        })
        .ends();
    }
}

#[test]
fn a_process_with_little_address_space_has_many_registries() {
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        let now = fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
        let most = now * 4096 + (400 << 20);
        setrlimit(Resource::RLIMIT_AS, most, most).unwrap();
        let registries: Vec<(Registry, Counter)> = (0..200)
            .map(|n| {
                let registry = Registry::builder(&format!("app{n}")).directory(dir.path()).build().unwrap();
                let counter = registry.counter("counter").register().unwrap();
                registry.try_start().unwrap();
                (registry, counter)
            })
            .collect();
        for (registry, counter) in &registries {
            counter.inc();
            let file = File::open(registry.path().unwrap()).unwrap();
            assert_eq!(word(&file, "counter"), 1);
        }
    })
    .ends();
}

fn registry_of(dir: &Path, name: &str) -> Registry {
    let registry = Registry::builder(name).directory(dir).build().unwrap();
    _ = registry.indom("i").instances((0..500).map(|n| &*String::leak(format!("i{n}")))).register();
    registry
}

#[test]
// Slow: the bound is about that many.
fn ten_thousand_label_sets_and_64_threads_take_a_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        let recorder =
            Recorder::of(Registry::builder("app").directory(dir.path()).flush_every(Duration::ZERO)).unwrap();
        let recorder = recorder.limits(10_000, 10_000);
        recorder.registry().try_start().unwrap();
        let before = resident();
        thread::scope(|scope| {
            for thread in 0..64u32 {
                let recorder = &recorder;
                scope.spawn(move || {
                    metrics::with_local_recorder(recorder, || {
                        for n in (thread % 8..10_000).step_by(8) {
                            // The values span twelve powers of ten.
                            let value = 10f64.powi(((n / 8 + thread / 8 * 5) % 12) as i32 - 6);
                            metrics::histogram!("latency", "path" => n.to_string()).record(value);
                        }
                    });
                });
            }
        });
        recorder.registry().flush();
        let after = resident();
        assert!(after - before < 160 << 20, "{} MiB", (after - before) >> 20);
    })
    .ends();
}

/// Returns the resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Registers a metric for the lines of the log.
struct Counted(Registry);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Counted {
    fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let lines = self.0.find::<Counter>("lines").unwrap_or_else(|| self.0.counter("lines").register().unwrap());
        lines.inc();
    }
}

#[test]
fn a_log_that_is_counted_may_say_that_there_can_be_no_thread() {
    use tracing_subscriber::layer::SubscriberExt;
    let dir = open_dir();
    Child::new(|| {
        as_nobody();
        setrlimit(Resource::RLIMIT_NPROC, 0, 0).unwrap();
        let registry = Registry::builder("app").directory(dir.path()).build().unwrap();
        let log = tracing_subscriber::registry().with(Counted(registry.clone()));
        tracing::subscriber::with_default(log, || {
            registry.try_start().unwrap();
            let sharded = registry.metric::<ShardedCounter>("sharded").register().unwrap();
            sharded.inc();
            registry.histogram("times").quantiles(&[0.5]).unwrap().record(1.0);
        });
        assert_eq!(registry.find::<Counter>("lines").unwrap().get(), 1);
    })
    .ends();
}

#[test]
fn a_signal_that_an_application_waits_for_is_not_delivered_to_the_flush_thread() {
    use nix::sys::signal::{SigSet, Signal, kill};
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        let registry = Registry::builder("app").directory(dir.path()).build().unwrap();
        registry.metric::<ShardedCounter>("sharded").register().unwrap();
        registry.try_start().unwrap();
        assert_eq!(fs::read_dir("/proc/self/task").unwrap().count(), 2);
        // The application blocks the signal only after the start of the flush thread.
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.thread_block().unwrap();
        kill(nix::unistd::Pid::this(), Signal::SIGTERM).unwrap();
        assert_eq!(signals.wait().unwrap(), Signal::SIGTERM);
    })
    .ends();
}

/// Calls `work` while the process can open no file.
fn without_descriptors<T>(work: impl FnOnce() -> T) -> T {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
    let result = work();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    result
}

/// Everything is registered while there is no descriptor: before the first registration, or later.
#[test]
fn a_moment_without_descriptors_costs_no_metric() {
    for early in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        Child::new(|| {
            let recorder = Recorder::of(Registry::builder("app").directory(dir.path())).unwrap();
            let registry = recorder.registry();
            let register = || {
                metrics::with_local_recorder(&recorder, || {
                    metrics::counter!("late").increment(1);
                    metrics::counter!("labelled", "n" => "1").increment(1);
                    metrics::histogram!("times").record(1.0);
                });
            };
            if !early {
                metrics::with_local_recorder(&recorder, || metrics::counter!("first").increment(1));
                registry.try_start().unwrap();
            }
            without_descriptors(register);
            registry.try_start().unwrap();
            registry.flush();
            let file = read(dir.path());
            assert_eq!(["late", "labelled", "times.count"].map(|name| word(&file, name)), [1; 3]);
            register();
            registry.flush();
            assert_eq!(word(&read(dir.path()), "labelled"), 2);
        })
        .ends();
    }
}

#[test]
fn a_moment_without_descriptors_costs_no_span() {
    use tracing_subscriber::layer::SubscriberExt;
    let dir = tempfile::tempdir().unwrap();
    Child::new(|| {
        let registry = registry(dir.path());
        let layer = mmv::layer::MmvLayer::new(&registry).unwrap();
        registry.try_start().unwrap();
        let log = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(log, || {
            without_descriptors(|| tracing::info_span!("work").in_scope(|| ()));
        });
        registry.flush();
        assert_eq!(word(&read(dir.path()), "tracing.spans.count"), 1);
    })
    .ends();
}

#[test]
fn a_moment_without_threads_costs_no_value() {
    let dir = open_dir();
    Child::new(|| {
        as_nobody();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
        setrlimit(Resource::RLIMIT_NPROC, 0, hard).unwrap();
        let recorder = Recorder::of(Registry::builder("app").directory(dir.path())).unwrap();
        recorder.registry().try_start().unwrap();
        let seen = || {
            let file = read(dir.path());
            let is_it = |name: &[u8]| name == b"times.count";
            file.metrics().iter().any(|metric| is_it(file.name(metric))) && word(&file, "times.count") > 0
        };
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!("times").record(1.0);
            setrlimit(Resource::RLIMIT_NPROC, soft, hard).unwrap();
            let begin = Instant::now();
            while !seen() && begin.elapsed() < Duration::from_secs(60) {
                metrics::histogram!("times").record(1.0);
                thread::sleep(Duration::from_millis(20));
            }
        });
        assert!(seen());
    })
    .ends();
}
