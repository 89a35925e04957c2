//! Descriptor of a metric: type, instance domain, semantics, units.

use crate::{InDom, PmId, Semantics, Type, Units};

/// Descriptor of a metric (`pmDesc`, pmLookupDesc(3)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Desc {
    /// Identifier of the metric.
    pub pmid: PmId,
    /// Type of its values.
    #[cfg_attr(feature = "serde", serde(rename = "type"))]
    pub ty: Type,
    /// Instance domain of its values; `None` for a singular metric.
    pub indom: Option<InDom>,
    /// Semantics of its values.
    pub semantics: Semantics,
    /// Dimension and scale of its values.
    pub units: Units,
}
