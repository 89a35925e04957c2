//! Texts.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError};

use memmap2::MmapMut;
use pmapi::{Semantics, Units};

use super::{Seat, Seated};
use crate::format::{STRING_LEN, ValueType};
use crate::map::{Slot, map_range, page_size};
use crate::model::Kind;
use crate::names::truncated;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::{Mutex, MutexGuard};

/// Longest text in bytes; C's library takes no longer one.
const MAX_LEN: usize = STRING_LEN - 2;

/// A text (`mmv_set_string(3)`).
///
/// There is room for two: the new one is written beside the old one, and then takes its place. A
/// reader sees one of them and no mixture, unless the text changes twice while it copies.
#[derive(Clone)]
pub struct Text {
    texts: Arc<Texts>,
    index: usize,
}

impl Text {
    /// Sets the text. What is over 254 bytes, or behind a NUL, is cut off.
    pub fn set(&self, text: &str) {
        self.texts.lock().set(self.index, text);
    }

    /// The text.
    pub fn get(&self) -> String {
        let texts = self.texts.lock();
        texts.list.get(self.index).map(|text| text.now.clone()).unwrap_or_default()
    }
}

impl Seated for Text {
    const TYPE: ValueType = ValueType::String;
    const KIND: Kind = Kind::Text;
    const SEMANTICS: Semantics = Semantics::Instant;
    const UNITS: Units = Units::NONE;

    fn seated(seat: Seat<'_>) -> Self {
        let index = seat.text;
        seat.texts.lock().seat(index, seat.slot);
        Text { texts: Arc::clone(seat.texts), index }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Text").field(&self.get()).finish()
    }
}

/// The texts of a registry.
#[derive(Debug, Default)]
pub(crate) struct Texts(Mutex<TextList>);

#[derive(Debug, Default)]
pub(crate) struct TextList {
    list: Vec<One>,
    room: Option<Room>,
}

#[derive(Debug, Default)]
struct One {
    now: String,
    /// Which of its two strings is the present one.
    second: bool,
    slot: Option<Slot>,
}

/// The strings in the file of the first texts.
#[derive(Debug)]
struct Room {
    map: MmapMut,
    /// Offset of the first string in the map.
    skew: usize,
    /// Offset of the first string in the file.
    at: u64,
    texts: usize,
}

impl Texts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, TextList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TextList {
    /// Makes `count` texts of them.
    pub(crate) fn grow(&mut self, count: usize) {
        self.list.resize_with(count.max(self.list.len()), One::default);
    }

    fn seat(&mut self, index: usize, slot: Slot) {
        if let Some(text) = self.list.get_mut(index) {
            text.slot = Some(slot);
        }
    }

    fn set(&mut self, index: usize, text: &str) {
        let Some(one) = self.list.get_mut(index) else { return };
        one.now.clear();
        one.now.push_str(cut(text));
        one.second = !one.second;
        self.show(index);
    }

    /// Writes the present text to the file and points the value to it.
    fn show(&mut self, index: usize) {
        let (Some(one), Some(room)) = (self.list.get(index), &mut self.room) else { return };
        if index >= room.texts {
            return;
        }
        let place = (2 * index + usize::from(one.second)) * STRING_LEN;
        if let Some(string) = room.map.get_mut(room.skew + place..room.skew + place + STRING_LEN) {
            string.fill(0);
            string.iter_mut().zip(one.now.bytes()).for_each(|(to, from)| *to = from);
        }
        if let Some(slot) = &one.slot {
            slot.word().store(one.now.len() as u64, Relaxed);
            slot.extra().store(room.at + place as u64, Release);
        }
    }

    /// Maps the strings at an offset of a new file, and writes all texts there.
    pub(crate) fn move_to(&mut self, file: &File, at: u64) -> io::Result<()> {
        let texts = self.list.len();
        if texts == 0 {
            return Ok(());
        }
        let skew = (at % page_size()) as usize;
        let map = map_range(file, at - skew as u64, skew + 2 * texts * STRING_LEN)?;
        self.room = Some(Room { map, skew, at, texts });
        for index in 0..texts {
            if let Some(one) = self.list.get_mut(index) {
                one.second = false;
            }
            self.show(index);
        }
        Ok(())
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
