//! Conversion of results between PDUs and C's structures.

use std::ffi::c_int;
use std::ptr::addr_of_mut;
use std::slice;

use pcp_pdu::result::{BLOCK_HEAD, Changes, Format, RawValue, ResultPdu, ValueSet};
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Error, Inst, PmId, Result, Type};

use super::abi::{CResult, CValue, CValueSet, CWord};
use super::block::{Order, turn};
use super::memory::{Heap, free};

/// Wire encoding of `PM_ID_NULL` and `PM_IN_NULL`.
const NULL: u32 = u32::MAX;

/// The skeleton of a result: an array that the shared object owns and reuses. The receiver of the result owns the value
/// sets and value blocks.
#[derive(Debug, Default)]
pub struct Skeleton {
    words: Vec<u64>,
}

impl Skeleton {
    /// Converts a PDU to C's result.
    pub fn fill(&mut self, pdu: &ResultPdu<'_>) -> Result<*mut CResult> {
        let head = size_of::<CResult>() / size_of::<u64>();
        self.words.clear();
        self.words.resize(head + pdu.len(), 0);
        let result = self.words.as_mut_ptr().cast::<CResult>();
        // SAFETY: `words` has room for the head and a pointer for each set. All pointers are null for now.
        unsafe {
            (*result).seconds = pdu.seconds.into();
            (*result).microseconds = pdu.microseconds.into();
            (*result).count = c_int::try_from(pdu.len()).map_err(|_| Error::TOOBIG)?;
            let list = addr_of_mut!((*result).sets).cast::<*mut CValueSet>();
            for (i, set) in pdu.sets().enumerate() {
                match value_set(&set) {
                    Ok(set) => list.add(i).write(set),
                    Err(e) => {
                        free_values(result);
                        return Err(e);
                    }
                }
            }
        }
        Ok(result)
    }
}

fn value_set(set: &ValueSet<'_>) -> Result<*mut CValueSet> {
    let bytes = size_of::<CValueSet>() + set.len() * size_of::<CValue>();
    let made = Heap::<u64>::zeroed(bytes / size_of::<u64>())?.release().cast::<CValueSet>();
    // SAFETY: the array has room for the head and all values. `count` covers the values that are written.
    unsafe {
        (*made).pmid = set.pmid.map_or(NULL, PmId::word);
        (*made).format = set.format().code() as c_int;
        (*made).count = set.error.map_or(0, Error::code);
        let values = addr_of_mut!((*made).values).cast::<CValue>();
        for (i, (inst, value)) in set.values().enumerate() {
            let value = match value {
                RawValue::InSitu(word) => CWord { word },
                RawValue::Block(ty, payload) => match block(ty, payload) {
                    Ok(block) => CWord { block },
                    Err(e) => {
                        free_set(made);
                        return Err(e);
                    }
                },
            };
            values.add(i).write(CValue { inst: inst.map_or(NULL, Inst::word), value });
            (*made).count += 1;
        }
        // pmcd does not free static blocks, but these are allocated.
        if (*made).format == Format::Static.code() as c_int {
            (*made).format = Format::Dynamic.code() as c_int;
        }
    }
    Ok(made)
}

fn block(ty: u8, payload: &[u8]) -> Result<*mut u32> {
    let mut block = Heap::<u8>::zeroed(BLOCK_HEAD + payload.len())?;
    let (head, copy) = block.as_mut().split_at_mut(BLOCK_HEAD);
    head.copy_from_slice(&(u32::from(ty) << 24 | (BLOCK_HEAD + payload.len()) as u32).to_ne_bytes());
    copy.copy_from_slice(payload);
    turn(Type::from_code(ty.into())?, copy, Order::Wire)?;
    Ok(block.release().cast())
}

