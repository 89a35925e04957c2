//! Labels of what is registered.

use crate::Error;
use crate::model::Label;

/// Returns the labels, or the error of the first one that is not valid.
pub(super) fn all(labels: Vec<Result<Label, Error>>) -> Result<Vec<Label>, Error> {
    // Most metrics have no labels: this allocates nothing.
    if labels.is_empty() { Ok(Vec::new()) } else { labels.into_iter().collect() }
}
