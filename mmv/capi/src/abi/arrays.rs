//! Metrics and instance domains in the program's arrays (`mmv_stats_init(3)`).

use std::ffi::c_char;
use std::slice;

use libc::{EFAULT, EINVAL, ENOMEM};
use mmv::format::NAME_LEN;

use super::text::text;
use crate::contents::{Help, Indom, Instance, Metric, own, own_help, push};

/// `mmv_metric_t` and `mmv_metric2_t`, by their names.
#[repr(C)]
pub(super) struct CMetric<N> {
    name: N,
    item: u32,
    ty: i32,
    semantics: i32,
    dimension: u32,
    indom: u32,
    short: *const c_char,
    long: *const c_char,
}

/// `mmv_instances_t` and `mmv_instances2_t`.
#[repr(C)]
pub(super) struct CInstance<N> {
    internal: i32,
    external: N,
}

/// `mmv_indom_t` and `mmv_indom2_t`.
#[repr(C)]
pub(super) struct CIndom<N> {
    serial: u32,
    count: u32,
    instances: *const CInstance<N>,
    short: *const c_char,
    long: *const c_char,
}

/// A name in an array.
pub(super) type InPlace = [u8; NAME_LEN];
/// A name elsewhere.
pub(super) type Pointer = *const c_char;

/// A name of a metric or instance.
pub(super) trait CName {
    /// Returns the name as bytes, without its NUL.
    ///
    /// # Safety
    /// As for [`text`].
    unsafe fn get(&self) -> Result<&[u8], i32>;
}

impl CName for InPlace {
    unsafe fn get(&self) -> Result<&[u8], i32> {
        Ok(self.split(|byte| *byte == 0).next().unwrap_or_default())
    }
}

impl CName for Pointer {
    unsafe fn get(&self) -> Result<&[u8], i32> {
        // SAFETY: as the function's contract.
        unsafe { text(*self) }.ok_or(EINVAL)
    }
}

/// Returns the elements of an array.
///
/// # Safety
/// The pointer is null or points to `count` elements, and nothing changes them during `'a`.
unsafe fn elements<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], i32> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(EFAULT);
    }
    // SAFETY: by this function's contract.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// Returns the metrics of an array.
///
/// # Safety
/// The pointer is null or points to `count` metrics. Each pointer of a metric is null or points to a text with a NUL.
pub(super) unsafe fn metrics<N: CName>(pointer: *const CMetric<N>, count: i32) -> Result<Vec<Metric>, i32> {
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    // SAFETY: by this function's contract.
    let all = unsafe { elements(pointer, count) }?;
    let mut found = reserved(all.len())?;
    for metric in all {
        // SAFETY: by this function's contract.
        let (name, help) = unsafe { (metric.name.get()?, help(metric.short, metric.long)) };
        let CMetric { item, ty, semantics, dimension: units, indom: serial, .. } = *metric;
        push(&mut found, || Metric { name: own(name), item, ty, semantics, units, serial, help: own_help(help) })?;
    }
    Ok(found)
}

/// Returns the instance domains of an array.
///
/// # Safety
/// The pointer is null or points to `count` instance domains. Each domain's pointer to instances is null or points to
/// as many instances as the domain has. Each pointer to a text is null or points to a text with a NUL.
pub(super) unsafe fn indoms<N: CName>(pointer: *const CIndom<N>, count: i32) -> Result<Vec<Indom>, i32> {
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    // SAFETY: by this function's contract.
    let all = unsafe { elements(pointer, count) }?;
    let mut found = reserved(all.len())?;
    for indom in all {
        // SAFETY: by this function's contract.
        let of_indom = unsafe { elements(indom.instances, indom.count as usize) }?;
        let mut instances = reserved(of_indom.len())?;
        for instance in of_indom {
            // SAFETY: by this function's contract.
            let (id, name) = (instance.internal, unsafe { instance.external.get() }?);
            push(&mut instances, || Instance { id, name: own(name) })?;
        }
        // SAFETY: by this function's contract.
        let help = unsafe { help(indom.short, indom.long) };
        push(&mut found, || Indom { serial: indom.serial, instances, help: own_help(help) })?;
    }
    Ok(found)
}

/// Returns an empty list with memory for as many items as the program passes, or an error.
fn reserved<T>(count: usize) -> Result<Vec<T>, i32> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| ENOMEM)?;
    Ok(all)
}

/// Returns the help texts at two pointers.
///
/// # Safety
/// As for [`text`].
pub(super) unsafe fn help<'a>(short: *const c_char, long: *const c_char) -> Help<'a> {
    // SAFETY: by this function's contract.
    unsafe { [text(short), text(long)] }
}
