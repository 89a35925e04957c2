//! The host's side: loads the shared object of an agent, in C or of this framework, as pmcd does.

use std::collections::VecDeque;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::slice;
use std::time::Duration;

use libloading::Library;
use pcp_pdu::codec::Writer;
use pcp_pdu::handshake::{Attr, Flags, encode_error};
use pcp_pdu::instance::{InstanceReq, InstanceWriter};
use pcp_pdu::label::{LabelReq, LabelSetRef, encode_label};
use pcp_pdu::metadata::{Fetch, Text, TextReq};
use pcp_pdu::names::{Node, encode_ids, encode_names};
use pcp_pdu::profile::{ProfilePdu, State};
use pcp_pdu::result::ResultPdu;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::label::{LabelFlags, RawLabel};
use pmapi::{Domain, Error, InDom, Inst, PmId, Result};
use pmda::dso::abi::{self, CIndomProfile, CInstances, CLabelSet, CProfile, Interface};
use pmda::dso::memory::free;
use pmda::dso::values::{self, Skeleton};

use crate::{Channel, Collector};

/// The shared object of an agent in this process: a channel for a [`Collector`]. Each PDU becomes a call, and its
/// results become a PDU.
///
/// An agent in C can corrupt this process, which is why pmcd prefers daemons.
#[derive(Debug)]
pub struct SharedObject {
    interface: Box<Interface>,
    replies: VecDeque<Vec<u8>>,
    skeleton: Skeleton,
    values: ResultWriter,
    profile: Profile,
    /// Client of the last request.
    client: i32,
    open: bool,
    /// Unloaded after everything that points into it.
    _library: Library,
}

/// The reason why a shared object cannot be used as an agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be loaded.
    #[error("{}: {reason}", path.display())]
    Load {
        /// Path of the file.
        path: PathBuf,
        /// The error of the dynamic linker.
        reason: String,
    },
    /// The file lacks the entry point.
    #[error("{}: there is no function {init}", path.display())]
    Entry {
        /// Path of the file.
        path: PathBuf,
        /// Name of the function.
        init: String,
    },
    /// The entry point has failed.
    #[error("{init}: {error}")]
    Init {
        /// Name of the function.
        init: String,
        /// The status that it has set.
        error: Error,
    },
    /// The interface has a version other than 2 to 7.
    #[error("unsupported PMDA interface version {0}")]
    Interface(u8),
    /// The agent is built for another version of PCP.
    #[error("unsupported PMAPI version {0}")]
    Pmapi(u8),
}

/// The profile that the agent has. Agents keep the pointer to it.
#[derive(Debug)]
struct Profile {
    head: Box<CProfile>,
    indoms: Vec<CIndomProfile>,
    insts: Vec<c_int>,
}

impl SharedObject {
    /// Loads a file and calls its entry point.
    ///
    /// # Errors
    /// [`LoadError::Load`] when the file cannot be loaded, [`LoadError::Entry`] without the function `init`,
    /// [`LoadError::Init`] when it fails, [`LoadError::Interface`] or [`LoadError::Pmapi`] for an unsupported version.
    pub fn open(path: &Path, init: &str, domain: i32) -> std::result::Result<SharedObject, LoadError> {
        // SAFETY: an agent's shared object is built to be loaded by any host that wants its metrics.
        let library = unsafe { Library::new(path) }.map_err(|e| {
            let reason = e.source().map_or_else(|| e.to_string(), |said| said.to_string());
            LoadError::Load { path: path.into(), reason }
        })?;
        let mut interface = Box::new(Interface::challenge(domain));
        // SAFETY: this is the type of the entry points of agents.
        unsafe {
            let entry: libloading::Symbol<'_, unsafe extern "C" fn(*mut Interface)> = library
                .get(init.as_bytes())
                .map_err(|_| LoadError::Entry { path: path.into(), init: init.to_owned() })?;
            entry(&mut *interface);
        }
        if let Some(error) = Error::from_code(interface.status) {
            return Err(LoadError::Init { init: init.to_owned(), error });
        }
        if !(2..=abi::INTERFACE).contains(&interface.interface) {
            return Err(LoadError::Interface(interface.interface));
        }
        // PCP 6 has results of version 3, PCP 7 of version 4. Their layout is the same for agents.
        if !(abi::PMAPI..=4).contains(&interface.pmapi) {
            return Err(LoadError::Pmapi(interface.pmapi));
        }
        let head = Box::new(CProfile { state: 0, count: 0, indoms: std::ptr::null() });
        Ok(SharedObject {
            interface,
            replies: VecDeque::new(),
            skeleton: Skeleton::default(),
            values: ResultWriter::new(),
            profile: Profile { head, indoms: Vec::new(), insts: Vec::new() },
            client: 0,
            open: true,
            _library: library,
        })
    }

