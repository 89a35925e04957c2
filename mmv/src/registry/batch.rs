//! A guard that delays writing the file.

use std::sync::Arc;

use super::Inner;

/// A guard of [`Registry::batch`](crate::Registry::batch). While it lives, registrations do not write the file;
/// dropping it writes the file once. Handles work in the meantime.
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
