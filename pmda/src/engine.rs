//! The engine, which answers PDUs without any input or output.

use clap::ArgMatches;
use help::{Compiled, Target};
use pcp_pdu::handshake;
use pcp_pdu::instance::{InstanceReq, InstanceWriter};
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::{DescPdu, DescReq, Fetch, Subject, Text, TextKind, TextReq};
use pcp_pdu::profile::{Profile, Selection};
use pcp_pdu::result::{Changes, ResultPdu, ValueSet};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::config::Config;
use pmapi::{Error, InDom, PmId, Result, Type};
use tracing::{debug, error, warn};

use crate::access::Access;
use crate::agent::{Agent, Failure, Request, Start};
use crate::catalog::Version;
use crate::client::{Client, ClientAttribute, Known};
use crate::dynamic::Dynamic;
use crate::indom::Instances;
use crate::limits::FixedLimit;
use crate::log;
use crate::options;
use crate::schema::{Identity, Schema, Served};
use crate::unserved::Unserved;
use crate::values::Values;

mod hosts;
mod labels;
mod names;
mod request;

use hosts::Readiness;
use names::Names;

/// An agent, together with the state that is needed to answer PDUs.
///
/// [`Engine::handle`] answers a PDU. Hosts move the bytes: a [`Session`](crate::session::Session) over pipes and
/// sockets, `Local` of crate `pcp-collector` within the process. A steady flow of fetch, desc, instance, text and profile
/// requests allocates nothing.
#[derive(Debug)]
pub struct Engine<A> {
    agent: A,
    schema: Schema,
    help: Compiled,
    config: Config,
    profile: Profile,
    /// Pending change notifications, which clients get with the next values.
    changes: Changes,
    /// Version of dynamic names and labels that clients have been notified of.
    told: Version,
    known: Known,
    readiness: Readiness,
    /// The request whose answer may not have been sent yet.
    answered: Option<(Request, Client)>,
    out: Vec<u8>,
    result: ResultWriter,
    unserved: Unserved,
    access: Access,
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
pub enum Reply<'a> {
    /// No reply: the PDU was not a request, or was invalid.
    None,
    /// A PDU in two parts. The second may be empty.
    Pdu(&'a [u8], &'a [u8]),
}

impl<A: Agent> Engine<A> {
    /// Creates an agent under `domain`, with the help that it declares.
    ///
    /// # Errors
    /// The errors of [`Engine::with`].
    pub fn new(domain: pmapi::Domain, config: Config) -> Start<Engine<A>> {
        Self::with(Identity { domain, ..Identity::of::<A>()? }, config, options::none::<A>()?)
    }

    /// Creates an agent under a name and a domain, with values of [its own options](Agent::options).
    ///
    /// # Errors
    /// The error of [`Agent::new`], mistakes in the declarations ([`Mistakes`](crate::schema::Mistakes)), or help that
    /// cannot be compiled.
    pub fn with(identity: Identity, config: Config, options: ArgMatches) -> Start<Engine<A>> {
        let (schema, agent) = Schema::start::<A>(identity, config.clone(), options)?;
        let help = schema.compiled_help()?;
        let told = version(&agent);
        let access = Access::new(&config);
        Ok(Engine {
            agent,
            schema,
            help,
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
            access,
            last: Answer::None,
        })
    }

