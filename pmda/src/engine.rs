//! The engine, which answers PDUs without any input or output.

use pcp_help::Compiled;
use pcp_pdu::handshake::{self, encode_error};
use pcp_pdu::profile::Profile;
use pcp_pdu::result::{Changes, ResultPdu, ValueSet};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::{Config, Error, Result, Type};
use tracing::{debug, error, warn};

use crate::access::Access;
use crate::agent::Agent;
use crate::catalog::Version;
use crate::client::{Client, ClientAttribute, Known};
use crate::error::BoxError;
use crate::fixed_limit::FixedLimit;
use crate::log;
use crate::poll::Wake;
use crate::request::Request;
use crate::schema::Schema;
use crate::unserved::Unserved;
use crate::values::Getters;

mod builder;
mod fetch;
mod metadata;

pub(crate) use builder::own_domain;
pub use builder::{EngineBuilder, SetupError};
use fetch::Plans;
use metadata::{Catalogs, version};

/// An agent, together with the state that is needed to answer PDUs.
///
/// [`Engine::handle`] answers a PDU. Hosts move the bytes: a [`Session`](crate::host::Session) over pipes and
/// sockets, `Local` of crate `pcp-collector` within the process. A steady flow of fetch, desc, instance, text and
/// profile requests allocates nothing.
#[derive(Debug)]
pub struct Engine<A> {
    agent: A,
    schema: Schema,
    getters: Getters<A>,
    config: Config,
    profile: Profile,
    /// Pending change notifications. Clients get them with the next values.
    changes: Changes,
    /// Version of dynamic names and labels that clients have been notified of.
    told: Version,
    known: Known,
    readiness: Readiness,
    unserved: Unserved,
    plans: Plans,
    access: Access,
    /// Largest answer, in bytes.
    max_reply: usize,
    /// The last answer, whose memory the next one uses.
    spare: Answer,
}

/// An answer of the engine, with its bytes.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    form: Form,
    pdu: Vec<u8>,
    values: ResultWriter,
    /// The client of a request for which the agent has been prepared.
    client: Option<Client>,
}

/// Which of an answer's buffers has its bytes.
#[derive(Clone, Copy, Debug, Default)]
enum Form {
    /// There is no answer.
    #[default]
    None,
    /// The answer is in `pdu`.
    Pdu,
    /// The answer is in `values`.
    Values,
}

/// The reply to a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// No reply: the PDU was not a request, or was invalid.
    None,
    /// A PDU in two parts. The second may be empty.
    Pdu(&'a [u8], &'a [u8]),
}

/// Whether pmcd sends requests as soon as it has started an agent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Startup {
    /// pmcd sends requests at once.
    #[default]
    Ready,
    /// pmcd waits for the notification that the agent is ready (`notready` in `pmcd.conf`).
    NotReady,
}

/// Whether pmcd sends requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Readiness {
    /// pmcd sends requests, and the host cannot notify it between them.
    #[default]
    Silent,
    /// pmcd sends requests.
    Ready,
    /// pmcd waits until it is notified that the agent is ready.
    NotReady,
}

/// Largest reply, in bytes.
const MAX_REPLY: usize = 64 << 20;

/// Memory for answers that is kept between requests, in bytes.
const KEPT: usize = 4 << 20;

impl Answer {
    /// Returns the bytes of the answer.
    pub(crate) fn reply(&self) -> Reply<'_> {
        match self.form {
            Form::None => Reply::None,
            Form::Pdu => Reply::Pdu(&self.pdu, &[]),
            Form::Values => {
                let (head, blocks) = self.values.parts();
                Reply::Pdu(head, blocks)
            }
        }
    }

    /// Frees memory over [`KEPT`], because most answers do not need that of the largest one.
    fn give_back(&mut self) {
        self.values.give_back(KEPT);
        if self.pdu.capacity() > KEPT && self.pdu.len() < self.pdu.capacity() / 16 {
            self.pdu.shrink_to(KEPT);
        }
    }
}

