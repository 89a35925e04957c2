//! Calls that crash C's library, or that it handles incorrectly.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

mod common;

use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr::{self, null, null_mut};

use common::{
    Indom, Instance1, Instance2, Metric1, Metric2, Mmv, Pointer, Text, clear_errno, errno, metric, own, text,
};
use testkit::Child;

const U64: c_int = 3;
const STRING: c_int = 6;

fn name(dir: &Path, file: &str) -> Text {
    text(dir.join(file).to_str().unwrap())
}

/// Starts a file with a counter, a string, and a metric over two instances.
fn start(mmv: &Mmv, name: Text, flags: c_int) -> Pointer {
    let instance = |id, name: &str| {
        let mut external = [0; 64];
        external[..name.len()].copy_from_slice(name.as_bytes());
        Instance1 { internal: id, external }
    };
    let instances = [instance(1, "red"), instance(2, "green")];
    let domain = Indom { serial: 5, count: 2, instances: instances.as_ptr(), short: null(), long: null() };
    let metrics = [metric("count", 1, U64, 0), metric("text", 2, STRING, 0), metric("color", 3, U64, 5)];
    unsafe { (mmv.mmv_stats_init)(name, 40, flags, metrics.as_ptr(), 3, &raw const domain, 1) }
}

fn value(mmv: &Mmv, handle: Pointer, name: &str) -> Pointer {
    unsafe { (mmv.mmv_lookup_value_desc)(handle, text(name), null()) }
}

fn word(path: &Path, offset: usize) -> u64 {
    u64::from_ne_bytes(fs::read(path).unwrap()[offset..offset + 8].try_into().unwrap())
}

fn offset(handle: Pointer, value: Pointer) -> usize {
    value.addr() - handle.addr()
}

/// Asserts that a call fails with an error.
#[track_caller]
fn refused(result: Pointer, code: i32) {
    assert_eq!((result, errno()), (null_mut(), code));
    clear_errno();
}

#[test]
fn null_pointers_are_errors() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let file = name(dir.path(), "file");
    unsafe {
        refused((mmv.mmv_stats_init)(null(), 1, 0, null(), 0, null(), 0), libc::EFAULT);
        refused((mmv.mmv_stats_init)(file, 1, 0, null(), 1, null(), 0), libc::EFAULT);
        refused((mmv.mmv_stats_init)(file, 1, 0, null(), -1, null(), 0), libc::EINVAL);
        refused((mmv.mmv_stats2_init)(file, 1, 0, null(), 0, null(), 3), libc::EFAULT);
        let nameless =
            Metric2 { name: null(), item: 1, ty: 3, semantics: 1, units: 0, indom: 0, short: null(), long: null() };
        refused((mmv.mmv_stats2_init)(file, 1, 0, &raw const nameless, 1, null(), 0), libc::EINVAL);
        let instance = Instance2 { internal: 1, external: null() };
        let mut domain = Indom { serial: 5, count: 1, instances: &raw const instance, short: null(), long: null() };
        refused((mmv.mmv_stats2_init)(file, 1, 0, null(), 0, &raw const domain, 1), libc::EINVAL);
        domain.instances = null();
        refused((mmv.mmv_stats2_init)(file, 1, 0, null(), 0, &raw const domain, 1), libc::EFAULT);
        refused((mmv.mmv_stats_registry)(null(), 1, 0), libc::EFAULT);
        refused((mmv.mmv_stats_start)(null_mut()), libc::EFAULT);
        let registry = (mmv.mmv_stats_registry)(file, 1, 0);
        assert_eq!((mmv.mmv_stats_add_metric)(registry, null(), 1, 3, 1, 0, 0, null(), null()), -1);
        assert_eq!((mmv.mmv_stats_add_instance)(registry, 1, 1, null()), -1);
        assert_eq!((mmv.mmv_stats_add_registry_label)(registry, null(), null(), 1, 0), -1);
        assert_eq!((mmv.mmv_stats_add_metric)(null_mut(), text("m"), 1, 3, 1, 0, 0, null(), null()), -1);
        assert_eq!(errno(), libc::EFAULT);
        (mmv.mmv_stats_free)(registry);
        (mmv.mmv_stats_free)(null_mut());
        (mmv.mmv_stats_stop)(null(), null_mut());
        assert!((mmv.mmv_lookup_value_desc)(null_mut(), null(), null()).is_null());

        let handle = start(&mmv, file, 0);
        assert!((mmv.mmv_lookup_value_desc)(handle, null(), null()).is_null());
        assert!((mmv.mmv_lookup_value_desc)(handle, text("color"), null()).is_null());
        let count = value(&mmv, handle, "count");
        (mmv.mmv_inc_value)(handle, null_mut(), 1.0);
        (mmv.mmv_inc_value)(null_mut(), count, 1.0);
        (mmv.mmv_inc_atomvalue)(handle, count, null());
        (mmv.mmv_set_atomvalue)(handle, count, null());
        let string = value(&mmv, handle, "text");
        (mmv.mmv_set_string)(handle, string, null(), 3);
        (mmv.mmv_set_atomvalue)(handle, string, &0);
        (mmv.mmv_stats_set_string)(handle, text("text"), null(), null());
        (mmv.mmv_stats_set_strlen)(handle, text("text"), null(), null(), 9);
        (mmv.mmv_stats_add)(handle, null(), null(), 1.0);
        (mmv.mmv_stats_interval_end)(handle, null_mut());
        assert!((mmv.mmv_stats_interval_start)(handle, null_mut(), null(), null()).is_null());
        assert_eq!(word(&dir.path().join("file"), offset(handle, count)), 0);
        (mmv.mmv_stats_stop)(null(), handle);
    }
}

