//! Calls of an agent's functions, one for each PDU.

use std::ffi::{CString, c_int};
use std::ptr::{null, null_mut};
use std::slice;

use pcp_pdu::codec::Writer;
use pcp_pdu::handshake::{Attr, encode_error};
use pcp_pdu::instance::{InstanceReq, InstanceWriter};
use pcp_pdu::label::{LabelReq, encode_label};
use pcp_pdu::metadata::{Fetch, Text, TextReq};
use pcp_pdu::names::{Statuses, encode_ids};
use pcp_pdu::profile::{ProfilePdu, ProfileState};
use pcp_pdu::result::ResultPdu;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{FROM_AGENT, Pdu, PduType};
use pmapi::{Error, InDom, Inst, PmId, RawLabel, Result};
use pmda::dso::abi::{CIndomProfile, CInstances, CLabelSet, CProfile, Interface};
use pmda::dso::memory::free;
use pmda::dso::values::{self, Skeleton};

use super::answers::{index, pieces, set_of, text};

/// The functions of an agent, with arguments and results that must stay valid between calls.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) interface: Box<Interface>,
    skeleton: Skeleton,
    values: ResultWriter,
    profile: Profile,
    /// Client of the last request.
    pub(super) client: i32,
}

/// The profile that was passed to the agent. Agents keep the pointer to it.
#[derive(Debug)]
struct Profile {
    head: Box<CProfile>,
    indoms: Vec<CIndomProfile>,
    insts: Vec<c_int>,
}

/// The answer to a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Answered {
    /// The PDU has no answer.
    Silently,
    /// The answer has been appended to the buffer.
    Appended,
    /// The request was a fetch. [`SharedObject::fetched`](super::SharedObject::fetched) returns its answer.
    Fetched,
}

/// Names that a request asks for.
#[derive(Clone, Copy)]
enum Below {
    /// Names one level below, with or without the kind of each.
    Children(Statuses),
    /// Full names of all metrics.
    All,
}

impl Calls {
    pub(super) fn new(interface: Box<Interface>) -> Calls {
        let head = Box::new(CProfile { state: 0, count: 0, indoms: null() });
        Calls {
            interface,
            skeleton: Skeleton::default(),
            values: ResultWriter::new(),
            profile: Profile { head, indoms: Vec::new(), insts: Vec::new() },
            client: 0,
        }
    }

    fn version(&self) -> u8 {
        self.interface.interface
    }

    pub(super) fn attribute(&mut self, client: i32, attr: Attr<'_>) -> Result {
        let function = self.interface.attribute.filter(|_| self.version() >= 6).ok_or(Error::NYI)?;
        let value = CString::new(attr.value).map_err(|_| Error::CONV)?;
        let len = c_int::try_from(attr.value.len() + 1).map_err(|_| Error::TOOBIG)?;
        // SAFETY: the value is a string of this length.
        check(unsafe { function(client, attr.attribute.code(), value.as_ptr(), len, self.interface.ext) }).map(drop)
    }

    /// Returns the parts of the answer to the last fetch.
    pub(super) fn fetched(&self) -> (&[u8], &[u8]) {
        self.values.parts()
    }

    /// Makes the call of a PDU.
    pub(super) fn call(&mut self, pdu: Pdu<'_>, out: &mut Vec<u8>) -> Result<Answered> {
        match pdu {
            Pdu::Fetch(fetch) => {
                self.fetch(fetch)?;
                return Ok(Answered::Fetched);
            }
            Pdu::DescReq(req) => self.desc(req.pmid, out)?,
            Pdu::InstanceReq(req) => self.instance(req, out)?,
            Pdu::TextReq(req) => self.text(req, out)?,
            Pdu::LabelReq(req) => self.label(req, out)?,
            Pdu::Result(result) => self.store(&result, out)?,
            Pdu::Names(names) => self.ids(names.iter().map(|(_, name)| name), out)?,
            Pdu::Ids(ids) => self.names(ids.pmids().next().flatten(), out)?,
            Pdu::Child(child) => self.below(child.name, Below::Children(child.statuses), out)?,
            Pdu::Traverse(traverse) => self.below(traverse.name, Below::All, out)?,
            Pdu::Profile(profile) => {
                self.profile(&profile)?;
                return Ok(Answered::Silently);
            }
            Pdu::Attr(attr) => {
                self.attribute(self.client, attr)?;
                return Ok(Answered::Silently);
            }
            Pdu::Error(e) => {
                if e.status() == Err(Error::NOTCONN) {
                    self.end(self.client);
                }
                return Ok(Answered::Silently);
            }
            _ => return Ok(Answered::Silently),
        }
        Ok(Answered::Appended)
    }

