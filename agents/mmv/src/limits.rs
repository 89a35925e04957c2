//! The agent's limits on the cost of files, in total and for each user.
//!
//! Files are charged to their owner, those of a subordinate user to the user to whom it is delegated. What is over a limit is
//! left out, the newest files first. The log names a user once in ten minutes, and control metrics count the files. The
//! control metrics can be fetched at any time, but lists of names include them only after a file has been left out.
//!
//! | `--limit` | default | what | metric `mmv.control.limits.` |
//! |---|---|---|---|
//! | `user-files` | 1250 | files of a user, including skipped ones | `files` |
//! | `files` | 4000 | files in total, at most 4095 | `files` |
//! | `user-memory` | 48 | MiB for the files of a user | `memory` |
//! | `memory` | 144 | MiB for all files | `memory` |
//! | `file-memory` | 8 | MiB of data in a file, without holes | `memory` |
//! | `user-values` | 120000 | values of a user; a text counts as 20, a label as 40, an instance as 1 | `values` |
//! | `values` | 300000 | values in total | `values` |
//!
//! Half of each total is kept for users with few files: 62 users get 32 files, 1 MiB and 2000 values each, whatever other
//! users have. The log has up to 8 lines about the contents of a file. The limits of the framework
//! ([`FixedLimit`](pmda::limits::FixedLimit)) are constants, with metrics `mmv.control.limits.log_lines`, `log_debug`,
//! `log_cut`, `clients` and `pdus`.

use clap::{ArgAction, Args};
use mmv_reader::collection::{Collection, Limit, Limits};
use pmda::limits::{FixedLimit, LimitMetric, LimitMetrics, Setting};
use pmda::pmapi::{Desc, PmId, Semantics};
use pmda::prelude::*;

use crate::CONTROL_CLUSTER;

/// Command-line options.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// Sets a limit: user-files, files, user-memory, memory, file-memory (MiB), user-values or values.
    #[arg(long = "limit", value_name = "NAME=NUMBER", action = ArgAction::Append)]
    limits: Vec<Setting<Limits>>,
}

impl Options {
    /// Returns the default limits with the changes of the options.
    pub(crate) fn limits(&self) -> Limits {
        Setting::change(&self.limits, Limits::default())
    }
}

/// The metrics below `control.limits`, in the order of [`Limit::ALL`].
static OWN: [LimitMetric; 3] = [
    metric(10, "files", "Files left out because their owner, or all users together, had too many files."),
    metric(11, "memory", "Files left out because they, or all files of their owner, would have taken too much memory."),
    metric(12, "values", "Files left out because their owner, or all users together, had too many values."),
];

/// The agent's limits, and those of the framework.
pub(crate) static METRICS: LimitMetrics = LimitMetrics::new(&OWN, FRAMEWORK);

/// Item of the first limit of the framework.
const FRAMEWORK: Item = Item::new(CONTROL_CLUSTER, 14);

/// The node above the metrics, without prefix.
pub(crate) const NODE: &str = "control.limits";

const fn metric(item: u16, name: &'static str, help: &'static str) -> LimitMetric {
    LimitMetric { item: Item::new(CONTROL_CLUSTER, item), name, oneline: "Files that a limit has left out", help }
}

/// Returns the value of a metric.
pub(crate) fn value(item: Item, files: &Collection) -> Option<u64> {
    METRICS.value(item, &Limit::ALL.map(|limit| files.left_out(limit)))
}

/// Returns the full help text of a metric.
pub(crate) fn text(item: Item) -> Option<&'static str> {
    let own = OWN.iter().find(|limit| limit.item == item).map(|limit| limit.help);
    let of_framework = || FixedLimit::ALL.get(usize::from(item.item().checked_sub(FRAMEWORK.item())?));
    own.or_else(|| Some(of_framework()?.help()))
}

/// Returns the descriptor of a metric.
pub(crate) fn desc(pmid: PmId) -> Option<Desc> {
    text(pmid.item())?;
    Some(Desc { pmid, ty: Type::U64, indom: None, semantics: Semantics::Counter, units: Units::COUNT })
}

/// Returns whether anything was left out, by a limit of the agent or of the framework.
pub(crate) fn is_any_exceeded(files: &Collection) -> bool {
    Limit::ALL.iter().any(|limit| files.left_out(*limit) > 0)
        || FixedLimit::ALL.iter().any(|limit| limit.exceeded() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_the_defaults() {
        let limits = ["user-files=7", "user-memory=3"].map(|text| text.parse().unwrap()).to_vec();
        let expected = Limits { user_files: 7, user_memory: 3 << 20, ..Limits::default() };
        assert_eq!(Options { limits }.limits(), expected);
        for bad in ["files", "files=", "files=-1", "files=many", "fish=1", "work=1"] {
            assert!(bad.parse::<Setting<Limits>>().is_err(), "{bad}");
        }
    }
}
