//! Events: each store to this agent becomes an event with the metric, the instance and the client.
//!
//! In C: pmdaEventNewQueue(3), pmdaEventQueueAppend(3), pmdaEventQueueRecords(3), and pmdaEventSetFilter(3) for what a
//! client stores to the event metric.

use pmda::prelude::*;
use pmda::{EventFlags, EventQueue, Stamp};

pub(crate) const CLUSTER: u16 = 9;

const RECORDS: Item = Item::new(CLUSTER, 0);
const HIGHRES_RECORDS: Item = Item::new(CLUSTER, 1);
const COUNT: Item = Item::new(CLUSTER, 2);
const MEMORY: Item = Item::new(CLUSTER, 3);
const CLIENTS: Item = Item::new(CLUSTER, 4);
const PARAM_CLUSTER: Item = Item::new(CLUSTER, 10);
const PARAM_ITEM: Item = Item::new(CLUSTER, 11);
const PARAM_INST: Item = Item::new(CLUSTER, 12);
const PARAM_CLIENT: Item = Item::new(CLUSTER, 13);

/// Largest memory of the events that wait for clients, in bytes. When it is full, the oldest events are dropped.
const MEMORY_LIMIT: usize = 64 << 10;

/// Event queues. They keep events for future clients, so that `pminfo -x` shows some.
#[derive(Debug)]
pub(crate) struct Events {
    records: EventQueue,
    highres: EventQueue,
}

impl Events {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        for (name, item, ty, clock) in [
            ("records", RECORDS, Type::Event, "microseconds"),
            ("highres_records", HIGHRES_RECORDS, Type::HighResEvent, "nanoseconds"),
        ] {
            setup.metric(format!("showcase.event.{name}"), item, ty).storable().help(
                format!("Stores to this agent, with times in {clock}"),
                "Each client sees each event once: pminfo -x, pmval, pmevent. A client that stores the number\n\
                 of a cluster here (pmval -x 8) sees only the stores to that cluster.",
            );
        }
        let mut own = |name, item, ty, units, oneline, text| {
            setup.metric(format!("showcase.event.{name}"), item, ty).units(units).help(oneline, text);
        };
        own("count", COUNT, Type::U64, Units::COUNT, "Stores so far", "Stores to event metrics do not count.");
        own("memory", MEMORY, Type::U64, Units::BYTES, "Memory of the events that are kept", "In both queues.");
        own("clients", CLIENTS, Type::U32, Units::COUNT, "Clients that read events", "From their first fetch on.");
        let mut param = |name, item, oneline| {
            let metric = setup.metric(format!("showcase.event.param.{name}"), item, Type::U32).parameter();
            metric.help(oneline, "A parameter of events: it has a value in event records only.");
        };
        param("cluster", PARAM_CLUSTER, "Cluster of the metric that was stored");
        param("item", PARAM_ITEM, "Item of the metric that was stored");
        param("inst", PARAM_INST, "Instance that was stored, if there was one");
        param("client", PARAM_CLIENT, "Number of the client that stored");
        let queue = setup.event_queue(MEMORY_LIMIT).keeping();
        Events { records: queue, highres: setup.event_queue(MEMORY_LIMIT).keeping() }
    }

    /// Adds an event about a store.
    pub(crate) fn stored(&self, item: Item, inst: Option<Inst>, client: Client) -> Result {
        let params = [(PARAM_CLUSTER, item.cluster().into()), (PARAM_ITEM, item.item().into())];
        let inst = inst.map(|inst| (PARAM_INST, inst.word().into()));
        let client = (PARAM_CLIENT, (client.number() as u32).into());
        for queue in [&self.records, &self.highres] {
            queue.push(Stamp::now(), EventFlags::POINT, params.into_iter().chain(inst).chain([client]))?;
        }
        Ok(())
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            RECORDS => out.put_events(&self.records),
            HIGHRES_RECORDS => out.put_events(&self.highres),
            COUNT => out.put(self.records.count()),
            MEMORY => out.put((self.records.memory() + self.highres.memory()) as u64),
            CLIENTS => out.put((self.records.clients() + self.highres.clients()) as u32),
            _ => Err(Error::PMID),
        }
    }

    /// Sets a client's filter: the number of the only cluster whose stores it sees.
    pub(crate) fn store(&self, item: Item, value: Atom<'_>, client: Client) -> Result {
        let queue = match item {
            RECORDS => &self.records,
            HIGHRES_RECORDS => &self.highres,
            _ => return Err(Error::PERMISSION),
        };
        let cluster: u32 = <&str>::try_from(value)?.parse().map_err(|_| Error::CONV)?;
        queue.set_filter(client, move |event| event.param(PARAM_CLUSTER) == Some(Atom::U32(cluster)));
        Ok(())
    }
}
