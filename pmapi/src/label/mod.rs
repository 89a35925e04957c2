//! Labels: name and value pairs that annotate metrics (pmLookupLabels(3), pmdaLabel(3)).
//!
//! A [`LabelSet`] is a JSON object in compact form and an index into it, both as libpcp has them
//! and as they travel.
//!
//! ```
//! use pmapi::label::LabelSet;
//! let mut set = LabelSet::parse(r#"{ "unit": "percent" }"#)?;
//! set.insert("cpu", 3)?;
//! assert_eq!(set.json(), r#"{"cpu":3,"unit":"percent"}"#);
//! # Ok::<(), pmapi::label::LabelError>(())
//! ```

mod defaults;
mod flags;
mod json;

use std::fmt;

use crate::Error;
pub use flags::{LabelFlags, LabelLevel};

/// The largest number of labels of a set. libpcp writes one more, but its decoder refuses it.
pub const MAX_LABELS: usize = 254;
/// The longest JSON text of a set, in bytes.
pub const MAX_JSON: usize = 0xfffe;
/// The longest name of a label, in bytes.
pub const MAX_NAME: usize = 254;

/// Labels of a metric, an instance, an instance domain, an agent or a host (`pmLabelSet`).
///
/// The index is sorted by name. The JSON text keeps the order of its input until something is
/// added to the set, which sorts it too. Names of nested objects are joined with a dot and flagged
/// [`LabelFlags::COMPOUND`]: in `{"a":{"b":1}}` the label is "a.b".
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LabelSet {
    json: String,
    index: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    raw: RawLabel,
    /// The name of a compound label whose JSON is nested: the text at `raw.name` is only its end.
    path: Option<Box<str>>,
}

/// The place of a label in its set's JSON text (`pmLabel`), as it travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawLabel {
    /// Offset of the name.
    pub name: u16,
    /// Length of the name.
    pub name_len: u8,
    /// Level, and whether compound or optional.
    pub flags: LabelFlags,
    /// Offset of the value; of a string value that of its first quote.
    pub value: u16,
    /// Length of the value; of a string value with both quotes.
    pub value_len: u16,
}

/// One label of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label<'a> {
    /// The whole name, with dots when it is compound.
    pub name: &'a str,
    /// The value: JSON, a string with its quotes.
    pub value: &'a str,
    /// Level, and whether compound or optional.
    pub flags: LabelFlags,
}

/// What is wrong with labels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// Not JSON.
    #[error("label text is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON, but not an object.
    #[error("label text is not a JSON object")]
    NotAnObject,
    /// A name has other characters than letters, digits and underscores, or starts with no letter.
    #[error("label name {0:?} is not a letter followed by letters, digits and underscores")]
    Name(String),
    /// A name is longer than [`MAX_NAME`].
    #[error("label name of {0} bytes, more than {MAX_NAME}")]
    NameTooLong(usize),
    /// One text has a name twice.
    #[error("label name {0:?} is there twice")]
    Duplicate(String),
    /// More labels than [`MAX_LABELS`].
    #[error("more than {MAX_LABELS} labels")]
    TooMany,
    /// JSON text longer than [`MAX_JSON`].
    #[error("labels of more than {MAX_JSON} bytes")]
    TooLong,
    /// The index of a set from outside points out of its text.
    #[error("label index points out of its JSON text of {0} bytes")]
    Index(usize),
}

/// The `errno` that libpcp gives.
impl From<LabelError> for Error {
    fn from(e: LabelError) -> Error {
        match e {
            LabelError::NameTooLong(_) | LabelError::TooMany | LabelError::TooLong => Error::from_errno(E2BIG),
            LabelError::Index(_) => Error::IPC,
            _ => Error::from_errno(EINVAL),
        }
    }
}
const E2BIG: i32 = 7;
const EINVAL: i32 = 22;

impl LabelSet {
    /// No labels.
    pub const fn new() -> LabelSet {
        LabelSet { json: String::new(), index: Vec::new() }
    }

    /// The labels of a JSON object; empty text is an empty set.
    pub fn parse(json: &str) -> Result<LabelSet, LabelError> {
        Self::parse_flagged(json, LabelFlags::NONE)
    }

    /// As [`LabelSet::parse`], with flags for every label. [`LabelFlags::COMPOUND`] lets names have
    /// dots.
    pub fn parse_flagged(json: &str, flags: LabelFlags) -> Result<LabelSet, LabelError> {
        json::parse(json, flags)
    }

    /// A set from its JSON text and index, which must agree with each other; what is flagged
    /// compound keeps the name that the index shows.
    pub fn from_raw(json: String, index: impl IntoIterator<Item = RawLabel>) -> Result<LabelSet, LabelError> {
        let index: Vec<Entry> = index.into_iter().map(|raw| Entry { raw, path: None }).collect();
        let inside = |e: &Entry| json.get(e.raw.name_range()).is_some() && json.get(e.raw.value_range()).is_some();
        if !index.iter().all(inside) {
            return Err(LabelError::Index(json.len()));
        }
        Ok(LabelSet { json, index })
    }

    /// The labels of anything that serializes to an object, or of an object's JSON text. Nested objects
    /// become names with dots, which is how clients are to see them: libpcp sends `{"a":{"b":1}}` with
    /// the name "b" alone.
    pub fn of(labels: impl serde::Serialize) -> Result<LabelSet, LabelError> {
        json::from(labels, LabelFlags::NONE)
    }

