//! Handles of text values.

use std::fmt;
use std::io;
use std::sync::Arc;

use memmap2::MmapMut;
use pmapi::{Semantics, Units};

use super::{FromSlot, SlotContext};
use crate::file::{Kept, write_at};
use crate::fork::{self, Forked};
use crate::format::{STRING_LEN, ValueType};
use crate::map::{Access, Slot};
use crate::model::Kind;
use crate::names::truncated;
use crate::os::page_size;
use crate::os::pages::map_range;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::{Held, Lock};

/// Longest text, in bytes. C's library does not accept longer ones.
const MAX_LEN: usize = STRING_LEN - 2;

/// A text value (`mmv_set_string(3)`).
///
/// The file has two buffers for each text. A new text is written to the unused one, and then the value is pointed to
/// it. A reader sees a mixture of texts only if the text changes twice while it reads.
#[derive(Clone)]
pub struct Text {
    texts: Arc<Texts>,
    index: usize,
}

impl Text {
    /// Sets the text. The text is cut at its first NUL, and to 254 bytes at a character boundary.
    #[inline]
    pub fn set(&self, text: &str) {
        if let Some(mut texts) = self.texts.lock() {
            texts.set(self.index, text);
        }
    }

    /// Returns the text.
    pub fn get(&self) -> String {
        let texts = self.texts.lock();
        texts.and_then(|texts| Some(texts.list.get(self.index)?.now.clone())).unwrap_or_default()
    }
}

impl FromSlot for Text {
    const TYPE: ValueType = ValueType::String;
    const KIND: Kind = Kind::Text;
    const SEMANTICS: Semantics = Semantics::Instant;
    const UNITS: Units = Units::NONE;

    fn from_slot(context: SlotContext<'_>) -> Self {
        let index = context.text;
        if let Some(mut texts) = context.texts.lock() {
            texts.set_slot(index, context.slot);
        }
        Text { texts: Arc::clone(context.texts), index }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Text").field(&self.get()).finish()
    }
}

/// All texts of a registry.
#[derive(Debug, Default)]
pub(crate) struct Texts(Lock<TextList>);

#[derive(Debug, Default)]
pub(crate) struct TextList {
    list: Vec<One>,
    room: Option<Room>,
}

#[derive(Debug, Default)]
struct One {
    now: String,
    /// Whether the file still has the previous text. Used only for files that are not mapped.
    stale: bool,
    /// Whether the second of the two buffers holds the present text.
    second: bool,
    slot: Option<Slot>,
}

/// The buffers of the file for the first `texts` texts.
#[derive(Debug)]
pub(crate) struct Room {
    strings: Strings,
    /// Offset of the first buffer in the file.
    at: u64,
    texts: usize,
    /// Number of forks before this process wrote to the buffers. A child must not write its parent's buffers.
    forks: u32,
}

#[derive(Debug)]
enum Strings {
    /// The mapped buffers. The number is the offset of the first one in the mapping.
    Mapped(MmapMut, usize),
    /// A file that must not be mapped. A flush writes changed texts to it.
    Copied(Arc<Kept>),
}

impl Texts {
    #[inline]
    pub(crate) fn lock(&self) -> Option<Held<'_, TextList>> {
        self.0.lock()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.is_quiet()
    }
}

impl TextList {
    /// Ensures that there are `count` texts.
    pub(crate) fn grow(&mut self, count: usize) {
        self.list.resize_with(count.max(self.list.len()), One::default);
    }

    fn set_slot(&mut self, index: usize, slot: Slot) {
        if let Some(text) = self.list.get_mut(index) {
            text.slot = Some(slot);
        }
    }

    #[inline]
    fn set(&mut self, index: usize, text: &str) {
        let Some(one) = self.list.get_mut(index) else { return };
        one.now.clear();
        one.now.push_str(cut(text));
        if let Some(Room { strings: Strings::Copied(_), .. }) = self.room {
            one.stale = true;
        } else {
            one.second = !one.second;
            // Writing to mapped memory does not fail.
            _ = self.show(index);
        }
    }

    /// Writes the changed texts to a file that is not mapped. Texts that cannot be written are tried again the next
    /// time.
    pub(crate) fn copy(&mut self) -> io::Result<()> {
        let Some(Room { strings: Strings::Copied(_), .. }) = self.room else { return Ok(()) };
        let mut result = Ok(());
        for index in 0..self.list.len() {
            let Some(one) = self.list.get_mut(index).filter(|one| one.stale) else { continue };
            one.second = !one.second;
            let shown = self.show(index);
            if let Some(one) = self.list.get_mut(index) {
                one.stale = shown.is_err();
                // After an error, readers still see the other buffer.
                one.second ^= shown.is_err();
            }
            result = result.and(shown);
        }
        result
    }

    /// Writes the present text to the file, and points the value to it. After an error, the value points to the old
    /// text.
    #[inline]
    fn show(&mut self, index: usize) -> io::Result<()> {
        let (Some(one), Some(room)) = (self.list.get(index), &mut self.room) else { return Ok(()) };
        if index >= room.texts || room.forks != fork::count() {
            return Ok(());
        }
        let place = (2 * index + usize::from(one.second)) * STRING_LEN;
        match &mut room.strings {
            Strings::Mapped(map, skew) => {
                let start = *skew + place;
                if let Some(string) = map.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<STRING_LEN>) {
                    *string = [0; STRING_LEN];
                    string.iter_mut().zip(one.now.bytes()).for_each(|(to, from)| *to = from);
                }
            }
            Strings::Copied(file) => {
                let mut string = [0; STRING_LEN];
                string.iter_mut().zip(one.now.bytes()).for_each(|(to, from)| *to = from);
                write_at(file.get()?, &string, room.at + place as u64)?;
            }
        }
        if let Some(slot) = &one.slot {
            slot.word().store(one.now.len() as u64, Relaxed);
            slot.extra().store(room.at + place as u64, Release);
        }
        Ok(())
    }

    /// Prepares the buffers at an offset of a file for [`TextList::exchange`]. Returns `None` if there are no texts.
    pub(crate) fn prepare(&self, file: &Arc<Kept>, at: u64, access: Access) -> io::Result<Option<Room>> {
        let texts = self.list.len();
        if texts == 0 {
            return Ok(None);
        }
        let strings = if access == Access::Mapped {
            let skew = (at % page_size()) as usize;
            Strings::Mapped(map_range(file.get()?, at - skew as u64, skew + 2 * texts * STRING_LEN)?, skew)
        } else {
            Strings::Copied(Arc::clone(file))
        };
        Ok(Some(Room { strings, at, texts, forks: fork::count() }))
    }

    /// Writes all texts to other buffers. Returns the old ones, and whether all texts could be written.
    pub(crate) fn exchange(&mut self, room: Option<Room>) -> (Option<Room>, io::Result<()>) {
        let old = std::mem::replace(&mut self.room, room);
        let mut result = Ok(());
        for index in 0..self.list.len() {
            if let Some(one) = self.list.get_mut(index) {
                one.second = false;
            }
            let shown = self.show(index);
            if let Some(one) = self.list.get_mut(index) {
                one.stale = shown.is_err();
            }
            result = result.and(shown);
        }
        (old, result)
    }
}

fn cut(text: &str) -> &str {
    let text = text.split('\0').next().unwrap_or_default();
    truncated(text, MAX_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        assert_eq!(cut("a\0b"), "a");
        assert_eq!(cut(&"x".repeat(300)).len(), 254);
        assert_eq!(cut(&"é".repeat(200)).len(), 254);
        assert_eq!(cut(&format!("x{}", "é".repeat(200))).len(), 253);
    }
}