    /// Opens compiled help files of newhelp(1), in place of the declared help (`-h`, pmdaOpenHelp(3)).
    ///
    /// # Errors
    /// When a file cannot be read or is not compiled help. The declared help stays.
    pub fn open_help(&mut self, base: &std::path::Path) -> Result<(), Failure> {
        self.help = Compiled::open(base)?;
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

    /// Answers a PDU. The host must call [`Engine::sent`] after it has sent the reply.
    ///
    /// A panic of the agent is logged, and `PM_ERR_GENERIC` becomes the answer to the request.
    pub fn handle(&mut self, header: Header, bytes: &[u8]) -> Reply<'_> {
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
        if asks_nothing(&pdu) {
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
            Pdu::Desc(_) | Pdu::Instance(_) | Pdu::Text(_) | Pdu::Creds(_) | Pdu::Label(_) => {
                error!(source = %client.source(), "unexpected {} PDU", header.pdu);
                return Answer::None;
            }
        };
        match done {
            Ok(()) if self.out.len() > MAX_REPLY => {
                error!(source = %client.source(), "the answer to a {} PDU is over {MAX_REPLY} bytes", header.pdu);
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
            warn!(source = %client.source(), "failed to set attribute {}: {e}", attr.attribute.0);
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

    fn fetch(&mut self, client: Client, fetch: Fetch<'_>) -> Result<Answer> {
        let domain = self.schema.domain();
        let named = fetch.pmids().flatten().filter(|pmid| pmid.domain() == domain);
        self.agent.prepare(&mut named.map(PmId::item), client)?;
        self.unserved.begin(version(&self.agent));
        self.result.begin();
        for pmid in fetch.pmids() {
            // A request may name a large metric any number of times.
            if self.result.len() > MAX_REPLY {
                error!(source = %client.source(), "the answer to a fetch is over {MAX_REPLY} bytes");
                FixedLimit::Pdus.count();
                return Err(Error::TOOBIG);
            }
            self.result.begin_set(pmid);
            // Declared metrics are not copied: a copy would take as long as the rest of the work for a number.
            let dynamic;
            let metric = match pmid.and_then(|pmid| self.schema.find(pmid)) {
                None => {
                    dynamic = pmid.and_then(|pmid| undeclared(&self.agent, pmid));
                    dynamic.as_ref()
                }
                declared => declared,
            };
            let Some(metric) = metric else {
                debug!(target: "libpmda", "metric {} is not defined", Ident(pmid));
                self.result.end_set(Err(Error::PMID));
                continue;
            };
            if let Some(outcome) = metric.without_values() {
                self.result.end_set(outcome);
                continue;
            }
            let selection = metric.desc.indom.map_or(Selection::ALL, |indom| self.profile.selection(indom));
            let mut values = Values::new(&mut self.result, &mut self.unserved, &metric.desc, selection, client);
            match self.agent.fetch(metric.item, &mut values) {
                Ok(()) => {
                    let missing = values.missing();
                    match self.result.repeated() {
                        None => self.result.end_set(missing),
                        Some(inst) => {
                            let of = inst.map(|inst| format!(" instance {inst} has")).unwrap_or_default();
                            error!(source = %client.source(), "metric {}:{of} several values", metric.desc.pmid);
                            self.result.fail_set(Error::INST);
                        }
                    }
                }
                Err(e) => {
                    self.unserved.log(client, metric.desc.pmid, None, e);
                    self.result.fail_set(e);
                }
            }
        }
        let changes = self.news_for_clients();
        match self.result.seal(FROM_AGENT, changes) {
            Ok(_) => Ok(Answer::Values),
            Err(e) => {
                // Clients have not been notified of the changes.
                self.changes = changes;
                error!(source = %client.source(), "the answer to a fetch: {e}");
                FixedLimit::Pdus.count();
                Err(e)
            }
        }
    }

    fn desc(&mut self, req: DescReq) -> Result {
        let pmid = req.pmid.ok_or(Error::PMID)?;
        let metric = find(&self.agent, &self.schema, pmid).ok_or(Error::PMID)?;
        DescPdu { desc: metric.desc }.encode(&mut self.out, FROM_AGENT)
    }

    fn instance(&mut self, req: InstanceReq<'_>) -> Result {
        let indom =
            req.indom.filter(|indom| InDom::new(self.schema.domain(), indom.serial()) == *indom).ok_or(Error::INDOM)?;
        let instances = instances(&self.agent, &self.schema, indom.serial()).ok_or(Error::INDOM)?;
        let mut out = InstanceWriter::new(&mut self.out, FROM_AGENT, indom);
        match (req.inst, req.name) {
            (None, None) => instances.each(&mut |inst, name| out.push(Some(inst), name.as_bytes())),
            (Some(inst), None) => {
                let name = instances.name(inst).ok_or(Error::INST)?;
                out.push(None, name.as_bytes());
            }
            (None, Some(name)) => {
                // Names of instances are UTF-8 here, so that other bytes match none.
                let inst = std::str::from_utf8(name).ok().and_then(|name| instances.lookup(name));
                out.push(Some(inst.ok_or(Error::INST)?), b"");
            }
            (Some(_), Some(_)) => return Err(Error::INST),
        }
        out.finish()
    }

    fn text(&mut self, req: TextReq) -> Result {
        let (subject, kind) = req.parse().map_err(|_| Error::TEXT)?;
        let target = match subject {
            Subject::Metric(pmid) => Target::Metric(pmid),
            Subject::InDom(indom) => Target::InDom(indom),
        };
        let given = self.agent.text(subject, kind)?;
        let text = given.or_else(|| self.agent.dynamic()?.text(target, kind)).or_else(|| match kind {
            TextKind::OneLine => self.help.oneline(target),
            TextKind::Help => self.help.text(target),
        });
        Text { ident: req.ident, text: text.ok_or(Error::TEXT)? }.encode(&mut self.out, FROM_AGENT)
    }

    /// Returns the changes that clients have not been notified of.
    fn news_for_clients(&mut self) -> Changes {
        let mut changes = std::mem::take(&mut self.changes).union(self.agent.changes());
        let now = version(&self.agent);
        if now.names != self.told.names {
            changes = changes.union(Changes::NAMES);
        }
        if now.labels != self.told.labels {
            changes = changes.union(Changes::LABELS);
        }
        self.told = now;
        changes
    }

    /// Answers requests for dynamic names. pmcd knows the other names itself.
    fn names(&mut self, request: Pdu<'_>) -> Result {
        if let Pdu::Ids(ids) = &request
            && let Some(outcome) = Error::from_code(ids.status)
        {
            // This is the outcome of a request, not a request.
            return Err(outcome);
        }
        let names = Names { dynamic: self.agent.dynamic(), catalog: self.agent.catalog() };
        names.named(&request, |items| self.agent.named(items));
        names.answer(request, &mut self.out)
    }

    fn label(&mut self, req: LabelReq) -> Result {
        labels::answer(&self.agent, &self.schema, &self.profile, &self.config, req, &mut self.out)
    }

    /// Stores values up to the first that is refused.
    fn store(&mut self, client: Client, request: &ResultPdu<'_>) -> Result {
        request.sets().try_for_each(|set| self.store_set(client, &set))
    }

    fn store_set(&mut self, client: Client, set: &ValueSet<'_>) -> Result {
        if !self.schema.is_storable() && self.agent.dynamic().is_none() {
            return Err(Error::PERMISSION);
        }
        let metric = set.pmid.and_then(|pmid| find(&self.agent, &self.schema, pmid)).ok_or(Error::PMID)?;
        if !metric.storable {
            return Err(Error::PERMISSION);
        }
        if metric.restricted {
            self.access.check(client, metric.desc.pmid)?;
        }
        if set.is_empty() {
            return Err(set.error.unwrap_or(Error::BADSTORE));
        }
        for (inst, value) in set.values() {
            // A singular metric accepts no instance, and a metric with instances requires one.
            if metric.desc.indom.is_some() != inst.is_some() {
                return Err(Error::INST);
            }
            let value = value.atom(stored_as(metric.desc.ty))?;
            self.agent.store(metric.item, inst, value, client)?;
        }
        Ok(())
    }
}

/// Whether the request is one that pmcd never sends: an empty fetch, or not exactly one name or PMID.
fn asks_nothing(pdu: &Pdu<'_>) -> bool {
    match pdu {
        Pdu::Fetch(fetch) => fetch.pmids().len() == 0,
        Pdu::Names(names) => names.len() != 1 || names.iter().any(|(_, name)| name.is_empty()),
        Pdu::Ids(ids) => ids.pmids().len() != 1,
        _ => false,
    }
}

/// Largest reply, in bytes.
const MAX_REPLY: usize = 64 << 20;

/// Returns the instances of a domain: those that the agent supplies, or else those that it has declared or added.
fn instances<'a, A: Agent>(agent: &'a A, schema: &'a Schema, serial: pmapi::Serial) -> Option<&'a dyn Instances> {
    agent.instances(serial).or_else(|| schema.instances(serial)).or_else(|| agent.dynamic()?.instances(serial))
}

/// Returns the type of values that are stored to a metric of type `ty`. For events it is a string, such as a filter of
/// the client (`pmval -x`).
fn stored_as(ty: Type) -> Type {
    if matches!(ty, Type::Event | Type::HighResEvent) { Type::String } else { ty }
}

/// Returns a declared or dynamic metric.
fn find<A: Agent>(agent: &A, schema: &Schema, pmid: PmId) -> Option<Served> {
    schema.find(pmid).copied().or_else(|| undeclared(agent, pmid))
}

/// Returns a dynamic metric.
fn undeclared<A: Agent>(agent: &A, pmid: PmId) -> Option<Served> {
    let dynamic = agent.dynamic().and_then(|dynamic| dynamic.find(pmid)).copied();
    dynamic.or_else(|| agent.catalog()?.desc(pmid).map(Served::from))
}

/// Returns the version of dynamic names and labels.
fn version<A: Agent>(agent: &A) -> Version {
    let dynamic = agent.dynamic().map(Dynamic::version).unwrap_or_default();
    // Both counters only grow, so that their sum changes when one of them does.
    Version { names: dynamic.names + agent.catalog().map_or(0, |catalog| catalog.version()), ..dynamic }
}

/// A PMID for the log.
struct Ident(Option<PmId>);

impl std::fmt::Display for Ident {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pmid) => pmid.fmt(f),
            None => f.write_str("PM_ID_NULL"),
        }
    }
}
