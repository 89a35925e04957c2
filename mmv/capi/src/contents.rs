//! Contents of a file, as the program has described them. All texts are copies: a program may change or free its own.

use libc::{E2BIG, EINVAL, ENOMEM, ESRCH};
use mmv::format::{NAME_LEN, STRING_LEN, Version, is_singular};

use crate::label::Label;
use crate::sys::check_memory;

/// Code of a type whose values are strings (`MMV_TYPE_STRING`).
pub(crate) const STRING: i32 = 6;
/// Codes of the lowest and the highest type (`MMV_TYPE_NOSUPPORT`, `MMV_TYPE_ELAPSED`).
const TYPES: std::ops::RangeInclusive<i32> = -1..=9;

/// One-line and full help text of the program.
pub(crate) type Help<'a> = [Option<&'a [u8]>; 2];

/// One-line and full help text.
pub(crate) type OwnHelp = [Option<Box<[u8]>>; 2];

/// A metric (`mmv_metric2_t`).
#[derive(Clone, Debug)]
pub(crate) struct Metric {
    pub name: Box<[u8]>,
    pub item: u32,
    pub ty: i32,
    pub semantics: i32,
    pub units: u32,
    /// Serial number of the instance domain.
    pub serial: u32,
    pub help: OwnHelp,
}

/// An instance (`mmv_instances2_t`).
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub id: i32,
    pub name: Box<[u8]>,
}

/// An instance domain (`mmv_indom2_t`).
#[derive(Clone, Debug)]
pub(crate) struct Indom {
    pub serial: u32,
    pub instances: Vec<Instance>,
    pub help: OwnHelp,
}

/// Form in which the program has passed names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    /// Arrays of 64 bytes (`mmv_metric_t`). Longer names are truncated.
    Arrays,
    /// Pointers (`mmv_metric2_t`, `mmv_stats_add_metric`). Longer names require version 2.
    Pointers,
}

/// Contents of a file.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub cluster: i32,
    pub flags: u32,
    pub names: Names,
    pub metrics: Vec<Metric>,
    pub indoms: Vec<Indom>,
    pub labels: Vec<Label>,
    /// Whether the file must have the version that allows labels, even if it has no labels.
    pub labelled: bool,
}

/// Appends an item whose texts have at most [`STRING_LEN`] bytes each. Fails if there is no memory.
pub(crate) fn push<T>(all: &mut Vec<T>, item: impl FnOnce() -> T) -> Result<(), i32> {
    all.try_reserve(1).map_err(|_| ENOMEM)?;
    check_memory(0)?;
    all.push(item());
    Ok(())
}

/// Copies the beginning of a text: one byte more than a file has room for, so that a text that is too long is noticed.
pub(crate) fn own(text: &[u8]) -> Box<[u8]> {
    text.get(..STRING_LEN).unwrap_or(text).into()
}

pub(crate) fn own_help(help: Help<'_>) -> OwnHelp {
    help.map(|text| text.map(own))
}

impl Contents {
    pub(crate) fn new(cluster: i32, flags: u32, names: Names) -> Contents {
        let (metrics, indoms, labels) = Default::default();
        Contents { cluster, flags, names, metrics, indoms, labels, labelled: false }
    }

    /// Returns the first instance domain with a serial number.
    pub(crate) fn indom(&self, serial: u32) -> Option<(usize, &Indom)> {
        self.indoms.iter().enumerate().find(|(_, indom)| indom.serial == serial)
    }

    /// Checks the contents and returns the version of the file, or the code of the error that C's library reports.
    pub(crate) fn check(&self) -> Result<Version, i32> {
        let mut is_long = false;
        let mut check_name = |name: &[u8]| {
            is_long |= name.len() >= NAME_LEN;
            if name.is_empty() { Err(EINVAL) } else { fits(name) }
        };
        for indom in &self.indoms {
            if is_singular(indom.serial) {
                return Err(ESRCH);
            }
            indom.help.iter().flatten().try_for_each(|text| fits(text))?;
            if self.names == Names::Pointers {
                indom.instances.iter().try_for_each(|instance| check_name(&instance.name))?;
            }
        }
        for metric in &self.metrics {
            if !TYPES.contains(&metric.ty) {
                return Err(EINVAL);
            }
            check_name(&metric.name)?;
            if !is_singular(metric.serial) {
                self.indom(metric.serial).ok_or(ESRCH)?;
            }
        }
        Ok(match (self.labelled, self.names) {
            (true, _) => Version::V3,
            (false, Names::Pointers) if is_long => Version::V2,
            _ => Version::V1,
        })
    }
}

/// Returns an error if a text does not fit into a string of a file.
fn fits(text: &[u8]) -> Result<(), i32> {
    if text.len() < STRING_LEN { Ok(()) } else { Err(E2BIG) }
}
