//! Updates from several threads and processes are never lost.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::undocumented_unsafe_blocks)]

mod common;

use std::ffi::c_int;
use std::ptr::null;
use std::thread;

use common::{Mmv, metric, own, text};
use testkit::Child;

const THREADS: u64 = 4;
const UPDATES: u64 = 50_000;

/// Types that count: I32, U32, I64, U64, FLOAT, DOUBLE, ELAPSED.
const TYPES: [c_int; 7] = [0, 1, 2, 3, 4, 5, 9];

fn update(mmv: &Mmv, handle: usize, values: &[usize]) {
    for i in 0..UPDATES {
        for value in values {
            let (handle, value) = (handle as *mut _, *value as *mut _);
            unsafe {
                match i % 3 {
                    0 => (mmv.mmv_inc)(handle, value),
                    1 => (mmv.mmv_inc_value)(handle, value, 1.0),
                    _ => (mmv.mmv_stats_inc)(handle, text_of(value, handle), null()),
                }
            }
        }
    }
}

/// Returns the name of the metric of a value, in the file itself (version 1).
unsafe fn text_of(value: *mut std::ffi::c_void, handle: *mut std::ffi::c_void) -> common::Text {
    unsafe { handle.byte_add(*value.cast::<u64>().add(2) as usize).cast() }
}

#[test]
// Slow: threads update a value very often.
fn no_update_is_lost() {
    let (mmv, dir) = (own(), tempfile::tempdir().unwrap());
    let metrics: Vec<_> = TYPES.iter().map(|ty| metric(&format!("m{ty}"), *ty as u32, *ty, 0)).collect();
    let file = text(dir.path().join("file").to_str().unwrap());
    let handle = unsafe { (mmv.mmv_stats_init)(file, 1, 0, metrics.as_ptr(), metrics.len() as c_int, null(), 0) };
    let find = |ty: &c_int| unsafe { (mmv.mmv_lookup_value_desc)(handle, text(format!("m{ty}")), null()) };
    let values: Vec<usize> = TYPES.iter().map(|ty| find(ty).addr()).collect();
    let address = handle.addr();
    let work = || {
        thread::scope(|scope| {
            (0..THREADS).for_each(|_| _ = scope.spawn(|| update(&mmv, address, &values)));
        });
    };
    let child = Child::new(work);
    work();
    child.ends();
    let expected = 2 * THREADS * UPDATES;
    for (ty, value) in TYPES.iter().zip(values) {
        let value = value as *const u64;
        let counted = unsafe {
            match ty {
                0 | 1 => u64::from(*value.cast::<u32>()),
                4 => *value.cast::<f32>() as u64,
                5 => *value.cast::<f64>() as u64,
                _ => *value,
            }
        };
        assert_eq!(counted, expected, "type {ty}");
    }
}
