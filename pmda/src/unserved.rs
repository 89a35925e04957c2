//! Log lines about values that an agent does not supply.

use std::fmt;

use hashbrown::HashSet;
use pmapi::{Error, Inst, PmId};
use tracing::{debug, error, warn};

use crate::catalog::Version;
use crate::client::Client;
use crate::fixed_limit::FixedLimit;
use crate::misfit::Misfit;
use crate::named::Named;

/// Logs why metrics and instances have no values, in the words of pmdaFetch(3), which PCP's tests expect.
///
/// Unlike pmdaFetch(3), this logs an unknown metric or instance only once, until names change.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    unknown: HashSet<(PmId, Option<Inst>)>,
    version: Version,
    /// Instances of the metric that is being fetched, or the metric itself, and their errors, to be logged.
    pending: Vec<(Option<Inst>, Error)>,
    /// The last value that did not convert to the type of its metric.
    misfit: Option<(PmId, Misfit)>,
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

    /// Discards errors that have been added but not logged.
    pub(crate) fn forget(&mut self) {
        self.pending.clear();
        self.misfit = None;
    }

    /// Records a value that does not convert to the type of its metric.
    pub(crate) fn set_misfit(&mut self, pmid: PmId, misfit: Misfit) {
        self.misfit = Some((pmid, misfit));
    }

    /// Returns the last value that did not convert to the type of a metric, if it was one of this metric's.
    pub(crate) fn take_misfit(&mut self, pmid: PmId) -> Option<Misfit> {
        self.misfit.take().filter(|(of, _)| *of == pmid).map(|(_, misfit)| misfit)
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
            _ if self.pending.len() < PENDING => self.pending.push((inst, e)),
            _ => FixedLimit::LogLines.count(),
        }
    }

    /// Logs the reasons that were added for a metric. `named` looks up its name.
    ///
    /// The lines are those of pmdaFetch(3), followed by the name. A line about an unknown metric or instance contains
    /// the name only for a declared metric, because PCP's tests compare such lines of agents with dynamic names. For a
    /// declared metric, a line about instance -1 also says what the mistake probably is.
    pub(crate) fn log(&mut self, client: Client, pmid: PmId, is_declared: bool, named: impl Fn() -> Named) {
        for (inst, e) in self.pending.drain(..) {
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
