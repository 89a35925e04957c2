//! The functions that describe, start and stop an export: `mmv_stats_init(3)`, `mmv_stats_registry(3)`,
//! `mmv_stats_start(3)`, `mmv_stats_stop(3)`.
//!
//! Functions that return a pointer return null with `errno` set when they fail. Functions that return an `int` return
//! -1.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libc::{EFAULT, EINVAL};

use super::arrays::{CIndom, CMetric, CName, InPlace, Pointer, help, indoms, metrics};
use super::text::{guarded, reported, text};
use crate::contents::{Contents, Metric, Names, own, own_help};
use crate::handle::{FILES, Handle};
use crate::label::{Label, Level, OPTIONAL, payload};
use crate::registry::{self, Place, Registry};
use crate::sys::{KeepThread, catch_lost_pages, check_memory, watch_threads};
use crate::{file, handle};

/// Identifier that means no instance (`PM_IN_NULL`).
const NO_INSTANCE: i32 = -1;

/// Units and scale (`pmUnits`), a structure of bit fields in one word.
#[derive(Clone, Copy)]
#[repr(C)]
struct Units(u32);

/// Notices threads, forks, and truncations of files from now on.
fn watch() {
    watch_threads();
    catch_lost_pages(handle::replace_page);
}

/// Returns the registry at an address, unless that is null.
///
/// # Safety
/// The address is null or was returned by [`_mmv_stats_registry`].
unsafe fn registry_at(address: *mut c_void) -> Option<&'static Place> {
    // SAFETY: by this function's contract; the memory of a registry stays allocated.
    unsafe { address.cast::<Place>().as_ref() }
}

