//! The agent of this host, as a process finds it.
//!
//! The file `agent` decides where a process makes its file. So the process must not believe a file of another user, who
//! could make it write elsewhere, or read what it traces. It trusts root, PCP's user, and its own user.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use nix::unistd::geteuid;
use pcp_base::file::Dir;
use pmapi::Config;

use super::agent_file::{AGENT, is_locked, read_path};

/// The agent that uses a directory, if one runs.
#[derive(Debug)]
pub(crate) struct Agent {
    path: PathBuf,
    /// PCP's user, if it has an identifier.
    pcp: Option<u32>,
}

impl Agent {
    /// Creates a description of the agent with the directory `path`, which may run or not.
    pub(crate) fn new(path: PathBuf, config: &Config) -> Agent {
        Agent { path, pcp: config.uid() }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns whether no agent runs. Without descriptors or memory this cannot be known, and the result is false.
    pub(crate) fn is_gone(&self) -> bool {
        let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EINTR];
        self.check().is_err_and(|e| !passing.iter().any(|passing| e.raw_os_error() == Some(*passing as i32)))
    }

    /// Checks that the agent runs. Fails as [`Agent::files`] does.
    pub(super) fn check(&self) -> io::Result<()> {
        self.open().map(drop)
    }

    /// Opens the directory of files.
    ///
    /// Fails with `NotFound` if no agent runs, and with `PermissionDenied` if another user can have chosen the
    /// directory.
    pub(super) fn files(&self) -> io::Result<Dir> {
        let agent = self.open()?;
        let path = read_path(&agent).ok_or(ErrorKind::InvalidData)?;
        let files = Dir::open_trusted(&path, |uid| self.trusts(uid))?;
        let (owner, found) = (agent.metadata()?.uid(), fstat(files.as_fd())?);
        if ![0, owner].contains(&found.st_uid) {
            return Err(refused(&path, format_args!("belongs to user {}, not to the agent's", found.st_uid)));
        }
        if found.st_mode & 0o1000 == 0 {
            return Err(refused(&path, format_args!("has no sticky bit")));
        }
        Ok(files)
    }

    /// Opens the file of a running agent. Fails with `NotFound` if no agent runs.
    fn open(&self) -> io::Result<File> {
        let directory = Dir::open_trusted(&self.path, |uid| self.trusts(uid))?;
        let agent = directory.file(OsStr::new(AGENT), OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0)?;
        let metadata = agent.metadata()?;
        let path = || self.path.join(AGENT);
        if !metadata.is_file() {
            return Err(refused(&path(), format_args!("is not a regular file")));
        }
        if !self.trusts(metadata.uid()) {
            return Err(refused(&path(), format_args!("belongs to user {}", metadata.uid())));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(refused(&path(), format_args!("can be changed by other users")));
        }
        if is_locked(&agent) { Ok(agent) } else { Err(ErrorKind::NotFound.into()) }
    }

    fn trusts(&self, uid: u32) -> bool {
        uid == 0 || self.pcp == Some(uid) || uid == geteuid().as_raw()
    }
}

fn refused(path: &Path, why: std::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::super::directory::Directory;
    use super::*;

    /// A running agent, as a process sees it that trusts root, user 77 and its own user.
    struct Scene {
        agent: Directory,
        dir: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Scene {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("shm")).unwrap();
            fs::set_permissions(dir.path().join("shm"), Permissions::from_mode(0o1777)).unwrap();
            let agent = Directory::open(dir.path().join("trace/4323"), &dir.path().join("shm")).unwrap();
            let scene = Scene { agent, dir };
            assert_eq!(scene.files(), Ok(()));
            scene
        }

        fn file(&self) -> PathBuf {
            self.agent.path().join(AGENT)
        }

        fn files(&self) -> Result<(), ErrorKind> {
            let config = Config::new(b"PCP_USER=77", []);
            let agent = Agent::new(self.agent.path().to_owned(), &config);
            agent.files().map(drop).map_err(|e| e.kind())
        }
    }

    const REFUSED: Result<(), ErrorKind> = Err(ErrorKind::PermissionDenied);

    #[test]
    fn an_agent_whose_files_others_can_change_is_not_believed() {
        let scene = Scene::new();
        let (trace, shm) = (scene.dir.path().join("trace"), scene.dir.path().join("shm"));
        for (path, mode, expected) in [
            (scene.file(), 0o664, REFUSED),
            (scene.file(), 0o646, REFUSED),
            (scene.file(), 0o644, Ok(())),
            (scene.agent.path().to_owned(), 0o777, REFUSED),
            (scene.agent.path().to_owned(), 0o755, Ok(())),
            (trace.clone(), 0o777, REFUSED),
            (trace, 0o1777, Ok(())),
            (shm.clone(), 0o777, REFUSED),
            (shm, 0o1777, Ok(())),
            (scene.agent.files().to_owned(), 0o777, REFUSED),
            (scene.agent.files().to_owned(), 0o755, REFUSED),
            (scene.agent.files().to_owned(), 0o1777, Ok(())),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(scene.files(), expected, "{} {mode:o}", path.display());
        }
    }

    #[test]
    fn the_file_of_an_agent_is_a_regular_one() {
        let scene = Scene::new();
        let other = scene.dir.path().join("other");
        fs::rename(scene.file(), &other).unwrap();
        assert_eq!(scene.files(), Err(ErrorKind::NotFound));
        symlink(&other, scene.file()).unwrap();
        assert!(scene.files().is_err());
        fs::remove_file(scene.file()).unwrap();
        nix::unistd::mkfifo(&scene.file(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(scene.files(), REFUSED);
        fs::remove_file(scene.file()).unwrap();
        fs::rename(&other, scene.file()).unwrap();
        assert_eq!(scene.files(), Ok(()));
    }

    #[test]
    #[ignore = "needs root"]
    fn an_agent_of_another_user_is_not_believed() {
        let scene = Scene::new();
        let [trace, shm] = ["trace", "shm"].map(|name| scene.dir.path().join(name));
        for path in [&scene.file(), scene.agent.path(), &trace, scene.agent.files(), &shm] {
            chown(path, Some(65534), None).unwrap();
            assert_eq!(scene.files(), REFUSED, "{}", path.display());
            chown(path, Some(0), None).unwrap();
            assert_eq!(scene.files(), Ok(()));
        }
        // An agent of PCP's user may have a directory of files that root has made, but root's agent has none of
        // PCP's user.
        chown(scene.file(), Some(77), None).unwrap();
        assert_eq!(scene.files(), Ok(()));
        chown(scene.agent.files(), Some(77), None).unwrap();
        assert_eq!(scene.files(), Ok(()));
        chown(scene.file(), Some(0), None).unwrap();
        assert_eq!(scene.files(), REFUSED);
    }
}