/// A name of 64 bytes without a NUL ends there. Names may have any bytes.
#[test]
fn names_without_an_end_and_with_any_bytes() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let mut endless = metric("", 1, U64, 0);
    endless.name = [b'n'; 64];
    let bytes = Metric1 {
        name: {
            let mut name = [0; 64];
            name[..3].copy_from_slice(b"\xff\xfe\x01");
            name
        },
        ..metric("", 2, U64, 0)
    };
    let metrics = [endless, bytes];
    unsafe {
        let handle = (mmv.mmv_stats_init)(name(dir.path(), "ends\u{e4}"), 1, 0, metrics.as_ptr(), 2, null(), 0);
        assert!(!handle.is_null());
        let endless = (mmv.mmv_lookup_value_desc)(handle, text(vec![b'n'; 63]), null());
        let bytes = (mmv.mmv_lookup_value_desc)(handle, text(b"\xff\xfe\x01".to_vec()), null());
        assert!(!endless.is_null() && !bytes.is_null() && endless != bytes);
        assert!((mmv.mmv_lookup_value_desc)(handle, text(vec![b'n'; 64]), null()).is_null());
        assert!((mmv.mmv_lookup_value_desc)(handle, text(vec![b'n'; 100_000]), null()).is_null());
        (mmv.mmv_stats_stop)(null(), handle);
        let overlong = name(dir.path(), &"f".repeat(5000));
        refused((mmv.mmv_stats_init)(overlong, 1, 0, metrics.as_ptr(), 2, null(), 0), libc::ENAMETOOLONG);
        refused((mmv.mmv_stats_init)(name(dir.path(), ""), 1, 0, metrics.as_ptr(), 2, null(), 0), libc::EISDIR);
        refused((mmv.mmv_stats_init)(name(dir.path(), "no/dir"), 1, 0, metrics.as_ptr(), 2, null(), 0), libc::ENOENT);
    }
}

/// An export can be stopped twice. Later updates change nothing, and neither do stores through a pointer to a value.
#[test]
fn stopped_exports_are_left_alone() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (file, path) = (name(dir.path(), "file"), dir.path().join("file"));
    unsafe {
        let handle = start(&mmv, file, 0);
        let count = value(&mmv, handle, "count");
        (mmv.mmv_inc)(handle, count);
        (mmv.mmv_stats_stop)(file, handle);
        (mmv.mmv_stats_stop)(file, handle);
        (mmv.mmv_inc)(handle, count);
        (mmv.mmv_set_value)(handle, count, 7.0);
        (mmv.mmv_set_string)(handle, count, text("x"), 1);
        *count.cast::<u64>() += 1;
        assert!((mmv.mmv_lookup_value_desc)(handle, text("count"), null()).is_null());
        assert_eq!(word(&path, offset(handle, count)), 1);

        let registry = (mmv.mmv_stats_registry)(file, 1, 2);
        (mmv.mmv_stats_add_metric)(registry, text("m"), 1, 3, 1, 0, 0, null(), null());
        let handle = (mmv.mmv_stats_start)(registry);
        (mmv.mmv_stats_stop)(file, handle);
        assert!(!path.exists());
        (mmv.mmv_stats_free)(registry);
        (mmv.mmv_stats_free)(registry);
        refused((mmv.mmv_stats_start)(registry), libc::EFAULT);
    }
}

