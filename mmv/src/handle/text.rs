//! Handles of text values.

use std::borrow::Cow;
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
    /// Sets the text, cut to 254 bytes at a character boundary. A NUL, at which readers would end it, becomes U+FFFD.
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

/// A text to be written to a file that is not mapped.
struct Pending {
    index: usize,
    now: String,
    /// The buffer that readers do not use, and its offset in the file.
    second: bool,
    at: u64,
}

/// The buffers of the file for the first `texts` texts.
#[derive(Debug)]
pub(crate) struct Room {
    strings: Strings,
    /// Offset of the first buffer in the file.
    at: u64,
    texts: usize,
    /// For each text, whether its value was in the second of its two buffers when new buffers replaced these.
    used: Vec<bool>,
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

    /// Writes the changed texts to a file that is not mapped. Texts that cannot be written are tried again the next
    /// time. Only one thread at a time may call this or [`TextList::exchange`].
    ///
    /// Nothing is locked during a write: a file system that hangs must not delay threads that set a text.
    pub(crate) fn copy(&self) -> io::Result<()> {
        let Some((file, pending)) = self.lock().and_then(|texts| texts.pending()) else { return Ok(()) };
        let mut result = Ok(());
        for text in pending {
            let written = file.get().and_then(|file| write_at(file, &padded(&text.now), text.at));
            if let (Ok(()), Some(mut texts)) = (&written, self.lock()) {
                texts.written(&text);
            }
            result = result.and(written);
        }
        result
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
        one.now.push_str(&cut(text));
        if matches!(self.room, Some(Room { strings: Strings::Copied(_), .. })) {
            one.stale = true;
        } else {
            one.second = !one.second;
            self.show(index);
        }
    }

    /// Returns the file that is not mapped, and the texts that it lacks.
    fn pending(&self) -> Option<(Arc<Kept>, Vec<Pending>)> {
        let room = self.room.as_ref().filter(|room| room.forks == fork::count())?;
        let Strings::Copied(file) = &room.strings else { return None };
        let stale = self.list.iter().take(room.texts).enumerate().filter(|(_, one)| one.stale);
        let pending = stale.map(|(index, one)| {
            let second = !one.second;
            Pending { index, now: one.now.clone(), second, at: room.at + place(index, second) as u64 }
        });
        Some((Arc::clone(file), pending.collect()))
    }

    /// Points a value to a text that was written. The text may have changed again in the meantime.
    fn written(&mut self, Pending { index, now, second, at }: &Pending) {
        if let Some(one) = self.list.get_mut(*index) {
            one.second = *second;
            one.stale = one.now != *now;
            one.point(now.len(), *at);
        }
    }

    /// Writes the present text to mapped buffers, and points the value to it.
    #[inline]
    fn show(&mut self, index: usize) {
        let (Some(one), Some(room)) = (self.list.get(index), &mut self.room) else { return };
        if index >= room.texts || room.forks != fork::count() {
            return;
        }
        let place = place(index, one.second);
        if let Strings::Mapped(map, skew) = &mut room.strings {
            let start = *skew + place;
            if let Some(string) = map.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<STRING_LEN>) {
                *string = padded(&one.now);
            }
            one.point(one.now.len(), room.at + place as u64);
        }
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
        Ok(Some(Room { strings, at, texts, used: Vec::new(), forks: fork::count() }))
    }

    /// Moves all texts to other buffers, and returns the old ones. A file that is not mapped has the texts after the
    /// next [`Texts::copy`]. Until then, values point to the earlier texts if these buffers were in use before.
    pub(crate) fn exchange(&mut self, room: Option<Room>) -> Option<Room> {
        let mut old = std::mem::replace(&mut self.room, room);
        if let Some(old) = &mut old {
            old.used = self.list.iter().map(|one| one.second).collect();
        }
        match &mut self.room {
            Some(room) if matches!(room.strings, Strings::Copied(_)) => {
                let (used, is_own) = (std::mem::take(&mut room.used), room.forks == fork::count());
                for (index, one) in self.list.iter_mut().enumerate() {
                    // The first text is written to the first buffer.
                    (one.second, one.stale) = (used.get(index).copied().unwrap_or(true), true);
                    if is_own && index < used.len().min(room.texts) {
                        one.point(one.now.len(), room.at + place(index, one.second) as u64);
                    }
                }
            }
            _ => (0..self.list.len()).for_each(|index| {
                if let Some(one) = self.list.get_mut(index) {
                    (one.second, one.stale) = (false, false);
                }
                self.show(index);
            }),
        }
        old
    }
}

impl One {
    fn point(&self, len: usize, at: u64) {
        if let Some(slot) = &self.slot {
            slot.word().store(len as u64, Relaxed);
            slot.extra().store(at, Release);
        }
    }
}

/// Returns the offset of one of the two buffers of a text.
fn place(index: usize, second: bool) -> usize {
    (2 * index + usize::from(second)) * STRING_LEN
}

/// Returns a text as a buffer has it.
#[inline]
fn padded(text: &str) -> [u8; STRING_LEN] {
    let mut string = [0; STRING_LEN];
    string.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    string
}

fn cut(text: &str) -> Cow<'_, str> {
    match truncated(text, MAX_LEN) {
        text if text.contains('\0') => truncated(&text.replace('\0', "\u{fffd}"), MAX_LEN).to_owned().into(),
        text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts() {
        assert_eq!(cut("a\0b"), "a\u{fffd}b");
        assert_eq!(cut(&"\0".repeat(254)).len(), 252);
        assert_eq!(cut(&"x".repeat(300)).len(), 254);
        assert_eq!(cut(&"é".repeat(200)).len(), 254);
        assert_eq!(cut(&format!("x{}", "é".repeat(200))).len(), 253);
    }
}