    /// Adds labels, given as to [`LabelSet::of`]; they win over labels of the same name
    /// (pmdaAddLabels(3)).
    pub fn add(&mut self, labels: impl serde::Serialize) -> Result<(), LabelError> {
        self.merge(&Self::of(labels)?)
    }

    /// Adds labels that do not identify what they annotate, given as to [`LabelSet::of`]
    /// (pmdaAddNotes(3)).
    pub fn add_notes(&mut self, labels: impl serde::Serialize) -> Result<(), LabelError> {
        self.merge(&json::from(labels, LabelFlags::OPTIONAL)?)
    }

    /// Adds one label; it wins over a label of the same name. A value that serializes to an object
    /// becomes a label for each of its members.
    pub fn insert(&mut self, name: &str, value: impl serde::Serialize) -> Result<(), LabelError> {
        json::check_name(name, false)?;
        self.add(format!("{{\"{name}\":{}}}", serde_json::to_string(&value)?))
    }

    /// Adds the labels of another set; they win over labels of the same name
    /// (pmMergeLabelSets(3)). Upon an error the set stays as it was.
    pub fn merge(&mut self, other: &LabelSet) -> Result<(), LabelError> {
        if self.is_empty() {
            *self = other.clone();
        } else {
            *self = self.merged(other)?;
        }
        Ok(())
    }

    fn merged(&self, other: &LabelSet) -> Result<LabelSet, LabelError> {
        let mut kept = self.labels().filter(|l| !other.contains(l.name)).peekable();
        let mut added = other.labels().peekable();
        let mut merged = LabelSet { json: "{".into(), index: Vec::new() };
        loop {
            let next = match (kept.peek(), added.peek()) {
                (Some(a), Some(b)) if a.name < b.name => kept.next(),
                (_, Some(_)) => added.next(),
                (_, None) => kept.next(),
            };
            let Some(label) = next else { break };
            merged.append(label)?;
        }
        merged.json.push('}');
        if merged.json.len() > MAX_JSON {
            return Err(LabelError::TooLong);
        }
        Ok(merged)
    }

    fn append(&mut self, label: Label<'_>) -> Result<(), LabelError> {
        if self.index.len() == MAX_LABELS {
            return Err(LabelError::TooMany);
        }
        if !self.index.is_empty() {
            self.json.push(',');
        }
        let name = self.json.len() + 1;
        let value = name + label.name.len() + 2;
        self.json.extend(["\"", label.name, "\":", label.value]);
        let raw = RawLabel {
            name: u16::try_from(name).map_err(|_| LabelError::TooLong)?,
            name_len: u8::try_from(label.name.len()).map_err(|_| LabelError::NameTooLong(label.name.len()))?,
            flags: label.flags,
            value: u16::try_from(value).map_err(|_| LabelError::TooLong)?,
            value_len: u16::try_from(label.value.len()).map_err(|_| LabelError::TooLong)?,
        };
        self.index.push(Entry { raw, path: None });
        Ok(())
    }

    /// Adds flags to every label, for instance the level that the set answers for
    /// (pmdaAddLabelFlags(3)).
    pub fn flag(&mut self, flags: LabelFlags) {
        for entry in &mut self.index {
            entry.raw.flags = entry.raw.flags | flags;
        }
    }

    /// The JSON text, compact; empty without labels.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The labels, sorted by name.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = Label<'_>> {
        self.index.iter().map(|entry| Label {
            name: entry.name(&self.json),
            value: self.json.get(entry.raw.value_range()).unwrap_or_default(),
            flags: entry.raw.flags,
        })
    }

    /// The index, sorted by name, as it travels.
    pub fn index(&self) -> impl ExactSizeIterator<Item = RawLabel> {
        self.index.iter().map(|e| e.raw)
    }

    /// The value of a label: JSON, a string with its quotes.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.labels().find(|l| l.name == name).map(|l| l.value)
    }

    fn contains(&self, name: &str) -> bool {
        self.index.binary_search_by(|e| e.name(&self.json).cmp(name)).is_ok()
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

impl Entry {
    fn name<'a>(&'a self, json: &'a str) -> &'a str {
        self.path.as_deref().unwrap_or_else(|| json.get(self.raw.name_range()).unwrap_or_default())
    }
}

impl RawLabel {
    /// The name within the JSON of its set; `None` when the label points outside.
    pub fn name_in(self, json: &[u8]) -> Option<&[u8]> {
        json.get(self.name.into()..)?.get(..self.name_len.into())
    }

    /// The value within the JSON of its set; `None` when the label points outside.
    pub fn value_in(self, json: &[u8]) -> Option<&[u8]> {
        json.get(self.value.into()..)?.get(..self.value_len.into())
    }

    /// Where the name is in the JSON text.
    pub fn name_range(self) -> std::ops::Range<usize> {
        usize::from(self.name)..usize::from(self.name) + usize::from(self.name_len)
    }

    /// Where the value is in the JSON text.
    pub fn value_range(self) -> std::ops::Range<usize> {
        usize::from(self.value)..usize::from(self.value) + usize::from(self.value_len)
    }
}

/// The JSON text.
impl fmt::Display for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.json)
    }
}

impl fmt::Debug for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.labels()).finish()
    }
}

impl std::str::FromStr for LabelSet {
    type Err = LabelError;

    fn from_str(json: &str) -> Result<LabelSet, LabelError> {
        Self::parse(json)
    }
}

#[cfg(test)]
mod tests;