impl Reply<'_> {
    /// Returns the length of the reply in bytes, 0 for none.
    pub fn len(&self) -> usize {
        match self {
            Reply::None => 0,
            Reply::Pdu(head, rest) => head.len() + rest.len(),
        }
    }

    /// Returns whether there is no reply.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Functions for hosts.
impl<A: Agent> Engine<A> {
    fn new(agent: A, schema: Schema, getters: Getters<A>, config: Config) -> Engine<A> {
        let told = version(&agent);
        let access = Access::new(&config);
        Engine {
            agent,
            schema,
            getters,
            config,
            profile: Profile::default(),
            changes: Changes::default(),
            told,
            known: Known::default(),
            readiness: Readiness::default(),
            unserved: Unserved::default(),
            plans: Plans::default(),
            access,
            max_reply: MAX_REPLY,
            spare: Answer::default(),
        }
    }

    /// Opens compiled help files of newhelp(1), in place of the declared help (`-h`, pmdaOpenHelp(3)).
    ///
    /// # Errors
    /// When a file cannot be read or is not compiled help. The declared help stays.
    pub fn open_help(&mut self, base: &std::path::Path) -> Result<(), BoxError> {
        self.schema.compiled_help = Some(Compiled::open(base)?);
        Ok(())
    }

    /// Returns the declarations of the agent.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the agent.
    pub fn agent(&self) -> &A {
        &self.agent
    }

    /// Returns the agent, mutably.
    pub fn agent_mut(&mut self) -> &mut A {
        &mut self.agent
    }

    /// Lets clients without a known user store to restricted metrics, for a host whose only client is the program
    /// itself.
    pub fn trust_collector(&mut self) {
        self.access.trust_collector();
    }

    /// Returns the access control of restricted metrics, mutably.
    pub(crate) fn access_mut(&mut self) -> &mut Access {
        &mut self.access
    }

    /// Declares that the host can notify pmcd between requests that the agent is ready. At
    /// [`Startup::NotReady`], pmcd waits for that from the start.
    pub(crate) fn can_tell(&mut self, startup: Startup) {
        self.readiness = match startup {
            Startup::Ready => Readiness::Ready,
            Startup::NotReady => Readiness::NotReady,
        };
    }

    /// Returns whether pmcd waits for the notification that the agent is ready.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.readiness == Readiness::NotReady
    }

    /// Returns whether pmcd has to be notified now that the agent is ready.
    pub(crate) fn becomes_ready(&mut self) -> bool {
        let ready =
            self.readiness == Readiness::NotReady && self.guard(|engine| engine.agent.is_ready()).unwrap_or(false);
        if ready {
            self.readiness = Readiness::Ready;
            // pmcd has not reported which clients have connected or disconnected. A known number may belong to another
            // client now.
            self.known.clear();
            self.schema.ends.forget(None);
        }
        ready
    }

    /// Wakes the agent for one of its sources.
    pub(crate) fn wake(&mut self, wake: Wake) {
        let _ = self.guard(|engine| engine.agent.wake(wake));
    }

    /// Answers a PDU. `send` sends the reply. Afterwards the agent does the work for which no client waits
    /// ([`Agent::done`]). Returns the result of `send`.
    ///
    /// A panic of the agent is logged, and `PM_ERR_GENERIC` becomes the answer to the request. After a panic in
    /// [`Agent::fetch`], this applies only to the metric.
    pub fn handle<T>(&mut self, header: Header, bytes: &[u8], send: impl FnOnce(Reply<'_>) -> T) -> T {
        let answer = self.answer(header, bytes);
        let sent = send(answer.reply());
        self.sent(answer);
        sent
    }

    /// Answers a PDU. The host must pass the answer to [`Engine::sent`] after it has sent the bytes.
    pub(crate) fn answer(&mut self, header: Header, bytes: &[u8]) -> Answer {
        log::tick();
        let mut answer = std::mem::take(&mut self.spare);
        (answer.form, answer.client) = (Form::None, None);
        answer.pdu.clear();
        let done = self.guard(|engine| engine.respond(header, bytes, &mut answer)).unwrap_or_else(Err);
        answer.form = match done {
            Ok(form) => form,
            Err(e) if header.pdu.is_request() => {
                answer.pdu.clear();
                // An ERROR PDU has 16 bytes.
                encode_error(&mut answer.pdu, FROM_AGENT, Err(e)).map_or(Form::None, |()| Form::Pdu)
            }
            Err(_) => Form::None,
        };
        answer
    }

    /// Takes back an answer that has been sent, and calls [`Agent::done`].
    pub(crate) fn sent(&mut self, mut answer: Answer) {
        let client = answer.client.take();
        answer.give_back();
        self.spare = answer;
        if let Some(client) = client {
            let _ = self.guard(|engine| engine.agent.done(client));
        }
    }
}

