//! The directory in which an agent finds the files of processes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use pmapi::config::Config;

use system::{is_locked, lock};

/// Where files are for the agent that waits on this port: `$PCP_RUN_DIR/trace/PORT`.
pub fn path(config: &Config, port: u16) -> PathBuf {
    config.run_dir().join("trace").join(port.to_string())
}

/// Whether an agent takes what is there.
pub(crate) fn has_agent(path: &Path) -> bool {
    File::open(path).is_ok_and(|directory| is_locked(&directory))
}

/// An agent's directory: as long as this is there processes use it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Locked.
    directory: File,
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
        let directory = File::open(&path)?;
        lock(&directory)?;
        // Beyond the umask.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777))?;
        Ok(Directory { path, directory })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Without another agent and files of processes it is not needed any more.
impl Drop for Directory {
    fn drop(&mut self) {
        if !is_locked(&self.directory) {
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

/// Locks of open files (fcntl(2)): nobody has to take one to see whether there is one, and on a directory none keeps
/// another one out.
#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io;

    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc::{F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET, flock};

    fn whole(kind: i32) -> flock {
        flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
    }

    pub(super) fn lock(file: &File) -> io::Result<()> {
        fcntl(file, FcntlArg::F_OFD_SETLK(&whole(F_RDLCK)))?;
        Ok(())
    }

    /// Whether somebody else has locked it.
    pub(super) fn is_locked(file: &File) -> bool {
        let mut found = whole(F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok() && found.l_type != F_UNLCK as i16
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::fs::File;
    use std::io;

    pub(super) fn lock(_: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn is_locked(_: &File) -> bool {
        false
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
    fn any_number_that_look_see_no_agent_where_there_is_none() {
        let run = tempfile::tempdir().unwrap();
        let look = || (0..20_000).filter(|_| has_agent(run.path())).count();
        let seen = std::thread::scope(|scope| [0; 4].map(|_| scope.spawn(look)).map(|thread| thread.join().unwrap()));
        assert_eq!(seen, [0; 4]);
    }
}
