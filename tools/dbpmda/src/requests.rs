//! Requests of commands, and the output of their answers.
//!
//! Each function returns a status. It is negative after a failure, and the duration is then not shown. The end of the
//! agent and an answer of the wrong type do not count as failures.

use pcp_pdu::desc::RawDesc;
use pcp_pdu::handshake::{Attr, Attribute};
use pcp_pdu::instance::{InstancePdu, InstanceReq};
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::{DescReq, TextReq};
use pcp_pdu::names::{Child, Names, Node, Statuses, Traverse, encode_ids, encode_names};
use pcp_pdu::{Header, Pdu, PduType};
use pmapi::{InDom, Inst, LabelLevel, OptionWord as _, OrNull, PmId};

use crate::agent::{Reply, error_text};
use crate::attribute;
use crate::console::{err, out};
use crate::grammar::Arg;
use crate::show::{self, until_nul};
use crate::state::State;
use crate::token::Word;
use crate::trace_answers as trace;

/// Status of a request as in libpcp: negative after a failure.
pub(crate) type Status = i32;

/// Outcome of a request. The error has been shown.
pub(crate) type Asked<T = ()> = Result<T, Status>;

const IPC: Status = pmapi::Error::IPC.code();

/// Largest attribute PDU, in bytes (`LIMIT_AUTH_PDU`).
const MAX_ATTRIBUTE: usize = 2048;

/// Output for an answer of the wrong type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The type of the answer, as a number.
    Number,
    /// The error text whose code equals the type of the answer, as in PCP's dbpmda.
    Text,
}

impl State {
    /// Sends a request and waits for an answer of type `wanted`. Shows any other answer.
    pub(crate) fn ask(&mut self, wanted: PduType, encode: impl FnOnce(&mut Vec<u8>) -> pmapi::Result) -> Asked<Reply> {
        let wrong = if matches!(wanted, PduType::DESC | PduType::RESULT) { Wrong::Number } else { Wrong::Text };
        self.ask_with(wrong, wanted, encode)
    }

    /// Like [`State::ask`], with the output for an answer of the wrong type.
    pub(crate) fn ask_with(
        &mut self,
        wrong: Wrong,
        wanted: PduType,
        encode: impl FnOnce(&mut Vec<u8>) -> pmapi::Result,
    ) -> Asked<Reply> {
        let Some(agent) = &mut self.agent else { return Err(IPC) };
        let (mut sender, mut called) = functions(PduType::PROFILE);
        let sent = agent.send(|out| {
            encode(out)?;
            if let Some(header) = Header::parse(out)? {
                (sender, called) = functions(header.pdu);
            }
            Ok(())
        });
        let received = sent.and_then(|()| agent.receive());
        if agent.interface().is_some() {
            let code = match received {
                Ok(reply) => match reply.pdu() {
                    Some(Pdu::Error(e)) if e.code < 0 => e.code,
                    _ if reply.header.pdu == wanted => return Ok(reply),
                    _ => IPC,
                },
                Err(code) => code,
            };
            return self.failed(&format!("DSO {called}"), code);
        }
        if let Err(code) = sent {
            return self.failed(sender, code);
        }
        let status = match received {
            Ok(reply) if reply.header.pdu == wanted => return Ok(reply),
            Ok(reply) if reply.header.pdu == PduType::ERROR => {
                let Some(Pdu::Error(error)) = reply.pdu() else { return self.failed("__pmDecodeError", IPC) };
                out!(self.console, "Error PDU: {}\n", error_text(error.code));
                return Err(error.code);
            }
            Ok(reply) => reply.header.pdu.code(),
            Err(code) => code,
        };
        match (status, wrong) {
            (0, _) => out!(self.console, "Error: __pmGetPDU() failed: PDU empty, PMDA may have died\n"),
            (_, Wrong::Number) => out!(self.console, "Error: __pmGetPDU() failed: wrong PDU ({status:x})\n"),
            (_, Wrong::Text) => return self.failed("__pmGetPDU", status),
        }
        Err(status)
    }

    /// Shows that a function of libpcp or of a shared object has failed.
    fn failed<T>(&self, function: &str, code: Status) -> Asked<T> {
        out!(self.console, "Error: {function}() failed: {}\n", error_text(code));
        Err(code)
    }

