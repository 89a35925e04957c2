//! The functions that an interface points to.

use std::ffi::{CStr, c_char, c_int};
use std::slice;

use pcp_pdu::codec::{Writer, words};
use pcp_pdu::handshake::{Attr, Attribute};
use pcp_pdu::instance::InstanceReq;
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::{TextReq, encode_fetch};
use pcp_pdu::names::{Child, Node, Statuses, Traverse, encode_ids, encode_names};
use pcp_pdu::result::Changes;
use pcp_pdu::{HEADER, Pdu, PduType};
use pmapi::{Error, InDom, Inst, PmId, Result};

use super::abi::{self, CDesc, CInstances, CLabelSet, CProfile, CResult, Ext, Interface};
use super::host::call;
use super::{reply, values};
use crate::agent::Agent;

/// Fills in an interface.
pub(super) fn fill<A: Agent>(interface: &mut Interface, ext: *mut Ext) {
    interface.interface = abi::INTERFACE;
    interface.pmapi = abi::PMAPI;
    interface.flags = A::WANTS.bits();
    interface.ext = ext;
    interface.profile = Some(profile::<A>);
    interface.fetch = Some(fetch::<A>);
    interface.desc = Some(desc::<A>);
    interface.instance = Some(instance::<A>);
    interface.text = Some(text::<A>);
    interface.store = Some(store::<A>);
    interface.id = Some(id::<A>);
    interface.name = Some(name::<A>);
    interface.children = Some(children::<A>);
    interface.attribute = Some(attribute::<A>);
    interface.label = Some(label::<A>);
}

/// Returns a string; `None` for null.
unsafe fn text_of<'a>(at: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by the caller's promise, it is a string or null.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_bytes())
}

fn status(result: Result<c_int>) -> c_int {
    result.unwrap_or_else(Error::code)
}

unsafe extern "C" fn profile<A: Agent>(profile: *const CProfile, ext: *mut Ext) -> c_int {
    // SAFETY: pmcd's profile is complete.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| state.ask(|out| encode_profile(out, client, profile), |_, _| Ok(0)))
    };
    status(asked)
}

unsafe fn encode_profile(out: &mut Vec<u8>, client: i32, profile: *const CProfile) -> Result {
    let mut w = Writer::new(out, PduType::PROFILE, client);
    // SAFETY: by the caller's promise, the lists are as long as their counts.
    unsafe {
        if profile.is_null() {
            w.u32(0).u32(0).u32(0).u32(0);
            return w.finish();
        }
        let count = usize::try_from((*profile).count).unwrap_or(0);
        let indoms = if count == 0 { &[] } else { slice::from_raw_parts((*profile).indoms, count) };
        w.i32(client).i32((*profile).state).count(count).u32(0);
        for indom in indoms {
            w.u32(indom.indom).i32(indom.state).i32(indom.count.max(0)).u32(0);
        }
        for indom in indoms.iter().filter(|indom| indom.count > 0) {
            for inst in slice::from_raw_parts(indom.insts, indom.count as usize) {
                w.i32(*inst);
            }
        }
    }
    w.finish()
}

