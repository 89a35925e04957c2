//! The file that readers see.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::process::Process;
use crate::file::{Kept, write_at};
use crate::map::{Segment, value_at};
use crate::sync::atomic::Ordering::{Acquire, Relaxed};

/// The file to which a registry was last written.
#[derive(Debug)]
pub(crate) struct Published {
    pub(super) file: Arc<Kept>,
    pub(super) generation: u64,
    /// The process that wrote the file. In a forked child it is the parent.
    pub(super) process: Process,
    /// The values written so far, if the file is not mapped.
    pub(super) copies: Option<Copies>,
}

impl Published {
    /// Returns whether the file shows only flushed values.
    pub(super) fn is_copied(&self) -> bool {
        self.copies.is_some()
    }
}

/// The contents written to a file that must not be mapped.
#[derive(Debug)]
pub(super) struct Copies {
    file: Arc<Kept>,
    /// The two words of each value, `None` before the first write.
    written: Vec<Option<(u64, u64)>>,
}

impl Copies {
    pub(super) fn new(file: &Arc<Kept>, values: usize) -> Copies {
        Copies { file: Arc::clone(file), written: vec![None; values] }
    }

    /// Writes the values that have changed.
    pub(super) fn write(&mut self, segments: &[Segment]) -> io::Result<()> {
        let file = self.file.get()?;
        for segment in segments {
            for value in segment.slotted() {
                let (word, extra) = segment.words(value);
                let now = (word.load(Relaxed), extra.load(Acquire));
                let Some(written) = self.written.get_mut(value).filter(|written| **written != Some(now)) else {
                    continue;
                };
                let words = [now.0.to_ne_bytes(), now.1.to_ne_bytes()];
                write_at(file, words.as_flattened(), value_at(value))?;
                *written = Some(now);
            }
        }
        Ok(())
    }
}

/// Returns a generation number in the format of C's library: seconds in the upper half, microseconds in the lower.
pub(super) fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() << 32 | u64::from(now.subsec_micros())
}
