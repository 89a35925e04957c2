//! The directory in which an agent finds the files of processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use pmapi::config::Config;

/// Where files are for the agent that waits on this port: `$PCP_RUN_DIR/trace/PORT`.
pub fn path(config: &Config, port: u16) -> PathBuf {
    config.run_dir().join("trace").join(port.to_string())
}

/// Whether an agent takes what is there.
pub(crate) fn has_agent(path: &Path) -> bool {
    // It has locked the directory. Somebody who looks at the same time as this one does no harm.
    File::open(path).is_ok_and(|directory| matches!(directory.try_lock(), Err(TryLockError::WouldBlock)))
}

/// An agent's directory: as long as this is there processes use it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes the directory and the one above it, if they are not there.
    pub fn open(path: PathBuf) -> io::Result<Directory> {
        if let Some(above) = path.parent() {
            make(above, 0o755)?;
        }
        make(&path, 0o1777)?;
        let metadata = fs::symlink_metadata(&path)?;
        let uid = nix::unistd::geteuid().as_raw();
        if !metadata.is_dir() || (metadata.uid() != uid && uid != 0) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory is not the agent's"));
        }
        // Beyond the umask.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))?;
        let lock = File::open(&path)?;
        for _ in 0..100 {
            match lock.try_lock_shared() {
                Ok(()) => return Ok(Directory { path, lock }),
                // A process looks whether there is an agent.
                Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(1)),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Without another agent and files of processes it is not needed any more.
impl Drop for Directory {
    fn drop(&mut self) {
        if self.lock.try_lock().is_ok() {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_there_while_it_holds_the_directory() {
        let run = tempfile::tempdir().unwrap();
        let config = Config::new(b"", [("PCP_RUN_DIR".into(), run.path().into())]);
        let path = path(&config, 4323);
        assert!(!has_agent(&path));
        let [first, second] = [0; 2].map(|_| Directory::open(path.clone()).unwrap());
        assert!(has_agent(&path) && fs::metadata(&path).unwrap().permissions().mode() & 0o7777 == 0o1777);
        drop(first);
        assert!(has_agent(&path));
        drop(second);
        assert!(!has_agent(&path) && !path.exists());
        fs::create_dir(&path).unwrap();
        assert!(!has_agent(&path));
    }
}
