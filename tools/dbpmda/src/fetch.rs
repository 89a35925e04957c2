//! Commands `fetch` and `store`.

use pcp_pdu::desc::RawDesc;
use pcp_pdu::metadata::encode_fetch;
use pcp_pdu::print::Print;
use pcp_pdu::result::Changes;
use pcp_pdu::result::{RawValue, ResultPdu, ValueSet};
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu, PduType};
use pmapi::{Atom, OrNull, PmId, Type};

use crate::agent::{Reply, error_text};
use crate::console::out;
use crate::number;
use crate::requests::{Asked, Status, Wrong};
use crate::show;
use crate::state::State;

impl State {
    pub(crate) fn fetch(&mut self, pmids: &[Option<PmId>]) -> Asked {
        out!(self.console, "PMID(s):");
        for pmid in pmids {
            out!(self.console, " {}", OrNull(*pmid));
        }
        out!(self.console, "\n");
        let described = if self.getdesc || self.getiname { pmids } else { &[] };
        let descs = described.iter().map(|pmid| self.desc_or_default(*pmid)).collect::<Asked<Vec<_>>>()?;
        if self.profile_changed {
            self.trace_call("profile");
        }
        self.send_profile()?;
        self.trace_call("fetch");
        let reply = self.ask(PduType::RESULT, |out| encode_fetch(out, 0, 0, pmids.iter().copied()))?;
        let result = self.result(&reply)?;
        match &*descs {
            [] => self.console.out_bytes(&self.shown(&result, &reply.bytes)),
            descs => self.show_typed(&result, &reply.bytes, descs),
        }
        Ok(())
    }

    /// Requests the descriptor that another request needs. Returns a default one if the agent has ended, which that
    /// request then shows. With the debug option `pdu`, shows the descriptor of a connected agent.
    fn desc_or_default(&mut self, pmid: Option<PmId>) -> Asked<RawDesc> {
        let desc = match self.desc(pmid) {
            Err(0..) => return Ok(RawDesc::default()),
            desc => desc?,
        };
        if self.pdus("pdu").is_some() {
            out!(self.console, "{desc}\n");
        }
        Ok(desc)
    }