/// Converts C's result to a PDU.
///
/// # Safety
/// `result` is null, or a complete result: with all value sets that it counts, all values that they count, and all
/// their blocks.
pub unsafe fn read(result: *const CResult, out: &mut ResultWriter) -> Result<Changes> {
    out.begin();
    if result.is_null() {
        return Err(Error::BADSTORE);
    }
    // SAFETY: by the caller's promise.
    unsafe {
        for &set in sets(result) {
            // pmcd would crash on a null set.
            if set.is_null() {
                return Err(Error::IPC);
            }
            out.begin_set(PmId::from_word((*set).pmid));
            for value in values(set) {
                push(out, (*set).format, value)?;
            }
            out.end_set(Error::from_code((*set).count).map_or(Ok(()), Err));
        }
        Ok(Changes::from_bits_retain((*result).seconds as u8))
    }
}

unsafe fn push(out: &mut ResultWriter, format: c_int, value: &CValue) -> Result {
    let inst = Inst::from_word(value.inst);
    // SAFETY: the format determines which of the two it is, and a block's head contains its length.
    unsafe {
        if format == Format::InSitu.code() as c_int {
            return out.push(inst, Type::U32, Atom::U32(value.value.word));
        }
        let block = value.value.block;
        if block.is_null() {
            return Err(Error::IPC);
        }
        let head = block.read_unaligned();
        let len = ((head & 0xff_ffff) as usize).checked_sub(BLOCK_HEAD).ok_or(Error::IPC)?;
        let payload = slice::from_raw_parts(block.cast::<u8>().add(BLOCK_HEAD), len);
        let (code, ty) = ((head >> 24) as u8, Type::from_code((head >> 24) as i32)?);
        if let Some(number) = number(ty, payload) {
            return out.push(inst, ty, number);
        }
        match ty {
            // Bytes after an inner NUL stay, as in libpcp: readers end at the NUL, and a search takes as long as the copy.
            Type::String => {
                let text = payload.strip_suffix(&[0]).unwrap_or(payload);
                return out.push(inst, ty, Atom::String(text));
            }
            Type::Aggregate | Type::AggregateStatic => return out.push(inst, ty, Atom::Aggregate(payload)),
            _ => {}
        }
        let mut payload = payload.to_vec();
        turn(ty, &mut payload, Order::Host)?;
        out.push(inst, ty, RawValue::Block(code, &payload).atom(ty)?)
    }
}

/// Returns a number in the byte order of the host; `None` for other types, and for a payload that does not match the
/// type.
fn number(ty: Type, payload: &[u8]) -> Option<Atom<'static>> {
    let eight = || <[u8; 8]>::try_from(payload).ok();
    Some(match ty {
        Type::Float => Atom::Float(f32::from_ne_bytes(<[u8; 4]>::try_from(payload).ok()?)),
        Type::I64 => Atom::I64(i64::from_ne_bytes(eight()?)),
        Type::U64 => Atom::U64(u64::from_ne_bytes(eight()?)),
        Type::Double => Atom::Double(f64::from_ne_bytes(eight()?)),
        _ => return None,
    })
}

/// Frees the value sets and blocks of a result (`pmdaFreeResultValues`).
///
/// # Safety
/// Sets and blocks must come from libc's allocator, be complete, and not be used afterwards.
pub unsafe fn free_values(result: *const CResult) {
    // SAFETY: by the caller's promise.
    unsafe {
        for &set in sets(result).iter().filter(|set| !set.is_null()) {
            free_set(set);
        }
    }
}

unsafe fn free_set(set: *mut CValueSet) {
    // SAFETY: by the promise of the caller of `free_values`.
    unsafe {
        if (*set).format == Format::Dynamic.code() as c_int {
            values(set).iter().for_each(|value| free(value.value.block));
        }
        free(set);
    }
}

unsafe fn sets<'a>(result: *const CResult) -> &'a [*mut CValueSet] {
    // SAFETY: the pointers follow the head.
    unsafe {
        let count = usize::try_from((*result).count).unwrap_or(0);
        slice::from_raw_parts((&raw const (*result).sets).cast(), count)
    }
}

unsafe fn values<'a>(set: *const CValueSet) -> &'a [CValue] {
    // SAFETY: the values follow the head.
    unsafe {
        let count = usize::try_from((*set).count).unwrap_or(0);
        slice::from_raw_parts((&raw const (*set).values).cast(), count)
    }
}
