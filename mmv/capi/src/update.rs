//! Updates of values: exact from any number of threads. While there is only one thread, they are plain loads and
//! stores.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

use mmv::format::STRING_LEN;

use crate::handle::Handle;
use crate::sys::{Value, single_threaded, to_i32, to_i64, to_u32, to_u64};

/// Codes of types (`mmv_metric_type_t`).
const I32: u8 = 0;
const U32: u8 = 1;
const I64: u8 = 2;
const U64: u8 = 3;
const FLOAT: u8 = 4;
const DOUBLE: u8 = 5;
const STRING: u8 = crate::contents::STRING as u8;
const ELAPSED: u8 = 9;

#[inline(always)]
fn add_u32(value: &AtomicU32, number: u32) {
    if single_threaded() {
        value.store(value.load(Relaxed).wrapping_add(number), Relaxed);
    } else {
        value.fetch_add(number, Relaxed);
    }
}

#[inline(always)]
fn add_u64(value: &AtomicU64, number: u64) {
    if single_threaded() {
        value.store(value.load(Relaxed).wrapping_add(number), Relaxed);
    } else {
        value.fetch_add(number, Relaxed);
    }
}

#[inline(always)]
fn add_float(value: Value<'_>, number: f32) {
    if !value.add_float_alone(number) {
        _ = value.half().fetch_update(Relaxed, Relaxed, |old| Some((f32::from_bits(old) + number).to_bits()));
    }
}

#[inline(always)]
fn add_double(value: Value<'_>, number: f64) {
    if !value.add_double_alone(number) {
        _ = value.word().fetch_update(Relaxed, Relaxed, |old| Some((f64::from_bits(old) + number).to_bits()));
    }
}

/// Ends an interval: adds the time since its start to the value. If several threads end it, only one adds the time.
fn end_interval(value: Value<'_>, now: i64) {
    let start = if single_threaded() {
        let start = value.extra().load(Relaxed);
        value.extra().store(0, Relaxed);
        start
    } else {
        value.extra().swap(0, Relaxed)
    };
    add_u64(value.word(), start.wrapping_add(now as u64));
}

fn elapse(value: Value<'_>, time: i64) {
    if time < 0 {
        value.extra().store(time as u64, Relaxed);
    } else {
        end_interval(value, time);
    }
}

/// Adds a number (`mmv_inc_value`).
#[inline(always)]
pub(crate) fn add(value: Value<'_>, ty: u8, number: f64) {
    match ty {
        I32 => add_u32(value.half(), to_i32(number) as u32),
        U32 => add_u32(value.half(), to_u32(number)),
        I64 => add_u64(value.word(), to_i64(number) as u64),
        U64 => add_u64(value.word(), to_u64(number)),
        FLOAT => add_float(value, number as f32),
        DOUBLE => add_double(value, number),
        ELAPSED if number < 0.0 => value.extra().store(to_i64(number) as u64, Relaxed),
        ELAPSED => end_interval(value, to_i64(number)),
        _ => {}
    }
}

/// Adds a number of the value's type (`mmv_inc_atomvalue`), which `half` or `word` returns.
#[inline(always)]
pub(crate) fn add_atom(value: Value<'_>, ty: u8, half: impl FnOnce() -> u32, word: impl FnOnce() -> u64) {
    match ty {
        I32 | U32 => add_u32(value.half(), half()),
        I64 | U64 => add_u64(value.word(), word()),
        FLOAT => add_float(value, f32::from_bits(half())),
        DOUBLE => add_double(value, f64::from_bits(word())),
        ELAPSED => elapse(value, word() as i64),
        _ => {}
    }
}

/// Adds one (`mmv_inc`).
#[inline(always)]
pub(crate) fn increment(value: Value<'_>, ty: u8) {
    match ty {
        I32 | U32 => add_u32(value.half(), 1),
        I64 | U64 => add_u64(value.word(), 1),
        FLOAT => add_float(value, 1.0),
        DOUBLE => add_double(value, 1.0),
        ELAPSED if (value.word().load(Relaxed) as i64) < 0 => add_u64(value.extra(), 1),
        ELAPSED => end_interval(value, 1),
        _ => {}
    }
}

/// Sets a number (`mmv_set_value`).
#[inline(always)]
pub(crate) fn set(value: Value<'_>, ty: u8, number: f64) {
    match ty {
        I32 => value.half().store(to_i32(number) as u32, Relaxed),
        U32 => value.half().store(to_u32(number), Relaxed),
        I64 => value.word().store(to_i64(number) as u64, Relaxed),
        U64 => value.word().store(to_u64(number), Relaxed),
        FLOAT => value.half().store((number as f32).to_bits(), Relaxed),
        DOUBLE => value.word().store(number.to_bits(), Relaxed),
        ELAPSED => {
            value.word().store(to_i64(number) as u64, Relaxed);
            value.extra().store(0, Relaxed);
        }
        _ => {}
    }
}

/// Sets all bytes of a value that is not a string (`mmv_set_atomvalue`). Readers compare all bytes to recognize "no
/// value".
pub(crate) fn set_atom(value: Value<'_>, ty: u8, atom: u64) {
    match ty {
        I32 | U32 | FLOAT => {
            let [a, b, c, d, e, f, g, h] = atom.to_ne_bytes();
            value.rest().store(u32::from_ne_bytes([e, f, g, h]), Relaxed);
            value.half().store(u32::from_ne_bytes([a, b, c, d]), Relaxed);
        }
        ELAPSED => {
            value.extra().store(0, Relaxed);
            value.word().store(atom, Relaxed);
        }
        _ => value.word().store(atom, Relaxed),
    }
}

/// Returns whether values of a type are strings.
pub(crate) fn is_string(ty: u8) -> bool {
    ty == STRING
}

/// Sets a string of `size` bytes (`mmv_set_string`). `text` has the bytes before the first NUL.
///
/// A reader sees the old string, an empty one, or the new one: the first bytes are written last.
pub(crate) fn set_string(handle: &Handle, value: Value<'_>, text: &[u8], size: usize) {
    if text.len() > size || size >= STRING_LEN - 1 {
        return;
    }
    let place = handle.string_at(value).and_then(|at| value.pages().words(at, STRING_LEN / 8));
    let Some((first, others)) = place.and_then(<[_]>::split_first) else { return };
    let lock = (!single_threaded()).then(|| handle.lock_strings());
    // The bytes behind the old string are zeros, unless another process has written there.
    let used = if lock.is_none() { size.max(value.half().load(Relaxed) as usize) } else { STRING_LEN };
    let (beginning, rest) = text.split_at_checked(8).unwrap_or((text, &[]));
    let mut words = rest.chunks(8).map(word);
    first.store(0, Relaxed);
    for place in others.iter().take(used / 8) {
        place.store(words.next().unwrap_or(0), Release);
    }
    first.store(word(beginning), Release);
    value.half().store(size as u32, Relaxed);
    if lock == Some(true) {
        handle.unlock_strings();
    }
}

/// Returns a word whose first bytes are up to eight given ones, and whose other bytes are 0.
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(all) => u64::from_ne_bytes(*all),
        // Bytes that are stored one by one and then loaded as a word would make the processor wait.
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)).to_le(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_bytes() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        for len in 0..=8 {
            let mut expected = bytes;
            expected.iter_mut().skip(len).for_each(|byte| *byte = 0);
            assert_eq!(word(bytes.get(..len).unwrap_or_default()).to_ne_bytes(), expected);
        }
    }
}
