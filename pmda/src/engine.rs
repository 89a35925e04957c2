//! The engine, which answers PDUs without any input or output.

use pcp_help::Compiled;
use pcp_pdu::handshake;
use pcp_pdu::instance::{InstanceReq, InstanceWriter};
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::{DescPdu, DescReq, Subject, Text, TextReq};
use pcp_pdu::profile::Profile;
use pcp_pdu::result::{Changes, ResultPdu, ValueSet};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::{Config, Error, InDom, Inst, Result, Type};
use tracing::{debug, error, warn};

use crate::access::Access;
use crate::agent::Agent;
use crate::catalog::Version;
use crate::client::{Client, ClientAttribute, Known};
use crate::error::Failure;
use crate::fixed_limit::FixedLimit;
use crate::getter::Getters;
use crate::log;
use crate::schema::Schema;
use crate::unserved::Unserved;

mod catalogs;
mod fetch;
mod hosts;
mod labels;
mod names;
mod plans;
mod request;

use catalogs::{Catalogs, version};
use hosts::Readiness;
pub use hosts::Startup;
use plans::Plans;

/// An agent, together with the state that is needed to answer PDUs.
///
/// [`Engine::handle`] answers a PDU. Hosts move the bytes: a [`Session`](crate::Session) over pipes and
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
    /// The request whose answer may not have been sent yet: whether it is about names, and its client.
    answered: Option<(bool, Client)>,
    out: Vec<u8>,
    result: ResultWriter,
    unserved: Unserved,
    plans: Plans,
    access: Access,
    /// Largest answer, in bytes.
    max_reply: usize,
    /// Location of the last answer.
    last: Answer,
}

/// Location of an answer.
#[derive(Clone, Copy, Debug)]
enum Answer {
    None,
    /// The answer is in `out`.
    Out,
    /// The answer is in `result`.
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

impl<A: Agent> Engine<A> {
    pub(crate) fn new(agent: A, schema: Schema, getters: Getters<A>, config: Config) -> Engine<A> {
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
            answered: None,
            out: Vec::new(),
            result: ResultWriter::new(),
            unserved: Unserved::default(),
            plans: Plans::default(),
            access,
            max_reply: MAX_REPLY,
            last: Answer::None,
        }
    }

    /// Opens compiled help files of newhelp(1), in place of the declared help (`-h`, pmdaOpenHelp(3)).
    ///
    /// # Errors
    /// When a file cannot be read or is not compiled help. The declared help stays.
    pub fn open_help(&mut self, base: &std::path::Path) -> Result<(), Failure> {
        self.schema.compiled_help = Some(Compiled::open(base)?);
        Ok(())
    }

    /// Returns the declarations of the agent.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the agent, mutably.
    pub fn agent_mut(&mut self) -> &mut A {
        &mut self.agent
    }

