//! Several registrations, one file.

use std::sync::Arc;

use super::Inner;

/// While this guard of [`Registry::batch`](crate::Registry::batch) lives, registrations don't write
/// the file; its drop does, once. Their handles work from the beginning.
#[derive(Debug)]
#[must_use = "the registrations are published when this is dropped"]
pub struct Batch<'a> {
    inner: &'a Arc<Inner>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(inner: &'a Arc<Inner>) -> Batch<'a> {
        if let Some(mut state) = inner.lock() {
            state.batches += 1;
        }
        Batch { inner }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.inner.end_batch();
    }
}
