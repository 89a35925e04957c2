//! The directories through which an agent and the processes of its host find each other.
//!
//! The *agent's directory* is `$PCP_RUN_DIR/trace/PORT`. Only the agent's user can write it, so that no other user can
//! impersonate the agent. Its only file, `agent`, names the directory of files. The agent holds a write lock on `agent`
//! while it runs. Such a lock requires opening the file for writing, which only its owner can do.
//!
//! The *directory of files* is `/dev/shm/pcp-trace-PORT.XXXXXX`. Each process makes its file there. Every user can
//! write to it, as to `/dev/shm`: files in either count against the same quota. Its sticky bit protects the files of a
//! user from other users. The files inherit its group, which is the agent's: mode 0640 lets the agent read them.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, UnlinkatFlags, fchown, getegid, geteuid, mkdtemp, unlinkat};
use pcp_base::file::stores_may_fail;
use pmapi::Config;

use super::agent_file::{AGENT, is_locked, lock, read_path};

/// Mode of the directory of files: world-writable, sticky, and set-group-ID, so that files inherit its group.
const FOR_FILES: u32 = 0o3777;

/// Returns the directory of the agent with this TCP port: `$PCP_RUN_DIR/trace/PORT`.
pub fn path(config: &Config, port: u16) -> PathBuf {
    config.run_dir().join("trace").join(port.to_string())
}

/// Returns the parent of the directory of files: `$PCP_TRACE_DIR`, or `/dev/shm` if that is unset or empty.
pub fn base(config: &Config) -> PathBuf {
    let set = config.var("PCP_TRACE_DIR").filter(|value| !value.is_empty());
    set.unwrap_or(OsStr::new("/dev/shm")).into()
}

/// The directories of a running agent. Processes can trace to the agent until this value is dropped.
///
/// Dropping it removes the directories, unless the directory of files still has files: the next agent reads those.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    directory: OwnedFd,
    /// The locked file `agent`.
    agent: File,
    files: PathBuf,
    opened: File,
}

impl Directory {
    /// Opens the directories of an agent: `path`, whose last component is the port, and one for files in `base`.
    ///
    /// Creates `path`, its parent and the directory of files if they do not exist. Continues with a directory of files
    /// that an earlier agent of the same user has left.
    ///
    /// # Errors
    /// - `PermissionDenied` if another user owns a directory, or could replace it.
    /// - `AddrInUse` if another agent uses `path`.
    /// - `InvalidInput` if `path` has no parent or no last component.
    /// - `Unsupported` on systems other than Linux, and for files on a file system that copies on write, or is on a
    ///   network or implemented by a program.
    /// - Errors of the system, such as `NotADirectory` for a symbolic link.
    pub fn open(path: PathBuf, base: &Path) -> io::Result<Directory> {
        Directory::open_again(path, base, None)
    }

    /// Opens the directories as [`open`](Directory::open) does. Continues with the directory of files `before`, if the
    /// file `agent` names none any more: it was removed, moved or replaced while the agent was running.
    ///
    /// # Errors
    /// As for [`open`](Directory::open).
    pub fn open_again(path: PathBuf, base: &Path, before: Option<PathBuf>) -> io::Result<Directory> {
        let directory = open_own(&path)?;
        let candidates = [left_before(&directory)?, before];
        let prefix = format!("pcp-trace-{}.", Path::new(path.file_name().unwrap_or_default()).display());
        let mut known = candidates.into_iter().flatten().filter_map(|files| reopen(files, base, &prefix));
        let (files, opened, agent) = match known.next() {
            Some((files, opened)) => {
                let agent = announce(&directory, &files)?;
                (files, opened, agent)
            }
            None => {
                let (files, opened) = make_files(base, &prefix)?;
                let agent = announce(&directory, &files).inspect_err(|_| _ = fs::remove_dir(&files))?;
                (files, opened, agent)
            }
        };
        Ok(Directory { path, directory, agent, files, opened })
    }

    /// Returns the agent's directory: the option [`directory`](crate::Options::directory) of processes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of files.
    pub fn files(&self) -> &Path {
        &self.files
    }

    /// Returns a handle of the directory of files.
    pub fn opened(&self) -> &File {
        &self.opened
    }

