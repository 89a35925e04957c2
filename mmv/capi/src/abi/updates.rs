//! The functions that find and change values: `mmv_lookup_value_desc(3)`, `mmv_inc_value(3)`, `mmv_set_value(3)`.
//!
//! Functions without a result do nothing when a handle or value is null. When the handle's export was stopped, or the
//! value is not one of the export, the first such call also writes a line to standard error.
//!
//! Look-ups are [`guarded`], since they allocate memory. The updates of a value have no operation that can panic.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use mmv::format::STRING_LEN;

use super::text::{beginning, guarded, text};
use crate::handle::{FILES, Handle};
use crate::notice::warn;
use crate::sys::{KeepThread, Value, now};
use crate::update;

/// A value of a metric (`pmAtomValue`), or its address in a file.
type Atom = *mut c_void;

/// Returns the value at an address, its type, and the handle that it belongs to.
///
/// # Safety
/// As for [`Files::find`](crate::sys::Files::find).
#[inline(always)]
unsafe fn find(handle: *mut c_void, atom: Atom) -> Option<(&'static Handle, Value<'static>, u8)> {
    // SAFETY: by this function's contract.
    let found = unsafe { FILES.find(handle) }.and_then(|handle| {
        let (value, ty) = handle.value_at(atom.addr())?;
        Some((handle, value, ty))
    });
    if found.is_none() {
        missed(handle, atom);
    }
    found
}

/// A function that cannot unwind, so that the functions above need no stack for the call.
#[cold]
#[inline(never)]
extern "C" fn missed(handle: *mut c_void, atom: Atom) {
    if !handle.is_null() && !atom.is_null() {
        let _whole = KeepThread::new();
        guarded((), || {
            warn("an update is ignored: its handle or value does not belong to a running export");
        });
    }
}

