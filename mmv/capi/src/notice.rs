//! The only line that the library may write to standard error.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pcp_base::escape::Escaped;
use pcp_base::stderr::tell;

/// Whether the line was written.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Writes a warning from a signal handler, once in a process. The line lacks the time and the program's name, because a
/// handler cannot determine them.
#[cold]
pub(crate) fn warn_from_handler(text: &str) {
    if !TOLD.swap(true, Relaxed) {
        tell(text);
    }
}

/// Writes a warning to standard error, in the format of pmNotifyErr(3). Only the first call in a process has an effect.
#[cold]
#[inline(never)]
pub(crate) fn warn(text: &str) {
    if TOLD.swap(true, Relaxed) {
        return;
    }
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (time, process) = (crate::sys::local_time(), std::process::id());
    tell(&Escaped(format_args!("[{time}] {program}({process}) Warning: libpcp_mmv: {text}")).to_string());
}