    /// Sets the client's number in the agent's `pmdaExt`.
    pub(super) fn as_client(&mut self, client: i32) {
        self.client = client;
        if self.version() >= 5 && !self.interface.ext.is_null() {
            // SAFETY: agents of this version have the field.
            unsafe { (*self.interface.ext).context = client }
        }
    }

    pub(super) fn end(&mut self, client: i32) {
        if self.version() < 5 || self.interface.ext.is_null() {
            return;
        }
        // SAFETY: agents of this version have the field, and a function in it is valid.
        unsafe {
            if let Some(function) = (*self.interface.ext).end_context {
                function(client);
            }
        }
    }

    fn profile(&mut self, pdu: &ProfilePdu<'_>) -> Result {
        let function = self.interface.profile.ok_or(Error::NYI)?;
        let Profile { head, indoms, insts } = &mut self.profile;
        let code = |state: ProfileState| c_int::from(state == ProfileState::Exclude);
        insts.clear();
        insts.extend(pdu.entries().flat_map(|(_, _, insts)| insts).map(|inst| inst as i32));
        indoms.clear();
        let mut rest = insts.as_slice();
        for (indom, state, listed) in pdu.entries() {
            let (of, tail) = rest.split_at(listed.count().min(rest.len()));
            rest = tail;
            indoms.push(CIndomProfile { indom, state: code(state), count: of.len() as c_int, insts: of.as_ptr() });
        }
        **head = CProfile { state: code(pdu.state), count: indoms.len() as c_int, indoms: indoms.as_ptr() };
        // SAFETY: the profile stays until the next one.
        check(unsafe { function(&raw const **head, self.interface.ext) }).map(drop)
    }

    fn fetch(&mut self, fetch: Fetch<'_>) -> Result {
        let function = self.interface.fetch.ok_or(Error::NYI)?;
        let mut pmids: Vec<u32> = fetch.pmids().map(|pmid| pmid.map_or(u32::MAX, PmId::word)).collect();
        let mut result = null_mut();
        // SAFETY: the list has the given length. The result is complete, and its values are ours now.
        let changes = unsafe {
            check(function(pmids.len() as c_int, pmids.as_mut_ptr(), &raw mut result, self.interface.ext))?;
            if result.is_null() {
                return Err(Error::PMID);
            }
            // As in pmcd, which would drop a daemon that answers this. A result that claims too much is not read at all.
            let count = (*result).count as usize;
            if count != pmids.len() {
                if count < pmids.len() {
                    values::free_values(result);
                }
                return Err(Error::PMID);
            }
            let read = values::read(result, &mut self.values);
            values::free_values(result);
            read?
        };
        self.values.seal(FROM_AGENT, changes).map(drop)
    }

    fn store(&mut self, pdu: &ResultPdu<'_>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.store.ok_or(Error::NYI)?;
        // pmStore(3) refuses them, and agents read the first value of each set without looking for it.
        if pdu.sets().any(|set| set.is_empty()) {
            return Err(Error::VALUE);
        }
        let result = self.skeleton.fill(pdu)?;
        // SAFETY: the result is complete, and stays ours.
        let stored = unsafe {
            let stored = function(result, self.interface.ext);
            values::free_values(result);
            stored
        };
        check(stored)?;
        encode_error(out, FROM_AGENT, Ok(()))
    }

    fn desc(&mut self, pmid: Option<PmId>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.desc.ok_or(Error::NYI)?;
        let mut desc = [0; 5];
        // SAFETY: there is room for the answer.
        check(unsafe { function(pmid.map_or(u32::MAX, PmId::word), &raw mut desc, self.interface.ext) })?;
        let mut w = Writer::new(out, PduType::DESC, FROM_AGENT);
        for word in desc {
            w.u32(word);
        }
        w.finish()
    }

