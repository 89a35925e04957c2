//! Help text of metrics and instance domains: the source format of newhelp(1), and the compiled files from which an
//! agent answers pmLookupText(3) and pmLookupInDomText(3).
//!
//! [`source`] reads and writes the source format, [`compile()`] creates the pair of files `base.dir` and `base.pag`,
//! and [`Compiled`] looks up text in such a pair. Texts are bytes, because PCP specifies no encoding.
//!
//! ```
//! use pcp_help::{Compiled, Entry, Target};
//! use pmapi::PmId;
//!
//! let target = Target::Metric(PmId::from_word(0x3f40_0000).unwrap());
//! let entry = Entry::new("simple.numfetch", target, "Number of fetches", "Counts pmFetch(3).\n");
//! let files = pcp_help::compile(&[entry])?;
//! let help = Compiled::from_bytes(files.dir, files.pag)?;
//! assert_eq!(help.oneline(target), Some(&b"Number of fetches"[..]));
//! assert_eq!(help.text(target), Some(&b"Counts pmFetch(3)."[..]));
//! # Ok::<(), pcp_help::Error>(())
//! ```
//!
//! Types of [`pmapi`] are in the interface, so this crate is re-exported.

mod bytes;
mod compile;
mod compiled;
mod error;
pub mod source;

pub use pmapi;

pub use compile::{Files, compile};
pub use compiled::Compiled;
pub use error::Error;

use pmapi::{InDom, PmId};
use std::fmt;

/// The metric or instance domain that a help text describes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// A metric.
    Metric(PmId),
    /// An instance domain.
    InDom(InDom),
}

impl Target {
    /// Bit of a key that marks instance domains. It is zero in every identifier.
    const INDOM: u32 = 1 << 31;

    /// Returns the key of the target in the compiled index.
    const fn key(self) -> u32 {
        match self {
            Target::Metric(pmid) => pmid.word() & !Self::INDOM,
            Target::InDom(indom) => indom.word() | Self::INDOM,
        }
    }

    /// Returns the target of a key. Never returns `None`: the only word that is not an identifier has all bits set,
    /// which no key without the bit `INDOM` has.
    const fn from_key(key: u32) -> Option<Target> {
        if key & Self::INDOM == 0 {
            match PmId::from_word(key) {
                Some(pmid) => Some(Target::Metric(pmid)),
                None => None,
            }
        } else {
            match InDom::from_word(key & !Self::INDOM) {
                Some(indom) => Some(Target::InDom(indom)),
                None => None,
            }
        }
    }
}

impl From<PmId> for Target {
    fn from(pmid: PmId) -> Self {
        Target::Metric(pmid)
    }
}

impl From<InDom> for Target {
    fn from(indom: InDom) -> Self {
        Target::InDom(indom)
    }
}

/// Formats as `domain.cluster.item` for a metric and as `domain.serial` for an instance domain.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Metric(pmid) => pmid.fmt(f),
            Target::InDom(indom) => indom.fmt(f),
        }
    }
}

/// The help text of one metric or instance domain.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Name as in the source: a metric's name or `domain.cluster.item`, or `domain.serial` of an instance domain. The
    /// compiled files contain it, but lookups ignore it.
    pub name: Vec<u8>,
    /// The metric or instance domain.
    pub target: Target,
    /// The summary (`PM_TEXT_ONELINE`).
    pub oneline: Vec<u8>,
    /// The full text (`PM_TEXT_HELP`), zero or more lines.
    pub text: Vec<u8>,
}

impl Entry {
    /// Creates an entry. Removes white space before the summary and newlines after the text.
    pub fn new(
        name: impl Into<Vec<u8>>,
        target: impl Into<Target>,
        oneline: impl Into<Vec<u8>>,
        text: impl Into<Vec<u8>>,
    ) -> Entry {
        let mut oneline = oneline.into();
        oneline.drain(..oneline.len() - bytes::trim_space_start(&oneline).len());
        let mut text = text.into();
        text.truncate(bytes::trim_newlines_end(&text).len());
        Entry { name: name.into(), target: target.into(), oneline, text }
    }

    /// Checks that the source format and the compiled format can express the entry.
    fn check(&self) -> Result<(), Error> {
        let Entry { name, oneline, text, .. } = self;
        if name.is_empty() || name.iter().any(|b| bytes::is_space(*b)) {
            return Err(Error::entry(self, "the name is empty or has white space"));
        }
        if bytes::trim_space_start(oneline).contains(&b'\n') {
            return Err(Error::entry(self, "the summary has more than one line"));
        }
        if [name, oneline, text].iter().any(|bytes| bytes.contains(&0)) {
            return Err(Error::entry(self, "a NUL byte would end it"));
        }
        Ok(())
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
