//! Metrics of the light transport itself.

use pmda::prelude::*;

use crate::processes::Processes;

const CLUSTER: u16 = 3;
const PROCESSES: Item = Item::new(CLUSTER, 0);
const THREADS: Item = Item::new(CLUSTER, 1);
const MISSED: Item = Item::new(CLUSTER, 2);

pub(crate) fn declare(setup: &mut Setup) {
    let prefix = setup.name().to_owned();
    let processes = setup.metric(format!("{prefix}.light.processes"), PROCESSES, Type::U32).units(Units::COUNT);
    processes.help("Processes that trace over the light transport", "Their files are in $PCP_RUN_DIR/trace/PORT.");
    let threads = setup.metric(format!("{prefix}.light.threads"), THREADS, Type::U32).units(Units::COUNT);
    threads.help("Threads of these", "As many of each process as have marked something at the same time.");
    let missed = setup.metric(format!("{prefix}.light.missed"), MISSED, Type::U64).counter().units(Units::COUNT);
    missed.help(
        "What was marked, and is not counted",
        "A process had no room for it in its file: it has too many threads or tags, or the disk is full.",
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