    fn instance(&mut self, req: InstanceReq<'_>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.instance.ok_or(Error::NYI)?;
        let name = req.name.map(CString::new).transpose().map_err(|_| Error::INST)?;
        let name = name.as_deref().map_or(null_mut(), |name| name.as_ptr().cast_mut());
        let indom = req.indom.ok_or(Error::INDOM)?;
        let inst = req.inst.map_or(u32::MAX, Inst::word) as i32;
        let mut result: *mut CInstances = null_mut();
        // SAFETY: the answer is complete and ours.
        unsafe {
            check(function(indom.word(), inst, name, &raw mut result, self.interface.ext))?;
            let head = result.as_ref().ok_or(Error::IPC)?;
            let count = usize::try_from(head.count).unwrap_or(0);
            if count > 0 && head.insts.is_null() && head.names.is_null() {
                return Err(Error::IPC);
            }
            let mut w = InstanceWriter::new(out, FROM_AGENT, InDom::from_word(head.indom).unwrap_or(indom));
            for i in 0..count {
                let inst = (!head.insts.is_null()).then(|| head.insts.add(i).read() as u32);
                let name = if head.names.is_null() { null_mut() } else { head.names.add(i).read() };
                w.push(inst.and_then(Inst::from_word), text(name));
                free(name);
            }
            free(head.insts);
            free(head.names);
            free(result);
            w.finish()
        }
    }

    fn text(&mut self, req: TextReq, out: &mut Vec<u8>) -> Result {
        let function = self.interface.text.ok_or(Error::NYI)?;
        let mut buffer = null_mut();
        // SAFETY: the agent owns the text until the next call.
        let found = unsafe {
            check(function(req.ident as i32, req.bits, &raw mut buffer, self.interface.ext))?;
            text(buffer)
        };
        Text { ident: req.ident, text: found }.encode(out, FROM_AGENT)
    }

    fn label(&mut self, req: LabelReq, out: &mut Vec<u8>) -> Result {
        let function = self.interface.label.filter(|_| self.version() >= 7).ok_or(Error::NYI)?;
        let mut list: *mut CLabelSet = null_mut();
        // SAFETY: the sets are complete and ours.
        unsafe {
            let count = check(function(req.ident as i32, req.bits, &raw mut list, self.interface.ext))?;
            let sets = if list.is_null() { &[] } else { slice::from_raw_parts(list, count.max(0) as usize) };
            let indexes: Vec<Vec<RawLabel>> = sets.iter().map(|set| index(set)).collect();
            let refs: Vec<_> = sets.iter().zip(&indexes).map(|(set, index)| set_of(set, index)).collect();
            let encoded = encode_label(out, FROM_AGENT, req, &refs);
            for set in sets {
                free(set.json);
                free(set.labels);
            }
            free(list);
            encoded
        }
    }

    fn ids<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.id.filter(|_| self.version() >= 4).ok_or(Error::NAME)?;
        let mut pmids = Vec::new();
        for name in names {
            let name = CString::new(name).map_err(|_| Error::NAME)?;
            let mut pmid = u32::MAX;
            // SAFETY: there is room for the answer.
            check(unsafe { function(name.as_ptr(), &raw mut pmid, self.interface.ext) })?;
            pmids.push(PmId::from_word(pmid));
        }
        encode_ids(out, FROM_AGENT, pmids.len() as i32, &pmids)
    }

    fn names(&mut self, pmid: Option<PmId>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.name.filter(|_| self.version() >= 4).ok_or(Error::PMID)?;
        let mut names = null_mut();
        // SAFETY: the names are one allocation, and ours.
        unsafe {
            let count = check(function(pmid.map_or(u32::MAX, PmId::word), &raw mut names, self.interface.ext))?;
            pieces(out, Statuses::Omitted, names, null_mut(), count)
        }
    }

    fn below(&mut self, name: &[u8], below: Below, out: &mut Vec<u8>) -> Result {
        let (traverse, kinds) = match below {
            Below::Children(kinds) => (0, kinds),
            Below::All => (1, Statuses::Included),
        };
        let function = self.interface.children.filter(|_| self.version() >= 4).ok_or(Error::NAME)?;
        let name = CString::new(name).map_err(|_| Error::NAME)?;
        let (mut names, mut statuses) = (null_mut(), null_mut());
        // SAFETY: names and statuses are one allocation each, and ours.
        unsafe {
            let ext = self.interface.ext;
            let count = check(function(name.as_ptr(), traverse, &raw mut names, &raw mut statuses, ext))?;
            pieces(out, kinds, names, statuses, count)
        }
    }
}

fn check(status: c_int) -> Result<c_int> {
    Error::from_code(status).map_or(Ok(status), Err)
}