    /// Returns whether processes still find the agent: neither the file `agent` nor the directory of files was removed,
    /// moved or replaced.
    pub fn is_there(&self) -> bool {
        leads_to(&self.path.join(AGENT), &self.agent) && leads_to(&self.files, &self.opened)
    }
}

/// Removes the directories, unless the directory of files has files: the next agent continues with these.
impl Drop for Directory {
    fn drop(&mut self) {
        if has_name(&self.agent) && (!has_name(&self.opened) || fs::remove_dir(&self.files).is_ok()) {
            let _ = unlinkat(&self.directory, AGENT, UnlinkatFlags::NoRemoveDir);
            let _ = fs::remove_dir(&self.path);
        }
    }
}

fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
}

/// Returns whether a path leads to an open file. Also returns true if the path cannot be checked at present.
fn leads_to(path: &Path, file: &File) -> bool {
    match (fs::symlink_metadata(path), file.metadata()) {
        (Ok(found), Ok(own)) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
        (Err(e), _) => !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        (Ok(_), Err(_)) => true,
    }
}

fn refused(what: &Path, why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{}: {why}", what.display()))
}

/// Opens or creates the agent's directory. Neither it nor its parent may be a symbolic link.
fn open_own(path: &Path) -> io::Result<OwnedFd> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(ErrorKind::InvalidInput.into());
    };
    match DirBuilder::new().mode(0o755).create(above) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        done => done?,
    }
    let uid = geteuid().as_raw();
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let above_it = OpenOptions::new().read(true).custom_flags(flags.bits()).open(above)?;
    let metadata = above_it.metadata()?;
    if !is_kept(&metadata, uid) {
        return Err(refused(above, "other users may rename its entries"));
    }
    match mkdirat(&above_it, name, Mode::from_bits_truncate(0o755)) {
        Err(nix::errno::Errno::EEXIST) => {}
        done => done?,
    }
    let directory = File::from(openat(&above_it, name, flags | OFlag::O_CLOEXEC, Mode::empty())?);
    let owner = directory.metadata()?.uid();
    // Root trusts the owner of PCP's directory.
    if owner != uid && !(uid == 0 && owner == metadata.uid()) {
        return Err(refused(path, "the directory belongs to another user"));
    }
    // Independent of the umask, and of the mode that an earlier version has set.
    fchmod(&directory, Mode::from_bits_truncate(0o755))?;
    Ok(directory.into())
}

/// Returns whether only root, `uid` and the directory's owner can rename its entries.
fn is_kept(metadata: &Metadata, uid: u32) -> bool {
    let is_trusted = [0, uid].contains(&metadata.uid()) || uid == 0;
    let mode = metadata.permissions().mode();
    is_trusted && (mode & 0o022 == 0 || mode & 0o1000 != 0)
}

/// Returns the directory of files that an earlier agent of the same user has left.
fn left_before(directory: &OwnedFd) -> io::Result<Option<PathBuf>> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let Ok(agent) = openat(directory, AGENT, flags, Mode::empty()) else { return Ok(None) };
    let agent = File::from(agent);
    if is_locked(&agent) {
        return Err(io::Error::new(ErrorKind::AddrInUse, "another agent uses the directory"));
    }
    let is_own = agent.metadata()?.uid() == geteuid().as_raw();
    Ok(is_own.then(|| read_path(&agent)).flatten())
}

/// Opens the directory of files of an earlier agent, if this user owns it, and it has the right parent and prefix.
fn reopen(files: PathBuf, base: &Path, prefix: &str) -> Option<(PathBuf, File)> {
    let is_named = files.file_name()?.as_bytes().starts_with(prefix.as_bytes());
    if !is_named || files.parent() != Some(base) {
        return None;
    }
    let opened = open_files(&files, base).ok()?;
    Some((files, opened))
}

fn make_files(base: &Path, prefix: &str) -> io::Result<(PathBuf, File)> {
    let files = mkdtemp(&base.join(format!("{prefix}XXXXXX")))?;
    let opened = open_files(&files, base).inspect_err(|_| _ = fs::remove_dir(&files))?;
    Ok((files, opened))
}

