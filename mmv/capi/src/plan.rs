//! Contents of a file, as the program has described them.

use libc::{E2BIG, EINVAL, ENOMEM, ESRCH};
use mmv::format::{NAME_LEN, STRING_LEN, Version, is_singular};

use crate::facts::{Facts, Help, Metric, TYPES};
use crate::label::Label;
use crate::own::{Items, OwnInstance, OwnMetric};

/// Contents of a file.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub cluster: i32,
    pub flags: u32,
    pub metrics: Metrics<'a>,
    pub indoms: Vec<Indom<'a>>,
    pub labels: &'a [Label],
    /// Whether the file must have the version that allows labels, even if it has no labels.
    pub labelled: bool,
    /// How the program has given the names.
    pub names: Names,
}

/// Form in which the program has passed names and help texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Names {
    /// Arrays of 64 bytes (`mmv_metric_t`). Longer names are truncated.
    Arrays,
    /// Pointers (`mmv_metric2_t`, `mmv_stats_add_metric`). Longer names require version 2.
    Pointers,
}

/// Metrics of a plan, where the program has described them.
#[derive(Debug)]
pub(crate) enum Metrics<'a> {
    /// Items of a registry.
    Kept(&'a Items<OwnMetric>),
    /// Items in arrays of the program.
    Read(Vec<Metric<'a>>),
}

impl<'a> Metrics<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Metrics::Kept(all) => all.len(),
            Metrics::Read(all) => all.len(),
        }
    }

    /// Calls `each` with all metrics, up to the first error.
    #[inline]
    pub(crate) fn try_each<E>(&self, each: impl FnMut(Metric<'a>) -> Result<(), E>) -> Result<(), E> {
        match self {
            Metrics::Kept(all) => all.try_each_metric(each),
            Metrics::Read(all) => all.iter().copied().try_for_each(each),
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        match self {
            Metrics::Kept(all) => all.facts(),
            Metrics::Read(all) => all.iter().fold(Facts::NONE, |facts, metric| facts.with_metric(metric)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Indom<'a> {
    pub serial: u32,
    pub instances: Instances<'a>,
    pub help: Help<'a>,
}

/// Instances with their identifiers and names.
#[derive(Debug)]
pub(crate) enum Instances<'a> {
    /// Items of a registry.
    Kept(&'a Items<OwnInstance>),
    /// Items in arrays of the program.
    Read(Vec<(i32, &'a [u8])>),
}

impl<'a> Instances<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Instances::Kept(all) => all.len(),
            Instances::Read(all) => all.len(),
        }
    }

    fn facts(&self) -> Facts {
        match self {
            Instances::Kept(all) => all.facts(),
            Instances::Read(all) => all.iter().fold(Facts::NONE, |facts, (_, name)| facts.with_name(name.len())),
        }
    }

    /// Calls `each` with the identifiers and names of all instances, up to the first error.
    #[inline]
    pub(crate) fn try_each<E>(&self, mut each: impl FnMut(i32, &'a [u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Instances::Kept(all) => all.try_each_instance(each),
            Instances::Read(all) => all.iter().try_for_each(|(id, name)| each(*id, name)),
        }
    }
}

impl Plan<'_> {
    /// Checks the plan and returns the version of its file, or the code of the error that C's library reports. Calls
    /// `each` with the type of each metric and the index of its instance domain, unless the metrics are
    /// [plain](Facts::plain).
    pub(crate) fn check(
        &self,
        facts: &Facts,
        mut each: impl FnMut(u8, Option<usize>) -> Result<(), i32>,
    ) -> Result<Version, i32> {
        let mut has_long_names = false;
        let mut check_name = |name: &[u8]| {
            has_long_names |= name.len() >= NAME_LEN;
            if name.is_empty() { Err(EINVAL) } else { fits(name.len()) }
        };
        for indom in &self.indoms {
            if is_singular(indom.serial) {
                return Err(ESRCH);
            }
            indom.help.iter().flatten().try_for_each(|text| fits(text.len()))?;
            if self.names == Names::Pointers && !indom.instances.facts().plain {
                indom.instances.try_each(|_, name| check_name(name))?;
            }
        }
        if !facts.plain {
            let serials = self.by_serial()?;
            self.metrics.try_each(|metric| {
                if !TYPES.contains(&metric.ty) {
                    return Err(EINVAL);
                }
                check_name(metric.name)?;
                let singular = is_singular(metric.serial);
                each(metric.ty as u8, if singular { None } else { Some(serials.find(metric.serial).ok_or(ESRCH)?) })
            })?;
        }
        Ok(match (self.labelled, self.names) {
            (true, _) => Version::V3,
            (false, Names::Pointers) if has_long_names => Version::V2,
            _ => Version::V1,
        })
    }

    /// Returns the indexes of the instance domains by their serial numbers.
    fn by_serial(&self) -> Result<Serials, i32> {
        let mut all = Vec::new();
        all.try_reserve_exact(self.indoms.len()).map_err(|_| ENOMEM)?;
        all.extend(self.indoms.iter().enumerate().map(|(index, indom)| (indom.serial, index)));
        all.sort_unstable();
        Ok(Serials(all.into()))
    }
}

/// Serial numbers of instance domains in ascending order, with the indexes of the domains.
#[derive(Debug)]
struct Serials(Box<[(u32, usize)]>);

impl Serials {
    /// Returns the index of the first instance domain with a serial number.
    fn find(&self, serial: u32) -> Option<usize> {
        let at = self.0.partition_point(|(other, _)| *other < serial);
        self.0.get(at).filter(|(other, _)| *other == serial).map(|(_, index)| *index)
    }
}

/// Returns an error if a text of `len` bytes does not fit into a string of a file.
#[inline]
fn fits(len: usize) -> Result<(), i32> {
    if len < STRING_LEN { Ok(()) } else { Err(E2BIG) }
}
