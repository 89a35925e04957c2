//! Memory that the values of metrics need, known before they are computed.
//!
//! A source decides how many values there are, and many definitions may refer to the same operand. So the values of a
//! sample may need much more memory than the source's answer.

use pcp_derived::Operand;
use pcp_pdu::result::{RawValue, ValueSet};
use pmapi::{Desc, InDom};

/// Memory of a value and its instance, apart from the bytes of a string.
const VALUE: usize = 16;

/// Largest operand of each instance domain, sorted by domain.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Vec<(u32, Size)>);

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    /// Memory apart from the bytes of strings.
    values: usize,
    /// Bytes of strings.
    bytes: usize,
}

impl Sizes {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an operand and its values in the sample.
    pub(crate) fn add(&mut self, operand: &Operand, set: &ValueSet<'_>) {
        let key = key(operand.desc.indom);
        let at = self.0.binary_search_by_key(&key, |(key, _)| *key).unwrap_or_else(|at| {
            self.0.insert(at, (key, Size::default()));
            at
        });
        let size = &mut self.0[at].1;
        size.values = size.values.max(VALUE * set.len());
        if !operand.desc.ty.is_numeric() {
            size.bytes = size.bytes.max(set.values().map(|(_, value)| length(value)).sum());
        }
    }

    /// Returns the largest size that a metric can have whose operands have been added.
    pub(crate) fn of(&self, desc: &Desc) -> usize {
        let found = self.0.binary_search_by_key(&key(desc.indom), |(key, _)| *key);
        let size = found.ok().and_then(|at| self.0.get(at)).map_or(Size::default(), |(_, size)| *size);
        size.values + if desc.ty.is_numeric() { 0 } else { size.bytes }
    }
}

/// Sorts metrics by size, and returns how many of them fit into `limit` bytes together: the smallest ones.
pub(crate) fn fitting<T: Ord>(sizes: &mut [(usize, T)], limit: usize) -> usize {
    sizes.sort_unstable();
    let mut sum = 0usize;
    let fitting = sizes.iter().take_while(|(size, _)| {
        sum = sum.saturating_add(*size);
        sum <= limit
    });
    fitting.count()
}

fn key(indom: Option<InDom>) -> u32 {
    indom.map_or(u32::MAX, InDom::word)
}

fn length(value: RawValue<'_>) -> usize {
    match value {
        RawValue::InSitu(_) => 0,
        RawValue::Block(_, bytes) => bytes.len(),
    }
}
