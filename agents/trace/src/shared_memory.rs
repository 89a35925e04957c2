//! Metrics about the shared-memory transport.

use pmda::prelude::*;

use crate::processes::Processes;

const CLUSTER: u16 = 3;
const PROCESSES: Item = Item::new(CLUSTER, 0);
const THREADS: Item = Item::new(CLUSTER, 1);
const MISSED: Item = Item::new(CLUSTER, 2);

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
    setup.metric(format!("{prefix}.shared_memory.missed"), MISSED, Type::U64).counter().units(Units::COUNT).help(
        "Trace events that are lost, because a file had no room",
        "A process has too many threads or tags, or the disk is full.",
    );
}

pub(crate) fn is_own(item: Item) -> bool {
    item.cluster() == CLUSTER
}

pub(crate) fn fetch(item: Item, processes: Option<&Processes>, out: &mut Values<'_>) -> Result {
    let of = |count: fn(&Processes) -> usize| processes.map_or(0, count) as u32;
    match item {
        PROCESSES => out.put(of(Processes::count)),
        THREADS => out.put(of(Processes::threads)),
        MISSED => out.put(processes.map_or(0, Processes::missed)),
        _ => Err(Error::PMID),
    }
}
