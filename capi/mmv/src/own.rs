//! Metrics, and those of a registry, which has copies of all texts: a program may change or free its own.

use std::marker::PhantomData;

use libc::ENOMEM;
use mmv::format::STRING_LEN;

/// One-line and full help text.
pub(crate) type Help<'a> = [Option<&'a [u8]>; 2];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric<'a> {
    pub name: &'a [u8],
    pub item: u32,
    pub ty: i32,
    pub semantics: i32,
    pub units: u32,
    /// Serial number of the instance domain.
    pub serial: u32,
    pub help: Help<'a>,
}

/// Room for the first items, in bytes. Growing takes as long as some tens of descriptions.
const FIRST: usize = 5 << 10;

/// Length that means no text.
const NONE: u16 = u16::MAX;

/// Items, each with its texts behind it, in one block. A program describes thousands of metrics, and an allocation for each
/// text takes longer than all the rest. A block can grow in place while the program describes metrics.
#[derive(Clone, Debug)]
pub(crate) struct Items<T> {
    count: usize,
    bytes: Vec<u8>,
    kind: PhantomData<T>,
}

/// Lengths of the `N` texts of an item in bytes, or [`NONE`].
#[derive(Clone, Copy, Debug)]
struct Lens<const N: usize>([u16; N]);

/// Returns the part of a text that is kept: no file has room for more.
#[inline(always)]
fn kept(text: &[u8]) -> &[u8] {
    text.get(..STRING_LEN).unwrap_or(text)
}

impl<const N: usize> Lens<N> {
    #[inline(always)]
    fn of(texts: [Option<&[u8]>; N]) -> Lens<N> {
        const { assert!(STRING_LEN < NONE as usize) };
        Lens(texts.map(|text| text.map_or(NONE, |text| kept(text).len() as u16)))
    }

    /// Takes the texts of the next item.
    #[inline(always)]
    fn take<'a>(self, texts: &mut &'a [u8]) -> [Option<&'a [u8]>; N] {
        self.0.map(|len| {
            let (text, rest) = texts.split_at_checked(usize::from(len)).filter(|_| len != NONE)?;
            *texts = rest;
            Some(text)
        })
    }
}

impl<T> Items<T> {
    pub(crate) fn new() -> Items<T> {
        Items { count: 0, bytes: Vec::new(), kind: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Appends an item: its numbers, the lengths of its texts, and the texts.
    #[inline(always)]
    fn push<const M: usize, const N: usize>(
        &mut self,
        numbers: [u32; M],
        texts: [Option<&[u8]>; N],
    ) -> Result<(), i32> {
        let lens = Lens::of(texts);
        let texts = texts.map(|text| text.map_or(&[][..], kept));
        let len = 4 * M + 2 * N + texts.iter().map(|text| text.len()).sum::<usize>();
        if self.bytes.capacity() - self.bytes.len() < len {
            self.grow(len)?;
        }
        self.bytes.extend_from_slice(numbers.map(u32::to_ne_bytes).as_flattened());
        self.bytes.extend_from_slice(lens.0.map(u16::to_ne_bytes).as_flattened());
        texts.iter().for_each(|text| self.bytes.extend_from_slice(text));
        self.count += 1;
        Ok(())
    }

    /// Makes room for an item of `len` bytes. Fails if there is no memory.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, len: usize) -> Result<(), i32> {
        let len = if self.bytes.capacity() == 0 { len.max(FIRST) } else { len };
        self.bytes.try_reserve(len).map_err(|_| ENOMEM)
    }

    /// Returns the numbers and texts of all items.
    #[inline]
    fn iter<const M: usize, const N: usize>(&self) -> impl Iterator<Item = ([u32; M], [Option<&[u8]>; N])> {
        let mut rest = &*self.bytes;
        (0..self.count).map_while(move |_| {
            let mut numbers = [0; M];
            for number in &mut numbers {
                let (word, after) = rest.split_first_chunk()?;
                (*number, rest) = (u32::from_ne_bytes(*word), after);
            }
            let mut lens = Lens([NONE; N]);
            for len in &mut lens.0 {
                let (half, after) = rest.split_first_chunk()?;
                (*len, rest) = (u16::from_ne_bytes(*half), after);
            }
            Some((numbers, lens.take(&mut rest)))
        })
    }
}

/// Kind of the items that are metrics.
#[derive(Clone, Debug)]
pub(crate) enum OwnMetric {}

impl Items<OwnMetric> {
    #[inline(always)]
    pub(crate) fn push_metric(&mut self, metric: &Metric<'_>) -> Result<(), i32> {
        let Metric { name, item, ty, semantics, units, serial, help: [short, long] } = *metric;
        self.push([item, ty as u32, semantics as u32, units, serial], [Some(name), short, long])
    }

    #[inline]
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric<'_>> {
        self.iter().map(|([item, ty, semantics, units, serial], [name, short, long])| Metric {
            name: name.unwrap_or_default(),
            item,
            ty: ty as i32,
            semantics: semantics as i32,
            units,
            serial,
            help: [short, long],
        })
    }
}

/// Kind of the items that are instances.
#[derive(Clone, Debug)]
pub(crate) enum OwnInstance {}

impl Items<OwnInstance> {
    #[inline(always)]
    pub(crate) fn push_instance(&mut self, id: i32, name: &[u8]) -> Result<(), i32> {
        self.push([id as u32], [Some(name)])
    }

    #[inline]
    pub(crate) fn instances(&self) -> impl Iterator<Item = (i32, &[u8])> {
        self.iter().map(|([id], [name])| (id as i32, name.unwrap_or_default()))
    }
}

/// Help texts of an instance domain.
#[derive(Clone, Debug)]
pub(crate) struct OwnHelp(Lens<2>, Vec<u8>);

impl OwnHelp {
    pub(crate) fn new(help: Help<'_>) -> OwnHelp {
        OwnHelp(Lens::of(help), help.map(|text| text.map_or(&[][..], kept)).concat())
    }

    pub(crate) fn lend(&self) -> Help<'_> {
        self.0.take(&mut &*self.1)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_copied() {
        let (mut items, long) = (Items::<OwnInstance>::new(), [b'x'; 1000]);
        let all = [[Some(&b"a"[..]), None, Some(b"")], [Some(b"bc"), Some(&long), Some(b"d")], [None; 3]];
        for number in 0..300 {
            all.iter().for_each(|texts| items.push([number, u32::MAX], *texts).unwrap());
        }
        let kept = all.map(|texts| texts.map(|text| text.map(kept)));
        let expected = (0..300).flat_map(|number| kept.map(|texts| ([number, u32::MAX], texts)));
        assert!(items.iter().eq(expected) && items.len() == 900);
        let help = OwnHelp::new([None, Some(&long)]);
        assert_eq!(help.lend(), [None, Some(&long[..STRING_LEN])]);
    }
}