/// Answers.
impl<A: Agent> Engine<A> {
    /// Decodes a PDU, prepares the agent for the request, and answers it.
    fn respond(&mut self, header: Header, bytes: &[u8], answer: &mut Answer) -> Result<Form> {
        let client = self.known.client(header.from);
        if header.pdu != PduType::ATTR {
            self.known.end_series();
        }
        let pdu = Pdu::decode(header, bytes).map_err(|e| {
            error!(source = %client.source(), "{e}");
            Error::IPC
        })?;
        debug!(target: "libpmda", "received {} PDU from client {client}", header.pdu);
        if pdu.asks_nothing() {
            error!(source = %client.source(), "invalid {} PDU: an empty request, or more than one name or PMID", header.pdu);
            return Err(Error::IPC);
        }
        let request = Request::of(&pdu, self.schema.domain());
        answer.client = request.map(|_| client);
        let is_of_names = matches!(request, Some(Request::Names(_)));
        let prepared = request.map_or(Ok(()), |request| self.prepare(request, client));
        let done = prepared.and_then(|()| self.serve(pdu, header.pdu, client, answer));
        done.map_err(|e| self.presentable(e, is_of_names))
    }

    /// Prepares the agent for a request.
    fn prepare(&mut self, request: Request<'_>, client: Client) -> Result {
        if self.agent.is_ready() { self.agent.refresh(request, client) } else { Err(Error::PMDANOTREADY) }
    }

    fn serve(&mut self, pdu: Pdu<'_>, of: PduType, client: Client, answer: &mut Answer) -> Result<Form> {
        let out = &mut answer.pdu;
        match pdu {
            Pdu::Fetch(fetch) => {
                self.fetch(client, fetch, &mut answer.values)?;
                return Ok(Form::Values);
            }
            Pdu::Profile(profile) => {
                self.profile.assign(&profile);
                return Ok(Form::None);
            }
            Pdu::Error(e) => {
                self.news(client, e);
                return Ok(Form::None);
            }
            Pdu::Attr(attr) => {
                self.attribute(client, attr);
                return Ok(Form::None);
            }
            Pdu::DescReq(req) => self.catalogs().desc(req, out)?,
            Pdu::InstanceReq(req) => self.catalogs().instance(req, out)?,
            Pdu::TextReq(req) => self.catalogs().text(req, out)?,
            Pdu::LabelReq(req) => self.catalogs().label(req, &self.profile, &self.config, self.max_reply, out)?,
            Pdu::Names(_) | Pdu::Ids(_) | Pdu::Child(_) | Pdu::Traverse(_) => self.catalogs().names(pdu, out)?,
            Pdu::Result(request) => {
                self.store(client, &request)?;
                encode_error(out, FROM_AGENT, Ok(()))?;
            }
            _ => {
                error!(source = %client.source(), "unexpected {of} PDU");
                return Ok(Form::None);
            }
        }
        if answer.pdu.len() > self.max_reply {
            error!(source = %client.source(), "the answer to a {of} PDU is over {} bytes", self.max_reply);
            FixedLimit::Pdus.count();
            return Err(Error::TOOBIG);
        }
        Ok(Form::Pdu)
    }