/// A second start with the same name replaces the file; the first handle still works, and stopping it leaves the new
/// file.
#[test]
fn the_second_start_of_a_name_replaces_the_file() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (file, path) = (name(dir.path(), "file"), dir.path().join("file"));
    unsafe {
        let first = start(&mmv, file, 2);
        let old = value(&mmv, first, "count");
        let second = start(&mmv, file, 2);
        let new = value(&mmv, second, "count");
        (mmv.mmv_inc_value)(first, old, 5.0);
        (mmv.mmv_inc_value)(second, new, 2.0);
        assert_eq!((*old.cast::<u64>(), word(&path, offset(second, new))), (5, 2));
        // A value of one handle does not belong to the other.
        (mmv.mmv_inc_value)(second, old, 1.0);
        (mmv.mmv_stats_stop)(file, first);
        assert_eq!((word(&path, offset(second, new)), *old.cast::<u64>()), (2, 0));
        (mmv.mmv_stats_stop)(file, second);
        assert!(!path.exists());
    }
}

/// After a stop, the same file is mapped at the same address. Perl's module passes name and handle the wrong way round.
#[test]
fn restarts_keep_pointers_to_values() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let file = name(dir.path(), "file");
    unsafe {
        let first = start(&mmv, file, 0);
        let count = value(&mmv, first, "count");
        (mmv.mmv_stats_stop)(first.cast(), file.cast_mut().cast());
        let second = start(&mmv, file, 0);
        assert_eq!(second, first);
        (mmv.mmv_inc)(second, count);
        assert_eq!(word(&dir.path().join("file"), offset(first, count)), 1);
        for _ in 0..3000 {
            let handle = start(&mmv, file, 0);
            assert!(!handle.is_null());
            (mmv.mmv_stats_stop)(file, handle);
        }
    }
}

/// The handle of a new export may be that of a stopped one. Freeing the registry of the stopped one does not end the new
/// export.
#[test]
fn a_registry_ends_its_own_export_only() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (file, path) = (name(dir.path(), "file"), dir.path().join("file"));
    unsafe {
        let start = || {
            let registry = (mmv.mmv_stats_registry)(file, 1, 2);
            (mmv.mmv_stats_add_metric)(registry, text("m"), 1, 3, 1, 0, 0, null(), null());
            (registry, (mmv.mmv_stats_start)(registry))
        };
        let (first, handle) = start();
        (mmv.mmv_stats_stop)(file, handle);
        let (second, handle) = start();
        (mmv.mmv_stats_free)(first);
        let count = value(&mmv, handle, "m");
        (mmv.mmv_inc)(handle, count);
        assert_eq!(word(&path, offset(handle, count)), 1);
        (mmv.mmv_stats_free)(second);
        assert!(!path.exists());
    }
}

/// The arrays of instances and of metrics require more values than a file may have. No memory is allocated for them.
#[test]
fn too_many_values_are_an_error() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let instances: Vec<Instance1> = (0..100_000).map(|internal| Instance1 { internal, external: [b'i'; 64] }).collect();
    let domain = Indom { serial: 5, count: 100_000, instances: instances.as_ptr(), short: null(), long: null() };
    let metrics: Vec<Metric1> = (0..30_000).map(|item| metric("m", item, U64, 5)).collect();
    let file = name(dir.path(), "file");
    unsafe {
        refused((mmv.mmv_stats_init)(file, 1, 0, metrics.as_ptr(), 30_000, &raw const domain, 1), libc::EFBIG);
    }
    assert!(!dir.path().join("file").exists());
}

fn set_limit(kind: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    assert_eq!(unsafe { libc::setrlimit(kind, &raw const limit) }, 0);
}

/// Failures to map a file, and missing permissions, are errors that leave no file.
#[test]
fn failures_of_the_system_are_errors() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (file, path) = (name(dir.path(), "file"), dir.path().join("file"));
    Child::new(|| {
        // The allocator keeps some memory for the calls.
        drop(std::hint::black_box(vec![1_u8; 100_000]));
        set_limit(libc::RLIMIT_AS, 0);
        refused(start(&mmv, file, 0), libc::ENOMEM);
        assert!(!path.exists());
    })
    .ends();
    Child::new(|| {
        set_limit(libc::RLIMIT_FSIZE, 1000);
        refused(start(&mmv, file, 0), libc::EFBIG);
        assert!(!path.exists());
    })
    .ends();
    Child::new(|| {
        set_limit(libc::RLIMIT_NOFILE, 0);
        refused(start(&mmv, file, 0), libc::EMFILE);
    })
    .ends();
}