    /// Shows that the content of an answer is invalid for its type.
    pub(crate) fn undecodable<T>(&self, function: &str) -> Asked<T> {
        self.failed(function, IPC)
    }

    /// Traces a call of a shared object, where PCP's dbpmda does.
    pub(crate) fn trace_call(&self, function: &str) {
        if self.interface().is_some() {
            self.console.trace("pdu", format_args!("DSO {function}()"));
        }
    }

    /// Returns whether the interface of a shared object is too old for a request. Shows an error if it is.
    pub(crate) fn is_too_old(&self, least: u8, what: &str) -> bool {
        let Some(version) = self.interface().filter(|version| *version < least) else { return false };
        out!(self.console, "Error: PMDA Interface {version} does not support {what}\n");
        true
    }

    pub(crate) fn show_desc(&mut self, pmid: Option<PmId>) -> Asked {
        out!(self.console, "PMID: {}\n", OrNull(pmid));
        let desc = self.desc(pmid)?;
        out!(self.console, "{desc}\n");
        Ok(())
    }

    /// Requests a descriptor. The debug option `pdu` shows that of a shared object.
    pub(crate) fn desc(&mut self, pmid: Option<PmId>) -> Asked<RawDesc> {
        self.trace_call("desc");
        let reply = self.ask(PduType::DESC, |out| DescReq { pmid }.encode(out, 0))?;
        let Some(desc) = RawDesc::decode(&reply.bytes) else { return self.undecodable("__pmDecodeDesc") };
        if self.console.has("pdu") && self.interface().is_some() {
            out!(self.console, "{desc}\n");
        }
        Ok(desc)
    }

    /// Sends the profile if the agent lacks it.
    pub(crate) fn send_profile(&mut self) -> Asked {
        let Some(agent) = self.agent.as_mut().filter(|_| self.profile_changed) else { return Ok(()) };
        if let Err(code) = agent.send(|out| self.profile.encode(out)) {
            return self.failed(if self.interface().is_some() { "DSO profile" } else { "__pmSendProfile" }, code);
        }
        agent.has_profile = true;
        self.profile_changed = false;
        Ok(())
    }

