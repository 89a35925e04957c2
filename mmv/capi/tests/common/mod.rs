//! The functions of a `libpcp_mmv`, loaded from a file: this library or C's.
#![allow(
    unsafe_code,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::undocumented_unsafe_blocks,
    unreachable_pub
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

pub type Pointer = *mut c_void;
pub type Text = *const c_char;

/// `mmv_metric_t`.
#[repr(C)]
#[derive(Clone)]
pub struct Metric1 {
    pub name: [u8; 64],
    pub item: u32,
    pub ty: c_int,
    pub semantics: c_int,
    pub units: u32,
    pub indom: u32,
    pub short: Text,
    pub long: Text,
}

/// `mmv_metric2_t`.
#[repr(C)]
#[derive(Clone)]
pub struct Metric2 {
    pub name: Text,
    pub item: u32,
    pub ty: c_int,
    pub semantics: c_int,
    pub units: u32,
    pub indom: u32,
    pub short: Text,
    pub long: Text,
}

/// `mmv_instances_t`.
#[repr(C)]
#[derive(Clone)]
pub struct Instance1 {
    pub internal: c_int,
    pub external: [u8; 64],
}

/// `mmv_instances2_t`.
#[repr(C)]
#[derive(Clone)]
pub struct Instance2 {
    pub internal: c_int,
    pub external: Text,
}

/// `mmv_indom_t` and `mmv_indom2_t`.
#[repr(C)]
#[derive(Clone)]
pub struct Indom<I> {
    pub serial: u32,
    pub count: u32,
    pub instances: *const I,
    pub short: Text,
    pub long: Text,
}

/// `mmv_stats_init` and `mmv_stats2_init`.
pub type Init<M, I> = unsafe extern "C" fn(Text, c_int, c_int, *const M, c_int, *const Indom<I>, c_int) -> Pointer;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of a loaded `libpcp_mmv`.
        pub struct Mmv {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: Library,
        }

        impl Mmv {
            pub fn load(path: &Path) -> Mmv {
                Mmv::load_as(path, RTLD_LOCAL)
            }

            /// Loads a library in which other libraries search names.
            pub fn load_global(path: &Path) -> Mmv {
                Mmv::load_as(path, RTLD_GLOBAL)
            }

            fn load_as(path: &Path, scope: c_int) -> Mmv {
                let library = unsafe { Library::open(Some(path), RTLD_NOW | scope) };
                let library = library.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                Mmv {
                    $($name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }.unwrap(),)*
                    _library: library,
                }
            }
        }
    };
}

functions! {
    mmv_stats_init: fn(Text, c_int, c_int, *const Metric1, c_int, *const Indom<Instance1>, c_int) -> Pointer;
    mmv_stats2_init: fn(Text, c_int, c_int, *const Metric2, c_int, *const Indom<Instance2>, c_int) -> Pointer;
    mmv_stats_stop: fn(Text, Pointer);
    mmv_stats_registry: fn(Text, c_int, c_int) -> Pointer;
    mmv_stats_start: fn(Pointer) -> Pointer;
    mmv_stats_free: fn(Pointer);
    mmv_stats_add_metric: fn(Pointer, Text, c_int, c_int, c_int, u32, c_int, Text, Text) -> c_int;
    mmv_stats_add_indom: fn(Pointer, c_int, Text, Text) -> c_int;
    mmv_stats_add_instance: fn(Pointer, c_int, c_int, Text) -> c_int;
    mmv_stats_add_registry_label: fn(Pointer, Text, Text, c_int, c_int) -> c_int;
    mmv_stats_add_indom_label: fn(Pointer, c_int, Text, Text, c_int, c_int) -> c_int;
    mmv_stats_add_metric_label: fn(Pointer, c_int, Text, Text, c_int, c_int) -> c_int;
    mmv_stats_add_instance_label: fn(Pointer, c_int, c_int, Text, Text, c_int, c_int) -> c_int;
    mmv_lookup_value_desc: fn(Pointer, Text, Text) -> Pointer;
    mmv_inc_value: fn(Pointer, Pointer, f64);
    mmv_set_value: fn(Pointer, Pointer, f64);
    mmv_inc_atomvalue: fn(Pointer, Pointer, *const u64);
    mmv_set_atomvalue: fn(Pointer, Pointer, *const u64);
    mmv_inc: fn(Pointer, Pointer);
    mmv_add: fn(Pointer, Pointer, *const u64);
    mmv_set: fn(Pointer, Pointer, *const u64);
    mmv_set_string: fn(Pointer, Pointer, Text, c_int);
    mmv_stats_add: fn(Pointer, Text, Text, f64);
    mmv_stats_inc: fn(Pointer, Text, Text);
    mmv_stats_set: fn(Pointer, Text, Text, f64);
    mmv_stats_add_fallback: fn(Pointer, Text, Text, Text, f64);
    mmv_stats_inc_fallback: fn(Pointer, Text, Text, Text);
    mmv_stats_interval_start: fn(Pointer, Pointer, Text, Text) -> Pointer;
    mmv_stats_interval_end: fn(Pointer, Pointer);
    mmv_stats_set_string: fn(Pointer, Text, Text, Text);
    mmv_stats_set_strlen: fn(Pointer, Text, Text, Text, usize);
}

/// Returns the path of this library.
pub fn own_path() -> PathBuf {
    testkit::built("pcp_mmv")
}

/// Returns the path of C's library.
pub fn c_path() -> PathBuf {
    let dirs = ["/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    let paths = dirs.iter().map(|dir| Path::new(dir).join("libpcp_mmv.so.1"));
    paths.into_iter().find(|path| path.exists()).expect("libpcp_mmv is installed")
}

/// Loads this library.
pub fn own() -> Mmv {
    Mmv::load(&own_path())
}

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub fn clear_errno() {
    unsafe { *libc::__errno_location() = 0 };
}

/// Returns a text as C has it. The test never frees it.
pub fn text(text: impl Into<Vec<u8>>) -> Text {
    CString::new(text).unwrap().into_raw()
}

pub fn metric(name: &str, item: u32, ty: c_int, indom: u32) -> Metric1 {
    let mut array = [0; 64];
    array[..name.len()].copy_from_slice(name.as_bytes());
    let none = std::ptr::null();
    Metric1 { name: array, item, ty, semantics: 1, units: 0x10_0000, indom, short: none, long: none }
}
