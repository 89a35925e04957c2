//! The directory in which an agent finds the files of processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use super::process::now;
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
        let lock = match lock(&path, 100)? {
            Some(lock) => lock,
            None => replace(&path)?,
        };
        // Beyond the umask.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))?;
        Ok(Directory { path, lock })
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

/// Locks a directory; nothing if somebody else has locked it for longer than it takes to see whether there is an agent.
fn lock(path: &Path, milliseconds: u32) -> io::Result<Option<File>> {
    let lock = File::open(path)?;
    for _ in 0..=milliseconds {
        match lock.try_lock_shared() {
            Ok(()) => return Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    Ok(None)
}

/// Puts another directory, which is locked already, in the place of one that any user may lock, and has. Files go with it.
fn replace(path: &Path) -> io::Result<File> {
    let [new, old] = ["new", "old"].map(|what| path.with_extension(format!("{what}.{:x}", now())));
    make(&new, 0o700)?;
    let lock = lock(&new, 0)?.ok_or(io::ErrorKind::WouldBlock)?;
    fs::rename(path, &old)?;
    fs::rename(&new, path)?;
    for file in fs::read_dir(&old)?.flatten() {
        let _ = fs::rename(file.path(), path.join(file.file_name()));
    }
    let _ = fs::remove_dir_all(&old);
    Ok(lock)
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
    #[test]
    fn nobody_else_s_lock_keeps_an_agent_out() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().join("4323");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), "of a process").unwrap();
        let other = File::open(&path).unwrap();
        other.try_lock().unwrap();
        let directory = Directory::open(path.clone()).unwrap();
        assert!(has_agent(&path) && fs::metadata(&path).unwrap().permissions().mode() & 0o7777 == 0o1777);
        assert_eq!(fs::read(path.join("file")).unwrap(), b"of a process");
        assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
        other.unlock().unwrap();
        fs::remove_file(path.join("file")).unwrap();
        drop(directory);
        assert!(!path.exists());
    }
}