    fn catalogs(&self) -> Catalogs<'_, A> {
        Catalogs { agent: &self.agent, schema: &self.schema, getters: &self.getters }
    }

    /// Answers a PDU. `send` sends the reply. Afterwards the agent does the work for which no client waits
    /// ([`Agent::done`]). Returns the result of `send`.
    ///
    /// A panic of the agent is logged, and `PM_ERR_GENERIC` becomes the answer to the request. After a panic in
    /// [`Agent::fetch`], this applies only to the metric.
    pub fn handle<T>(&mut self, header: Header, bytes: &[u8], send: impl FnOnce(Reply<'_>) -> T) -> T {
        let sent = send(self.begin(header, bytes));
        self.sent();
        sent
    }

    /// Answers a PDU. The host must call [`Engine::sent`] after it has sent the reply.
    pub(crate) fn begin(&mut self, header: Header, bytes: &[u8]) -> Reply<'_> {
        log::tick();
        let answer = self.guard(|engine| engine.answer(header, bytes)).unwrap_or_else(|e| match header.pdu {
            pdu if pdu.is_request() => self.fail(e),
            _ => Answer::None,
        });
        self.last = answer;
        self.reply()
    }

    /// Returns the reply to the last PDU.
    pub(crate) fn reply(&self) -> Reply<'_> {
        match self.last {
            Answer::None => Reply::None,
            Answer::Out => Reply::Pdu(&self.out, &[]),
            Answer::Values => {
                let (head, blocks) = self.result.parts();
                Reply::Pdu(head, blocks)
            }
        }
    }

    fn answer(&mut self, header: Header, bytes: &[u8]) -> Answer {
        let client = self.known.client(header.from);
        if header.pdu != PduType::ATTR {
            self.known.end_series();
        }
        let pdu = match Pdu::decode(header, bytes) {
            Ok(pdu) => pdu,
            Err(e) => {
                error!(source = %client.source(), "{e}");
                return if header.pdu.is_request() { self.fail(Error::IPC) } else { Answer::None };
            }
        };
        debug!(target: "libpmda", "received {} PDU from client {client}", header.pdu);
        if pdu.asks_nothing() {
            error!(source = %client.source(), "invalid {} PDU: an empty request, or more than one name or PMID", header.pdu);
            return self.fail(Error::IPC);
        }
        if let Err(e) = self.before(&pdu, client) {
            return self.fail_with(e);
        }
        self.out.clear();
        let done = match pdu {
            Pdu::Fetch(fetch) => return self.fetch(client, fetch).unwrap_or_else(|e| self.fail_with(e)),
            Pdu::Profile(profile) => {
                self.profile.assign(&profile);
                return Answer::None;
            }
            Pdu::Error(e) => {
                self.news(client, e);
                return Answer::None;
            }
            Pdu::Attr(attr) => {
                self.attribute(client, attr);
                return Answer::None;
            }
            Pdu::DescReq(req) => self.desc(req),
            Pdu::InstanceReq(req) => self.instance(req),
            Pdu::TextReq(req) => self.text(req),
            Pdu::LabelReq(req) => self.label(req),
            Pdu::Result(request) => {
                let stored = self.store(client, &request);
                stored.and_then(|()| handshake::encode_error(&mut self.out, FROM_AGENT, Ok(())))
            }
            Pdu::Names(_) | Pdu::Ids(_) | Pdu::Child(_) | Pdu::Traverse(_) => self.names(pdu),
            _ => {
                error!(source = %client.source(), "unexpected {} PDU", header.pdu);
                return Answer::None;
            }
        };
        match done {
            Ok(()) if self.out.len() > self.max_reply => {
                error!(source = %client.source(), "the answer to a {} PDU is over {} bytes", header.pdu, self.max_reply);
                FixedLimit::Pdus.count();
                self.fail(Error::TOOBIG)
            }
            Ok(()) => Answer::Out,
            Err(e) => self.fail_with(e),
        }
    }

    /// Answers with an error of the agent.
    fn fail_with(&mut self, e: Error) -> Answer {
        let e = self.presentable(e);
        self.fail(e)
    }

    fn fail(&mut self, e: Error) -> Answer {
        self.out.clear();
        match handshake::encode_error(&mut self.out, FROM_AGENT, Err(e)) {
            Ok(()) => Answer::Out,
            // An ERROR PDU has 16 bytes.
            Err(_) => Answer::None,
        }
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

    fn desc(&mut self, req: DescReq) -> Result {
        let pmid = req.pmid.ok_or(Error::PMID)?;
        let metric = self.catalogs().metric(pmid).ok_or(Error::PMID)?;
        DescPdu { desc: metric.desc }.encode(&mut self.out, FROM_AGENT)
    }

    fn instance(&mut self, req: InstanceReq<'_>) -> Result {
        let indom =
            req.indom.filter(|indom| InDom::new(self.schema.domain(), indom.serial()) == *indom).ok_or(Error::INDOM)?;
        let instances = Catalogs { agent: &self.agent, schema: &self.schema, getters: &self.getters }
            .instances(indom.serial())
            .ok_or(Error::INDOM)?;
        let mut out = InstanceWriter::new(&mut self.out, FROM_AGENT, indom);
        match (req.inst, req.name) {
            (None, None) => instances.each(&mut |inst, name| {
                if is_whole(indom, inst, name) {
                    out.push(Some(inst), name.as_bytes());
                }
            }),
            (Some(inst), None) => {
                let name = instances.name(inst).filter(|name| is_whole(indom, inst, name)).ok_or(Error::INST)?;
                out.push(None, name.as_bytes());
            }
            (None, Some(name)) => {
                // Names of instances are UTF-8 in this framework, so other bytes match none.
                let inst = std::str::from_utf8(name).ok().and_then(|name| instances.lookup(name));
                out.push(Some(inst.ok_or(Error::INST)?), b"");
            }
            (Some(_), Some(_)) => return Err(Error::INST),
        }
        out.finish()
    }

    fn text(&mut self, req: TextReq) -> Result {
        let (subject, kind) = req.parse().map_err(|_| Error::TEXT)?;
        let catalogs = Catalogs { agent: &self.agent, schema: &self.schema, getters: &self.getters };
        let text = catalogs.text(subject, kind)?.ok_or(Error::TEXT)?;
        if text.contains(&0) {
            match subject {
                Subject::Metric(pmid) => error!(source = "help", "{}: the help has a NUL byte", catalogs.named(pmid)),
                Subject::InDom(indom) => error!(source = "help", "instance domain {indom}: the help has a NUL byte"),
            }
            return Err(Error::TEXT);
        }
        Text { ident: req.ident, text }.encode(&mut self.out, FROM_AGENT)
    }

    /// Returns the changes that clients have not been notified of.
    fn news_for_clients(&mut self) -> Changes {
        let mut changes = std::mem::take(&mut self.changes) | self.agent.changes();
        let now = version(&self.agent);
        if now.names != self.told.names {
            changes |= Changes::NAMES;
        }
        if now.labels != self.told.labels {
            changes |= Changes::LABELS;
        }
        self.told = now;
        changes
    }

    /// Answers requests for dynamic names. pmcd knows the other names itself.
    fn names(&mut self, request: Pdu<'_>) -> Result {
        if let Pdu::Ids(ids) = &request {
            if let Some(outcome) = Error::from_code(ids.status) {
                // This is the outcome of a request, not a request.
                return Err(outcome);
            }
        }
        names::answer(self.agent.catalogs().into_iter(), request, &mut self.out)
    }

    fn label(&mut self, req: LabelReq) -> Result {
        labels::answer(
            &Catalogs { agent: &self.agent, schema: &self.schema, getters: &self.getters },
            &self.profile,
            &self.config,
            req,
            self.max_reply,
            &mut self.out,
        )
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
}

/// Largest reply, in bytes.
const MAX_REPLY: usize = 64 << 20;

/// Returns the type of values that are stored to a metric of type `ty`. For events it is a string, such as a filter of
/// the client (`pmval -x`).
fn stored_as(ty: Type) -> Type {
    if matches!(ty, Type::Event | Type::HighResEvent) { Type::String } else { ty }
}

/// Returns whether clients see the whole name of an instance, which they end at a NUL byte. Otherwise logs an error, and
/// the instance has no name.
fn is_whole(indom: InDom, inst: Inst, name: &str) -> bool {
    let is_whole = !name.contains('\0');
    if !is_whole {
        error!(source = "names", "instance domain {indom}: the name {name:?} of instance {inst} has a NUL byte");
    }
    is_whole
}
