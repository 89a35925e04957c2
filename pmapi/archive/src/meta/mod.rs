//! Metadata of an archive: descriptors, names, instance domains, labels and texts, by time.

mod disk;
mod indom;
mod label;
mod load;
mod names;
mod view;

use std::collections::BTreeMap;

use pcp_pdu::desc::RawDesc;
use pcp_pdu::metadata::TextKind;
use pmapi::{Desc, Error, InDom, PmId, Result, Semantics, Type, Units};

pub use disk::DiskInDom;
pub(crate) use indom::Lifetime;
pub use indom::{InDomRecord, Instance};
pub use label::{LabelRecord, LabelSetView};
pub(crate) use load::no_metric;
pub use names::Names;
pub use view::InstanceNames;

use indom::InDoms;
use label::Labels;

/// Metadata of one archive, or of several as one.
#[derive(Debug, Default)]
pub struct Metadata {
    /// Contents of the metadata files.
    files: Vec<Vec<u8>>,
    descs: BTreeMap<PmId, RawDesc>,
    names: Names,
    indoms: InDoms,
    labels: Labels,
    texts: BTreeMap<(TextSubject, u32, u32), Place>,
}

/// Position in a metadata file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    file: u32,
    at: u64,
}

/// What a help text describes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum TextSubject {
    Metric,
    InDom,
}

/// Returns the code of a kind in a record.
const fn code(kind: TextKind) -> u32 {
    match kind {
        TextKind::OneLine => 1,
        TextKind::Help => 2,
    }
}

impl Metadata {
    /// Returns the descriptor of a metric as it is recorded. Its codes may be invalid.
    ///
    /// # Errors
    /// `PM_ERR_PMID_LOG` for a metric that the archive does not have.
    pub fn raw_desc(&self, pmid: PmId) -> Result<&RawDesc> {
        self.descs.get(&pmid).ok_or(Error::PMID_LOG)
    }

    /// Returns the descriptor of a metric (pmLookupDesc(3)).
    ///
    /// # Errors
    /// `PM_ERR_PMID_LOG` for a metric that the archive does not have, `PM_ERR_TYPE` for an unknown type,
    /// `PM_ERR_CONV` for unknown semantics.
    pub fn desc(&self, pmid: PmId) -> Result<Desc> {
        let raw = self.raw_desc(pmid)?;
        Ok(Desc {
            pmid,
            ty: Type::from_code(raw.ty)?,
            indom: raw.indom,
            semantics: Semantics::from_code(raw.semantics)?,
            units: Units::from_word(raw.units),
        })
    }

    /// Iterates over the descriptors in the order of their PMIDs.
    pub fn descs(&self) -> impl ExactSizeIterator<Item = (PmId, &RawDesc)> {
        self.descs.iter().map(|(pmid, desc)| (*pmid, desc))
    }

    /// Returns the name space of the archive.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Iterates over the instance domains in their order.
    pub fn indoms(&self) -> impl Iterator<Item = InDom> {
        self.indoms.keys()
    }

    /// Returns the help text of a metric (pmLookupText(3)). If the full text is missing, returns the one-line text.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` for a metric without text, `PM_ERR_NOTHOST` in an archive without such texts.
    pub fn text(&self, pmid: PmId, kind: TextKind) -> Result<&[u8]> {
        self.find_text(TextSubject::Metric, pmid.word(), kind)
    }

    /// Returns the help text of an instance domain (pmLookupInDomText(3)). If the full text is missing, returns the
    /// one-line text.
    ///
    /// # Errors
    /// `PM_ERR_TEXT` for a domain without text, `PM_ERR_NOTHOST` in an archive without such texts.
    pub fn indom_text(&self, indom: InDom, kind: TextKind) -> Result<&[u8]> {
        self.find_text(TextSubject::InDom, indom.word(), kind)
    }

    /// Finds a text. If the full text is missing or empty, returns the one-line text.
    fn find_text(&self, subject: TextSubject, ident: u32, kind: TextKind) -> Result<&[u8]> {
        let found = self.texts.get(&(subject, ident, code(kind))).map(|place| self.text_at(*place));
        match (found, kind) {
            (Some(text), _) if !text.is_empty() => return Ok(text),
            (_, TextKind::Help) => return self.find_text(subject, ident, TextKind::OneLine),
            (Some(text), TextKind::OneLine) => return Ok(text),
            (None, TextKind::OneLine) => (),
        }
        Err(if self.texts.keys().any(|(of, _, recorded)| *of == subject && *recorded == code(kind)) {
            Error::TEXT
        } else {
            Error::NOTHOST
        })
    }

    /// Iterates over the identifiers, kinds and texts of metrics, in the order of identifiers.
    pub fn metric_texts(&self) -> impl Iterator<Item = (u32, TextKind, &[u8])> {
        self.texts_of(TextSubject::Metric)
    }

    /// Iterates over the identifiers, kinds and texts of instance domains, in the order of identifiers.
    pub fn indom_texts(&self) -> impl Iterator<Item = (u32, TextKind, &[u8])> {
        self.texts_of(TextSubject::InDom)
    }

    fn texts_of(&self, subject: TextSubject) -> impl Iterator<Item = (u32, TextKind, &[u8])> {
        self.texts.iter().filter(move |((of, ..), _)| *of == subject).map(|((_, ident, kind), place)| {
            let kind = if *kind == code(TextKind::OneLine) { TextKind::OneLine } else { TextKind::Help };
            (*ident, kind, self.text_at(*place))
        })
    }

    /// Returns the contents of a metadata file.
    pub(crate) fn file(&self, file: u32) -> &[u8] {
        self.files.get(file as usize).map_or(&[], Vec::as_slice)
    }

    fn text_at(&self, place: Place) -> &[u8] {
        crate::decode::meta::text_at(self.file(place.file), place.at)
    }
}
