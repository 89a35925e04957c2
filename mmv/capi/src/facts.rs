//! Metrics as a program describes them, and what a start needs to know of all.

use std::ops::RangeInclusive;

use mmv::format::{NAME_LEN, is_singular};

/// Code of the lowest and the highest type (`MMV_TYPE_NOSUPPORT`, `MMV_TYPE_ELAPSED`).
pub(crate) const TYPES: RangeInclusive<i32> = -1..=9;

/// Code of a type whose values are strings (`MMV_TYPE_STRING`).
pub(crate) const STRING: u8 = 6;

/// One-line and full help text.
pub(crate) type Help<'a> = [Option<&'a [u8]>; 2];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric<'a> {
    pub name: &'a [u8],
    pub item: u32,
    pub ty: i32,
    pub semantics: i32,
    pub units: u32,
    /// Serial number of the instance domain.
    pub serial: u32,
    pub help: Help<'a>,
}

/// What a start needs to know of all items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Number of help texts.
    pub helps: usize,
    /// Whether all names are valid and short enough for version 1, and all metrics have one number each: they have a valid
    /// type other than string, and no instance domain.
    pub plain: bool,
}

impl Facts {
    pub(crate) const NONE: Facts = Facts { helps: 0, plain: true };

    /// Adds an item with a name of this length.
    #[inline(always)]
    pub(crate) fn with_name(self, len: usize) -> Facts {
        Facts { plain: self.plain & (1..NAME_LEN).contains(&len), ..self }
    }

    #[inline(always)]
    pub(crate) fn with_metric(self, metric: &Metric<'_>) -> Facts {
        let Facts { helps, plain } = self.with_name(metric.name.len());
        let [short, long] = metric.help.map(|text| usize::from(text.is_some()));
        let plain = plain & TYPES.contains(&metric.ty) & (metric.ty != i32::from(STRING)) & is_singular(metric.serial);
        Facts { helps: helps + short + long, plain }
    }
}
