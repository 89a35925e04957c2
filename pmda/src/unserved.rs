//! What the log says of values that an agent does not give.

use hashbrown::HashSet;
use pmapi::{Error, Inst, PmId};
use tracing::{debug, error, warn};

use crate::dynamic::Version;

/// Logs why metrics and instances have no values, in the lines of pmdaFetch(3), which people and PCP's tests look for.
///
/// Unlike there a metric or an instance that the agent has declared and knows nothing of is in the log once, not with
/// every fetch, until names change.
#[derive(Debug, Default)]
pub(crate) struct Unserved {
    unknown: HashSet<(PmId, Option<Inst>)>,
    version: Version,
}

/// Further ones are not in the log.
const MOST: usize = 4096;

impl Unserved {
    /// A fetch begins, and names are of this version.
    pub(crate) fn begin(&mut self, version: Version) {
        if self.version != version {
            self.version = version;
            self.unknown.clear();
        }
    }

    pub(crate) fn log(&mut self, pmid: PmId, inst: Option<Inst>, e: Error) {
        let number = inst.map_or(-1, |inst| i64::from(inst.word()));
        match e {
            Error::PMID | Error::INST => {
                if self.unknown.len() >= MOST || !self.unknown.insert((pmid, inst)) {
                    return;
                }
                if e == Error::PMID {
                    error!("pmdaFetch: PMID {pmid} not handled by fetch callback");
                } else {
                    warn!("pmdaFetch: Instance {number} of PMID {pmid} not handled by fetch callback");
                }
            }
            Error::VALUE | Error::APPVERSION | Error::PERMISSION | Error::AGAIN | Error::NYI => {
                debug!(target: "libpmda", "Fetch callback error from metric PMID {pmid}[{number}]: {e}");
            }
            _ => error!("pmdaFetch: Fetch callback error from metric PMID {pmid}[{number}]: {e}"),
        }
    }
}