    /// Decodes a result. The debug option `pdu` shows it.
    fn result<'a>(&self, reply: &'a Reply) -> Asked<ResultPdu<'a>> {
        let Some(Pdu::Result(result)) = reply.pdu() else { return self.undecodable("__pmDecodeResult") };
        if let Some(console) = self.pdus("pdu") {
            console.err_bytes(&self.shown(&result, &reply.bytes));
        }
        Ok(result)
    }

    /// Shows a result with the types of its metrics; with `getiname`, also with the names of instances.
    fn show_typed(&mut self, result: &ResultPdu<'_>, bytes: &[u8], descs: &[RawDesc]) {
        out!(self.console, "{}", self.head(result, bytes));
        let unknown = RawDesc { ty: i32::MAX, ..RawDesc::default() };
        for (set, desc) in result.sets().zip(descs.iter().chain(std::iter::repeat(&unknown))) {
            out!(self.console, "{}", show::set_head(&set, &self.names.all(set.pmid), " or "));
            for (inst, value) in set.values() {
                if set.len() > 1 || desc.indom.is_some() {
                    out!(self.console, "    inst [{}", OrNull(inst));
                    let name = if self.getiname { self.instance_name(desc.indom, inst) } else { None };
                    match name {
                        Some(name) => self.console.out_bytes(&[b" or \"", &*name, b"\"] "].concat()),
                        None => out!(self.console, " or ???] "),
                    }
                } else {
                    out!(self.console, "   ");
                }
                out!(self.console, "value ");
                self.print(value, desc.ty);
                out!(self.console, "\n");
            }
        }
    }

    fn head(&self, result: &ResultPdu<'_>, bytes: &[u8]) -> String {
        show::result_head(result, bytes, self.interface())
    }

    fn shown(&self, result: &ResultPdu<'_>, bytes: &[u8]) -> Vec<u8> {
        show::result(self.head(result, bytes), result, &self.names)
    }

    fn print(&self, value: RawValue<'_>, ty: i32) {
        self.console.out_bytes(&value.print(Type::from_code(ty).ok(), 1).to_bytes());
    }

    /// Stores a value for all instances of a metric that the profile includes. The descriptor gives the type, and a
    /// fetch gives the instances.
    pub(crate) fn store(&mut self, pmid: Option<PmId>, text: &[u8]) -> Asked {
        const FAILED: Status = pmapi::Error::VALUE.code();
        out!(self.console, "PMID: {}\nGetting description...\n", OrNull(pmid));
        let desc = self.desc_or_default(pmid)?;
        if self.profile_changed {
            out!(self.console, "Sending Profile...\n");
            self.send_profile()?;
        }
        out!(self.console, "Getting Result Structure...\n");
        let reply = self
            .ask_with(Wrong::Text, PduType::RESULT, |out| encode_fetch(out, 0, 0, [desc.pmid].into_iter()))
            .map_err(|_| FAILED)?;
        let result = self.result(&reply)?;
        if self.console.has("fetch") {
            self.console.out_bytes(&self.shown(&result, &reply.bytes));
        }
        let atom = self.parse(desc.ty, text).ok_or(FAILED)?;
        let set = result.sets().next().filter(|set| self.has_values(pmid, set)).ok_or(FAILED)?;
        let mut writer = ResultWriter::new();
        writer.begin();
        writer.begin_set(set.pmid);
        for (at, (inst, old)) in set.values().enumerate() {
            match set.len() {
                1 => out!(self.console, "{}: ", OrNull(pmid)),
                _ => out!(self.console, "{} [{at}]: ", OrNull(pmid)),
            }
            self.print(old, desc.ty);
            if let Err(code) = writer.push(inst, atom.ty(), atom) {
                out!(self.console, "\nError: {code}\n");
                return Err(code.code());
            }
            self.console.out_bytes(&[b" -> ", &*Print::new(atom, 1).to_bytes(), b"\n"].concat());
        }
        writer.end_set(Ok(()));
        let changes = Changes::from_bits_retain(result.seconds as u8);
        self.send_result(writer, changes)
    }

    fn send_result(&mut self, mut writer: ResultWriter, changes: Changes) -> Asked {
        let sealed = writer.seal(0, changes).map(|(lists, blocks)| [lists, blocks].concat());
        let shared = self.interface().is_some();
        if !shared {
            out!(self.console, "Sending Result...\n");
        }
        if let Some((header, bytes)) = sealed.as_ref().ok().and_then(|bytes| Some((Header::parse(bytes).ok()??, bytes)))
        {
            let _ = self.result(&Reply { header, bytes: bytes.clone() });
        }
        let reply = self.ask(PduType::ERROR, |out| sealed.map(|bytes| out.extend(bytes)))?;
        match reply.pdu() {
            _ if shared => Ok(()),
            Some(Pdu::Error(error)) => {
                if error.code < 0 {
                    out!(self.console, "Error PDU: {}\n", error_text(error.code));
                }
                Err(error.code)
            }
            _ => self.undecodable("__pmDecodeError"),
        }
    }

    /// Parses a value of a type. Shows the reason of a failure.
    fn parse<'a>(&self, ty: i32, text: &'a [u8]) -> Option<Atom<'a>> {
        let name = Type::name_of(ty);
        match Type::from_code(ty).ok().and_then(|ty| number::parse(text, ty)) {
            Some(Ok((atom, true))) => return Some(atom),
            Some(Ok((_, false))) => {
                self.console.out_bytes(&[b"Error: Value \"", text].concat());
                out!(self.console, "\" is incompatible with metric type (PM_TYPE_{name})\n");
            }
            Some(Err(code)) => out!(self.console, "Error: Decoding value: {code}\n"),
            None => out!(self.console, "Error: dbpmda does not support storing into {name} metrics\n"),
        }
        None
    }

    fn has_values(&self, pmid: Option<PmId>, set: &ValueSet<'_>) -> bool {
        match set.error {
            Some(code) => out!(self.console, "Error: {}: {code}\n", OrNull(pmid)),
            None if set.is_empty() => out!(self.console, "Error: {} not available!\n", OrNull(pmid)),
            None => return true,
        }
        false
    }
}
