//! The host's side: loads the shared object of an agent, in C or of this framework, as pmcd does.

use std::collections::VecDeque;
use std::error::Error as _;
use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use libloading::Library;
use pcp_pdu::handshake::{Attr, Features, encode_error};
use pcp_pdu::{FROM_AGENT, Header, Pdu, PduType};
use pmapi::debug::Debug;
use pmapi::{Domain, Error, Result};
use pmda::dso::abi::{self, Interface};

use super::calls::{Answered, Calls};
use crate::{Channel, Collector};

/// The shared object of an agent in this process: a channel for a [`Collector`]. Each PDU becomes a call, and its
/// results become a PDU.
///
/// An agent in C can corrupt this process, which is why pmcd prefers daemons.
#[derive(Debug)]
pub struct SharedObject {
    calls: Calls,
    replies: VecDeque<Vec<u8>>,
    open: bool,
    entry: usize,
    /// Unloaded after everything that points into it, unless it is kept.
    library: Option<Library>,
    is_kept: bool,
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
        /// The status that the entry point has set.
        error: Error,
    },
    /// The version of the interface is not in the range 2 to 7.
    #[error("unsupported PMDA interface version {0}")]
    Interface(u8),
    /// The agent is built for another version of PCP.
    #[error("unsupported PMAPI version {0}")]
    Pmapi(u8),
}

impl SharedObject {
    /// Loads a file and calls its entry point.
    ///
    /// # Safety
    /// The caller trusts the file as its own code: loading runs the file's initializers, and every later call runs its
    /// functions in this process. `init` must be the entry point of an agent, as pmda(3) describes it.
    ///
    /// # Errors
    /// [`LoadError::Load`] when the file cannot be loaded, [`LoadError::Entry`] without the function `init`,
    /// [`LoadError::Init`] when it fails, [`LoadError::Interface`] or [`LoadError::Pmapi`] for an unsupported version.
    pub unsafe fn open(path: &Path, init: &str, domain: i32) -> std::result::Result<SharedObject, LoadError> {
        // SAFETY: the caller answers for it.
        unsafe { Self::open_with_debug(path, init, domain, Debug::NONE) }
    }

    /// Loads a file as [`SharedObject::open`] does. The libpcp of an agent in C gets debug options before the entry
    /// point is called (pmSetDebug(3)).
    ///
    /// # Safety
    /// That of [`SharedObject::open`].
    ///
    /// # Errors
    /// The errors of [`SharedObject::open`].
    pub unsafe fn open_with_debug(
        path: &Path,
        init: &str,
        domain: i32,
        options: Debug,
    ) -> std::result::Result<SharedObject, LoadError> {
        // SAFETY: the caller trusts the file.
        let library = unsafe { Library::new(path) }.map_err(|e| {
            let reason = e.source().map_or_else(|| e.to_string(), |said| said.to_string());
            LoadError::Load { path: path.into(), reason }
        })?;
        set_program(&library);
        if options != Debug::NONE {
            set_debug(&library, options);
        }
        let mut interface = Box::new(Interface::challenge(domain));
        // SAFETY: the caller says that this is the entry point of an agent, and this is the type of those.
        let entry = unsafe {
            let entry: libloading::Symbol<'_, unsafe extern "C" fn(*mut Interface)> = library
                .get(init.as_bytes())
                .map_err(|_| LoadError::Entry { path: path.into(), init: init.to_owned() })?;
            entry(&mut *interface);
            *entry as usize
        };
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
        let (calls, library) = (Calls::new(interface), Some(library));
        Ok(SharedObject { calls, replies: VecDeque::new(), open: true, entry, library, is_kept: false })
    }

    /// Replaces the debug options of the libpcp of an agent in C (pmClearDebug(3), pmSetDebug(3)).
    pub fn set_debug(&self, options: Debug) {
        if let Some(library) = &self.library {
            set_debug(library, options);
        }
    }

    /// Keeps the file loaded forever, so that tools such as valgrind can name its functions at the end of the process.
    pub fn keep_loaded(&mut self) {
        self.is_kept = true;
    }

    /// Returns the address of the entry point.
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Loads a file with [`SharedObject::open`], and returns a collector for it.
    ///
    /// # Safety
    /// That of [`SharedObject::open`].
    ///
    /// # Errors
    /// The errors of [`SharedObject::open`].
    pub unsafe fn collector(
        path: &Path,
        init: &str,
        domain: Domain,
    ) -> std::result::Result<Collector<Self>, LoadError> {
        // SAFETY: the caller answers for it.
        let object = unsafe { Self::open(path, init, domain.get().into())? };
        let features = object.features();
        Ok(Collector::with_features(object, features))
    }

