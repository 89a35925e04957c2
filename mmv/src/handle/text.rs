//! Handles of text values.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use pmapi::{Semantics, Units};

use super::{FromSlot, SlotContext};
use crate::format::{STRING_LEN, ValueType, word_of_half};
use crate::model::Kind;
use crate::names::truncated;
use crate::os::pages::Slot;

/// Longest text, in bytes. C's library does not accept longer ones.
const MAX_LEN: usize = STRING_LEN - 2;

/// A text value (`mmv_set_string(3)`).
///
/// The file has two buffers for each text. A new text is written to the unused one, and then the value is pointed to
/// it. A reader sees a mixture of texts only if the text changes twice while it reads.
#[derive(Clone)]
pub struct Text {
    slot: Slot,
    /// Offset of the first of the two buffers.
    buffers: u64,
}

impl Text {
    /// Sets the text, cut to 254 bytes at a character boundary. A NUL, at which readers would end it, becomes U+FFFD.
    pub fn set(&self, text: &str) {
        let text = cut(text);
        let _turn = Turn::new(&self.slot);
        let at = if self.slot.extra().load(Acquire) == self.buffers { self.buffers + BUFFER } else { self.buffers };
        let mut bytes = text.as_bytes();
        for word in self.slot.map().words(at, STRING_LEN / 8) {
            let mut now = [0; 8];
            let (first, rest) = bytes.split_at(bytes.len().min(8));
            now.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
            word.store(u64::from_ne_bytes(now), Relaxed);
            bytes = rest;
        }
        self.slot.extra().store(at, Release);
        // As C's library does. The other half of the word, which no reader looks at, is kept by the turn.
        self.slot.word().store(word_of_half(text.len() as u32) | TAKEN, Relaxed);
    }

    /// Returns the text.
    pub fn get(&self) -> String {
        let text = read_text(&self.slot);
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        String::from_utf8_lossy(text.get(..end).unwrap_or_default()).into_owned()
    }
}

/// Returns the present text with its padding.
pub(crate) fn read_text(slot: &Slot) -> [u8; STRING_LEN] {
    let _turn = Turn::new(slot);
    let start = slot.extra().load(Acquire);
    let mut text = [0; STRING_LEN];
    for (bytes, word) in text.chunks_exact_mut(8).zip(slot.map().words(start, STRING_LEN / 8)) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    text
}

const BUFFER: u64 = STRING_LEN as u64;

/// Bit of a text's first word while a thread sets or copies the text. It is in the half of the word that no reader looks
/// at. It is in the file, because forked children set the same texts.
const TAKEN: u64 = word_of_half(1).rotate_right(32);

/// A turn to access the buffers of a text.
struct Turn<'a>(&'a Slot);

impl Turn<'_> {
    /// Waits for the threads and processes that access the text. After a second without a change, the process that has the
    /// turn was killed, and this one takes it over.
    fn new(slot: &Slot) -> Turn<'_> {
        const PAUSE: Duration = Duration::from_micros(50);
        const PATIENCE: u32 = 20_000;
        let mut waits = 0;
        while slot.word().fetch_or(TAKEN, Acquire) & TAKEN != 0 && waits < PATIENCE {
            if waits < 10 {
                thread::yield_now();
            } else {
                thread::sleep(PAUSE);
            }
            waits += 1;
        }
        Turn(slot)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.word().fetch_and(!TAKEN, Release);
    }
}

impl FromSlot for Text {
    const TYPE: ValueType = ValueType::String;
    const KIND: Kind = Kind::Text;
    const SEMANTICS: Semantics = Semantics::Instant;
    const UNITS: Units = Units::NONE;

    fn from_slot(context: SlotContext<'_>) -> Self {
        Text { slot: context.slot, buffers: context.buffers }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Text").field(&self.get()).finish()
    }
}

fn cut(text: &str) -> Cow<'_, str> {
    match truncated(text, MAX_LEN) {
        text if text.contains('\0') => truncated(&text.replace('\0', "\u{fffd}"), MAX_LEN).to_owned().into(),
        text => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn cuts() {
        assert_eq!(cut("a\0b"), "a\u{fffd}b");
        assert_eq!(cut(&"\0".repeat(254)).len(), 252);
        assert_eq!(cut(&"x".repeat(300)).len(), 254);
        assert_eq!(cut(&"é".repeat(200)).len(), 254);
        assert_eq!(cut(&format!("x{}", "é".repeat(200))).len(), 253);
    }

    /// Threads that set the same text take turns: none writes into the buffer that another one has just published.
    #[test]
    fn texts_of_several_threads_are_whole() {
        let registry = crate::Registry::new("test").unwrap();
        let text: Text = registry.text("text").register().unwrap();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            for letter in ["a", "b", "c"] {
                let (text, words, is_done) = (text.clone(), letter.repeat(MAX_LEN), &is_done);
                scope.spawn(move || {
                    while !is_done.load(Relaxed) {
                        text.set(&words);
                    }
                });
            }
            let mut texts = (0..5000).map(|_| text.get());
            let mixed = texts.find(|text| text.bytes().any(|byte| byte != text.as_bytes()[0]));
            is_done.store(true, Relaxed);
            assert_eq!(mixed, None);
        });
    }
}
