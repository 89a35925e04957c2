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

pub(crate) fn declare(setup: &mut Setup) {
    let prefix = setup.name().to_owned();
    let processes = setup.metric(format!("{prefix}.light.processes"), PROCESSES, Type::U32).units(Units::COUNT);
    processes.help(
        "Processes that trace over the light transport",
        "Their files are in a directory that $PCP_RUN_DIR/trace/PORT/agent names.",
    );
    let threads = setup.metric(format!("{prefix}.light.threads"), THREADS, Type::U32).units(Units::COUNT);
    threads.help("Threads of these", "As many of each process as have marked something at the same time.");
    let missed = setup.metric(format!("{prefix}.light.missed"), MISSED, Type::U64).counter().units(Units::COUNT);
    missed.help(
        "What was marked, and is not counted",
        "A process had no room for it in its file: it has too many threads or tags, or the disk is full.",
    );
    let mut limit = |name, item, oneline, text| {
        let metric = setup.metric(format!("{prefix}.control.limits.{name}"), item, Type::U64).counter();
        metric.units(Units::COUNT).help(oneline, text);
    };
    limit(
        "files",
        LEFT_OUT_FILES,
        "Files of processes for which there was no room",
        "A user had more files than the limits files and files-each allow: some are not read. The log says which user.",
    );
    limit(
        "bad_files",
        LEFT_OUT_BAD,
        "Files that are left alone",
        "They are no files of processes that trace, are damaged, or name a process of another user. The log says which.",
    );
    limit(
        "memory",
        LEFT_OUT_MEMORY,
        "Tags, and sums of tags, for which there was no memory",
        "A file has more of them than the limits memory, memory-each and file-memory allow: those do not count until\n\
         there is room. The log says whose file.",
    );
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
