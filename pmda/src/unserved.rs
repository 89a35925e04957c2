//! Log lines about values that an agent does not supply, and about the metrics that they belong to.

use std::fmt;

use hashbrown::HashSet;
use pmapi::{Atom, Error, Inst, PmId, Type};
use tracing::{debug, error, warn};

use crate::catalog::Version;
use crate::client::Client;
use crate::fixed_limit::FixedLimit;

/// Logs why metrics and instances have no values, in the words of pmdaFetch(3), which PCP's tests expect.
///
/// Unlike pmdaFetch(3), this logs an unknown metric or instance only once, until names change.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    unknown: HashSet<(PmId, Option<Inst>)>,
    version: Version,
    /// Why the metric that is being fetched, or its instances, have no values, to be logged.
    pending: Vec<Reason>,
}

/// Why a metric or an instance has no value.
#[derive(Debug)]
struct Reason {
    inst: Option<Inst>,
    error: Error,
    /// The value that caused the error.
    misfit: Option<Misfit>,
}

/// Largest number of errors of one metric that are logged at a fetch. This is far more than the log accepts at once.
const PENDING: usize = 1024;

/// Largest number of metrics and instances that are remembered. Errors of others are not logged.
const MOST: usize = 4096;

impl Unserved {
    /// Begins a fetch. If names have changed, forgets which errors were logged.
    pub(crate) fn begin(&mut self, version: Version) {
        if self.version != version {
            self.version = version;
            self.unknown.clear();
        }
        self.forget();
    }

    /// Discards reasons that have been added but not logged.
    pub(crate) fn forget(&mut self) {
        self.pending.clear();
    }

    /// Returns whether reasons have been added but not logged.
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn is_new(&mut self, pmid: PmId, inst: Option<Inst>) -> bool {
        if self.unknown.len() < MOST {
            return self.unknown.insert((pmid, inst));
        }
        if !self.unknown.contains(&(pmid, inst)) {
            FixedLimit::LogLines.count();
        }
        false
    }

    /// Adds the reason why a metric or instance has no value for a client. [`Unserved::log`] logs it, when the name of
    /// the metric can be looked up.
    pub(crate) fn add(&mut self, pmid: PmId, inst: Option<Inst>, e: Error) {
        match e {
            Error::PMID | Error::INST if !self.is_new(pmid, inst) => {}
            Error::VALUE | Error::APPVERSION | Error::PERMISSION | Error::AGAIN | Error::NYI => {
                let number = Number(inst);
                debug!(target: "libpmda", "Fetch callback error from metric PMID {pmid}[{number}]: {e}");
            }
            _ => self.push(Reason { inst, error: e, misfit: None }),
        }
    }

    /// Adds the reason why a metric has no value: a value that does not convert to its type.
    pub(crate) fn add_misfit(&mut self, misfit: Misfit, e: Error) {
        self.push(Reason { inst: misfit.inst, error: e, misfit: Some(misfit) });
    }

    fn push(&mut self, reason: Reason) {
        if self.pending.len() < PENDING {
            self.pending.push(reason);
        } else {
            FixedLimit::LogLines.count();
        }
    }

    /// Logs the reasons that were added for a metric. `named` looks up its name.
    ///
    /// The lines are those of pmdaFetch(3), followed by the name. A line about an unknown metric or instance contains
    /// the name only for a declared metric, because PCP's tests compare such lines of agents with dynamic names. For a
    /// declared metric, a line about instance -1 also says what the mistake probably is.
    pub(crate) fn log(&mut self, client: Client, pmid: PmId, is_declared: bool, named: impl Fn() -> Named) {
        for Reason { inst, error: e, misfit } in self.pending.drain(..) {
            if let Some(misfit) = misfit {
                error!(source = %client.source(), "{}: {misfit}: {e}", named());
                continue;
            }
            let number = Number(inst);
            let name = Name(&named, is_declared || !matches!(e, Error::PMID | Error::INST));
            match e {
                Error::PMID => {
                    error!(source = %client.source(), "pmdaFetch: PMID {pmid} not handled by fetch callback{name}");
                }
                Error::INST if inst.is_none() && is_declared => {
                    let hint = "put is for a metric without instances, put_inst for a metric with instances";
                    warn!(source = %client.source(), "pmdaFetch: Instance {number} of PMID {pmid} not handled by fetch callback{name}: {hint}");
                }
                Error::INST => {
                    warn!(source = %client.source(), "pmdaFetch: Instance {number} of PMID {pmid} not handled by fetch callback{name}");
                }
                _ => {
                    error!(source = %client.source(), "pmdaFetch: Fetch callback error from metric PMID {pmid}[{number}]: {e}{name}");
                }
            }
        }
    }
}

