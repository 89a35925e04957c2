//! Labels: name and value pairs that annotate metrics (pmLookupLabels(3), pmdaLabel(3)).
//!
//! A [`LabelSet`] is a JSON object in compact form with an index into it, as in libpcp and on the wire.
//!
//! ```
//! use pmapi::LabelSet;
//! let mut set = LabelSet::parse(r#"{ "unit": "percent" }"#)?;
//! set.insert("cpu", 3)?;
//! assert_eq!(set.json(), r#"{"cpu":3,"unit":"percent"}"#);
//! # Ok::<(), pmapi::LabelError>(())
//! ```

mod defaults;
mod flags;
mod json;

use std::fmt;

use crate::Error;
pub use flags::{LabelFlags, LabelLevel};
use json::Invalid;
use pcp_base::escape::escaped_json;

const MAX_LABELS: usize = LabelSet::MAX_LABELS;
const MAX_JSON: usize = LabelSet::MAX_JSON;
/// Longest name of a label, in bytes.
const MAX_NAME: usize = 254;

/// Labels of a metric, an instance, an instance domain, an agent or a host (`pmLabelSet`).
///
/// The index is sorted by name. The JSON text keeps the order of its input until a label is added, which sorts the text
/// too. Names of nested objects are joined by dots and flagged [`LabelFlags::COMPOUND`]: in `{"a":{"b":1}}` the label
/// is "a.b".
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSet {
    json: String,
    index: Vec<Entry>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Entry {
    raw: RawLabel,
    /// Full name of a compound label in nested JSON, where `raw.name` is only the last component.
    path: Option<Box<str>>,
}

/// Position of a label in its set's JSON text (`pmLabel`), with the fields of the wire encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RawLabel {
    /// Offset of the name in bytes.
    pub name: u16,
    /// Length of the name in bytes.
    pub name_len: u8,
    /// Level, and whether compound or optional.
    pub flags: LabelFlags,
    /// Offset of the value in bytes. For a string, of its first quote.
    pub value: u16,
    /// Length of the value in bytes; for a string, with both quotes.
    pub value_len: u16,
}

/// Label of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Label<'a> {
    /// Full name, with dots in a compound name.
    pub name: &'a str,
    /// Value in JSON, including the quotes of a string.
    pub value: &'a str,
    /// Level, and whether compound or optional.
    pub flags: LabelFlags,
}

/// Reason why labels are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// Text that is not JSON.
    #[error("label text is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON that is not an object.
    #[error("label text is not a JSON object")]
    NotAnObject,
    /// Name with a character other than letters, digits and underscores, or without any.
    #[error("label name {0:?} must consist of letters, digits and underscores")]
    Name(String),
    /// Name longer than 254 bytes.
    #[error("label name of {0} bytes, more than {MAX_NAME}")]
    NameTooLong(usize),
    /// Name that occurs twice in one text.
    #[error("label name {0:?} occurs twice")]
    Duplicate(String),
    /// More than 254 labels.
    #[error("more than {MAX_LABELS} labels")]
    TooMany,
    /// JSON text longer than 65,534 bytes.
    #[error("labels of more than {MAX_JSON} bytes")]
    TooLong,
    /// Index that points outside of the JSON text.
    #[error("label index points outside of its JSON text of {0} bytes")]
    Index(usize),
}

