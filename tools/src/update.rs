//! Replacement of the file of a name space.

use crate::Program;
use nix::sys::signal::{SigSet, Signal};
use pcp_base::file::NewFile;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Longest wait for other commands that are changing the same name space.
const WAIT: Duration = Duration::from_secs(60);

/// An update of the file of a name space. It holds a lock, and other commands of this package wait for it.
///
/// Scripts exclude each other with lockpmns(1), a lock file beside the name space that they hold while they run these
/// commands. The lock of an update protects commands that are run without lockpmns(1). It is a lock on the temporary
/// file with the new content. Only the user who writes that file may open it until it is complete, so that no other
/// user can hold the lock.
pub struct Update<'a> {
    program: &'a Program,
    path: &'a Path,
    /// The temporary file, or why it cannot be created. [`Update::write`] reports that, after all other mistakes.
    new: io::Result<NewFile>,
}

impl<'a> Update<'a> {
    /// Begins an update, after waiting for other updates of the same file to end.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when the wait exceeds 60 seconds, after a message on stderr.
    pub fn begin(program: &'a Program, path: &'a Path) -> Result<Update<'a>, ExitCode> {
        match NewFile::lock(path, WAIT) {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                Err(program.fail(format_args!("Error: cannot change PMNS file \"{}\": {e}", path.display())))
            }
            new => Ok(Update { program, path, new }),
        }
    }

    /// Writes the new content to the temporary file. From now on SIGHUP, SIGINT and SIGTERM do not end the process.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when the file cannot be created or written, after a message on stderr.
    pub fn write(&mut self, content: &str) -> Result<(), ExitCode> {
        ignore_signals();
        let (program, name) = (self.program, self.path().display().to_string());
        let new = match &mut self.new {
            Ok(new) => new,
            Err(e) => {
                let e = error(e);
                // PCP's commands write to this file.
                return Err(program.fail(format_args!("Error: cannot open PMNS file \"{name}.new\" for writing: {e}")));
            }
        };
        new.write_all(content.as_bytes()).map_err(|e| {
            let e = error(&e);
            program.fail(format_args!("Error: cannot write PMNS file \"{name}\": {e}"))
        })
    }

    /// Returns the path of the temporary file, or that of the name space if no temporary file could be created.
    pub fn path(&self) -> PathBuf {
        self.new.as_ref().map_or_else(|_| self.path.to_owned(), NewFile::path)
    }

    /// Replaces the file of the name space by the temporary file.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when that fails, after a message on stderr. The old content then stays.
    pub fn commit(self) -> Result<(), ExitCode> {
        self.new.and_then(NewFile::commit).map_err(|e| {
            let e = error(&e);
            self.program.fail(format_args!("Error: cannot replace PMNS file \"{}\": {e}", self.path.display()))
        })
    }
}

/// Converts an error to the one whose text PCP prints.
fn error(e: &io::Error) -> pmapi::Error {
    e.raw_os_error().map_or(pmapi::Error::GENERIC, pmapi::Error::from_errno)
}

/// Blocks SIGHUP, SIGINT and SIGTERM for the rest of the thread's life, so that they cannot interrupt a write.
pub fn ignore_signals() {
    let signals: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    // A failure only means that a signal can still end the command.
    let _: nix::Result<()> = signals.thread_block();
}