/// Starts an export from arrays of either form.
///
/// # Safety
/// As for [`metrics`], [`indoms`] and [`text`].
unsafe fn init<N: CName>(
    (name, cluster, flags): (*const c_char, c_int, c_int),
    names: Names,
    (all_metrics, metric_count): (*const CMetric<N>, c_int),
    (all_indoms, indom_count): (*const CIndom<N>, c_int),
) -> *mut c_void {
    let _whole = KeepThread::new();
    reported(ptr::null_mut(), || {
        check_memory(0)?;
        watch();
        // SAFETY: by this function's contract.
        let name = unsafe { text(name) }.ok_or(EFAULT)?;
        let contents = Contents {
            // SAFETY: by this function's contract.
            metrics: unsafe { metrics(all_metrics, metric_count) }?,
            // SAFETY: by this function's contract.
            indoms: unsafe { indoms(all_indoms, indom_count) }?,
            ..Contents::new(cluster, flags as u32, names)
        };
        Ok(Handle::start(&contents, file::path(name)?)?.address())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_init(
    name: *const c_char,
    cluster: c_int,
    flags: c_int,
    metrics: *const CMetric<InPlace>,
    metric_count: c_int,
    indoms: *const CIndom<InPlace>,
    indom_count: c_int,
) -> *mut c_void {
    // SAFETY: the assumptions of this module.
    unsafe { init((name, cluster, flags), Names::Arrays, (metrics, metric_count), (indoms, indom_count)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats2_init(
    name: *const c_char,
    cluster: c_int,
    flags: c_int,
    metrics: *const CMetric<Pointer>,
    metric_count: c_int,
    indoms: *const CIndom<Pointer>,
    indom_count: c_int,
) -> *mut c_void {
    // SAFETY: the assumptions of this module.
    unsafe { init((name, cluster, flags), Names::Pointers, (metrics, metric_count), (indoms, indom_count)) }
}

/// Ends the export of a handle. Ignores the name, except that Perl's module passes the two arguments in the wrong
/// order.
#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_stop(name: *const c_char, handle: *mut c_void) {
    let _whole = KeepThread::new();
    guarded((), || {
        let is_handle = |address: *mut c_void| address.addr() % 4096 == 0;
        let swapped = !is_handle(handle) && is_handle(name.cast_mut().cast());
        let handle = if swapped { name.cast_mut().cast() } else { handle };
        // SAFETY: the assumptions of this module.
        unsafe { FILES.find(handle) }.map(Handle::stop);
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_registry(name: *const c_char, cluster: c_int, flags: c_int) -> *mut c_void {
    reported(ptr::null_mut(), || {
        // SAFETY: the assumptions of this module.
        let name = unsafe { text(name) }.ok_or(EFAULT)?;
        watch_threads();
        Ok(ptr::from_ref(registry::create(name, cluster, flags as u32)?).cast_mut().cast())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_start(registry: *mut c_void) -> *mut c_void {
    let _whole = KeepThread::new();
    reported(ptr::null_mut(), || {
        check_memory(0)?;
        watch();
        // SAFETY: the assumptions of this module.
        Ok(unsafe { registry_at(registry) }.ok_or(EFAULT)?.start()?.address())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_reset(registry: *mut c_void) {
    let _whole = KeepThread::new();
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { registry_at(registry) }.map_or((), Place::reset));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_free(registry: *mut c_void) {
    let _whole = KeepThread::new();
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { registry_at(registry) }.map_or((), Place::free));
}

/// Calls `add` with a registry. Returns 0, or -1 with `errno` set.
///
/// # Safety
/// As for [`registry_at`].
unsafe fn add_to(registry: *mut c_void, add: impl FnOnce(&mut Registry) -> Result<(), i32>) -> c_int {
    // SAFETY: by this function's contract.
    reported(-1, || unsafe { registry_at(registry) }.ok_or(EFAULT)?.change(add)?.map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_metric(
    registry: *mut c_void,
    name: *const c_char,
    item: c_int,
    ty: c_int,
    semantics: c_int,
    units: Units,
    serial: c_int,
    short: *const c_char,
    long: *const c_char,
) -> c_int {
    let add = |registry: &mut Registry| {
        // SAFETY: the assumptions of this module.
        let (name, help) = unsafe { (text(name).ok_or(EINVAL)?, help(short, long)) };
        let (item, serial, units) = (item as u32, serial as u32, units.0);
        registry.add_metric(|| Metric { name: own(name), item, ty, semantics, units, serial, help: own_help(help) })
    };
    // SAFETY: as above.
    unsafe { add_to(registry, add) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_indom(
    registry: *mut c_void,
    serial: c_int,
    short: *const c_char,
    long: *const c_char,
) -> c_int {
    let add = |registry: &mut Registry| {
        // SAFETY: the assumptions of this module.
        registry.add_indom(serial as u32, unsafe { help(short, long) })
    };
    // SAFETY: as above.
    unsafe { add_to(registry, add) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_instance(
    registry: *mut c_void,
    serial: c_int,
    id: c_int,
    name: *const c_char,
) -> c_int {
    let add = |registry: &mut Registry| {
        // SAFETY: the assumptions of this module.
        registry.add_instance(serial as u32, id, unsafe { text(name) }.ok_or(EINVAL)?)
    };
    // SAFETY: as above.
    unsafe { add_to(registry, add) }
}

/// Subject of a label: its level and identifiers. Without an identifier, the subject is the registry's cluster.
struct Subject(Level, Option<c_int>, c_int);

/// Adds a label to a registry.
///
/// # Safety
/// As for [`text`].
unsafe fn add_label(
    registry: *mut c_void,
    Subject(level, identity, internal): Subject,
    (name, value): (*const c_char, *const c_char),
    ty: c_int,
    optional: c_int,
) -> c_int {
    // The check of the text needs random numbers, which come from a cancellation point.
    let _whole = KeepThread::new();
    let add = |registry: &mut Registry| {
        // SAFETY: by this function's contract.
        let (name, value) = unsafe { (text(name).ok_or(EINVAL)?, text(value).ok_or(EINVAL)?) };
        let flags = level as u32 | if optional == 0 { 0 } else { OPTIONAL };
        let identity = identity.unwrap_or(registry.cluster()) as u32;
        check_memory(0)?;
        registry.add_label(Label { flags, identity, internal, payload: payload(name, value, ty)? })
    };
    // SAFETY: by this function's contract.
    unsafe { add_to(registry, add) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_registry_label(
    registry: *mut c_void,
    name: *const c_char,
    value: *const c_char,
    ty: c_int,
    optional: c_int,
) -> c_int {
    // SAFETY: the assumptions of this module.
    unsafe { add_label(registry, Subject(Level::Cluster, None, NO_INSTANCE), (name, value), ty, optional) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_indom_label(
    registry: *mut c_void,
    serial: c_int,
    name: *const c_char,
    value: *const c_char,
    ty: c_int,
    optional: c_int,
) -> c_int {
    // SAFETY: the assumptions of this module.
    unsafe { add_label(registry, Subject(Level::Indom, Some(serial), NO_INSTANCE), (name, value), ty, optional) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_metric_label(
    registry: *mut c_void,
    item: c_int,
    name: *const c_char,
    value: *const c_char,
    ty: c_int,
    optional: c_int,
) -> c_int {
    // SAFETY: the assumptions of this module.
    unsafe { add_label(registry, Subject(Level::Item, Some(item), NO_INSTANCE), (name, value), ty, optional) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_instance_label(
    registry: *mut c_void,
    serial: c_int,
    id: c_int,
    name: *const c_char,
    value: *const c_char,
    ty: c_int,
    optional: c_int,
) -> c_int {
    // SAFETY: the assumptions of this module.
    unsafe { add_label(registry, Subject(Level::Instances, Some(serial), id), (name, value), ty, optional) }
}