/// Converts to the error that libpcp returns: `-E2BIG`, `-EINVAL` or `PM_ERR_IPC`.
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
    /// Largest number of labels in a set. libpcp writes one more, which its decoder refuses.
    pub const MAX_LABELS: usize = 254;
    /// Longest JSON text of a set, in bytes.
    pub const MAX_JSON: usize = 0xfffe;

    /// Creates an empty set.
    pub const fn new() -> LabelSet {
        LabelSet { json: String::new(), index: Vec::new() }
    }

    /// Parses a JSON object; empty text is an empty set.
    ///
    /// Names consist of letters, digits and underscores. A label with another name is left out with its value, and the
    /// others stay, as libpcp does since 7.2 (earlier versions refuse the set, and names that do not begin with a
    /// letter). [`LabelSet::from_serialize`] refuses such a set.
    ///
    /// # Errors
    /// [`LabelError`] for text that is not a JSON object, for duplicate names, for invalid names if no label is left, and
    /// for a set over the limits.
    pub fn parse(json: &str) -> Result<LabelSet, LabelError> {
        Self::parse_flagged(json, LabelFlags::empty())
    }

    /// Parses a JSON object and gives every label the flags. [`LabelFlags::COMPOUND`] permits dots in names.
    ///
    /// # Errors
    /// Errors of [`LabelSet::parse`].
    pub fn parse_flagged(json: &str, flags: LabelFlags) -> Result<LabelSet, LabelError> {
        json::parse(json, flags, Invalid::LeftOut)
    }

    /// Parses a JSON object as [`LabelSet::parse_flagged`] does, but leaves no label out.
    ///
    /// # Errors
    /// [`LabelError::Name`] or [`LabelError::NameTooLong`] for the first invalid name, also within a value; errors of
    /// [`LabelSet::parse`].
    pub fn parse_strict(json: &str, flags: LabelFlags) -> Result<LabelSet, LabelError> {
        json::parse(json, flags, Invalid::Refused)
    }

    /// Creates a set from its JSON text and index, which must match. Compound labels keep the name to which the index
    /// points.
    ///
    /// # Errors
    /// [`LabelError::Index`] when the index points outside of the text.
    pub fn from_raw(json: String, index: impl IntoIterator<Item = RawLabel>) -> Result<LabelSet, LabelError> {
        let index: Vec<Entry> = index.into_iter().map(|raw| Entry { raw, path: None }).collect();
        if !index.iter().all(|e| json.get(e.raw.name_range()).is_some() && json.get(e.raw.value_range()).is_some()) {
            return Err(LabelError::Index(json.len()));
        }
        Ok(LabelSet { json, index })
    }

    /// Creates a set from a value that serializes to an object, or from an object's JSON text.
    ///
    /// Members of nested objects get names with dots, as clients should see them: libpcp sends `{"a":{"b":1}}` with the
    /// name "b" alone.
    ///
    /// # Errors
    /// [`LabelError::Json`] for a value that cannot be serialized; errors of [`LabelSet::parse_strict`].
    pub fn from_serialize(labels: impl serde::Serialize) -> Result<LabelSet, LabelError> {
        json::from(labels, LabelFlags::empty())
    }

    /// Creates a set of one label. Unlike [`LabelSet::from_serialize`], this keeps nested objects in the text, which is the form
    /// that agents accept from files.
    ///
    /// # Errors
    /// Errors of [`LabelSet::from_serialize`].
    pub fn single(name: &str, value: impl serde::Serialize) -> Result<LabelSet, LabelError> {
        json::check_name(name, false)?;
        let json = format!("{{\"{name}\":{}}}", serde_json::to_string(&value)?);
        Self::parse_strict(&escaped_json(&json), LabelFlags::empty())
    }

    /// Adds labels, in a form that [`LabelSet::from_serialize`] accepts (pmdaAddLabels(3)). They replace labels of the same name.
    ///
    /// # Errors
    /// Errors of [`LabelSet::from_serialize`] and [`LabelSet::merge`].
    pub fn add(&mut self, labels: impl serde::Serialize) -> Result<(), LabelError> {
        self.merge(&Self::from_serialize(labels)?)
    }

    /// Adds notes, in a form that [`LabelSet::from_serialize`] accepts (pmdaAddNotes(3)). Notes are labels that do not identify
    /// the object that they annotate.
    ///
    /// # Errors
    /// Errors of [`LabelSet::from_serialize`] and [`LabelSet::merge`].
    pub fn add_notes(&mut self, labels: impl serde::Serialize) -> Result<(), LabelError> {
        self.merge(&json::from(labels, LabelFlags::OPTIONAL)?)
    }

    /// Adds one label, which replaces a label of the same name. A value that serializes to an object becomes a label
    /// for each of its members.
    ///
    /// # Errors
    /// Errors of [`LabelSet::add`].
    pub fn insert(&mut self, name: &str, value: impl serde::Serialize) -> Result<(), LabelError> {
        json::check_name(name, false)?;
        self.add(format!("{{\"{name}\":{}}}", serde_json::to_string(&value)?))
    }

    /// Adds the labels of another set, which replace labels of the same name (pmMergeLabelSets(3)).
    ///
    /// # Errors
    /// [`LabelError::TooMany`], [`LabelError::TooLong`] or [`LabelError::NameTooLong`] when the result is over the
    /// limits. After an error, the set is unchanged.
    pub fn merge(&mut self, other: &LabelSet) -> Result<(), LabelError> {
        if self.is_empty() {
            *self = other.clone();
        } else {
            *self = self.merged(other)?;
        }
        Ok(())
    }

    /// Merges sets into one, in which labels of a later set replace those of the same name (pmMergeLabelSets(3)). Sets
    /// of levels are in the order of [`LabelLevel::ALL`].
    ///
    /// # Errors
    /// Errors of [`LabelSet::merge`].
    pub fn merge_all<'s>(sets: impl IntoIterator<Item = &'s LabelSet>) -> Result<LabelSet, LabelError> {
        let mut merged = LabelSet::new();
        for set in sets {
            merged.merge(set)?;
        }
        Ok(merged)
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

    /// Adds flags to every label, for instance the level of the set (pmdaAddLabelFlags(3)).
    pub fn flag(&mut self, flags: LabelFlags) {
        for entry in &mut self.index {
            entry.raw.flags |= flags;
        }
    }

    /// Returns the JSON text in compact form, which is empty without labels.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Iterates over the labels, sorted by name.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = Label<'_>> {
        self.index.iter().map(|entry| Label {
            name: entry.name(&self.json),
            value: self.json.get(entry.raw.value_range()).unwrap_or_default(),
            flags: entry.raw.flags,
        })
    }

    /// Iterates over the index, sorted by name.
    pub fn index(&self) -> impl ExactSizeIterator<Item = RawLabel> {
        self.index.iter().map(|e| e.raw)
    }

    /// Returns the value of a label in JSON, including the quotes of a string.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.labels().find(|l| l.name == name).map(|l| l.value)
    }

    fn contains(&self, name: &str) -> bool {
        self.index.binary_search_by(|e| e.name(&self.json).cmp(name)).is_ok()
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether the set has no labels.
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
    /// Returns the name within the JSON text of its set; `None` when the label points outside.
    pub fn name_in(self, json: &[u8]) -> Option<&[u8]> {
        json.get(self.name.into()..)?.get(..self.name_len.into())
    }

    /// Returns the value within the JSON text of its set; `None` when the label points outside.
    pub fn value_in(self, json: &[u8]) -> Option<&[u8]> {
        json.get(self.value.into()..)?.get(..self.value_len.into())
    }

    /// Returns the range of the name in the JSON text, in bytes.
    pub fn name_range(self) -> std::ops::Range<usize> {
        usize::from(self.name)..usize::from(self.name) + usize::from(self.name_len)
    }

    /// Returns the range of the value in the JSON text, in bytes.
    pub fn value_range(self) -> std::ops::Range<usize> {
        usize::from(self.value)..usize::from(self.value) + usize::from(self.value_len)
    }
}

/// JSON text of the set.
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
