//! Metrics about the shared-memory transport.

use pmda::prelude::*;

use crate::owners::Files;
use crate::processes::Processes;

const CLUSTER: u16 = 3;
const PROCESSES: Item = Item::new(CLUSTER, 0);
const THREADS: Item = Item::new(CLUSTER, 1);
const MISSED: Item = Item::new(CLUSTER, 2);
const LEFT_OUT_FILES: Item = Item::new(CLUSTER, 3);
const LEFT_OUT_BAD: Item = Item::new(CLUSTER, 4);
const LEFT_OUT_MEMORY: Item = Item::new(CLUSTER, 5);

/// A counter: name, item, one-line help, and help text.
type Counter = (&'static str, Item, &'static str, &'static str);

const COUNTERS: [Counter; 4] = [
    (
        "shared_memory.missed",
        MISSED,
        "Trace events that are lost, because a file had no room",
        "A process has too many threads or tags, or the disk is full.",
    ),
    (
        "control.limits.files",
        LEFT_OUT_FILES,
        "Files of processes that are not read",
        "A user has more files than the limits files and files-each allow. The log has the user.",
    ),
    (
        "control.limits.bad_files",
        LEFT_OUT_BAD,
        "Files that are ignored",
        "They are not trace files, are damaged, or name a process of another user. The log has their names.",
    ),
    (
        "control.limits.memory",
        LEFT_OUT_MEMORY,
        "Tags, and sums of tags, for which there was no memory",
        "A file has more of them than the limits memory, memory-each and file-memory allow. They are counted once\n\
         there is room. The log has the user.",
    ),
];

pub(crate) fn declare(setup: &mut Setup) {
    let prefix = setup.name().to_owned();
    setup.metric(format!("{prefix}.shared_memory.processes"), PROCESSES, Type::U32).units(Units::COUNT).help(
        "Processes that trace over shared memory",
        "The file $PCP_RUN_DIR/trace/PORT/agent names the directory of their files.",
    );
    setup.metric(format!("{prefix}.shared_memory.threads"), THREADS, Type::U32).units(Units::COUNT).help(
        "Threads that trace over shared memory",
        "The sum of the largest number of threads of each process that have traced at the same time.",
    );
    for (name, item, oneline, text) in COUNTERS {
        setup.metric(format!("{prefix}.{name}"), item, Type::U64).counter().units(Units::COUNT).help(oneline, text);
    }
}

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER
}

pub(crate) fn fetch(item: Item, processes: Option<&Processes>, out: &mut Values<'_>) -> Result {
    let of = |count: fn(&Processes) -> usize| processes.map_or(0, count) as u32;
    let left_out = |of: fn(&Files) -> u64| processes.map_or(0, |processes| of(processes.left_out()));
    match item {
        PROCESSES => out.put(of(Processes::count)),
        THREADS => out.put(of(Processes::threads)),
        MISSED => out.put(processes.map_or(0, Processes::missed)),
        LEFT_OUT_FILES => out.put(left_out(|files| files.files.count())),
        LEFT_OUT_BAD => out.put(left_out(|files| files.bad)),
        LEFT_OUT_MEMORY => out.put(left_out(|files| files.memory.count())),
        _ => Err(Error::PMID),
    }
}
