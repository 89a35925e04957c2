//! The trait that an agent implements.

use std::fmt;

use pmapi::label::LabelSet;
use pmapi::pdu::handshake::{Attribute, Flags};
use pmapi::{Atom, Error, Inst, Item, Result, Serial};

use crate::indom::Instances;
use crate::schema::Setup;
use crate::values::Values;

/// Why an agent cannot start, to be read by a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The result of starting an agent.
pub type Start<T> = std::result::Result<T, Failure>;

/// A performance metrics domain agent (PMDA).
///
/// An agent declares what it has in [`Agent::new`] and gives values in [`Agent::fetch`]; the rest has
/// defaults. Everything that pmcd asks is answered from the declarations and these methods, in a
/// daemon ([`main`](crate::main)) as in the same process ([`Local`](crate::local::Local)).
pub trait Agent: Sized + 'static {
    /// The agent's name: the first component of its metrics' names, and `pmdaNAME` its binary.
    const NAME: &'static str;

    /// The agent's domain, 1 to 510; `-d` overrides it.
    const DOMAIN: u16;

    /// Which attributes of clients pmcd shall tell (pmdaSetCommFlags(3)).
    const WANTS: Flags = Flags(0);

    /// Declares metrics, instance domains and help, and creates the agent.
    ///
    /// This runs also when the agent's binary only writes its name space and help files. A source
    /// that may be away is better opened at the first [`Agent::refresh`].
    fn new(setup: &mut Setup) -> Start<Self>;

    /// Puts the current values of a metric into `out`. Only declared metrics are asked for.
    ///
    /// An error is the answer for this metric alone, in place of its values (pmdaFetch(3)).
    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result;

    /// Called once for each request before it is answered: the place to read the source, or to
    /// bring instances up to date. An error is the answer to the whole request.
    fn refresh(&mut self, request: Request, client: Client) -> Result {
        let _ = (request, client);
        Ok(())
    }

    /// The instances of a domain that changes while the agent runs, usually a
    /// [`Cache`](crate::cache::Cache). Domains that are not given here have the instances that were
    /// declared (pmdaInstance(3)).
    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        let _ = indom;
        None
    }

    /// Takes over a value that a client stores (pmdaStore(3)). Only metrics that were declared
    /// [`storable`](crate::schema::Metric::storable) get here, and only values of the metric's type.
    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        let _ = (item, inst, value, client);
        Err(Error::PERMISSION)
    }

    /// Labels of an instance (pmdaLabel(3)); labels of other levels are declared.
    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let _ = (indom, inst);
        Ok(LabelSet::new())
    }

    /// An attribute of a client (pmdaAttribute(3)); comes only to agents that ask for it with
    /// [`Agent::WANTS`].
    fn attribute(&mut self, client: Client, attribute: Attribute, value: &[u8]) -> Result {
        let _ = (client, attribute, value);
        Ok(())
    }

    /// A client has gone (pmdaSetEndContextCallBack(3)). Its number may be given to another one.
    fn close(&mut self, client: Client) {
        let _ = client;
    }
}

/// A client of pmcd, as pmcd numbers them (pmdaGetContext(3)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Client(pub i32);

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Values.
    Fetch,
    /// Instances of a domain.
    Instance(Serial),
    /// A metric's descriptor.
    Desc(Item),
    /// Help text.
    Text,
    /// Labels of the instances of a domain.
    InstanceLabels(Serial),
    /// Labels of other levels.
    Labels,
    /// Values to be stored.
    Store,
    /// Names of metrics.
    Names,
}