fn open_files(files: &Path, base: &Path) -> io::Result<File> {
    let uid = geteuid().as_raw();
    if !is_kept(&fs::metadata(base)?, uid) {
        return Err(refused(base, "other users may rename its entries"));
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits()).open(files)?;
    if opened.metadata()?.uid() != uid {
        return Err(refused(files, "the directory belongs to another user"));
    }
    fchown(&opened, None, Some(Gid::from_raw(getegid().as_raw())))?;
    fchmod(&opened, Mode::from_bits_truncate(FOR_FILES))?;
    let nameless = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let file = openat(&opened, ".", nameless, Mode::S_IRUSR | Mode::S_IWUSR);
    if file.is_ok_and(|file| stores_may_fail(&file.into())) {
        let why = format!(
            "{}: stores to mapped files of this file system can fail, and would end processes",
            files.display()
        );
        return Err(io::Error::new(ErrorKind::Unsupported, why));
    }
    Ok(opened)
}

/// Creates and locks the file `agent`. It has a hidden name until it is locked, so that no process reads it before.
fn announce(directory: &OwnedFd, files: &Path) -> io::Result<File> {
    let hidden = format!(".{AGENT}.{}", std::process::id());
    let _ = unlinkat(directory, hidden.as_str(), UnlinkatFlags::NoRemoveDir);
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::from_bits_truncate(0o644);
    let mut agent = File::from(openat(directory, hidden.as_str(), flags, mode)?);
    let written = fchmod(&agent, mode)
        .map_err(io::Error::from)
        .and_then(|()| agent.write_all(files.as_os_str().as_bytes()))
        .and_then(|()| lock(&agent))
        .and_then(|()| Ok(renameat(directory, hidden.as_str(), directory, AGENT)?));
    written.inspect_err(|_| _ = unlinkat(directory, hidden.as_str(), UnlinkatFlags::NoRemoveDir))?;
    Ok(agent)
}

#[cfg(test)]
mod tests {
    use super::super::agent::Agent;
    use super::*;
    use std::os::unix::fs::symlink;

    fn agent_of(path: &Path) -> Agent {
        Agent::new(path.to_owned(), &Config::default())
    }

    fn has_agent(path: &Path) -> bool {
        agent_of(path).is_running()
    }

    fn files(path: &Path) -> Option<PathBuf> {
        Some(agent_of(path).files().ok()?.path().to_owned())
    }

