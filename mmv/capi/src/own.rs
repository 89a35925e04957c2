//! The metrics and instances of a registry, which has copies of all texts: a program may change or free its own.

use std::marker::PhantomData;

use libc::ENOMEM;
use mmv::format::STRING_LEN;

use crate::facts::{Facts, Help, Metric};

/// Room of a block, in bytes. An item has at most three texts of [`STRING_LEN`] bytes.
const BLOCK: usize = 5 << 10;

/// Length that means no text.
const NONE: u16 = u16::MAX;

/// Items, each with its texts behind it, in blocks that are never moved. A program describes thousands of metrics, and an
/// allocation for each text takes longer than all the rest, as do the copies of a block that grows.
#[derive(Clone, Debug)]
pub(crate) struct Items<T> {
    count: usize,
    /// The last block, to which items are appended, of [`BLOCK`] bytes; empty before the first item.
    last: Vec<u8>,
    /// Number of bytes of the last block that have items.
    used: usize,
    full: Vec<Vec<u8>>,
    facts: Facts,
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
        Items { count: 0, last: Vec::new(), used: 0, full: Vec::new(), facts: Facts::NONE, kind: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts
    }

    /// Appends an item: its numbers, the lengths of its texts, and the texts.
    #[inline(always)]
    fn push<const M: usize, const N: usize>(
        &mut self,
        numbers: [u32; M],
        texts: [Option<&[u8]>; N],
    ) -> Result<(), i32> {
        const { assert!(4 * M + N * (2 + STRING_LEN) <= BLOCK) };
        let lens = Lens::of(texts);
        let texts = texts.map(|text| text.map_or(&[][..], kept));
        let len = 4 * M + 2 * N + texts.iter().map(|text| text.len()).sum::<usize>();
        if self.last.len() - self.used < len {
            self.begin_block()?;
        }
        let item = self.last.get_mut(self.used..).and_then(|rest| rest.get_mut(..len)).ok_or(ENOMEM)?;
        let (head, mut rest) = item.split_at_mut(4 * M + 2 * N);
        let (words, halves) = head.split_at_mut(4 * M);
        words.copy_from_slice(numbers.map(u32::to_ne_bytes).as_flattened());
        halves.copy_from_slice(lens.0.map(u16::to_ne_bytes).as_flattened());
        for text in texts {
            let (place, after) = rest.split_at_mut_checked(text.len()).ok_or(ENOMEM)?;
            copy(place, text);
            rest = after;
        }
        self.used += len;
        self.count += 1;
        Ok(())
    }

    /// Begins a new block. Fails if there is no memory.
    #[cold]
    #[inline(never)]
    fn begin_block(&mut self) -> Result<(), i32> {
        let mut next = Vec::new();
        next.try_reserve_exact(BLOCK).map_err(|_| ENOMEM)?;
        next.resize(BLOCK, 0);
        self.full.try_reserve(1).map_err(|_| ENOMEM)?;
        let mut full = std::mem::replace(&mut self.last, next);
        full.truncate(std::mem::take(&mut self.used));
        if !full.is_empty() {
            self.full.push(full);
        }
        Ok(())
    }

