//! Replacing the file of a name space.

use super::Program;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Keeps other commands of this package from changing name spaces in a directory until dropped.
///
/// Scripts keep each other out with lockpmns(1), a file beside the name space that they hold while
/// they run these commands; this is a lock on the directory, for those who don't.
pub struct Lock {
    /// None when the directory cannot be locked: what is wrong shows later.
    _lock: Option<Flock<File>>,
}

impl Lock {
    /// Waits for the directory of a file.
    pub fn acquire(file: &Path) -> Lock {
        let dir = match file.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        let lock = File::open(dir).ok().and_then(|dir| Flock::lock(dir, FlockArg::LockExclusive).ok());
        Lock { _lock: lock }
    }
}

/// The new content of a name space's file, in `FILE.new` until it is committed.
pub struct Update<'a> {
    program: &'a Program,
    path: &'a Path,
    new: PathBuf,
    committed: bool,
}

impl<'a> Update<'a> {
    /// Writes `FILE.new`, with mode and owner of the file. From here on SIGHUP, SIGINT and SIGTERM
    /// have no effect on the process.
    pub fn write(program: &'a Program, path: &'a Path, content: &str) -> Result<Update<'a>, ExitCode> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let update = Update { program, path, new: new.into(), committed: false };
        ignore_signals();
        let name = update.new.display();
        let mut file = File::create(&update.new).map_err(|e| {
            let e = pmapi::Error::from(e);
            program.fail(format_args!("Error: cannot open PMNS file \"{name}\" for writing: {e}"))
        })?;
        if let Ok(metadata) = fs::metadata(path) {
            let mode = metadata.mode() & 0o7777;
            if let Err(e) = file.set_permissions(fs::Permissions::from_mode(mode)) {
                program.say(format_args!("chmod({name}, {mode:o}...) failed: {}", pmapi::Error::from(e)));
            }
            if let Err(e) = std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid())) {
                program.say(format_args!("chown({name}, ...) failed: {}", pmapi::Error::from(e)));
            }
        }
        file.write_all(content.as_bytes()).map_err(|e| {
            let e = pmapi::Error::from(e);
            program.fail(format_args!("Error: cannot write PMNS file \"{name}\": {e}"))
        })?;
        Ok(update)
    }

    /// The file with the new content.
    pub fn path(&self) -> &Path {
        &self.new
    }

    /// Puts it in place of the old one.
    pub fn commit(mut self) -> Result<(), ExitCode> {
        fs::rename(&self.new, self.path).map_err(|e| {
            let (new, path, e) = (self.new.display(), self.path.display(), pmapi::Error::from(e));
            self.program.fail(format_args!("cannot rename \"{new}\" to \"{path}\": {e}"))
        })?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Update<'_> {
    fn drop(&mut self) {
        if !self.committed {
            // What kept it from being committed is told already.
            let _: std::io::Result<()> = fs::remove_file(&self.new);
        }
    }
}

/// Holds back the signals that would end the process in the middle of a write, for as long as it
/// runs.
pub fn ignore_signals() {
    let signals: SigSet = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
    // Without it everything works all the same.
    let _: nix::Result<()> = signals.thread_block();
}