    /// Returns the version of the agent's interface: dynamic names need 4, attributes 6, labels 7.
    pub fn interface(&self) -> u8 {
        self.calls.interface.interface
    }

    /// Returns the version of the PMAPI that the agent is built for.
    pub fn pmapi(&self) -> u8 {
        self.calls.interface.pmapi
    }

    /// Returns the features with which the agent asks for client attributes.
    pub fn features(&self) -> Features {
        Features::from_bits_retain(self.calls.interface.flags)
    }

    /// Makes the call of a PDU, for hosts that own the buffer. The answer is appended to `out`, except the answer to a
    /// fetch, which [`SharedObject::fetched`] returns without a copy.
    ///
    /// # Errors
    /// The error of the agent, which is the answer to a request; `PM_ERR_NYI` if the agent lacks a function for the
    /// PDU. After an error, the bytes appended to `out` are incomplete.
    pub fn answer(&mut self, header: Header, pdu: Pdu<'_>, out: &mut Vec<u8>) -> Result<Answered> {
        self.calls.as_client(header.from);
        self.calls.call(pdu, out)
    }

    /// Returns the two parts of the answer to the last fetch, after [`Answered::Fetched`].
    pub fn fetched(&self) -> (&[u8], &[u8]) {
        self.calls.fetched()
    }

    /// Sends the agent an attribute of a client, and returns its answer, which a PDU would not have.
    ///
    /// # Errors
    /// `PM_ERR_NYI` for an interface before version 6, `PM_ERR_CONV` for a value with a NUL, `PM_ERR_TOOBIG` for one
    /// that is too long, or the error of the agent.
    pub fn attribute(&mut self, client: i32, attr: Attr<'_>) -> Result {
        self.calls.attribute(client, attr)
    }
}

/// Addresses of the interfaces of agents that stay loaded.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Sets the program's name at the start of libpcp's log lines (pmSetProgname(3)), if the library or one that it depends
/// on is libpcp.
fn set_program(library: &Library) {
    /// libpcp keeps the pointer.
    static PROGRAM: LazyLock<CString> = LazyLock::new(|| {
        let program = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&program).file_name().map(|name| name.as_bytes().to_vec());
        CString::new(name.unwrap_or_default()).unwrap_or_default()
    });
    // SAFETY: this is the type of the function in every version of libpcp that has it.
    unsafe {
        if let Ok(name) = library.get::<unsafe extern "C" fn(*const c_char)>(b"pmSetProgname") {
            name(PROGRAM.as_ptr());
        }
    }
}

/// Replaces the debug options of libpcp, if the shared object has loaded libpcp.
fn set_debug(library: &Library, options: Debug) {
    let Ok(options) = CString::new(options.to_string()) else { return };
    // SAFETY: this is the type of the functions in every version of libpcp that has them.
    unsafe {
        for (name, argument) in [(&b"pmClearDebug"[..], c"all"), (b"pmSetDebug", &options)] {
            if let Ok(set) = library.get::<unsafe extern "C" fn(*const c_char) -> c_int>(name) {
                set(argument.as_ptr());
            }
        }
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
            let mut out = Vec::new();
            match self.answer(header, Pdu::decode(header, pdu)?, &mut out) {
                Ok(Answered::Silently) => continue,
                Ok(Answered::Appended) => {}
                Ok(Answered::Fetched) => {
                    let (head, rest) = self.fetched();
                    out.extend_from_slice(head);
                    out.extend_from_slice(rest);
                }
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
        // `send` has already made the call. If the answer is not here now, it never comes.
        *pdu = self.replies.pop_front().ok_or(crate::Error::TimedOut(timeout.unwrap_or(Duration::MAX)))?;
        Header::parse(pdu)?.ok_or(crate::Error::Closed)
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            self.calls.end(self.calls.client);
        }
    }
}

impl Drop for SharedObject {
    fn drop(&mut self) {
        self.close();
        if self.is_kept {
            // The agent's allocations stay reachable, as in pmcd.
            let interface = std::mem::replace(&mut self.calls.interface, Box::new(Interface::challenge(0)));
            let kept = Box::into_raw(interface) as usize;
            KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
            std::mem::forget(self.library.take());
        }
    }
}