    /// Calls `each` with the numbers and texts of all items, up to the first error.
    #[inline(always)]
    fn try_each<'a, const M: usize, const N: usize, E>(
        &'a self,
        mut each: impl FnMut([u32; M], [Option<&'a [u8]>; N]) -> Result<(), E>,
    ) -> Result<(), E> {
        let last = self.last.get(..self.used).unwrap_or_default();
        for mut rest in self.full.iter().map(Vec::as_slice).chain([last]) {
            while let Some((head, after)) = rest.split_at_checked(const { 4 * M + 2 * N }) {
                rest = after;
                let (words, halves) = head.split_at(4 * M);
                let numbers = std::array::from_fn(|at| words.get(4 * at..).map_or(0, first_word));
                let lens = Lens(std::array::from_fn(|at| halves.get(2 * at..).map_or(NONE, first_half)));
                each(numbers, lens.take(&mut rest))?;
            }
        }
        Ok(())
    }
}

/// Copies a text to a place of the same length. For most texts, a call of memcpy(3) takes longer than the copy.
#[inline(always)]
pub(crate) fn copy(place: &mut [u8], text: &[u8]) {
    match text.len() {
        4..8 => copy_ends::<4>(place, text),
        8..=16 => copy_ends::<8>(place, text),
        17..=32 => copy_ends::<16>(place, text),
        _ => place.copy_from_slice(text),
    }
}

/// Copies the first and the last `N` bytes, of at most twice as many.
#[inline(always)]
fn copy_ends<const N: usize>(place: &mut [u8], text: &[u8]) {
    let [first, last] = [text.first_chunk::<N>(), text.last_chunk::<N>()];
    place.first_chunk_mut().zip(first).into_iter().for_each(|(place, text)| *place = *text);
    place.last_chunk_mut().zip(last).into_iter().for_each(|(place, text)| *place = *text);
}

#[inline(always)]
fn first_word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

#[inline(always)]
fn first_half(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(NONE, |half| u16::from_ne_bytes(*half))
}

/// Kind of the items that are metrics.
#[derive(Clone, Debug)]
pub(crate) enum OwnMetric {}

impl Items<OwnMetric> {
    #[inline(always)]
    pub(crate) fn push_metric(&mut self, metric: &Metric<'_>) -> Result<(), i32> {
        let Metric { name, item, ty, semantics, units, serial, help: [short, long] } = *metric;
        self.push([item, ty as u32, semantics as u32, units, serial], [Some(name), short, long])?;
        self.facts = self.facts.with_metric(metric);
        Ok(())
    }

    /// Calls `each` with all metrics, up to the first error.
    #[inline(always)]
    pub(crate) fn try_each_metric<'a, E>(&'a self, mut each: impl FnMut(Metric<'a>) -> Result<(), E>) -> Result<(), E> {
        self.try_each(|numbers, texts| each(metric(numbers, texts)))
    }
}

#[inline(always)]
fn metric<'a>(numbers: [u32; 5], texts: [Option<&'a [u8]>; 3]) -> Metric<'a> {
    let ([item, ty, semantics, units, serial], [name, short, long]) = (numbers, texts);
    let (name, ty, semantics) = (name.unwrap_or_default(), ty as i32, semantics as i32);
    Metric { name, item, ty, semantics, units, serial, help: [short, long] }
}

/// Kind of the items that are instances.
#[derive(Clone, Debug)]
pub(crate) enum OwnInstance {}

impl Items<OwnInstance> {
    #[inline(always)]
    pub(crate) fn push_instance(&mut self, id: i32, name: &[u8]) -> Result<(), i32> {
        self.push([id as u32], [Some(name)])?;
        self.facts = self.facts.with_name(name.len());
        Ok(())
    }

    /// Calls `each` with the identifiers and names of all instances, up to the first error.
    #[inline(always)]
    pub(crate) fn try_each_instance<'a, E>(
        &'a self,
        mut each: impl FnMut(i32, &'a [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.try_each(|[id], [name]| each(id as i32, name.unwrap_or_default()))
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
    fn texts_of_all_lengths() {
        let text: Vec<u8> = (1..=255).collect();
        let mut items = Items::<OwnInstance>::new();
        (0..=255).for_each(|len| items.push_instance(len as i32, &text[..len]).unwrap());
        let mut lens = Vec::new();
        let all: Result<(), ()> = items.try_each_instance(|id, name| {
            assert_eq!(name, &text[..id as usize]);
            lens.push(name.len());
            Ok(())
        });
        assert!(all.is_ok() && lens.into_iter().eq(0..=255));
    }

    #[test]
    fn texts_are_copied() {
        let (mut items, long) = (Items::<OwnInstance>::new(), [b'x'; 1000]);
        let all = [[Some(&b"a"[..]), None, Some(b"")], [Some(b"bc"), Some(&long), Some(b"d")], [None; 3]];
        for number in 0..300 {
            all.iter().for_each(|texts| items.push([number, u32::MAX], *texts).unwrap());
        }
        let kept = all.map(|texts| texts.map(|text| text.map(kept)));
        let expected: Vec<_> = (0..300).flat_map(|number| kept.map(|texts| ([number, u32::MAX], texts))).collect();
        let mut found = Vec::new();
        let all: Result<(), ()> = items.try_each(|numbers: [u32; 2], texts| {
            found.push((numbers, texts));
            Ok(())
        });
        assert!(all.is_ok() && found == expected && items.len() == 900 && items.full.len() > 10);
        let help = OwnHelp::new([None, Some(&long)]);
        assert_eq!(help.lend(), [None, Some(&long[..STRING_LEN])]);
    }
}
