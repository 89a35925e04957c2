//! Answers PDUs, without any input or output.

use help::{Compiled, Target};
use pmapi::config::Config;
use pmapi::pdu::handshake;
use pmapi::pdu::instance::{InstanceReq, InstanceWriter};
use pmapi::pdu::label::LabelReq;
use pmapi::pdu::metadata::{DescPdu, DescReq, Fetch, Subject, Text, TextKind, TextReq};
use pmapi::pdu::profile::{Profile, Selection};
use pmapi::pdu::result::{Changes, ResultPdu, ValueSet};
use pmapi::pdu::result_writer::ResultWriter;
use pmapi::pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::{Error, InDom, PmId, Result};
use tracing::{debug, error, warn};

use crate::agent::{Agent, Client, Failure, Request, Start};
use crate::indom::Instances;
use crate::labels;
use crate::schema::{Identity, Schema};
use crate::values::Values;

/// An agent with all that answers a PDU from it.
///
/// [`Engine::handle`] takes a PDU and gives the reply, if there is one. Hosts move the bytes: a
/// [`Session`](crate::session::Session) over pipes and sockets, [`Local`](crate::local::Local) within
/// the process. A steady flow of fetch, desc, instance, text and profile requests allocates nothing.
#[derive(Debug)]
pub struct Engine<A> {
    agent: A,
    schema: Schema,
    help: Compiled,
    config: Config,
    profile: Profile,
    changes: Changes,
    out: Vec<u8>,
    result: ResultWriter,
}

/// What goes back to pmcd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// Nothing: the PDU was no request, or made no sense.
    None,
    /// A PDU in two parts, the second perhaps empty.
    Pdu(&'a [u8], &'a [u8]),
}

impl<A: Agent> Engine<A> {
    /// An agent under a domain, with the help that it declares.
    pub fn new(domain: pmapi::Domain, config: Config) -> Start<Engine<A>> {
        Self::with(Identity { domain, ..Identity::of::<A>()? }, config)
    }

    /// An agent under a name and a domain.
    pub fn with(identity: Identity, config: Config) -> Start<Engine<A>> {
        let (schema, agent) = Schema::start::<A>(identity, config.clone())?;
        let help = schema.compiled_help()?;
        Ok(Engine {
            agent,
            schema,
            help,
            config,
            profile: Profile::default(),
            changes: Changes::default(),
            out: Vec::new(),
            result: ResultWriter::new(),
        })
    }

    /// Answers help requests from the compiled files of newhelp(1) instead (`-h`, pmdaOpenHelp(3)).
    pub fn open_help(&mut self, base: &std::path::Path) -> Result<(), Failure> {
        self.help = Compiled::open(base)?;
        Ok(())
    }

    /// What the agent declares.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The agent.
    pub fn agent_mut(&mut self) -> &mut A {
        &mut self.agent
    }