    #[test]
    fn an_agent_is_there_while_it_holds_the_directory() {
        let run = tempfile::tempdir().unwrap();
        let vars = [("PCP_RUN_DIR", run.path()), ("PCP_TRACE_DIR", run.path())];
        let config = Config::new(b"", vars.map(|(name, value)| (name.into(), value.into())));
        let (path, base) = (path(&config, 4323), base(&config));
        assert!(!has_agent(&path) && files(&path).is_none());
        let agent = Directory::open(path.clone(), &base).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert!(has_agent(&path) && mode(&path) == 0o755 && mode(&path.join(AGENT)) == 0o644);
        assert_eq!(files(&path).as_deref(), Some(agent.files()));
        assert!(mode(agent.files()) == 0o3777 && agent.files().parent() == Some(&base));
        let other = Directory::open(path.clone(), &base).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::AddrInUse);
        let at = agent.files().to_owned();
        drop(agent);
        assert!(!has_agent(&path) && !path.exists() && !at.exists());
        fs::create_dir(&path).unwrap();
        assert!(!has_agent(&path));
    }

    /// As on a full disk. The agent tries again all the time.
    #[test]
    fn an_agent_that_cannot_be_announced_leaves_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (path, base) = (dir.path().join("trace/4323"), dir.path().join("base"));
        fs::create_dir_all(path.join(AGENT)).unwrap();
        fs::create_dir(&base).unwrap();
        assert!(Directory::open(path.clone(), &base).is_err());
        assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
        fs::remove_dir(path.join(AGENT)).unwrap();
        assert!(Directory::open(path, &base).is_ok());
    }

    #[test]
    fn the_next_agent_goes_on_with_files_that_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Directory::open(dir.path().join("trace/4323"), dir.path()).unwrap();
        let agent = open();
        let at = agent.files().to_owned();
        fs::write(at.join("file"), "").unwrap();
        drop(agent);
        let agent = open();
        assert_eq!(agent.files(), at);
        assert!(agent.is_there());
        fs::remove_dir_all(&at).unwrap();
        assert!(!agent.is_there());
        drop(agent);
        assert_ne!(open().files(), at);
    }

    #[test]
    fn directories_that_were_moved_or_replaced_are_missed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("trace/4323"), dir.path().join("away"));
        let mut agent = Directory::open(path.clone(), dir.path()).unwrap();
        fs::write(agent.files().join("file"), "").unwrap();
        for what in [path.join(AGENT), path.clone(), dir.path().join("trace"), agent.files().to_owned()] {
            assert!(agent.is_there());
            let is_files = what == agent.files();
            let files = agent.files().to_owned();
            fs::rename(&what, &away).unwrap();
            assert!(!agent.is_there(), "{}", what.display());
            // What has taken the place does not count.
            match what.file_name() {
                Some(name) if name == AGENT => fs::write(&what, "/tmp").unwrap(),
                _ => fs::create_dir(&what).unwrap(),
            }
            assert!(!agent.is_there(), "{}", what.display());
            if is_files {
                fs::remove_dir(&what).unwrap();
            }
            drop(agent);
            agent = Directory::open_again(path.clone(), dir.path(), Some(files.clone())).unwrap();
            // The files of processes that run are still found.
            assert_eq!(agent.files() == files, !is_files, "{}", what.display());
            let _ = fs::remove_file(&away).or_else(|_| fs::remove_dir_all(&away));
        }
    }

    #[test]
    fn only_a_write_lock_of_the_agents_user_is_an_agent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("4323");
        drop(Directory::open(path.clone(), dir.path()).unwrap());
        // Any user can take these two read locks on a file that is readable.
        fs::create_dir(&path).unwrap();
        fs::write(path.join(AGENT), "/tmp").unwrap();
        let reader = File::open(path.join(AGENT)).unwrap();
        reader.lock().unwrap();
        let read = nix::libc::flock { l_type: nix::libc::F_RDLCK as i16, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
        nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_OFD_SETLK(&read)).unwrap();
        assert!(!has_agent(&path) && files(&path).is_none());
        let agent = Directory::open(path.clone(), dir.path()).unwrap();
        assert!(has_agent(&path) && agent.files() != Path::new("/tmp"));
    }

    #[test]
    fn what_another_user_could_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &str, base: &Path| Directory::open(dir.path().join(path), base).unwrap_err().kind();
        let public = dir.path().join("public");
        fs::create_dir(&public).unwrap();
        fs::set_permissions(&public, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(open("public/4323", dir.path()), ErrorKind::PermissionDenied);
        assert_eq!(open("trace/4323", &public), ErrorKind::PermissionDenied);
        assert_eq!(fs::read_dir(&public).unwrap().count(), 0);
        // Links are not followed, and their targets are not changed.
        let target = dir.path().join("target");
        fs::create_dir_all(target.join("4323")).unwrap();
        fs::set_permissions(target.join("4323"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&target, dir.path().join("link")).unwrap();
        assert_eq!(open("link/4323", dir.path()), ErrorKind::NotADirectory);
        symlink(target.join("4323"), dir.path().join("trace/5")).unwrap();
        assert_eq!(open("trace/5", dir.path()), ErrorKind::NotADirectory);
        assert_eq!(fs::metadata(target.join("4323")).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn a_file_that_names_a_directory_of_something_else_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("trace/4323"), dir.path().join("elsewhere"));
        fs::create_dir_all(&path).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
        for (name, base) in [("elsewhere", dir.path()), ("pcp-trace-4323.link", dir.path()), ("", Path::new("/"))] {
            let named = base.join(name);
            if name.ends_with("link") {
                symlink(&elsewhere, &named).unwrap();
            }
            fs::write(path.join(AGENT), named.as_os_str().as_bytes()).unwrap();
            let agent = Directory::open(path.clone(), dir.path()).unwrap();
            assert_ne!(agent.files(), named);
            drop(agent);
            fs::create_dir(&path).unwrap();
        }
        assert_eq!(fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o7777, 0o700);
    }

    #[test]
    fn any_number_that_look_see_no_agent_where_there_is_none() {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join(AGENT), "/tmp").unwrap();
        let seen = std::thread::scope(|scope| {
            [0; 4]
                .map(|_| scope.spawn(|| (0..5_000).filter(|_| has_agent(run.path())).count()))
                .map(|thread| thread.join().unwrap())
        });
        assert_eq!(seen, [0; 4]);
    }
}
