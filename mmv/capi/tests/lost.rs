//! Files that another process truncates while the program has them mapped, and signal handlers that update values.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

mod common;

use std::ffi::c_int;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, MutexGuard};
use std::thread;

use common::{Metric1, Mmv, Pointer, Text, metric, own, text};
use testkit::Child;

const U64: c_int = 3;
const STRING: c_int = 6;
/// Enough for several pages.
const METRICS: u32 = 1000;

/// The tests change what handles a signal in this process, and fork it.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn start(mmv: &Mmv, path: &Path) -> Pointer {
    let mut metrics: Vec<Metric1> = (0..METRICS).map(|item| metric(&format!("m{item}"), item, U64, 0)).collect();
    metrics.push(metric("text", METRICS, STRING, 0));
    let (name, count) = (text(path.to_str().unwrap()), metrics.len() as c_int);
    let handle = unsafe { (mmv.mmv_stats_init)(name, 40, 2, metrics.as_ptr(), count, null(), 0) };
    assert!(!handle.is_null());
    handle
}

fn find(mmv: &Mmv, handle: Pointer, name: impl Into<Vec<u8>>) -> Pointer {
    let found = unsafe { (mmv.mmv_lookup_value_desc)(handle, text(name), null()) };
    assert!(!found.is_null());
    found
}

fn truncate(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Calls all functions that read or write the file.
fn use_all(mmv: &Mmv, handle: Pointer, counts: &[Pointer], string: Pointer) {
    for count in counts.iter().copied() {
        unsafe {
            (mmv.mmv_inc)(handle, count);
            (mmv.mmv_inc_value)(handle, count, 1.0);
            (mmv.mmv_add)(handle, count, &1);
            *count.cast::<u64>() += 1;
        }
    }
    unsafe {
        (mmv.mmv_set_string)(handle, string, text("words"), 5);
        (mmv.mmv_stats_set_string)(handle, text("text"), null(), text("words"));
        (mmv.mmv_stats_inc)(handle, text("m7"), null());
    }
}

/// Updates of a file that has lost pages change memory of the process; the next start works again.
#[test]
fn a_truncated_file_does_not_end_the_program() {
    let _alone = alone();
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (path, log) = (dir.path().join("file"), dir.path().join("log"));
    for (len, known) in [(0, true), (0, false), (4096, true), (50_000, false), (1, true)] {
        let capture = File::create(&log).unwrap();
        Child::new(|| {
            unsafe { libc::dup2(capture.as_raw_fd(), 2) };
            let handle = start(&mmv, &path);
            let counts: Vec<Pointer> = (0..METRICS as usize)
                .map(|item| handle.cast::<u8>().wrapping_add(40 + 48 + 104 * (METRICS as usize + 1) + 32 * item).cast())
                .collect();
            if known {
                assert_eq!(find(&mmv, handle, "m7"), counts[7]);
            }
            let string = counts[METRICS as usize - 1].cast::<u8>().wrapping_add(32).cast();
            use_all(&mmv, handle, &counts, string);
            truncate(&path, len);
            (0..3).for_each(|_| use_all(&mmv, handle, &counts, string));
            thread::scope(|scope| {
                (0..4).for_each(|_| {
                    let (address, values) = (handle.addr(), counts.iter().map(|c| c.addr()).collect::<Vec<_>>());
                    let (mmv, path) = (&mmv, &path);
                    scope.spawn(move || {
                        for value in values {
                            truncate(path, len);
                            unsafe { (mmv.mmv_inc)(address as Pointer, value as Pointer) };
                        }
                    });
                });
            });
            unsafe { (mmv.mmv_stats_stop)(null(), handle) };
            assert!(!path.exists());
            use_all(&mmv, handle, &counts, string);
            let again = start(&mmv, &path);
            unsafe { (mmv.mmv_inc)(again, find(&mmv, again, "m7")) };
            unsafe { (mmv.mmv_stats_stop)(null(), again) };
        })
        .ends();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.contains("an MMV file was truncated") && text.lines().count() == 1, "{text}");
    }
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn with_one_argument(_: c_int) {
    HANDLED.fetch_add(1, SeqCst);
}

extern "C" fn with_information(_: c_int, info: *mut libc::siginfo_t, _: Pointer) {
    let page = unsafe { (*info).si_addr() }.addr() & !4095;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    assert_eq!(unsafe { libc::mmap(page as Pointer, 4096, rights, flags, -1, 0) }.addr(), page);
    HANDLED.fetch_add(100, SeqCst);
}

fn handle_bus_errors(handler: usize, flags: c_int) {
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    assert_eq!(unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) }, 0);
}