    /// Loads a file with [`SharedObject::open`], and returns a collector for it.
    ///
    /// # Errors
    /// The errors of [`SharedObject::open`].
    pub fn collector(path: &Path, init: &str, domain: Domain) -> std::result::Result<Collector<Self>, LoadError> {
        let object = Self::open(path, init, domain.get().into())?;
        let flags = object.flags();
        Ok(Collector::with_flags(object, flags))
    }

    /// Returns the version of the agent's interface: dynamic names need 4, attributes 6, labels 7.
    pub fn interface(&self) -> u8 {
        self.interface.interface
    }

    /// Returns the version of the PMAPI that the agent is built for.
    pub fn pmapi(&self) -> u8 {
        self.interface.pmapi
    }

    /// Returns the flags with which the agent asks for client attributes.
    pub fn flags(&self) -> Flags {
        Flags(self.interface.flags)
    }

    /// Sends the agent an attribute of a client, and returns its answer, which a PDU would not have.
    ///
    /// # Errors
    /// `PM_ERR_NYI` for an interface before version 6, `PM_ERR_CONV` for a value with a NUL, `PM_ERR_TOOBIG` for one
    /// that is too long, or the error of the agent.
    pub fn attribute(&mut self, client: i32, attr: Attr<'_>) -> Result {
        let function = self.interface.attribute.filter(|_| self.interface() >= 6).ok_or(Error::NYI)?;
        let value = CString::new(attr.value).map_err(|_| Error::CONV)?;
        let len = c_int::try_from(attr.value.len() + 1).map_err(|_| Error::TOOBIG)?;
        // SAFETY: the value is a string of this length.
        check(unsafe { function(client, attr.attribute.0, value.as_ptr(), len, self.interface.ext) }).map(drop)
    }

