//! Moves all values to another file, or back.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::Inner;
use super::inner::{Phase, State};
use super::published::Copies;
use crate::file::{Kept, write_at};
use crate::format::{G2_AT, ValueType};
use crate::handle::{Number, Room};
use crate::layout::MARK;
use crate::map::{Access, Moving, Old, Prepared, Segment, Word, value_at};
use crate::model::{Kind, Model};
use crate::sync::atomic::Ordering::Relaxed;

/// The files that contained the values before a move.
pub(super) struct OldFiles {
    /// The file that was mapped behind each segment.
    files: Vec<Arc<Kept>>,
    room: Option<Room>,
}

impl Inner {
    /// Moves all values to a file of length `len`, or none of them after an error.
    pub(super) fn move_values(
        &self,
        state: &mut State,
        file: &Arc<Kept>,
        len: u64,
        texts_at: u64,
    ) -> io::Result<OldFiles> {
        let moving = if state.segments.len() == 1 { Moving::One } else { Moving::Several };
        let prepared =
            state.segments.iter().map(|segment| segment.prepare(file, len, moving)).collect::<io::Result<Vec<_>>>()?;
        let room = self.texts.lock().map_or(Ok(None), |texts| texts.prepare(file, texts_at, Access::Mapped))?;
        let mut files = Vec::with_capacity(prepared.len());
        let moved = self.gate.while_moving(|| {
            for (index, new) in prepared.into_iter().enumerate() {
                files.extend(state.segments.get(index).and_then(Segment::file).cloned());
                state.move_segment(index, new)?;
            }
            Ok(self.texts.lock().and_then(|mut texts| texts.exchange(room)))
        });
        match moved {
            Ok(room) => Ok(OldFiles { files, room }),
            Err(e) => {
                files.pop();
                self.move_segments_back(state, &files);
                Err(e)
            }
        }
    }

    /// Writes all values to a file that must not be mapped; their memory stays where it is.
    pub(super) fn copy_all(&self, state: &State, file: &Arc<Kept>, texts_at: u64) -> io::Result<(OldFiles, Copies)> {
        let mut copies = Copies::new(file, state.model.values().len());
        let exchange = |room| self.texts.lock().and_then(|mut texts| texts.exchange(room));
        let room = self.texts.lock().map_or(Ok(None), |texts| texts.prepare(file, texts_at, Access::Copied))?;
        let room = exchange(room);
        match self.texts.copy().and_then(|()| copies.write(&state.segments)) {
            Ok(()) => Ok((OldFiles { files: Vec::new(), room }, copies)),
            Err(e) => {
                exchange(room);
                Err(e)
            }
        }
    }

    /// Writes changed values to a file that is not mapped. Returns only the first of consecutive errors.
    pub(super) fn copy_changes(&self, state: &mut State) -> Option<io::Error> {
        let Phase::Exporting(published) = &mut state.phase else { return None };
        // If the program has closed the file, a new one takes its place.
        published.file.get().ok()?;
        let mut copies = published.copies.take()?;
        let shown = self.texts.copy();
        let result = copies.write(&state.segments).and(shown);
        if let Phase::Exporting(published) = &mut state.phase {
            published.copies = Some(copies);
        }
        let warned = std::mem::replace(&mut state.warned_of_copy, result.is_err());
        result.err().filter(|_| !warned)
    }

    /// Moves all values back. Those that the kernel refuses to map again stay in the new file.
    pub(super) fn move_back(&self, state: &mut State, OldFiles { files, room }: OldFiles) {
        self.move_segments_back(state, &files);
        if let Some(mut texts) = self.texts.lock() {
            _ = texts.exchange(room);
        }
    }

    fn move_segments_back(&self, state: &mut State, files: &[Arc<Kept>]) {
        let published = match &state.phase {
            Phase::Exporting(published) => Some((Arc::clone(&published.file), published.generation)),
            Phase::Idle | Phase::Stopped => None,
        };
        // A generation of 0 makes readers wait while `MARK` takes the place of values.
        let tell = |generation: u64, file: &Kept| {
            _ = file.get().and_then(|file| write_at(file, &generation.to_ne_bytes(), G2_AT));
        };
        if let Some((file, _)) = &published {
            tell(0, file);
        }
        self.gate.while_moving(|| (0..files.len()).for_each(|index| _ = state.move_segment_back(index, &files[index])));
        if let Some((file, generation)) = &published {
            tell(*generation, file);
        }
    }
}

