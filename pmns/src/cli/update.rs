//! Replacing the file of a name space.

use super::Program;
use nix::sys::signal::{SigSet, Signal};
use pmapi::file::NewFile;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long a command waits for others that are changing the same name space.
const WAIT: Duration = Duration::from_secs(60);

/// An update of a name space's file: while there is one, other commands of this package wait.
///
/// Scripts keep each other out with lockpmns(1), a file beside the name space that they hold while
/// they run these commands; this lock is for those who don't. It lies on the new content, which only the user who writes
/// it may open until it is complete: nobody else can hold it.
pub struct Update<'a> {
    program: &'a Program,
    path: &'a Path,
    /// What keeps the file from being written shows when it is to be written: other mistakes come before.
    new: io::Result<NewFile>,
}

impl<'a> Update<'a> {
    /// Begins an update, when others have ended.
    ///
    /// # Errors
    /// The exit code of a failure, after a message, when others take longer than a minute.
    pub fn begin(program: &'a Program, path: &'a Path) -> Result<Update<'a>, ExitCode> {
        match NewFile::lock(path, WAIT) {
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                Err(program.fail(format_args!("Error: cannot change PMNS file \"{}\": {e}", path.display())))
            }
            new => Ok(Update { program, path, new }),
        }
    }

    /// Writes the new content beside the file. From here on SIGHUP, SIGINT and SIGTERM have no effect on the process.
    ///
    /// # Errors
    /// The exit code of a failure, after a message, when it cannot be written.
    pub fn write(&mut self, content: &str) -> Result<(), ExitCode> {
        ignore_signals();
        let (program, name) = (self.program, self.path().display().to_string());
        let new = match &mut self.new {
            Ok(new) => new,
            Err(e) => {
                let e = error(e);
                return Err(program.fail(format_args!("Error: cannot open PMNS file \"{name}\" for writing: {e}")));
            }
        };
        new.write_all(content.as_bytes()).map_err(|e| {
            let e = error(&e);
            program.fail(format_args!("Error: cannot write PMNS file \"{name}\": {e}"))
        })
    }

    /// The file with the new content.
    pub fn path(&self) -> PathBuf {
        self.new.as_ref().map_or_else(|_| self.path.to_owned(), NewFile::path)
    }

    /// Puts it in place of the old one.
    ///
    /// # Errors
    /// The exit code of a failure, after a message: the old content stays.
    pub fn commit(self) -> Result<(), ExitCode> {
        self.new.and_then(NewFile::commit).map_err(|e| {
            let e = error(&e);
            self.program.fail(format_args!("Error: cannot replace PMNS file \"{}\": {e}", self.path.display()))
        })
    }
}

/// An error in the words of PCP.
fn error(e: &io::Error) -> pmapi::Error {
    e.raw_os_error().map_or(pmapi::Error::GENERIC, pmapi::Error::from_errno)
}

/// Holds back the signals that would end the process in the middle of a write, for as long as it
/// runs.
pub fn ignore_signals() {
    let signals: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    // Without it everything works all the same.
    let _: nix::Result<()> = signals.thread_block();
}