    /// Passes changes of its profile to a shared object. PCP's dbpmda has given it a pointer to the profile.
    fn share_profile(&mut self) {
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.has_profile && self.profile_changed) {
            // The next request shows the failure too.
            let _: Result<(), i32> = agent.send(|out| self.profile.encode(out));
        }
    }

    pub(crate) fn instance(&mut self, indom: Option<InDom>, which: Option<&Arg>) -> Asked {
        out!(self.console, "pmInDom: {}\n", OrNull(indom));
        let (inst, name) = match which {
            Some(Arg::Number(number)) => (Inst::from_word(*number as u32), None),
            which => (None, which.and_then(Arg::text)),
        };
        self.trace_call("instance");
        let reply = self.ask(PduType::INSTANCE, |out| InstanceReq { indom, inst, name }.encode(out, 0))?;
        show::instances(&self.instances(&reply)?, &self.console);
        Ok(())
    }

    /// Requests the name of an instance. Shows a failure.
    pub(crate) fn instance_name(&mut self, indom: Option<InDom>, inst: Option<Inst>) -> Option<Vec<u8>> {
        let request = InstanceReq { indom, inst, name: None };
        let reply = self.ask(PduType::INSTANCE, |out| request.encode(out, 0)).ok()?;
        self.instances(&reply).ok()?.iter().next().map(|(_, name)| until_nul(name).to_owned())
    }

    fn instances<'a>(&self, reply: &'a Reply) -> Asked<InstancePdu<'a>> {
        let Some(Pdu::Instance(instances)) = reply.pdu() else { return self.undecodable("__pmDecodeInstance") };
        trace::instances(self.pdus("indom"), &instances);
        Ok(instances)
    }

    pub(crate) fn text(&mut self, subject: &[Arg]) -> Asked {
        const ONELINE: i32 = 1;
        const HELP: i32 = 2;
        let (ident, kind) = match subject {
            [.., Arg::InDom(indom)] => {
                out!(self.console, "pmInDom: {}\n", OrNull(*indom));
                (indom.word(), 8)
            }
            subject => {
                let pmid = subject.first().and_then(Arg::metric).flatten();
                out!(self.console, "PMID: {}\n", OrNull(pmid));
                (pmid.word(), 4)
            }
        };
        // The status is that of the second request.
        let _ =
            self.show_text(TextReq { ident, bits: kind | ONELINE }, "[<no one line help text specified>]", ["[", "]"]);
        self.show_text(TextReq { ident, bits: kind | HELP }, "<no help text specified>", ["", ""])
    }

    fn show_text(&mut self, request: TextReq, none: &str, [before, after]: [&str; 2]) -> Asked {
        let reply = self.ask(PduType::TEXT, |out| request.encode(out, 0))?;
        let Some(Pdu::Text(text)) = reply.pdu() else { return self.undecodable("__pmDecodeText") };
        match until_nul(text.text) {
            [] => out!(self.console, "{none}\n"),
            text => self.console.out_bytes(&[before.as_bytes(), text, after.as_bytes(), b"\n"].concat()),
        }
        Ok(())
    }

    pub(crate) fn labels(&mut self, subject: &[Arg]) -> Asked {
        let (ident, level) = match subject {
            [Arg::Word(Word::Instances), Arg::InDom(indom)] => {
                out!(self.console, "Instances of pmInDom: {}\n", OrNull(*indom));
                if self.interface().is_some() {
                    self.share_profile();
                } else {
                    // The request shows the failure too.
                    let _ = self.send_profile();
                }
                (indom.word(), LabelLevel::Instances)
            }
            [_, Arg::InDom(indom)] => {
                out!(self.console, "pmInDom: {}\n", OrNull(*indom));
                (indom.word(), LabelLevel::InDom)
            }
            [Arg::Word(Word::Cluster), Arg::Metric(pmid)] => {
                let name = OrNull(*pmid).to_string();
                out!(self.console, "Cluster: {}\n", name.rsplit_once('.').map_or(&*name, |(cluster, _)| cluster));
                (pmid.word(), LabelLevel::Cluster)
            }
            [_, Arg::Metric(pmid)] => {
                out!(self.console, "PMID: {}\n", OrNull(*pmid));
                (pmid.word(), LabelLevel::Item)
            }
            [Arg::Word(Word::Domain)] => (u32::MAX, LabelLevel::Domain),
            _ => (u32::MAX, LabelLevel::Context),
        };
        let request = LabelReq { ident, bits: level.code() as i32 };
        let reply = self.ask(PduType::LABEL, |out| request.encode(out, 0))?;
        let Some(Pdu::Label(labels)) = reply.pdu() else { return self.undecodable("__pmDecodeLabel") };
        trace::labels(self.pdus("labels"), &labels);
        match self.interface() {
            Some(_) if labels.is_empty() => out!(self.console, "Info: DSO label() returns 0\n"),
            _ => show::labels(&labels, &self.console),
        }
        Ok(())
    }

    pub(crate) fn names_of(&mut self, pmid: Option<PmId>) -> Asked {
        out!(self.console, "PMID: {}\n", OrNull(pmid));
        trace::ids(self.pdus("pmns"), "__pmSendIDList", &[pmid]);
        self.show_names("name", |out| encode_ids(out, 0, 0, &[pmid]))
    }

    pub(crate) fn pmid_of(&mut self, name: &[u8]) -> Asked {
        out!(self.console, "Metric: {}\n", String::from_utf8_lossy(name));
        trace::names(self.pdus("pmns"), "__pmSendNameList", [(None, name)].into_iter());
        let reply = self.ask(PduType::PMNS_IDS, |out| encode_names(out, 0, Statuses::Omitted, [(Node::Leaf, name)]))?;
        match reply.pdu() {
            Some(Pdu::Ids(ids)) if ids.pmids().len() == 1 => {
                let pmid = ids.pmids().next().flatten();
                trace::ids(self.pdus("pmns"), "__pmDecodeIDList", &[pmid]);
                out!(self.console, "   {}\n", OrNull(pmid));
                Ok(())
            }
            _ => self.undecodable("__pmDecodeIDList"),
        }
    }

    pub(crate) fn children(&mut self, name: &[u8]) -> Asked {
        self.begin_names(name, PduType::PMNS_CHILD, 1);
        let child = Child { statuses: Statuses::Included, name };
        let reply = self.ask(PduType::PMNS_NAMES, |out| child.encode(out, 0))?;
        for (node, name) in self.names_in(&reply, "children")?.iter() {
            let node = if node == Some(Node::NonLeaf) { "non-leaf" } else { "leaf" };
            out!(self.console, "   {node:>8} {}\n", String::from_utf8_lossy(until_nul(name)));
        }
        Ok(())
    }

    pub(crate) fn traverse(&mut self, name: &[u8]) -> Asked {
        self.begin_names(name, PduType::PMNS_TRAVERSE, 0);
        self.show_names("children", |out| Traverse { name }.encode(out, 0))
    }

    /// Shows the request for the names below a name.
    fn begin_names(&self, name: &[u8], pdu: PduType, subtype: i32) {
        let name = String::from_utf8_lossy(name);
        out!(self.console, "Metric: {name}\n");
        if let Some(console) = self.pdus("pmns") {
            err!(console, "SendNameReq: from=0 name=\"{name}\" pdu={pdu} subtype={subtype}\n");
        }
    }

    fn show_names(&mut self, function: &str, encode: impl FnOnce(&mut Vec<u8>) -> pmapi::Result) -> Asked {
        let reply = self.ask(PduType::PMNS_NAMES, encode)?;
        for (node, name) in self.names_in(&reply, function)?.iter() {
            // A shared object returns the kind of each name only for a traversal.
            match node.filter(|_| self.interface().is_some()) {
                Some(Node::NonLeaf) => out!(self.console, "   non-leaf "),
                Some(Node::Leaf) => out!(self.console, "   {:>8} ", "leaf"),
                None => out!(self.console, "   "),
            }
            out!(self.console, "{}\n", String::from_utf8_lossy(until_nul(name)));
        }
        Ok(())
    }

    fn names_in<'a>(&self, reply: &'a Reply, function: &str) -> Asked<Names<'a>> {
        let Some(Pdu::Names(names)) = reply.pdu() else { return self.undecodable("__pmDecodeNameList") };
        trace::names(self.pdus("pmns"), "__pmDecodeNameList", names.iter());
        if self.interface().is_some() && names.is_empty() {
            out!(self.console, "Warning: DSO {function}() returns 0\n");
        }
        Ok(names)
    }

    pub(crate) fn attribute(&mut self, key: i32, value: Option<&[u8]>) -> Asked {
        let name = attribute::name(key).unwrap_or_default();
        self.console.out_bytes(&[b"Attribute: ", name.as_bytes(), b"=", value.unwrap_or(b"''"), b"\n"].concat());
        trace::attribute(self.pdus("attr"), key, value);
        let Some(agent) = &mut self.agent else { return Err(IPC) };
        let shared = agent.interface().is_some();
        let sent = match value {
            None if !shared => agent.send_words(PduType::ATTR, &[key as u32]),
            Some(value) if !shared && value.len() + 1 >= MAX_ATTRIBUTE => Err(IPC),
            value => agent.attribute(Attr { attribute: Attribute::new(key), value: value.unwrap_or_default() }),
        };
        if let Err(code) = sent {
            return self.failed(if shared { "DSO attribute" } else { "__pmSendAuth" }, code);
        }
        out!(self.console, "Success\n");
        Ok(())
    }
}

/// Returns the names of the C functions of a request, for messages: the function that sends its PDU, and the function
/// of a shared object.
fn functions(request: PduType) -> (&'static str, &'static str) {
    match request {
        PduType::DESC_REQ => ("__pmSendDescReq", "desc"),
        PduType::FETCH => ("__pmSendFetch", "fetch"),
        PduType::INSTANCE_REQ => ("__pmSendInstanceReq", "instance"),
        PduType::TEXT_REQ => ("__pmSendTextReq", "text"),
        PduType::RESULT => ("__pmSendResult", "store"),
        PduType::PMNS_IDS => ("__pmSendIDList", "name"),
        // As in PCP's dbpmda.
        PduType::PMNS_NAMES => ("__pmSendIDList", "pmid"),
        PduType::PMNS_CHILD => ("__pmSendChildReq", "children"),
        PduType::PMNS_TRAVERSE => ("__pmSendTraversePMNS", "children"),
        PduType::LABEL_REQ => ("__pmSendLabelReq", "label"),
        _ => ("__pmSendProfile", "profile"),
    }
}