unsafe extern "C" fn fetch<A: Agent>(count: c_int, pmids: *mut u32, result: *mut *mut CResult, ext: *mut Ext) -> c_int {
    // SAFETY: the list is as long as its count, and there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let count = usize::try_from(count).map_err(|_| Error::IPC)?;
            let pmids = if count == 0 { &[] } else { slice::from_raw_parts(pmids, count) };
            state.ask(
                |out| encode_fetch(out, client, client, pmids.iter().map(|&pmid| PmId::from_word(pmid))),
                |pdu, kept| match pdu {
                    Some((Pdu::Result(pdu), _)) => {
                        *result = kept.skeleton.fill(&pdu)?;
                        Ok(0)
                    }
                    _ => Err(Error::IPC),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn desc<A: Agent>(pmid: u32, desc: *mut CDesc, ext: *mut Ext) -> c_int {
    // SAFETY: there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            state.ask(
                |out| {
                    let mut w = Writer::new(out, PduType::DESC_REQ, client);
                    w.u32(pmid);
                    w.finish()
                },
                |pdu, _| match pdu {
                    // The five words are in the order of the structure.
                    Some((Pdu::Desc(_), bytes)) => {
                        let mut words = words(bytes.get(HEADER..).unwrap_or_default());
                        *desc = std::array::from_fn(|_| words.next().unwrap_or_default());
                        Ok(0)
                    }
                    _ => Err(Error::IPC),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn instance<A: Agent>(
    indom: u32,
    inst: c_int,
    name: *mut c_char,
    result: *mut *mut CInstances,
    ext: *mut Ext,
) -> c_int {
    // SAFETY: the name is a string or null, and there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let indom = InDom::from_word(indom).ok_or(Error::INDOM)?;
            let name = text_of(name);
            let inst = Inst::from_word(inst as u32);
            let req = InstanceReq { indom: Some(indom), inst, name };
            state.ask(
                |out| req.encode(out, client),
                |pdu, _| match pdu {
                    Some((Pdu::Instance(pdu), _)) => {
                        *result = reply::instances(indom, &pdu)?;
                        Ok(0)
                    }
                    _ => Err(Error::IPC),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn text<A: Agent>(ident: c_int, kind: c_int, buffer: *mut *mut c_char, ext: *mut Ext) -> c_int {
    // SAFETY: there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let req = TextReq { ident: ident as u32, bits: kind };
            state.ask(
                |out| req.encode(out, client),
                |pdu, kept| match pdu {
                    Some((Pdu::Text(pdu), _)) => {
                        kept.text.clear();
                        kept.text.extend(pdu.text.iter().take_while(|&&b| b != 0));
                        kept.text.push(0);
                        *buffer = kept.text.as_mut_ptr().cast();
                        Ok(0)
                    }
                    _ => Err(Error::IPC),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn store<A: Agent>(result: *mut CResult, ext: *mut Ext) -> c_int {
    // SAFETY: the result is complete.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let mut writer = std::mem::take(&mut state.values);
            let asked = state.ask(
                |out| {
                    values::read(result, &mut writer)?;
                    let (head, rest) = writer.seal(client, Changes::default())?;
                    out.extend_from_slice(head);
                    out.extend_from_slice(rest);
                    Ok(())
                },
                |_, _| Ok(0),
            );
            state.values = writer;
            asked
        })
    };
    status(asked)
}

unsafe extern "C" fn id<A: Agent>(name: *const c_char, pmid: *mut u32, ext: *mut Ext) -> c_int {
    // SAFETY: the name is a string, and there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let names = [(Node::Leaf, text_of(name).ok_or(Error::NAME)?)];
            state.ask(
                |out| encode_names(out, client, Statuses::Omitted, names),
                |pdu, _| match pdu {
                    Some((Pdu::Ids(ids), _)) => {
                        Error::from_code(ids.status).map_or(Ok(()), Err)?;
                        *pmid = ids.pmids().next().flatten().ok_or(Error::NAME)?.word();
                        Ok(0)
                    }
                    _ => Err(Error::NAME),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn name<A: Agent>(pmid: u32, names: *mut *mut *mut c_char, ext: *mut Ext) -> c_int {
    // SAFETY: there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            state.ask(
                |out| encode_ids(out, client, 0, &[PmId::from_word(pmid)]),
                |pdu, _| match pdu {
                    Some((Pdu::Names(pdu), _)) => {
                        *names = reply::names(&pdu, None)?;
                        c_int::try_from(pdu.len()).map_err(|_| Error::TOOBIG)
                    }
                    _ => Err(Error::PMID),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn children<A: Agent>(
    name: *const c_char,
    traverse: c_int,
    names: *mut *mut *mut c_char,
    statuses: *mut *mut c_int,
    ext: *mut Ext,
) -> c_int {
    // SAFETY: the name is a string, and there is room for the answers.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let name = text_of(name).ok_or(Error::NAME)?;
            state.ask(
                |out| match traverse {
                    0 => Child { statuses: Statuses::Included, name }.encode(out, client),
                    _ => Traverse { name }.encode(out, client),
                },
                |pdu, _| match pdu {
                    Some((Pdu::Names(pdu), _)) => {
                        *names = reply::names(&pdu, Some(&mut *statuses))?;
                        c_int::try_from(pdu.len()).map_err(|_| Error::TOOBIG)
                    }
                    _ => Err(Error::NAME),
                },
            )
        })
    };
    status(asked)
}

unsafe extern "C" fn attribute<A: Agent>(
    client: c_int,
    key: c_int,
    value: *const c_char,
    len: c_int,
    ext: *mut Ext,
) -> c_int {
    // SAFETY: the value is as long as its length says.
    let asked = unsafe {
        call::<A, _>(ext, |state, _| {
            let len = if value.is_null() { 0 } else { usize::try_from(len).unwrap_or(0) };
            let value = if len == 0 { &[] } else { slice::from_raw_parts(value.cast::<u8>(), len) };
            let value = value.split(|&b| b == 0).next().unwrap_or_default();
            state.ask(|out| Attr { attribute: Attribute::new(key), value }.encode(out, client), |_, _| Ok(0))
        })
    };
    status(asked)
}

unsafe extern "C" fn label<A: Agent>(ident: c_int, kind: c_int, sets: *mut *mut CLabelSet, ext: *mut Ext) -> c_int {
    // SAFETY: there is room for the answer.
    let asked = unsafe {
        call::<A, _>(ext, |state, client| {
            let req = LabelReq { ident: ident as u32, bits: kind };
            state.ask(
                |out| req.encode(out, client),
                |pdu, _| match pdu {
                    Some((Pdu::Label(pdu), _)) => {
                        *sets = reply::labels(&pdu)?;
                        c_int::try_from(pdu.len()).map_err(|_| Error::TOOBIG)
                    }
                    _ => Err(Error::IPC),
                },
            )
        })
    };
    status(asked)
}
