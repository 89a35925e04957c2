//! The trait that an agent implements.

#[cfg(feature = "daemon")]
use std::process::ExitCode;

use pcp_pdu::handshake::Features;
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::Changes;
use pmapi::{Atom, Error, Inst, Item, LabelSet, Result, Serial};

use crate::catalog::{Catalog, LabelSubject};
use crate::client::{Client, ClientAttribute};
#[cfg(feature = "daemon")]
use crate::command_line::CommandLine;
use crate::error::BoxError;
use crate::indom::Instances;
use crate::log::Layer;
use crate::poll::{PollSet, Wake};
use crate::request::Request;
use crate::setup::Setup;
use crate::values::Values;

/// A performance metrics domain agent (PMDA).
///
/// An agent declares its metrics in [`Agent::new`], each with the function that returns its value; all other methods have
/// defaults. [`Agent::fetch`] supplies the values of metrics without such a function. The engine answers pmcd's requests from the declarations and these methods. An agent behaves in the
/// same way as a daemon ([`main`](fn@crate::main)) and within another process (`Local` of crate `pcp-collector`).
///
/// pmcd drops an agent that answers a request with `PM_ERR_IPC`, `PM_ERR_TIMEOUT` or `EPIPE`. When a method returns one
/// of these as the answer to a request, the engine sends `PM_ERR_AGAIN` instead.
pub trait Agent: Sized + 'static {
    /// Name of the agent: the first component of the names of its metrics. Its binary is `pmdaNAME`.
    const NAME: &'static str;

    /// Domain of the agent, 1 to 510. The option `-d` overrides it.
    const DOMAIN: u16;

    /// Client attributes that pmcd should send (pmdaSetCommFlags(3)).
    const WANTS: Features = Features::empty();

    /// Usage message, in place of the one generated from the options. It is also printed after an error in the command
    /// line.
    const USAGE: Option<&'static str> = None;

    /// Adds the agent's own options to the command line; [`Setup::options`] returns their values. Needs feature `daemon`,
    /// a default of this crate.
    ///
    /// A letter of the agent's own is taken from the framework: with an own `-d`, the domain is `--domain`, also in what
    /// Install writes. The framework's option names cannot be taken; clap panics, in builds with debug assertions.
    ///
    /// A struct that derives clap's `Args` adds its options with `Mine::augment_args(command)`, and reads them with
    /// `Mine::from_arg_matches(setup.options())`. Hosts without a command line use the default values. The clap to use
    /// is that of this crate, [`pmda::clap`](crate::clap):
    ///
    /// ```
    /// use pmda::clap::{self, Args as _, FromArgMatches as _};
    /// use pmda::prelude::*;
    ///
    /// #[derive(clap::Args)]
    /// struct Options {
    ///     /// Number of processes to show
    ///     #[arg(short = 'N', long, default_value_t = 10)]
    ///     number: u32,
    /// }
    ///
    /// struct Top(Options);
    ///
    /// impl Agent for Top {
    ///     const NAME: &'static str = "top";
    ///     const DOMAIN: u16 = 400;
    ///
    ///     fn options(command: clap::Command) -> clap::Command {
    ///         Options::augment_args(command)
    ///     }
    ///
    ///     fn new(setup: &mut Setup) -> Result<Self, BoxError> {
    ///         setup.discrete("top.number", Item::new(0, 0), |top: &Self| top.0.number).help("Processes shown", "Set by -N.");
    ///         Ok(Top(Options::from_arg_matches(setup.options())?))
    ///     }
    /// }
    /// ```
    #[cfg(feature = "daemon")]
    fn options(command: clap::Command) -> clap::Command {
        command
    }

    /// Reads the command line of a daemon before the agent is created. Returns the exit code if an option requests a
    /// task in place of the agent, such as a check of its configuration, and the task is done.
    ///
    /// An agent that replaces another one can accept that one's options, and set the framework's by them.
    #[cfg(feature = "daemon")]
    fn command_line(line: &mut CommandLine<'_>) -> Option<ExitCode> {
        let _ = line;
        None
    }

    /// Returns layers of `tracing-subscriber` that get the agent's events beside its log, for instance one that writes JSON.
    /// Called once, before [`Agent::new`]. A process that has its own subscriber ignores them.
    fn layers() -> Vec<Layer> {
        Vec::new()
    }

    /// Declares metrics, instance domains and help, and creates the agent.
    ///
    /// This also runs when the binary only writes its name space and help files. If the data source may be unavailable,
    /// open it at the first [`Agent::refresh`] instead.
    ///
    /// # Errors
    /// An error ends the agent, with its text in the log.
    fn new(setup: &mut Setup) -> Result<Self, BoxError>;

    /// Opens resources that only one process can have, such as a port. Called once before the first request, but not
    /// when the binary only writes files.
    ///
    /// # Errors
    /// An error ends the agent, with its text in the log.
    fn open(&mut self) -> Result<(), BoxError> {
        Ok(())
    }

    /// Puts the current values of a metric into `out` (pmdaFetch(3)). The engine calls this for metrics that have no
    /// getter at their declaration ([`Setup::counter`] and others, [`Table`](crate::Table)), and for those of catalogs.
    ///
    /// # Errors
    /// The error becomes the answer for this metric, in place of its values. The other metrics of the request are not
    /// affected. The default is `PM_ERR_PMID`, which is logged.
    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        let _ = (item, out);
        Err(Error::PMID)
    }

    /// Prepares for a request (pmdaSetCheckCallBack(3)): reads the source, or updates the instances. Called once for
    /// each request, before it is answered. A client that has fetched values asks for the names of their instances
    /// next, so an agent that also reads its source for [`Request::Instance`] may no longer know them.
    ///
    /// # Errors
    /// The error becomes the answer to the whole request. In a daemon, `PM_ERR_PMDANOTREADY` also makes pmcd wait until
    /// [`Agent::is_ready`] is true.
    fn refresh(&mut self, request: Request<'_>, client: Client) -> Result {
        let _ = (request, client);
        Ok(())
    }

    /// Returns the current instances of a domain, usually a [`Cache`](crate::cache::Cache) (pmdaInstance(3)). For
    /// `None`, the domain has the instances that were declared.
    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        let _ = indom;
        None
    }

    /// Returns the catalogs of metrics that change while the agent runs, in the order in which the engine asks them
    /// (pmdaDynamicPMNS(3)). Most agents have no catalog, or only a [`Dynamic`](crate::Dynamic).
    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        []
    }

    /// Returns which metadata have changed since the last call (`PMDA_EXT_LABEL_CHANGE`, `PMDA_EXT_NAMES_CHANGE`). The
    /// engine calls this once for each fetch, and notifies clients together with the values. It detects changes of
    /// catalogs by itself.
    fn changes(&mut self) -> Changes {
        Changes::default()
    }

    /// Applies a value that a client stores (pmdaStore(3)).
    ///
    /// The engine calls this only for metrics that were declared [`storable`](crate::MetricDef::storable), with a value
    /// of the metric's type, which `value.try_into()?` returns. For an event metric the value is a string, by
    /// convention a filter.
    ///
    /// # Errors
    /// The error becomes the answer to the whole request. Values of the request that were stored before stay stored,
    /// and the remaining values are not stored. The default is `PM_ERR_PERMISSION`, with a log line, because a storable
    /// metric needs this function.
    fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>, client: Client) -> Result {
        let _ = (inst, value);
        tracing::warn!(source = %client.source(), "{}: metric {item} is storable, but the agent has no Agent::store", Self::NAME);
        Err(Error::PERMISSION)
    }

    /// Returns the help of a metric or instance domain, in place of the declared help (pmdaText(3)). For `None`, the
    /// declared help applies.
    ///
    /// # Errors
    /// The error becomes the answer to the request.
    fn text(&self, of: Subject, kind: TextKind) -> Result<Option<&[u8]>> {
        let _ = (of, kind);
        Ok(None)
    }

    /// Returns labels that change while the agent runs, in place of the declared labels (pmdaLabel(3)). For `None`, the
    /// declared labels apply. [`Agent::changes`] notifies clients of a change.
    ///
    /// # Errors
    /// The error becomes the answer to the request.
    fn labels(&self, of: LabelSubject) -> Result<Option<LabelSet>> {
        let _ = of;
        Ok(None)
    }

    /// Returns the labels of an instance (pmdaSetLabelCallBack(3)).
    ///
    /// # Errors
    /// The error takes the place of this instance's labels. Other instances are not affected.
    fn instance_labels(&self, indom: Serial, inst: Inst) -> Result<LabelSet> {
        let _ = (indom, inst);
        Ok(LabelSet::new())
    }

    /// Receives an attribute of a client (pmdaAttribute(3)). pmcd sends attributes only to agents that ask for them
    /// with [`Agent::WANTS`]. [`Client::uid`], [`Client::gid`] and [`Client::pid`] work without this method.
    ///
    /// # Errors
    /// The error is logged as a warning. The client does not see it.
    fn attribute(&mut self, client: Client, attribute: ClientAttribute<'_>) -> Result {
        let _ = (client, attribute);
        Ok(())
    }

    /// Called when a client has disconnected (pmdaSetEndContextCallBack(3)). pmcd may give its number to another client
    /// later. [`Clients`](crate::Clients) and event queues have already dropped the state of the client.
    fn close(&mut self, client: Client) {
        let _ = client;
    }

    /// Does work that the client need not wait for. Called after the answer to a request has been sent
    /// (pmdaSetDoneCallBack(3)).
    fn done(&mut self, client: Client) {
        let _ = client;
    }

    /// Returns whether the agent can answer requests.
    ///
    /// While it cannot, the engine refuses requests, and clients get `PM_ERR_AGAIN`. pmcd then sends no requests until
    /// the engine reports that the agent is ready (`PM_ERR_PMDANOTREADY`, `PM_ERR_PMDAREADY`, pmdaSendError(3)).
    ///
    /// The engine calls this before each request. While pmcd waits, it calls it after each [`Agent::wake`] and once a
    /// second.
    ///
    /// An agent that is not ready when it starts must also declare [`Setup::not_ready`] in [`Agent::new`]. Otherwise
    /// pmcd asks it at once, and Install finds no values.
    ///
    /// pmcd does not report to an agent that is not ready which clients connect or disconnect. When the agent becomes
    /// ready again, no client is known, and the state of clients in [`Clients`](crate::Clients) and event queues is
    /// dropped.
    fn is_ready(&self) -> bool {
        true
    }

    /// Names the file descriptors and times that the agent waits for besides pmcd. Called before each wait. Only a
    /// daemon waits; in other hosts the agent can check its sources in [`Agent::refresh`].
    fn sources<'a>(&'a self, set: &mut PollSet<'a>) {
        let _ = set;
    }

    /// Called when a descriptor of [`Agent::sources`] is ready, or when its time has come.
    fn wake(&mut self, wake: Wake) {
        let _ = wake;
    }
}