    /// Makes the call of a PDU; false when it has no answer.
    fn call(&mut self, pdu: Pdu<'_>, out: &mut Vec<u8>) -> Result<bool> {
        match pdu {
            Pdu::Fetch(fetch) => self.fetch(fetch, out)?,
            Pdu::DescReq(req) => self.desc(req.pmid, out)?,
            Pdu::InstanceReq(req) => self.instance(req, out)?,
            Pdu::TextReq(req) => self.text(req, out)?,
            Pdu::LabelReq(req) => self.label(req, out)?,
            Pdu::Result(result) => self.store(&result, out)?,
            Pdu::Names(names) => self.ids(names.iter().map(|(_, name)| name), out)?,
            Pdu::Ids(ids) => self.names(ids.pmids().next().flatten(), out)?,
            Pdu::Child(child) => self.below(child.name, Below::Children { with_status: child.with_status }, out)?,
            Pdu::Traverse(traverse) => self.below(traverse.name, Below::All, out)?,
            Pdu::Profile(profile) => {
                self.profile(&profile)?;
                return Ok(false);
            }
            Pdu::Attr(attr) => {
                self.attribute(self.client, attr)?;
                return Ok(false);
            }
            Pdu::Error(e) => {
                if e.status() == Err(Error::NOTCONN) {
                    self.end(self.client);
                }
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the client's number in the agent's `pmdaExt`.
    fn as_client(&mut self, client: i32) {
        self.client = client;
        if self.interface() >= 5 && !self.interface.ext.is_null() {
            // SAFETY: agents of this version have the field.
            unsafe { (*self.interface.ext).context = client }
        }
    }

    fn end(&mut self, client: i32) {
        if self.interface() < 5 || self.interface.ext.is_null() {
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
        let code = |state: State| c_int::from(state == State::Exclude);
        insts.clear();
        insts.extend(pdu.entries().flat_map(|(_, _, insts)| insts).map(u32::cast_signed));
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

    fn fetch(&mut self, fetch: Fetch<'_>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.fetch.ok_or(Error::NYI)?;
        let mut pmids: Vec<u32> = fetch.pmids().map(|pmid| pmid.map_or(u32::MAX, PmId::word)).collect();
        let mut result = null_mut();
        // SAFETY: the list is as long as it says; the result is whole, and its values are ours now.
        let changes = unsafe {
            check(function(pmids.len() as c_int, pmids.as_mut_ptr(), &raw mut result, self.interface.ext))?;
            if result.is_null() {
                return Err(Error::PMID);
            }
            let read = values::read(result, &mut self.values);
            values::free_values(result);
            read?
        };
        append(out, self.values.seal(FROM_AGENT, changes)?);
        Ok(())
    }

    fn store(&mut self, pdu: &ResultPdu<'_>, out: &mut Vec<u8>) -> Result {
        let function = self.interface.store.ok_or(Error::NYI)?;
        let result = self.skeleton.fill(pdu)?;
        // SAFETY: the result is whole, and stays ours.
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
        let inst = req.inst.map_or(u32::MAX, Inst::word).cast_signed();
        let mut result: *mut CInstances = null_mut();
        // SAFETY: the answer is whole and ours.
        unsafe {
            check(function(indom.word(), inst, name, &raw mut result, self.interface.ext))?;
            let head = result.as_ref().ok_or(Error::IPC)?;
            let count = usize::try_from(head.count).unwrap_or(0);
            let mut w = InstanceWriter::new(out, FROM_AGENT, InDom::from_word(head.indom).unwrap_or(indom));
            for i in 0..count {
                let inst = (!head.insts.is_null()).then(|| head.insts.add(i).read().cast_unsigned());
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
        // SAFETY: the text stays the agent's until the next call.
        let found = unsafe {
            check(function(req.ident.cast_signed(), req.bits, &raw mut buffer, self.interface.ext))?;
            text(buffer)
        };
        Text { ident: req.ident, text: found }.encode(out, FROM_AGENT)
    }

    fn label(&mut self, req: LabelReq, out: &mut Vec<u8>) -> Result {
        let function = self.interface.label.filter(|_| self.interface() >= 7).ok_or(Error::NYI)?;
        let mut list: *mut CLabelSet = null_mut();
        // SAFETY: the sets are whole and ours.
        unsafe {
            let count = check(function(req.ident.cast_signed(), req.bits, &raw mut list, self.interface.ext))?;
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
        let function = self.interface.id.filter(|_| self.interface() >= 4).ok_or(Error::NAME)?;
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
        let function = self.interface.name.filter(|_| self.interface() >= 4).ok_or(Error::PMID)?;
        let mut names = null_mut();
        // SAFETY: the names are one piece, and ours.
        unsafe {
            let count = check(function(pmid.map_or(u32::MAX, PmId::word), &raw mut names, self.interface.ext))?;
            pieces(out, false, names, null_mut(), count)
        }
    }

    fn below(&mut self, name: &[u8], below: Below, out: &mut Vec<u8>) -> Result {
        let (traverse, with_status) = match below {
            Below::Children { with_status } => (0, with_status),
            Below::All => (1, true),
        };
        let function = self.interface.children.filter(|_| self.interface() >= 4).ok_or(Error::NAME)?;
        let name = CString::new(name).map_err(|_| Error::NAME)?;
        let (mut names, mut statuses) = (null_mut(), null_mut());
        // SAFETY: names and statuses are a piece each, and ours.
        unsafe {
            let ext = self.interface.ext;
            let count = check(function(name.as_ptr(), traverse, &raw mut names, &raw mut statuses, ext))?;
            pieces(out, with_status, names, statuses, count)
        }
    }
}

fn check(status: c_int) -> Result<c_int> {
    Error::from_code(status).map_or(Ok(status), Err)
}

fn append(out: &mut Vec<u8>, (head, rest): (&[u8], &[u8])) {
    out.extend_from_slice(head);
    out.extend_from_slice(rest);
}

unsafe fn text<'a>(at: *const c_char) -> &'a [u8] {
    // SAFETY: as the caller says, it is a string or null.
    if at.is_null() { b"" } else { unsafe { CStr::from_ptr(at) }.to_bytes() }
}

unsafe fn json(set: &CLabelSet) -> &[u8] {
    // SAFETY: as the caller says, the text has this length.
    if set.json.is_null() { b"" } else { unsafe { slice::from_raw_parts(set.json.cast(), set.json_len.into()) } }
}

unsafe fn set_of<'a>(set: &'a CLabelSet, index: &'a [RawLabel]) -> LabelSetRef<'a> {
    let labels = Error::from_code(set.count).map_or(Ok(index), Err);
    // SAFETY: as the caller says.
    LabelSetRef { inst: Inst::from_word(set.inst), labels, json: unsafe { json(set) } }
}

unsafe fn index(set: &CLabelSet) -> Vec<RawLabel> {
    let count = if set.labels.is_null() { 0 } else { usize::try_from(set.count).unwrap_or(0) };
    // SAFETY: as the caller says, there are so many.
    let labels = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(set.labels, count) } };
    labels
        .iter()
        .map(|label| RawLabel {
            name: label.name,
            name_len: label.name_len,
            flags: LabelFlags::from_bits(label.flags),
            value: label.value,
            value_len: label.value_len,
        })
        .collect()
}

/// Names that a request asks for.
#[derive(Clone, Copy)]
enum Below {
    /// Names one level below, with or without the kind of each.
    Children { with_status: bool },
    /// Full names of all metrics.
    All,
}

/// Encodes names, and frees them.
unsafe fn pieces(
    out: &mut Vec<u8>,
    with_status: bool,
    names: *mut *mut c_char,
    statuses: *mut c_int,
    count: c_int,
) -> Result {
    // SAFETY: as the caller says, there are so many names and statuses.
    unsafe {
        let count = if names.is_null() { 0 } else { count as usize };
        let node = |i| match !statuses.is_null() && statuses.add(i).read() != 0 {
            true => Node::NonLeaf,
            false => Node::Leaf,
        };
        let list: Vec<(Node, &[u8])> = (0..count).map(|i| (node(i), text(names.add(i).read()))).collect();
        let encoded = encode_names(out, FROM_AGENT, with_status, list.iter().copied());
        free(names);
        free(statuses);
        encoded
    }
}

impl Channel for SharedObject {
    fn send(&mut self, mut bytes: &[u8], _: Option<Duration>) -> crate::Result {
        if !self.open {
            return Err(crate::Error::Closed);
        }
        while let Some(header) = Header::parse(bytes)? {
            let (pdu, rest) = bytes.split_at_checked(header.len as usize).ok_or(crate::Error::CutShort(bytes.len()))?;
            bytes = rest;
            self.as_client(header.from);
            let mut out = Vec::new();
            match self.call(Pdu::decode(header, pdu)?, &mut out) {
                Ok(false) => continue,
                Ok(true) => {}
                // These PDUs have no answer that could carry the error.
                Err(e) if matches!(header.pdu, PduType::PROFILE | PduType::ATTR | PduType::ERROR) => {
                    return Err(crate::Error::Agent(e));
                }
                Err(e) => {
                    out.clear();
                    encode_error(&mut out, FROM_AGENT, Err(e)).map_err(crate::Error::Request)?;
                }
            }
            self.replies.push_back(out);
        }
        Ok(())
    }

    fn receive(&mut self, pdu: &mut Vec<u8>, timeout: Option<Duration>) -> crate::Result<Header> {
        // `send` has made the call: an answer that is not here now never comes.
        *pdu = self.replies.pop_front().ok_or(crate::Error::TimedOut(timeout.unwrap_or(Duration::MAX)))?;
        Header::parse(pdu)?.ok_or(crate::Error::Closed)
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.end(self.client);
        }
    }
}

impl Drop for SharedObject {
    fn drop(&mut self) {
        self.close();
    }
}