/// A disk without room for the whole file is an error; in C, the first update of a page ends the program (SIGBUS).
#[test]
#[ignore = "needs root"]
fn full_disks_are_errors() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let file = name(dir.path(), "file");
    Child::new(|| {
        let (tmpfs, path) = (c"tmpfs".as_ptr(), text(dir.path().to_str().unwrap()));
        unsafe {
            assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0);
            assert_eq!(
                libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_PRIVATE, ptr::null()),
                0
            );
            assert_eq!(libc::mount(tmpfs, path, tmpfs, 0, c"size=16k".as_ptr().cast()), 0);
            let metrics: Vec<Metric1> = (0..500).map(|i| metric(&format!("m{i}"), i, U64, 0)).collect();
            refused((mmv.mmv_stats_init)(file, 1, 0, metrics.as_ptr(), 500, null(), 0), libc::ENOSPC);
            assert!(!dir.path().join("file").exists());
            let handle = start(&mmv, file, 0);
            assert!(!handle.is_null());
            fs::write(dir.path().join("rest"), vec![1; 16 << 10]).unwrap_err();
            (mmv.mmv_inc)(handle, value(&mmv, handle, "count"));
        }
    })
    .ends();
}

/// A forked child updates the file of its parent, but does not remove it.
#[test]
fn children_share_the_file() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (file, path) = (name(dir.path(), "file"), dir.path().join("file"));
    unsafe {
        let handle = start(&mmv, file, 2);
        let count = value(&mmv, handle, "count");
        let child = Child::new(|| {
            (0..100_000).for_each(|_| (mmv.mmv_inc)(handle, count));
            (mmv.mmv_stats_stop)(file, handle);
        });
        (0..100_000).for_each(|_| (mmv.mmv_inc)(handle, count));
        child.ends();
        assert_eq!(word(&path, offset(handle, count)), 200_000);
        (mmv.mmv_stats_stop)(file, handle);
        assert!(!path.exists());
    }
}

/// The first update with a stopped handle writes a line to standard error. Later ones do not.
#[test]
fn misuse_is_one_line() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let (file, log) = (name(dir.path(), "file"), dir.path().join("log"));
    let capture = fs::File::create(&log).unwrap();
    Child::new(|| unsafe {
        libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&capture), 2);
        let handle = start(&mmv, file, 0);
        let count = value(&mmv, handle, "count");
        (mmv.mmv_stats_stop)(file, handle);
        (0..3).for_each(|_| (mmv.mmv_inc)(handle, count));
    })
    .ends();
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        text.starts_with('[') && text.ends_with("does not belong to a running export\n") && text.lines().count() == 1,
        "{text}"
    );
}

/// Relative names are in `$PCP_TMP_DIR/mmv`, and files have mode 0644 whatever the umask is.
#[test]
fn files_are_in_the_directory_of_pcp() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    fs::create_dir(dir.path().join("mmv")).unwrap();
    let path: PathBuf = dir.path().join("mmv/relative");
    Child::new(|| unsafe {
        libc::umask(0o777);
        libc::setenv(c"PCP_TMP_DIR".as_ptr(), text(dir.path().to_str().unwrap()), 1);
        assert!(!start(&mmv, text("relative"), 0).is_null());
    })
    .ends();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o644);
}

/// Programs may load the library a second time from another path, for instance with a plug-in.
#[test]
fn two_copies_have_their_own_exports() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.so");
    fs::copy(common::own_path(), &copy).unwrap();
    let (file, path) = (name(dir.path(), "file"), dir.path().join("file"));
    Child::new(|| unsafe {
        // The first copy's functions come first in the search for a name, as those of a library that the program is linked with.
        let first = Mmv::load_global(&common::own_path());
        let second = Mmv::load(&copy);
        let handle = start(&second, file, 0);
        (second.mmv_stats_add)(handle, text("count"), null(), 3.0);
        (second.mmv_stats_set)(handle, text("color"), text("red"), 4.0);
        assert!(value(&first, handle, "count").is_null());
        let red = (second.mmv_lookup_value_desc)(handle, text("color"), text("red"));
        let words = [value(&second, handle, "count"), red].map(|value| word(&path, offset(handle, value)));
        assert_eq!(words, [3, 4]);
    })
    .ends();
}