/// Returns the value of a metric and instance.
///
/// # Safety
/// As for [`text`] and [`Files::find`](crate::sys::Files::find).
unsafe fn lookup(handle: *mut c_void, metric: *const c_char, instance: *const c_char) -> Option<Value<'static>> {
    // SAFETY: by this function's contract. No name in a file is longer.
    let (metric, instance) = unsafe { (beginning(metric, STRING_LEN)?, beginning(instance, STRING_LEN)) };
    // SAFETY: as above.
    unsafe { FILES.find(handle) }?.value_of(metric, instance)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_lookup_value_desc(
    handle: *mut c_void,
    metric: *const c_char,
    instance: *const c_char,
) -> Atom {
    // SAFETY: the assumptions of this module.
    guarded(ptr::null_mut(), || unsafe { lookup(handle, metric, instance) }.map_or(ptr::null_mut(), Value::address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_inc_value(handle: *mut c_void, atom: Atom, number: f64) {
    // SAFETY: the assumptions of this module.
    if let Some((_, value, ty)) = unsafe { find(handle, atom) } {
        update::add(value, ty, number);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_inc(handle: *mut c_void, atom: Atom) {
    // SAFETY: the assumptions of this module.
    if let Some((_, value, ty)) = unsafe { find(handle, atom) } {
        update::increment(value, ty);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_set_value(handle: *mut c_void, atom: Atom, number: f64) {
    // SAFETY: the assumptions of this module.
    if let Some((_, value, ty)) = unsafe { find(handle, atom) } {
        update::set(value, ty, number);
    }
}

/// Adds the number at an address.
///
/// # Safety
/// As for [`find`]. The address of the number is null, or points to as many bytes as the value's type has.
#[inline(always)]
unsafe fn add_atom(handle: *mut c_void, atom: Atom, number: *const c_void) {
    // SAFETY: by this function's contract.
    let Some((_, value, ty)) = unsafe { find(handle, atom) }.filter(|_| !number.is_null()) else { return };
    update::add_atom(
        value,
        ty,
        // SAFETY: by this function's contract, a type of 32 bits has four bytes, any other one eight.
        || unsafe { number.cast::<u32>().read_unaligned() },
        // SAFETY: as above.
        || unsafe { number.cast::<u64>().read_unaligned() },
    );
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_inc_atomvalue(handle: *mut c_void, atom: Atom, number: *const c_void) {
    // SAFETY: the assumptions of this module.
    unsafe { add_atom(handle, atom, number) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_add(handle: *mut c_void, atom: Atom, number: *const c_void) {
    // SAFETY: the assumptions of this module.
    unsafe { add_atom(handle, atom, number) }
}

/// Sets a value to the `pmAtomValue` at an address.
///
/// # Safety
/// As for [`find`]. The address is null, or points to a `pmAtomValue` whose pointer to a string is null or points to a text with a NUL.
unsafe fn set_atom(handle: *mut c_void, atom: Atom, number: *const c_void) {
    // SAFETY: by this function's contract.
    let Some((handle, value, ty)) = unsafe { find(handle, atom) }.filter(|_| !number.is_null()) else { return };
    if update::is_string(ty) {
        // SAFETY: by this function's contract, the union has a pointer.
        let string = unsafe { text(number.cast::<*const c_char>().read_unaligned()) };
        let Some(string) = string else { return };
        update::set_string(handle, value, string, string.len());
    } else {
        // SAFETY: by this function's contract, the union has eight bytes.
        update::set_atom(value, ty, unsafe { number.cast::<u64>().read_unaligned() });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_set_atomvalue(handle: *mut c_void, atom: Atom, number: *const c_void) {
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { set_atom(handle, atom, number) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_set(handle: *mut c_void, atom: Atom, number: *const c_void) {
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { set_atom(handle, atom, number) });
}

/// Sets a string of a given number of bytes.
///
/// # Safety
/// As for [`find`]. The string is null, or has this number of bytes, or is shorter and ends in a NUL.
unsafe fn set_string(handle: *mut c_void, atom: Atom, string: *const c_char, size: usize) {
    // SAFETY: by this function's contract.
    let Some((handle, value, ty)) = unsafe { find(handle, atom) }.filter(|_| !string.is_null()) else { return };
    // C's library ignores strings that are too long.
    if !update::is_string(ty) || size >= STRING_LEN - 1 {
        return;
    }
    // SAFETY: by this function's contract.
    let Some(bytes) = (unsafe { beginning(string, size) }) else { return };
    update::set_string(handle, value, bytes, size);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_set_string(handle: *mut c_void, atom: Atom, string: *const c_char, size: c_int) {
    let Ok(size) = usize::try_from(size) else { return };
    // SAFETY: the assumptions of this module.
    unsafe { set_string(handle, atom, string, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add(handle: *mut c_void, metric: *const c_char, instance: *const c_char, number: f64) {
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { add_first(handle, metric, &[instance], number) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_inc(handle: *mut c_void, metric: *const c_char, instance: *const c_char) {
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { add_first(handle, metric, &[instance], 1.0) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_add_fallback(
    handle: *mut c_void,
    metric: *const c_char,
    instance: *const c_char,
    other: *const c_char,
    number: f64,
) {
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { add_first(handle, metric, &[instance, other], number) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_inc_fallback(
    handle: *mut c_void,
    metric: *const c_char,
    instance: *const c_char,
    other: *const c_char,
) {
    // SAFETY: the assumptions of this module.
    guarded((), || unsafe { add_first(handle, metric, &[instance, other], 1.0) });
}

/// Adds a number to the value of the metric's first instance that exists.
///
/// # Safety
/// As for [`text`].
unsafe fn add_first(handle: *mut c_void, metric: *const c_char, instances: &[*const c_char], number: f64) {
    // SAFETY: by this function's contract.
    if let Some(value) = instances.iter().find_map(|instance| unsafe { lookup(handle, metric, *instance) }) {
        // SAFETY: by this function's contract.
        unsafe { _mmv_inc_value(handle, value.address(), number) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_set(handle: *mut c_void, metric: *const c_char, instance: *const c_char, number: f64) {
    guarded((), || {
        // SAFETY: the assumptions of this module.
        if let Some(value) = unsafe { lookup(handle, metric, instance) } {
            // SAFETY: as above.
            unsafe { _mmv_set_value(handle, value.address(), number) };
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_interval_start(
    handle: *mut c_void,
    atom: Atom,
    metric: *const c_char,
    instance: *const c_char,
) -> Atom {
    if handle.is_null() {
        return atom;
    }
    let atom = if atom.is_null() {
        // SAFETY: the assumptions of this module.
        unsafe { _mmv_lookup_value_desc(handle, metric, instance) }
    } else {
        atom
    };
    // SAFETY: the assumptions of this module.
    unsafe { _mmv_inc_value(handle, atom, -now()) };
    atom
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_interval_end(handle: *mut c_void, atom: Atom) {
    // SAFETY: the assumptions of this module.
    unsafe { _mmv_inc_value(handle, atom, now()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_set_string(
    handle: *mut c_void,
    metric: *const c_char,
    instance: *const c_char,
    string: *const c_char,
) {
    guarded((), || {
        // SAFETY: the assumptions of this module.
        unsafe {
            let Some(value) = lookup(handle, metric, instance) else { return };
            let size = text(string).map_or(0, <[u8]>::len);
            set_string(handle, value.address(), string, size);
        }
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _mmv_stats_set_strlen(
    handle: *mut c_void,
    metric: *const c_char,
    instance: *const c_char,
    string: *const c_char,
    size: usize,
) {
    guarded((), || {
        // SAFETY: the assumptions of this module.
        unsafe {
            let Some(value) = lookup(handle, metric, instance) else { return };
            set_string(handle, value.address(), string, size);
        }
    });
}
