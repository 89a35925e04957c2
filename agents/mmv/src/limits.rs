//! The agent's limits on the cost of files, in total and for each user.
//!
//! Files are charged to their owner, those of a subordinate user to the user to whom it is delegated. The log reports
//! once for each user that a limit has left out files, and control metrics count these files. The control metrics can
//! be fetched at any time, but lists of names include them only after a file has been left out.
//!
//! | `--limit` | default | what | metric `mmv.control.limits.` |
//! |---|---|---|---|
//! | `user-files` | 1250 | files of a user, including skipped ones | `files` |
//! | `files` | 4000 | files in total, at most 4095 | `files` |
//! | `user-memory` | 36 | MiB for the files of a user | `memory` |
//! | `memory` | 144 | MiB for all files | `memory` |
//! | `file-memory` | 8 | MiB of data in a file, without holes | `memory` |
//! | `user-values` | 120000 | values of a user; a text counts as 20, a label as 40, an instance as 1, the first component of a file's names as 4, each further one as 16, and each 32 bytes of a long name beyond 32 as 1 | `values` |
//! | `values` | 300000 | values in total | `values` |
//! | `user-work` | 4500 | microseconds of processor time per request for changes of a user's files; more are delayed | `delayed` |
//! | `work` | 4000 | microseconds of processor time per request for changes of all files; more are delayed, and users take turns | `delayed` |
//! | `names` | 6144 | names of the directory that one request reads; the next requests continue | |
//!
//! A request about names has a quarter of `work` if there are more than 32,768 metrics or 2,048 files, because its answer may be
//! long.
//! When all users together have used up a limit, a user who has less gets room from the user who has most. The log has
//! up to 8 lines about the contents of a file. The limits of the framework ([`FixedLimit`]) are constants, with metrics
//! `mmv.control.limits.log_lines`, `log_debug`, `log_cut`, `clients` and `pdus`.

use std::str::FromStr;

use clap::{ArgAction, Args};
use mmv_reader::collection::{LeftOut, Limit, Limits};
use pmda::limits::{Budget, FixedLimit};
use pmda::pmapi::{Desc, PmId, Semantics};
use pmda::prelude::*;

use crate::CONTROL_CLUSTER;

/// Command-line options.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// Sets a limit: user-files, files, user-memory, memory, file-memory (MiB), user-values, values, user-work
    /// or work (microseconds), or names.
    #[arg(long = "limit", value_name = "NAME=NUMBER", action = ArgAction::Append)]
    limits: Vec<Setting>,
}

impl Options {
    /// Returns the default limits with the changes of the options.
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        self.limits.iter().for_each(|setting| (setting.set)(&mut limits, setting.value));
        limits
    }
}

/// A limit `NAME=NUMBER` from the command line.
#[derive(Clone, Copy, Debug)]
struct Setting {
    set: Set,
    value: u64,
}

type Set = fn(&mut Limits, u64);

/// The names of the limits, and functions that set them.
const NAMES: [(&str, Set); 10] = [
    ("user-files", |limits, n| limits.user_files = n),
    ("files", |limits, n| limits.files = n),
    ("user-memory", |limits, n| limits.user_memory = n << 20),
    ("memory", |limits, n| limits.memory = n << 20),
    ("file-memory", |limits, n| limits.file_bytes = n << 20),
    ("user-values", |limits, n| limits.user_values = n),
    ("values", |limits, n| limits.values = n),
    ("user-work", |limits, n| limits.user_work = n * 1000),
    ("work", |limits, n| limits.work = n * 1000),
    ("names", |limits, n| limits.names = n.max(1)),
];

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=NUMBER")?;
        let known = NAMES.into_iter().find(|known| known.0 == name);
        let (_, set) = known.ok_or_else(|| format!("unknown limit {name}"))?;
        let value = value.parse::<u32>().map_err(|_| format!("{value} is not a number"))?;
        Ok(Setting { set, value: value.into() })
    }
}

/// Counters of files that the limits have left out.
#[derive(Debug)]
pub(crate) struct Budgets([Budget; 4]);

/// The metrics below `control.limits`: the limit, the last component of the name, and the help text.
const METRICS: [(Limit, &str, &str); 4] = [
    (Limit::Files, "files", "Files left out because their owner, or all users together, had too many files."),
    (
        Limit::Memory,
        "memory",
        "Files left out because they, or all files of their owner, would have taken too much memory.",
    ),
    (Limit::Values, "values", "Files left out because their owner, or all users together, had too many values."),
    (
        Limit::Work,
        "delayed",
        "Changed files that were left to a later request because their owner, or all users together, had changed too many.",
    ),
];