/// The number of an instance as pmdaFetch(3) logs it: -1 for none.
struct Number(Option<Inst>);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(-1, |inst| i64::from(inst.word())).fmt(f)
    }
}

/// The name of a metric, looked up only for a line that is written.
struct Name<'a, F>(&'a F, bool);

impl<F: Fn() -> Named> fmt::Display for Name<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1.then(self.0).as_ref().and_then(Named::name) {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// A value that does not convert to the type of its metric, or a text with a NUL byte.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Misfit {
    inst: Option<Inst>,
    given: Type,
    /// The value, if it is a number.
    number: Option<Atom<'static>>,
    declared: Type,
}

impl Misfit {
    pub(crate) fn new(inst: Option<Inst>, value: Atom<'_>, declared: Type) -> Misfit {
        let number = match value {
            Atom::I32(v) => Some(Atom::I32(v)),
            Atom::U32(v) => Some(Atom::U32(v)),
            Atom::I64(v) => Some(Atom::I64(v)),
            Atom::U64(v) => Some(Atom::U64(v)),
            Atom::Float(v) => Some(Atom::Float(v)),
            Atom::Double(v) => Some(Atom::Double(v)),
            Atom::String(_) | Atom::Aggregate(_) | Atom::Event(_) | Atom::HighResEvent(_) => None,
        };
        Misfit { inst, given: value.ty(), number, declared }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.given == self.declared {
            // The value is a text.
            f.write_str("a text with a NUL byte")?;
            self.inst.map_or(Ok(()), |inst| write!(f, " for instance {inst}"))?;
            return f.write_str(", at which clients would end it");
        }
        write!(f, "a value of type {}", self.given.word())?;
        if let Some(number) = self.number {
            write!(f, " ({number})")?;
        }
        if let Some(inst) = self.inst {
            write!(f, " for instance {inst}")?;
        }
        write!(f, " does not convert to the declared type {}", self.declared.word())
    }
}

/// A metric for the log: its name with the PMID in parentheses, or only the PMID if it has no name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pmid: PmId,
    name: Option<String>,
}

impl Named {
    pub(crate) fn new(pmid: PmId, name: Option<String>) -> Named {
        Named { pmid, name }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({})", self.pmid),
            None => write!(f, "metric {}", self.pmid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pmapi::{Domain, Item};

    #[test]
    fn each_is_new_once_until_names_change() {
        let pmid = |item| PmId::new(Domain::new(400).unwrap(), Item::new(0, item));
        let mut unserved = Unserved::default();
        let all = [(pmid(0), None), (pmid(1), None), (pmid(1), Some(Inst::new(0))), (pmid(1), Some(Inst::new(1)))];
        let mut are_new = |names, expected| {
            unserved.begin(Version { names, ..Version::default() });
            for (pmid, inst) in all {
                assert_eq!(unserved.is_new(pmid, inst), expected, "{names} {pmid} {inst:?}");
            }
        };
        are_new(0, true);
        are_new(0, false);
        are_new(1, true);
        are_new(1, false);
        let insts = (0..2 * MOST as u32).map(Inst::new);
        let before = FixedLimit::LogLines.exceeded();
        for (n, inst) in insts.enumerate() {
            assert_eq!(unserved.is_new(pmid(2), Some(inst)), n < MOST - all.len(), "{inst}");
        }
        assert!(FixedLimit::LogLines.exceeded() >= before + (MOST + all.len()) as u64);
    }

    #[test]
    fn the_likely_mistake_is_named_for_declared_metrics() {
        let pmid = PmId::new(Domain::new(400).unwrap(), Item::new(0, 1));
        let line = |is_declared| {
            let lines = crate::log::testing::lines(|| {
                let mut unserved = Unserved::default();
                unserved.add(pmid, None, Error::INST);
                unserved.log(Client::new(1), pmid, is_declared, || Named::new(pmid, Some("a.b".to_owned())));
            });
            lines.concat()
        };
        let plain = "pmdaFetch: Instance -1 of PMID 400.0.1 not handled by fetch callback";
        assert_eq!(line(false), plain);
        let hint = "put is for a metric without instances, put_inst for a metric with instances";
        assert_eq!(line(true), format!("{plain} (a.b): {hint}"));
    }
}