/// Maps a page that its file does not have.
fn lost_page(dir: &Path) -> *mut u64 {
    let file = File::options().create(true).truncate(true).read(true).write(true).open(dir.join("other")).unwrap();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let page = unsafe { libc::mmap(null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

/// Signals that do not concern the library reach the handler that they would reach without the library.
#[test]
fn the_program_keeps_its_own_bus_errors() {
    let _alone = alone();
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let path = dir.path().join("file");
    let lose = || {
        let handle = start(&mmv, &path);
        let value = find(&mmv, handle, "m7");
        truncate(&path, 0);
        unsafe { (mmv.mmv_inc)(handle, value) };
    };
    Child::new(|| {
        handle_bus_errors(with_one_argument as extern "C" fn(c_int) as usize, 0);
        lose();
        assert_eq!(HANDLED.load(SeqCst), 0);
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(HANDLED.load(SeqCst), 1);
    })
    .ends();
    Child::new(|| {
        let handler = with_information as extern "C" fn(c_int, *mut libc::siginfo_t, Pointer);
        handle_bus_errors(handler as usize, libc::SA_SIGINFO);
        lose();
        assert_eq!(HANDLED.load(SeqCst), 0);
        unsafe { *lost_page(dir.path()) = 1 };
        assert_eq!(HANDLED.load(SeqCst), 100);
    })
    .ends();
    Child::new(|| {
        handle_bus_errors(libc::SIG_IGN, 0);
        lose();
        unsafe { libc::raise(libc::SIGBUS) };
    })
    .ends();
    for sent in [true, false] {
        let status = ends_with(|| {
            handle_bus_errors(libc::SIG_DFL, 0);
            lose();
            if sent {
                unsafe { libc::raise(libc::SIGBUS) };
            } else {
                unsafe { *lost_page(dir.path()) = 1 };
            }
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{sent}: {status:#x}");
    }
}

/// Forks this process for some work, and returns how the child has ended.
fn ends_with(work: impl FnOnce()) -> c_int {
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// Library, handle and values for a signal handler.
static TARGET: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static RUNS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn update(_: c_int) {
    let [mmv, handle, count, string] = [0, 1, 2, 3].map(|at| TARGET[at].load(Relaxed));
    let mmv = unsafe { &*(mmv as *const Mmv) };
    let words: Text = c"words of a handler".as_ptr();
    unsafe {
        (mmv.mmv_inc)(handle as Pointer, count as Pointer);
        (mmv.mmv_set_string)(handle as Pointer, string as Pointer, words, 18);
        (mmv.mmv_stats_inc)(handle as Pointer, c"m7".as_ptr(), null());
        (mmv.mmv_stats_set)(handle as Pointer, c"m8".as_ptr(), null(), 8.0);
    }
    RUNS.fetch_add(1, SeqCst);
}

/// A signal handler may update values while the thread that it interrupts does, or starts and stops other exports.
#[test]
fn signal_handlers_update_values() {
    let _alone = alone();
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    for several in [false, true] {
        Child::new(|| {
            let handle = start(&mmv, &dir.path().join("file"));
            let (count, string) = (find(&mmv, handle, "m5"), find(&mmv, handle, "text"));
            let target = [(&raw const mmv).addr(), handle.addr(), count.addr(), string.addr()];
            TARGET.iter().zip(target).for_each(|(place, address)| place.store(address, Relaxed));
            unsafe { libc::signal(libc::SIGALRM, update as extern "C" fn(c_int) as usize) };
            let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
            let timer = libc::itimerval { it_interval: every, it_value: every };
            if several {
                thread::spawn(|| ()).join().unwrap();
            }
            unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const timer, null_mut::<u8>()) };
            let other = dir.path().join("other");
            let mut rounds = 0;
            while RUNS.load(SeqCst) < 500 {
                unsafe {
                    for _ in 0..100 {
                        (mmv.mmv_inc)(handle, count);
                        (mmv.mmv_set_string)(handle, string, c"others".as_ptr(), 6);
                        (mmv.mmv_stats_inc)(handle, c"m9".as_ptr(), null());
                    }
                    if rounds % 50 == 0 {
                        (mmv.mmv_stats_stop)(null(), start(&mmv, &other));
                    }
                }
                rounds += 1;
            }
            let stop: libc::itimerval = unsafe { std::mem::zeroed() };
            unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const stop, null_mut::<u8>()) };
            let updates = unsafe { *find(&mmv, handle, "m9").cast::<u64>() };
            assert_eq!(updates, 100 * rounds);
            // While there is one thread, an addition is not atomic, as in C.
            if several {
                let all = unsafe { *count.cast::<u64>() };
                assert_eq!(all, 100 * rounds + RUNS.load(SeqCst) as u64);
            }
        })
        .ends();
    }
}