/// Item of the first metric. The limits of the framework follow those of the agent.
const FIRST: u16 = 10;

fn index_of(limit: Limit) -> usize {
    METRICS.iter().position(|metric| metric.0 == limit).unwrap_or_default()
}

impl Budgets {
    pub(crate) fn new(limits: &Limits) -> Budgets {
        let mib = |bytes: u64| bytes >> 20;
        let Limits { user_files, user_memory, user_values, user_work, files, memory, values, work, .. } = *limits;
        Budgets([
            Budget::new(format!("files, at most {user_files} per user and {files} in all")),
            Budget::new(format!(
                "memory of files, at most {} MiB per user and {} MiB in all",
                mib(user_memory),
                mib(memory)
            )),
            Budget::new(format!("values of files, at most {user_values} per user and {values} in all")),
            Budget::new(format!(
                "changed files, at most {} us per user and {} us in all in a request",
                user_work / 1000,
                work / 1000
            )),
        ])
    }

    /// Counts files that were left out.
    pub(crate) fn count(&mut self, all: &[LeftOut]) {
        for LeftOut { uid, limit, count, .. } in all {
            self.0[index_of(*limit)].leave_out(&format_args!("uid {uid}"), *count);
        }
    }

    /// Returns whether anything was left out, by a limit of the agent or of the framework.
    pub(crate) fn is_any_exceeded(&self) -> bool {
        self.0.iter().any(|budget| budget.left_out() > 0) || FixedLimit::ALL.iter().any(|limit| limit.exceeded() > 0)
    }

    /// Returns the value of a metric.
    pub(crate) fn value(&self, item: Item) -> Option<u64> {
        let index = index(item)?;
        self.0.get(index).map(Budget::left_out).or_else(|| fixed(index).map(FixedLimit::exceeded))
    }
}

/// Returns the limit of the framework whose metric has this index.
fn fixed(index: usize) -> Option<FixedLimit> {
    FixedLimit::ALL.get(index.checked_sub(METRICS.len())?).copied()
}

/// Returns the metrics, with their full names.
pub(crate) fn metrics(prefix: &str) -> impl Iterator<Item = MetricDef> {
    let node = format!("{prefix}.{NODE}");
    (0..COUNT).filter_map(move |index| match METRICS.get(index) {
        Some((_, last, help)) => {
            let mut metric = MetricDef::new(format!("{node}.{last}"), item(index), Type::U64);
            metric.counter().units(Units::COUNT).help("Files that a limit has left out or delayed", *help);
            Some(metric)
        }
        None => Some(MetricDef::of_limit(fixed(index)?, &node, item(index))),
    })
}

/// Number of metrics.
const COUNT: usize = METRICS.len() + FixedLimit::ALL.len();

/// The node above the metrics, without prefix.
pub(crate) const NODE: &str = "control.limits";

/// Returns the descriptor of a metric.
pub(crate) fn desc(pmid: PmId) -> Option<Desc> {
    text(pmid.item())?;
    Some(Desc { pmid, ty: Type::U64, indom: None, semantics: Semantics::Counter, units: Units::COUNT })
}

/// Returns the help text of a metric.
pub(crate) fn text(item: Item) -> Option<&'static str> {
    let index = index(item)?;
    METRICS.get(index).map(|metric| metric.2).or_else(|| fixed(index).map(FixedLimit::help))
}

/// Returns the index of the metric with this item.
pub(crate) fn index(item: Item) -> Option<usize> {
    let index = usize::from(item.item().checked_sub(FIRST)?);
    (item.cluster() == CONTROL_CLUSTER && index < COUNT).then_some(index)
}

/// Returns the item of the metric with this index.
pub(crate) fn item(index: usize) -> Item {
    Item::new(CONTROL_CLUSTER, FIRST + index as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_change_the_defaults() {
        let limits = ["user-files=7", "user-memory=3"].map(|text| text.parse().unwrap()).to_vec();
        let expected = Limits { user_files: 7, user_memory: 3 << 20, ..Limits::default() };
        assert_eq!(Options { limits }.limits(), expected);
        for bad in ["files", "files=", "files=-1", "files=many", "fish=1"] {
            assert!(bad.parse::<Setting>().is_err(), "{bad}");
        }
    }
}
