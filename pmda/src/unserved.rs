//! Log lines about values that an agent does not supply.

use hashbrown::HashSet;
use pmapi::{Error, Inst, PmId};
use tracing::{debug, error, warn};

use crate::catalog::Version;
use crate::client::Client;
use crate::limits::FixedLimit;

/// Logs why metrics and instances have no values, in the words of pmdaFetch(3), which PCP's tests expect.
///
/// Unlike pmdaFetch(3), this logs an unknown metric or instance only once, until names change.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    unknown: HashSet<(PmId, Option<Inst>)>,
    version: Version,
}

/// Most metrics and instances that are remembered. Further ones are not logged.
const MOST: usize = 4096;

impl Unserved {
    /// Begins a fetch. A new version of the names forgets what was logged.
    pub(crate) fn begin(&mut self, version: Version) {
        if self.version != version {
            self.version = version;
            self.unknown.clear();
        }
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

    /// Logs why a metric or instance has no value for a client.
    pub(crate) fn log(&mut self, client: Client, pmid: PmId, inst: Option<Inst>, e: Error) {
        let number = inst.map_or(-1, |inst| i64::from(inst.word()));
        match e {
            Error::PMID | Error::INST if !self.is_new(pmid, inst) => {}
            Error::PMID => error!(source = %client.source(), "pmdaFetch: PMID {pmid} not handled by fetch callback"),
            Error::INST => {
                warn!(source = %client.source(), "pmdaFetch: Instance {number} of PMID {pmid} not handled by fetch callback");
            }
            Error::VALUE | Error::APPVERSION | Error::PERMISSION | Error::AGAIN | Error::NYI => {
                debug!(target: "libpmda", "Fetch callback error from metric PMID {pmid}[{number}]: {e}");
            }
            _ => {
                error!(source = %client.source(), "pmdaFetch: Fetch callback error from metric PMID {pmid}[{number}]: {e}");
            }
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
        assert_eq!(insts.filter(|inst| unserved.is_new(pmid(2), Some(*inst))).count(), MOST - all.len());
        assert!(FixedLimit::LogLines.exceeded() >= before + (MOST + all.len()) as u64);
    }
}
