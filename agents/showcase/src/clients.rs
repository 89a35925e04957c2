//! Clients: state for each client, its user, and stores that only some users may do.
//!
//! In C: pmdaGetContext(3) and pmdaSetEndContextCallBack(3) with a table of the agent's own,
//! pmdaSetCommFlags(3) and pmdaAttribute(3).

use pmda::prelude::*;
use pmda::{ClientAttribute, Features};

pub(crate) const CLUSTER: u16 = 15;

const FETCHES: Item = Item::new(CLUSTER, 0);
const COUNT: Item = Item::new(CLUSTER, 1);
const UID: Item = Item::new(CLUSTER, 2);
const GID: Item = Item::new(CLUSTER, 3);
const PID: Item = Item::new(CLUSTER, 4);
const CONTAINER: Item = Item::new(CLUSTER, 5);
const OF_ROOT: Item = Item::new(CLUSTER, 6);

#[derive(Debug)]
pub(crate) struct People {
    /// State of each client, dropped when the client ends.
    states: Clients<State>,
    of_root: u32,
}

#[derive(Debug, Default)]
struct State {
    fetches: u64,
    container: String,
}

impl People {
    /// Client attributes that pmcd is to send.
    pub(crate) const WANTS: Features = Features::AUTHORIZE.union(Features::CONTAINER);

    pub(crate) fn new(setup: &mut Setup) -> Self {
        let fetches = setup.metric("showcase.client.fetches", FETCHES, Type::U64).counter().units(Units::COUNT);
        fetches.help("How often this client has fetched this metric", "Each client has its own number, from 1.");
        let count = setup.metric("showcase.client.count", COUNT, Type::U32).units(Units::COUNT);
        count.help("Clients with state in the agent", "They have fetched showcase.client.fetches.");
        for (item, name, who) in [(UID, "uid", "User"), (GID, "gid", "Group"), (PID, "pid", "Process")] {
            let metric = setup.metric(format!("showcase.client.{name}"), item, Type::U32).discrete();
            metric.help(format!("{who} of this client"), "Known if the client is on a Unix socket: pminfo -h unix:");
        }
        let container = setup.metric("showcase.client.container", CONTAINER, Type::String).discrete();
        container.help("Container that this client asks for", "Set by pminfo --container=NAME, otherwise empty.");
        let of_root = setup.metric("showcase.client.of_root", OF_ROOT, Type::U32).discrete().storable();
        of_root.help("A number that only root may store", "Stores by other users and by unknown users are refused.");
        People { states: setup.clients(), of_root: 0 }
    }

    pub(crate) fn attribute(&self, client: Client, attribute: ClientAttribute<'_>) {
        if let ClientAttribute::Container(name) = attribute {
            self.states.of(client).container = name.unwrap_or_default().to_owned();
        }
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        let client = out.client();
        match item {
            FETCHES => {
                let mut state = self.states.of(client);
                state.fetches += 1;
                out.put(state.fetches)
            }
            COUNT => out.put(self.states.len() as u32),
            UID => out.put(client.uid().ok_or(Error::VALUE)?),
            GID => out.put(client.gid().ok_or(Error::VALUE)?),
            PID => out.put(client.pid().ok_or(Error::VALUE)?),
            CONTAINER => out.put(self.states.find(client).as_ref().map_or("", |state| &state.container)),
            OF_ROOT => out.put(self.of_root),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&mut self, value: Atom<'_>, client: Client) -> Result {
        if client.uid() != Some(0) {
            return Err(Error::PERMISSION);
        }
        self.of_root = value.try_into()?;
        Ok(())
    }
}
