//! The entry point of a shared object.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use nix::libc;
use pmapi::Error;
use tracing::error;

use super::abi::Interface;
use super::{calls, host};
use crate::agent::Agent;

/// Runs the entry point of a shared object; see [`dso!`](crate::dso!).
///
/// # Safety
/// `interface` must be a `pmdaInterface` of pmcd, dbpmda or a local context, with the domain filled in. The functions
/// that it gets must be called as pmcd calls them.
pub unsafe fn init<A: Agent>(interface: *mut Interface) {
    if interface.is_null() {
        return;
    }
    let status = catch_unwind(|| {
        stay_loaded(init::<A> as *const c_void);
        host::end_with_process();
        crate::log::subscribe(&program(), Default::default(), A::layers());
        crate::log::panics();
        let name = file_of(init::<A> as *const c_void).as_deref().and_then(name_of);
        // SAFETY: by the caller's promise.
        match unsafe { host::start::<A>(interface, name) } {
            Ok(ext) => {
                // SAFETY: by the caller's promise.
                calls::fill::<A>(unsafe { &mut *interface }, ext);
                0
            }
            Err(e) => {
                error!("{}: {e}", A::NAME);
                Error::GENERIC.code()
            }
        }
    });
    // SAFETY: by the caller's promise.
    unsafe { (*interface).status = status.unwrap_or(Error::GENERIC.code()) }
}

/// Returns the name of the process, for log lines.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map_or_else(|| "pmda".into(), |name| name.to_string_lossy().into_owned())
}

/// Returns the file that contains a function.
fn file_of(function: *const c_void) -> Option<PathBuf> {
    let mut info =
        libc::Dl_info { dli_fname: null_mut(), dli_fbase: null_mut(), dli_sname: null_mut(), dli_saddr: null_mut() };
    // SAFETY: `info` is read only when the address is in a loaded file, and then contains the file's name.
    unsafe {
        let found = libc::dladdr(function, &mut info) != 0 && !info.dli_fname.is_null();
        found.then(|| OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()).into())
    }
}

/// Keeps the code in memory after the file is closed. Threads of the agent may still run, and threads of the host may
/// have thread-locals to destroy.
fn stay_loaded(function: *const c_void) {
    let Some(path) = file_of(function) else { return };
    let Ok(path) = CString::new(path.into_os_string().into_encoded_bytes()) else { return };
    // SAFETY: the file is already loaded, so this only marks it.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE) };
}

/// Returns the name of an agent whose file is `pmda_NAME.so`. Returns `None` for a file of another name, whose agents
/// may have any names.
fn name_of(file: &Path) -> Option<String> {
    let name = file.file_stem()?.to_str()?.strip_prefix("pmda_")?;
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    let entry = CString::new(format!("{name}_init")).ok()?;
    // SAFETY: the file is loaded already, and the address is not used.
    let has_entry = unsafe {
        let file = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        !file.is_null() && !libc::dlsym(file, entry.as_ptr()).is_null()
    };
    (!has_entry).then(|| name.to_owned())
}