    fn catalogs(&self) -> Catalogs<'_, A> {
        Catalogs { agent: &self.agent, schema: &self.schema, getters: &self.getters }
    }

    fn attribute(&mut self, client: Client, attr: handshake::Attr<'_>) {
        let attribute = ClientAttribute::decode(attr.attribute, attr.value);
        self.known.tell(client.number(), attr.attribute, attribute);
        if let Err(e) = self.agent.attribute(self.known.client(client.number()), attribute) {
            warn!(source = %client.source(), "failed to set attribute {}: {e}", attr.attribute.code());
        }
    }

    fn news(&mut self, client: Client, e: handshake::ErrorPdu) {
        match e.status() {
            Err(Error::NOTCONN) => {
                debug!(target: "context", "end of context {client}");
                self.known.forget(client.number());
                self.schema.ends.forget(Some(client.number()));
                self.agent.close(client);
            }
            Err(e) => error!(source = %client.source(), "unexpected error PDU from pmcd: {e}"),
            Ok(()) => error!(source = %client.source(), "unexpected error PDU from pmcd: no error"),
        }
    }

    /// Stores values up to the first that is refused.
    fn store(&mut self, client: Client, request: &ResultPdu<'_>) -> Result {
        request.sets().try_for_each(|set| self.store_set(client, &set))
    }

    fn store_set(&mut self, client: Client, set: &ValueSet<'_>) -> Result {
        if !self.schema.is_storable() && self.agent.catalogs().into_iter().next().is_none() {
            return Err(Error::PERMISSION);
        }
        let metric = set.pmid.and_then(|pmid| self.catalogs().metric(pmid)).ok_or(Error::PMID)?;
        if !metric.storable {
            return Err(Error::PERMISSION);
        }
        if metric.restricted {
            self.access.check(client, &self.catalogs().named(metric.desc.pmid))?;
        }
        if set.is_empty() {
            return Err(set.error.unwrap_or(Error::BADSTORE));
        }
        if metric.desc.indom.is_none() && set.len() > 1 {
            return Err(Error::INST);
        }
        for (inst, value) in set.values() {
            // A singular metric accepts no instance, and a metric with instances requires one.
            if metric.desc.indom.is_some() != inst.is_some() {
                return Err(Error::INST);
            }
            let value = value.atom(stored_as(metric.desc.ty))?;
            self.agent.store(metric.desc.pmid.item(), inst, value, client)?;
        }
        Ok(())
    }

    /// Runs code of the agent. A panic is logged and becomes `PM_ERR_GENERIC`.
    ///
    /// This is unwind-safe for the engine, which rebuilds its state at the next request. The agent is responsible for
    /// its own state.
    fn guard<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> Result<T> {
        log::catch(|| run(self)).map_err(|panic| {
            error!(source = "panics", "the agent panicked{panic}");
            Error::GENERIC
        })
    }

    /// Converts an error of the agent to one that pmcd accepts in an answer.
    ///
    /// pmcd takes some errors for failures of the connection, and would drop the agent.
    fn presentable(&mut self, e: Error, is_of_names: bool) -> Error {
        match (e, self.readiness) {
            // pmcd ignores `PM_ERR_PMDANOTREADY` in answers about names. It would then mistake the later notification
            // that the agent is ready for the answer to its next request.
            (Error::PMDANOTREADY, Readiness::Ready) if !is_of_names => {
                debug!(target: "libpmda", "not ready");
                self.readiness = Readiness::NotReady;
                e
            }
            (Error::PMDANOTREADY | Error::PMDAREADY | Error::TIMEOUT | Error::IPC, _) => Error::AGAIN,
            (e, _) if e == Error::from_errno(nix::errno::Errno::EPIPE as i32) => Error::AGAIN,
            (e, _) => e,
        }
    }
}

/// Returns the type of values that are stored to a metric of type `ty`. For events it is a string, such as a filter of
/// the client (`pmval -x`).
fn stored_as(ty: Type) -> Type {
    if matches!(ty, Type::Event | Type::HighResEvent) { Type::String } else { ty }
}