impl State {
    /// Maps the file behind a segment's addresses, and then transfers the values of the old memory.
    fn move_segment(&mut self, index: usize, new: Prepared) -> io::Result<()> {
        let State { segments, model, .. } = self;
        let Some(segment) = segments.get_mut(index) else { return Ok(()) };
        let old = segment.move_to(new)?;
        transfer(segment, model, old, &[]);
        Ok(())
    }

    /// Moves a segment back to its previous file, which contains the values at the time of the move.
    fn move_segment_back(&mut self, index: usize, file: &Arc<Kept>) -> io::Result<()> {
        let State { segments, model, .. } = self;
        let Some(segment) = segments.get_mut(index) else { return Ok(()) };
        let new = segment.prepare(file, file.get()?.metadata()?.len(), Moving::Several)?;
        mark(segment, model, file.get()?);
        // Read before the mapping changes, because updates go to this file afterwards.
        let mut base = segment.contents(file);
        let base: Vec<u64> = segment.slotted().map(|value| base.words(value).unwrap_or_default().0).collect();
        match segment.move_to(new) {
            Ok(old) => transfer(segment, model, old, &base),
            Err(e) => {
                if let Some(now) = segment.file() {
                    restore(segment, model, segment.contents(now), file.get()?);
                }
                return Err(e);
            }
        }
        Ok(())
    }
}

/// Transfers the values of the old memory. For values of [`Kind::Added`], `base` has the amounts that the new memory
/// already contains; it is empty for a new file.
fn transfer(segment: &Segment, model: &Model, mut old: Old, base: &[u64]) {
    for run in model.values().within(segment.slotted()) {
        let metric = model.metric(run.metric);
        if metric.kind == Kind::Added && base.is_empty() && !old.is_touched() {
            continue;
        }
        for value in run.first..run.first + run.count {
            // A value that cannot be read is lost.
            let (old_word, old_extra) = old.words(value).unwrap_or_default();
            let base = base.get(value - segment.slotted().start).copied().unwrap_or_default();
            // Most values were never updated, and untouched pages take no memory.
            if metric.kind == Kind::Added && old_word == base {
                continue;
            }
            let (word, extra) = segment.words(value);
            match metric.kind {
                Kind::Added => add(word, metric.ty, old_word, base),
                Kind::Set | Kind::Counted => replace_mark(word, old_word),
                Kind::Interval => {
                    replace_mark(word, old_word);
                    replace_mark(extra, old_extra);
                }
                Kind::Text => {}
            }
        }
    }
}

/// Writes `MARK` to a file that is not mapped, in place of values that updates replace.
fn mark(segment: &Segment, model: &Model, file: &File) {
    each_set(segment, model, |value, kind| {
        let words = [MARK.to_ne_bytes(), MARK.to_ne_bytes()];
        let len = if kind == Kind::Interval { 2 } else { 1 };
        _ = write_at(file, words.get(..len).unwrap_or_default().as_flattened(), value_at(value));
    });
}

/// Replaces `MARK` in a file by the present values.
fn restore(segment: &Segment, model: &Model, mut now: Old, file: &File) {
    each_set(segment, model, |value, kind| {
        let (word, extra) = now.words(value).unwrap_or_default();
        let words = [word.to_ne_bytes(), extra.to_ne_bytes()];
        let len = if kind == Kind::Interval { 2 } else { 1 };
        _ = write_at(file, words.get(..len).unwrap_or_default().as_flattened(), value_at(value));
    });
}

fn each_set(segment: &Segment, model: &Model, mut each: impl FnMut(usize, Kind)) {
    for run in model.values().within(segment.slotted()) {
        let kind = model.metric(run.metric).kind;
        if matches!(kind, Kind::Set | Kind::Counted | Kind::Interval) {
            (run.first..run.first + run.count).for_each(|value| each(value, kind));
        }
    }
}

fn add(word: &Word, ty: ValueType, new: u64, base: u64) {
    match ty {
        ValueType::Double => f64::from_word(new).minus(f64::from_word(base)).add_to(word),
        ValueType::Float => f32::from_word(new).minus(f32::from_word(base)).add_to(word),
        _ => new.wrapping_sub(base).add_to(word),
    }
}

/// Sets a word, unless it was set after the file was written.
fn replace_mark(word: &Word, old: u64) {
    _ = word.compare_exchange(MARK, old, Relaxed, Relaxed);
}
