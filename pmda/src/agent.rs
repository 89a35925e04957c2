//! The trait that an agent implements.

use pcp_pdu::handshake::Flags;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::Changes;
use pmapi::label::LabelSet;
use pmapi::{Atom, Error, Inst, Item, Result, Serial};

use crate::catalog::Catalog;
use crate::client::{Client, ClientAttribute};
use crate::dynamic::Dynamic;
use crate::indom::Instances;
use crate::labels::Labelled;
use crate::poll::{PollSet, Wake};
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

    /// The usage message, for an agent whose users expect one that is not written from the options. Mistakes
    /// in the command line are followed by it.
    const USAGE: Option<&'static str> = None;

    /// Adds the agent's own options to the command line; [`Setup::options`] has what they were given.
    /// A struct with clap's `Args` does it with `Mine::augment_args(command)`, and
    /// `Mine::from_arg_matches(setup.options())`. Hosts without a command line give the defaults.
    fn options(command: clap::Command) -> clap::Command {
        command
    }

    /// Declares metrics, instance domains and help, and creates the agent.
    ///
    /// This runs also when the agent's binary only writes its name space and help files. A source
    /// that may be away is better opened at the first [`Agent::refresh`].
    fn new(setup: &mut Setup) -> Start<Self>;

    /// Called once before the first request, but not when the agent's binary only writes files: the place to
    /// open what only one process can have, such as a port. An error ends the agent.
    fn open(&mut self) -> Start<()> {
        Ok(())
    }

    /// Puts the current values of a metric into `out`. Only declared metrics are asked for.
    ///
    /// An error is the answer for this metric alone, in place of its values (pmdaFetch(3)).
    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result;

    /// Called once for each request before it is answered (pmdaSetCheckCallBack(3)): the place to read
    /// the source, or to bring instances up to date. An error is the answer to the whole request.
    fn refresh(&mut self, request: Request, client: Client) -> Result {
        let _ = (request, client);
        Ok(())
    }

    /// The metrics of a fetch, as often as they are named, after [`Agent::refresh`] and before the first of
    /// [`Agent::fetch`]: for an agent that reads at once what all of them need, and nothing else. An error is the
    /// answer to the whole request.
    fn prepare(&mut self, items: &mut dyn Iterator<Item = Item>, client: Client) -> Result {
        let _ = (items, client);
        Ok(())
    }

    /// The metrics of [`Agent::dynamic`] that a request looks up by their names, or by the name of what is above them:
    /// the client may ask for their values next.
    fn named(&self, items: &mut dyn Iterator<Item = Item>) {
        let _ = items;
    }

    /// The instances of a domain that changes while the agent runs, usually a
    /// [`Cache`](crate::cache::Cache). Domains that are not given here have the instances that were
    /// declared (pmdaInstance(3)).
    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        let _ = indom;
        None
    }

    /// The metrics that come and go, if there are such (pmdaDynamicPMNS(3)).
    fn dynamic(&self) -> Option<&Dynamic> {
        None
    }

    /// Metrics that come and go, in tables of the agent's own: besides those of [`Agent::dynamic`], which is there then,
    /// too. Everything but names and descriptors is asked as of the others.
    fn catalog(&self) -> Option<&dyn Catalog> {
        None
    }

    /// What clients shall be told to have changed, with the values that they get now: asked once for
    /// each fetch (`PMDA_EXT_LABEL_CHANGE`, `PMDA_EXT_NAMES_CHANGE`). Changes of [`Dynamic`] are seen
    /// without it.
    fn changes(&mut self) -> Changes {
        Changes::default()
    }

    /// Takes over a value that a client stores (pmdaStore(3)). Only metrics that were declared
    /// [`storable`](crate::schema::Metric::storable) get here, and only values of the metric's type; for
    /// event metrics a text, which is by custom a filter.
    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        let _ = (item, inst, value, client);
        Err(Error::PERMISSION)
    }

    /// Help that the agent has elsewhere, in the place of what is declared, if there is any
    /// (pmdaText(3)).
    fn text(&self, of: Subject, kind: TextKind) -> Result<Option<&[u8]>> {
        let _ = (of, kind);
        Ok(None)
    }

    /// Labels that change while the agent runs, in the place of those that are declared, if there are
    /// any (pmdaLabel(3)). [`Agent::changes`] tells clients of a change.
    fn labels(&self, of: Labelled) -> Result<Option<LabelSet>> {
        let _ = of;
        Ok(None)
    }

    /// Labels of an instance (pmdaSetLabelCallBack(3)).
    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let _ = (indom, inst);
        Ok(LabelSet::new())
    }

    /// An attribute of a client (pmdaAttribute(3)); comes only to agents that ask for it with
    /// [`Agent::WANTS`]. [`Client::uid`] and its like need no code here.
    fn attribute(&mut self, client: Client, attribute: ClientAttribute<'_>) -> Result {
        let _ = (client, attribute);
        Ok(())
    }

    /// A client has gone (pmdaSetEndContextCallBack(3)). Its number may be given to another one.
    /// [`Clients`](crate::Clients) and event queues have dropped by then what was the client's.
    fn close(&mut self, client: Client) {
        let _ = client;
    }

    /// Called after the answer to a request has gone out (pmdaSetDoneCallBack(3)): the place for work
    /// that the client shall not wait for.
    fn done(&mut self, request: Request, client: Client) {
        let _ = (request, client);
    }

    /// Whether the agent can answer. While it cannot, requests are not answered but refused, and pmcd
    /// asks no more until it is told that the agent is ready (`PM_ERR_PMDANOTREADY`,
    /// `PM_ERR_PMDAREADY`, pmdaSendError(3)); clients get `PM_ERR_AGAIN`.
    ///
    /// Looked at before each request, and then after each [`Agent::wake`] and once a second. pmcd does not tell an agent that
    /// is not ready which clients come and go: when it is ready again, nobody is known, and what
    /// [`Clients`](crate::Clients) and event queues had for clients is gone.
    fn is_ready(&self) -> bool {
        true
    }

    /// What the agent waits for besides pmcd. Looked at before each wait. Only a daemon waits: in
    /// other hosts the agent can look after its sources in [`Agent::refresh`].
    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        let _ = set;
    }

    /// Something that [`Agent::sources`] names has come.
    fn wake(&mut self, wake: Wake) {
        let _ = wake;
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
    /// Labels of a domain.
    InDomLabels(Serial),
    /// Labels of the instances of a domain.
    InstanceLabels(Serial),
    /// Labels of other levels.
    Labels,
    /// Values to be stored.
    Store,
    /// Names of metrics.
    Names,
}