    /// Answers a PDU.
    pub fn handle(&mut self, header: Header, bytes: &[u8]) -> Reply<'_> {
        let client = Client(header.from);
        let pdu = match Pdu::decode(header, bytes) {
            Ok(pdu) => pdu,
            Err(e) => {
                error!("{e}");
                return self.refuse(header.pdu);
            }
        };
        debug!(target: "libpmda", "received {} PDU from client {client}", header.pdu);
        self.out.clear();
        let done = match pdu {
            Pdu::Fetch(fetch) => return self.fetch(client, fetch),
            Pdu::Profile(profile) => {
                self.profile.assign(&profile);
                return Reply::None;
            }
            Pdu::Error(e) => {
                self.news(client, e);
                return Reply::None;
            }
            Pdu::Attr(attr) => {
                if let Err(e) = self.agent.attribute(client, attr.attribute, attr.value) {
                    warn!("failed to set attribute {}: {e}", attr.attribute.0);
                }
                return Reply::None;
            }
            Pdu::DescReq(req) => self.desc(client, req),
            Pdu::InstanceReq(req) => self.instance(client, req),
            Pdu::TextReq(req) => self.text(client, req),
            Pdu::LabelReq(req) => self.label(client, req),
            Pdu::Result(request) => {
                let status = self.store(client, &request);
                handshake::encode_error(&mut self.out, FROM_AGENT, status)
            }
            // Without dynamic names there is nothing that pmcd does not know itself.
            Pdu::Names(_) | Pdu::Child(_) | Pdu::Traverse(_) => Err(Error::NAME),
            Pdu::Ids(_) => Err(Error::PMID),
            Pdu::Desc(_) | Pdu::Instance(_) | Pdu::Text(_) | Pdu::Creds(_) | Pdu::Label(_) => {
                error!("unexpected {} PDU", header.pdu);
                return Reply::None;
            }
        };
        if let Err(e) = done {
            return self.fail(e);
        }
        Reply::Pdu(&self.out, &[])
    }

    /// What a PDU of this type gets when it cannot be decoded: requests an error, others nothing.
    fn refuse(&mut self, pdu: PduType) -> Reply<'_> {
        const REQUESTS: [PduType; 10] = [
            PduType::RESULT,
            PduType::FETCH,
            PduType::DESC_REQ,
            PduType::INSTANCE_REQ,
            PduType::TEXT_REQ,
            PduType::PMNS_IDS,
            PduType::PMNS_NAMES,
            PduType::PMNS_CHILD,
            PduType::PMNS_TRAVERSE,
            PduType::LABEL_REQ,
        ];
        if REQUESTS.contains(&pdu) { self.fail(Error::IPC) } else { Reply::None }
    }

    fn fail(&mut self, e: Error) -> Reply<'_> {
        self.out.clear();
        match handshake::encode_error(&mut self.out, FROM_AGENT, Err(e)) {
            Ok(()) => Reply::Pdu(&self.out, &[]),
            // An ERROR PDU has 16 bytes.
            Err(_) => Reply::None,
        }
    }

    fn news(&mut self, client: Client, e: handshake::ErrorPdu) {
        match e.status() {
            Err(Error::NOTCONN) => {
                debug!(target: "context", "end of context {client}");
                self.agent.close(client);
            }
            Err(e) => error!("unexpected error PDU from pmcd: {e}"),
            Ok(()) => error!("unexpected error PDU from pmcd: no error"),
        }
    }

    fn fetch(&mut self, client: Client, fetch: Fetch<'_>) -> Reply<'_> {
        if let Err(e) = self.agent.refresh(Request::Fetch, client) {
            return self.fail(e);
        }
        self.result.begin();
        for pmid in fetch.pmids() {
            // A request may name a large metric any number of times.
            if self.result.len() > MAX_REPLY {
                error!("the answer to a fetch is over {MAX_REPLY} bytes");
                return self.fail(Error::TOOBIG);
            }
            self.result.begin_set(pmid);
            let Some(metric) = pmid.and_then(|pmid| self.schema.find(pmid)) else {
                debug!(target: "libpmda", "metric {} is not defined", Ident(pmid));
                self.result.end_set(Err(Error::PMID));
                continue;
            };
            let selection = metric.desc.indom.map_or(Selection::ALL, |indom| self.profile.selection(indom));
            let mut values = Values::new(&mut self.result, &metric.desc, selection);
            match self.agent.fetch(metric.item, &mut values) {
                Ok(()) => {
                    let missing = values.missing();
                    self.result.end_set(missing);
                }
                Err(e) => {
                    report(metric.desc.pmid, e);
                    self.result.fail_set(e);
                }
            }
        }
        let changes = std::mem::take(&mut self.changes);
        match self.result.seal(FROM_AGENT, changes) {
            Ok((head, blocks)) => Reply::Pdu(head, blocks),
            Err(e) => {
                // The news have not gone out.
                self.changes = changes;
                error!("the answer to a fetch: {e}");
                self.out.clear();
                match handshake::encode_error(&mut self.out, FROM_AGENT, Err(e)) {
                    Ok(()) => Reply::Pdu(&self.out, &[]),
                    Err(_) => Reply::None,
                }
            }
        }
    }

    fn desc(&mut self, client: Client, req: DescReq) -> Result {
        let pmid = req.pmid.ok_or(Error::PMID)?;
        self.agent.refresh(Request::Desc(pmid.item()), client)?;
        let metric = self.schema.find(pmid).ok_or(Error::PMID)?;
        DescPdu { desc: metric.desc }.encode(&mut self.out, FROM_AGENT)
    }

    fn instance(&mut self, client: Client, req: InstanceReq<'_>) -> Result {
        let indom =
            req.indom.filter(|indom| InDom::new(self.schema.domain(), indom.serial()) == *indom).ok_or(Error::INDOM)?;
        self.agent.refresh(Request::Instance(indom.serial()), client)?;
        let instances = instances(&self.agent, &self.schema, indom.serial()).ok_or(Error::INDOM)?;
        let mut out = InstanceWriter::new(&mut self.out, FROM_AGENT, indom);
        match (req.inst, req.name) {
            (None, None) => instances.each(&mut |inst, name| out.push(Some(inst), name.as_bytes())),
            (Some(inst), None) => {
                let name = instances.name(inst).ok_or(Error::INST)?;
                out.push(None, name.as_bytes());
            }
            (None, Some(name)) => {
                // Names of instances are UTF-8 here: others match none.
                let inst = std::str::from_utf8(name).ok().and_then(|name| instances.lookup(name));
                out.push(Some(inst.ok_or(Error::INST)?), b"");
            }
            (Some(_), Some(_)) => return Err(Error::INST),
        }
        out.finish()
    }

    fn text(&mut self, client: Client, req: TextReq) -> Result {
        self.agent.refresh(Request::Text, client)?;
        let (subject, kind) = req.parse().map_err(|_| Error::TEXT)?;
        let target = match subject {
            Subject::Metric(pmid) => Target::Metric(pmid),
            Subject::InDom(indom) => Target::InDom(indom),
        };
        let text = match kind {
            TextKind::OneLine => self.help.oneline(target),
            TextKind::Help => self.help.text(target),
        };
        Text { ident: req.ident, text: text.ok_or(Error::TEXT)? }.encode(&mut self.out, FROM_AGENT)
    }

    fn label(&mut self, client: Client, req: LabelReq) -> Result {
        labels::answer(&mut self.agent, &self.schema, &self.profile, &self.config, client, req, &mut self.out)
    }

    /// Stores values up to the first that is refused.
    fn store(&mut self, client: Client, request: &ResultPdu<'_>) -> Result {
        self.agent.refresh(Request::Store, client)?;
        request.sets().try_for_each(|set| self.store_set(client, &set))
    }

    fn store_set(&mut self, client: Client, set: &ValueSet<'_>) -> Result {
        if !self.schema.is_storable() {
            return Err(Error::PERMISSION);
        }
        let metric = set.pmid.and_then(|pmid| self.schema.find(pmid)).ok_or(Error::PMID)?;
        if !metric.storable {
            return Err(Error::PERMISSION);
        }
        if set.is_empty() {
            return Err(set.error.unwrap_or(Error::BADSTORE));
        }
        for (inst, value) in set.values() {
            // A singular metric takes no instance, and one with instances needs one.
            if metric.desc.indom.is_some() != inst.is_some() {
                return Err(Error::INST);
            }
            let value = value.atom(metric.desc.ty)?;
            self.agent.store(metric.item, inst, value, client)?;
        }
        Ok(())
    }
}

/// No answer to a fetch goes on beyond this many bytes.
const MAX_REPLY: usize = 256 << 20;

/// The instances of a domain: those that the agent gives, else those that it has declared.
pub(crate) fn instances<'a, A: Agent>(
    agent: &'a A,
    schema: &'a Schema,
    serial: pmapi::Serial,
) -> Option<&'a dyn Instances> {
    agent.instances(serial).or_else(|| schema.instances(serial))
}

/// Logs that a metric has no values, as loudly as libpcp_pmda does.
fn report(pmid: PmId, e: Error) {
    match e {
        Error::INST => warn!("metric {pmid}: {e}"),
        Error::VALUE | Error::APPVERSION | Error::PERMISSION | Error::AGAIN | Error::NYI => {
            debug!(target: "libpmda", "metric {pmid}: {e}");
        }
        _ => error!("metric {pmid}: {e}"),
    }
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
