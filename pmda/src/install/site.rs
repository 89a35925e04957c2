//! The PCP of this host as Install and Remove change it: paths, files and programs.
//!
//! If Install or Remove ends at any system call, each file and directory is in the old or in the new state: a change is
//! prepared beside what it replaces, written to the disk, and put into its place by renaming. Nothing is written to a
//! directory where another user may write. The next Install or Remove completes an interrupted change. It finds these
//! directories:
//!
//! | name | content |
//! |---|---|
//! | `NAME` | the agent's directory; its `.before` has the state before Install |
//! | `NAME.kept` | the directory that Install has replaced |
//! | `.NAME.tmp` | files of the running Install or Remove |
//! | `.NAME.draft` | a new directory, incomplete |
//! | `.NAME.new` | a complete one, to be exchanged with `NAME` |
//! | `.NAME.copy` | a copy for `NAME.kept`, incomplete |
//! | `.NAME.old` | to be removed after pmcd has been notified |

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::statvfs::{FsFlags, statvfs};
use pcp_base::file;
use pmapi::Config;

use super::outcome::{Outcome, Stop};
use super::pmcd_conf::PmcdConf;
use super::signals;
use super::task::Task;

/// Folders of the agent's directory whose files are copied into directories of PCP: configuration, and templates of
/// pmlogconf(1) and pmieconf(1).
pub(crate) const FOLDERS: [&str; 3] = ["etc", "pmlogconf", "pmieconf"];

/// Directories of programs for commands that are not PCP's.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Lock file of all Installs and Removes.
const LOCK: &str = "/run/pmda.lock";

/// Time for which a lock is waited for. lockpmns of PCP also goes on after two minutes.
pub(crate) const PATIENCE: u32 = 120;

/// Place of an agent in the PCP of this host.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) task: Task,
    pub(crate) config: Config,
    /// Name of the agent.
    pub(crate) name: String,
    /// Directory of the agents' directories.
    pub(crate) pmdas: PathBuf,
    /// Directory of the agent.
    pub(crate) place: PathBuf,
    /// pmcd's configuration.
    pub(crate) conf: PathBuf,
    pub(crate) pmns_dir: PathBuf,
    pub(crate) namespace: PathBuf,
    /// The name space is not PCP's own (option -n).
    pub(crate) other_names: bool,
    /// The agent's part of stdpmid, the list of domains.
    pub(crate) domains: PathBuf,
}

/// Checks that this host has PCP.
pub(crate) fn find_pcp() -> Outcome<Config> {
    let top = std::env::var_os("PCP_DIR").map(PathBuf::from).filter(|dir| !dir.as_os_str().is_empty());
    let file = top.unwrap_or_else(|| "/".into()).join("etc/pcp.env");
    if !file.is_file() {
        return Err(Stop::new("PCP is not installed (there is no file $PCP_DIR/etc/pcp.env)."));
    }
    let config = Config::try_load().map_err(|e| Stop::new(format!("{e}; nothing is changed.")))?;
    // The shared objects of local contexts, which PCP 7.2 lists apart, are those of PCP. The variables that select them must
    // not make this program change them.
    let conf_is_local = config.pmcdconf_path() == config.sysconf_dir().join("local.conf");
    let names_are_local = names(&config) == config.var_dir().join("pmns/local.root");
    match (conf_is_local, names_are_local) {
        (true, _) => Err(local("PCP_PMCDCONF_PATH")),
        (_, true) => Err(local("PMNS_DEFAULT")),
        _ => Ok(config),
    }
}

fn local(variable: &str) -> Stop {
    let what = "selects the agents of local contexts, and not those of pmcd: unset it; nothing is changed.";
    Stop::new(format!("{variable} {what}"))
}

/// Returns the path of the name space.
fn names(config: &Config) -> PathBuf {
    let set = config.var("PMNS_DEFAULT").filter(|path| !path.is_empty());
    set.map_or_else(|| config.var_dir().join("pmns/root"), PathBuf::from)
}

/// Returns the directory of the agents' directories. A package has one of its own; the agents themselves see PCP's.
pub(crate) fn pmdas(config: &Config) -> PathBuf {
    let set = std::env::var_os("PMDA_PMDAS_DIR").filter(|dir| !dir.is_empty());
    set.map_or_else(|| config.pmdas_dir(), PathBuf::from)
}

/// Allows one Install or Remove at a time, as long as the result lives. Only root may open the lock file.
pub(crate) fn one_at_a_time() -> Outcome<Option<Flock<File>>> {
    let open = File::options().append(true).create(true).mode(0o600).open(LOCK);
    let Ok(mut file) = open else { return Ok(None) };
    for _ in 0..PATIENCE * 10 {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(Some(lock)),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err(_) => return Ok(None),
        }
        sleep(Duration::from_millis(100));
    }
    Err(Stop { code: 75, ..Stop::new("another Install or Remove is running.") })
}

impl Site {
    pub(crate) fn new(task: Task, config: Config, name: &str) -> Site {
        let pmdas = pmdas(&config);
        let pmns_dir = config.var_dir().join("pmns");
        Site {
            task,
            place: pmdas.join(name),
            conf: config.pmcdconf_path(),
            namespace: names(&config),
            domains: pmns_dir.join(format!("stdpmid.pmda_{name}")),
            other_names: false,
            name: name.to_owned(),
            pmns_dir,
            pmdas,
            config,
        }
    }

    /// Selects another name space than PCP's.
    pub(crate) fn set_namespace(&mut self, path: &Path) {
        self.namespace = path.to_owned();
        self.pmns_dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
        self.other_names = true;
    }

    /// Returns the directory `.NAME.SUFFIX`.
    pub(crate) fn aside(&self, suffix: &str) -> PathBuf {
        self.pmdas.join(format!(".{}.{suffix}", self.name))
    }

    pub(crate) fn tmp(&self, name: &str) -> PathBuf {
        self.aside("tmp").join(name)
    }

    /// Returns the directory `NAME.kept`.
    pub(crate) fn kept(&self) -> PathBuf {
        self.pmdas.join(format!("{}.kept", self.name))
    }

    pub(crate) fn before(&self, name: &str) -> PathBuf {
        self.place.join(".before").join(name)
    }

    pub(crate) fn is_installed(&self) -> bool {
        self.place.join(".before").is_dir()
    }

    /// The agent's own file of names in the directory of the name space.
    pub(crate) fn own_names(&self) -> PathBuf {
        self.pmns_dir.join(&self.name)
    }

    /// The draft of the name space.
    pub(crate) fn draft_names(&self) -> PathBuf {
        self.pmns_dir.join(format!(".{}.root", self.name))
    }

    pub(crate) fn names_lock(&self) -> PathBuf {
        with_suffix(&self.namespace, ".lock")
    }

    /// Returns the directory of PCP that has the files of a folder of the agent.
    pub(crate) fn target(&self, folder: &str) -> PathBuf {
        match folder {
            "etc" => self.config.sysconf_dir().join(format!("pmda{}", self.name)),
            _ => self.config.var_dir().join("config").join(folder).join(&self.name),
        }
    }

    /// Returns the names of files that the directory of PCP had before Install; `None` if there was no directory.
    pub(crate) fn had(&self, folder: &str) -> Option<String> {
        fs::read_to_string(self.before(had(folder))).ok()
    }

    pub(crate) fn pmcd_conf(&self) -> Outcome<PmcdConf> {
        PmcdConf::read(&self.conf).map_err(|e| Stop::new(format!("{}: {e}", self.conf.display())))
    }

    pub(crate) fn say(&self, text: impl AsRef<[u8]>) {
        super::text::say(self.task, text);
    }

    /// Checks that programs may run where the agent's directory is, because pmcd starts the agent there.
    ///
    /// # Errors
    /// The file system is mounted without permission to execute.
    pub(crate) fn check_executable(&self) -> Outcome<()> {
        match statvfs(&self.pmdas) {
            Ok(of) if of.flags().contains(FsFlags::ST_NOEXEC) => Err(Stop::new(format!(
                "{} is on a file system that is mounted noexec: pmcd cannot run an agent there; nothing is changed.",
                self.pmdas.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns a command of PCP, in its directory of programs for users.
    pub(crate) fn user_command(&self, name: &str) -> Command {
        let dir = self.config.var("PCP_BIN_DIR").filter(|dir| !dir.is_empty()).unwrap_or(OsStr::new("/usr/bin"));
        self.command(Path::new(dir).join(name))
    }

    /// Returns a command of PCP, in its directory of programs for administrators.
    pub(crate) fn admin_command(&self, name: &str) -> Command {
        self.command(self.config.binadm_dir().join(name))
    }

    /// Returns a command with the variables of PCP and the terminal, a path of the system's programs, and no input.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", self.path()).stdin(Stdio::null());
        if signals::must_go_on() {
            // The terminal sends its signals to the whole process group of this program.
            command.process_group(0);
        }
        let is_kept = |name: &OsStr| {
            let name = name.to_string_lossy();
            name.starts_with("PCP_") && name != "PCP_ENV_DONE"
                || ["TERM", "LANG", "LC_ALL", "PMNS_DEFAULT"].contains(&&*name)
        };
        command.envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
        command
    }

    fn path(&self) -> OsString {
        let mut path = OsString::from(PATH);
        path.push(":");
        path.push(self.config.binadm_dir());
        path
    }
}

/// Returns the list in `.before` of the files that PCP's directory for a folder had.
pub(crate) fn had(folder: &str) -> &'static str {
    match folder {
        "etc" => "had",
        "pmlogconf" => "had.pmlogconf",
        _ => "had.pmieconf",
    }
}

/// Returns a path with more characters at its end.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Returns whether there is a file, directory or link of this name.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Writes a file or directory to the disk.
pub(crate) fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Writes everything in a directory to the disk.
pub(crate) fn flush_below(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            flush_below(&entry.path())?;
        } else if kind.is_file() {
            flush(&entry.path())?;
        }
    }
    flush(dir)
}

/// Replaces the content of a file. The file keeps its mode and owner.
pub(crate) fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let (dir, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    let mut fresh = OsString::from(".");
    fresh.push(name);
    fresh.push(".new");
    let fresh = dir.join(fresh);
    let written = write_fresh(&fresh, path, content).and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written?;
    flush(dir)
}

fn write_fresh(fresh: &Path, like: &Path, content: &[u8]) -> io::Result<()> {
    if exists(fresh) {
        fs::remove_file(fresh)?;
    }
    let mut file = new_file(fresh, 0o600)?;
    file.write_all(content)?;
    let old = like.metadata().ok().filter(fs::Metadata::is_file);
    if let Some(old) = &old {
        std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(old.map_or(0o644, |old| old.mode() & 0o7777)))?;
    file.sync_all()
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(mode).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

/// Removes a file, directory or link with all that it has, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whom a copy belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// The owner of the original, with its mode and times.
    Same,
    Root,
}

/// Copies a file, directory or link to a path that does not exist.
pub(crate) fn copy(from: &Path, to: &Path, owner: Owner) -> io::Result<()> {
    let found = from.symlink_metadata()?;
    if found.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if found.is_dir() {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name), owner)?;
        }
    } else {
        let mut original = file::open(from)?;
        io::copy(&mut original, &mut new_file(to, 0o600)?)?;
    }
    let same = owner == Owner::Same;
    if same && found.is_symlink() {
        return std::os::unix::fs::lchown(to, Some(found.uid()), Some(found.gid()));
    }
    if !found.is_symlink() {
        let (owner, mode) = if same { ((found.uid(), found.gid()), 0o7777) } else { ((0, 0), 0o755) };
        chown(to, Some(owner.0), Some(owner.1))?;
        fs::set_permissions(to, Permissions::from_mode(found.mode() & mode))?;
        if same {
            let times = fs::FileTimes::new().set_modified(found.modified()?).set_accessed(found.accessed()?);
            File::open(to)?.set_times(times)?;
        }
    }
    Ok(())
}

/// Returns whether two files have the same content.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    let read = |path: &Path| file::read(path, file::TEXT_LIMIT).ok();
    read(one).is_some_and(|content| Some(content) == read(other))
}

/// Returns whether two directories have the same files with the same content.
pub(crate) fn same_below(one: &Path, other: &Path) -> bool {
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        Some(names)
    };
    let (Some(found), Some(others)) = (names(one), names(other)) else { return false };
    found == others
        && found.iter().map(|name| (one.join(name), other.join(name))).all(|(one, other)| {
            match one.symlink_metadata().map(|found| found.file_type()) {
                Ok(kind) if kind.is_dir() => same_below(&one, &other),
                Ok(kind) if kind.is_symlink() => fs::read_link(&one).ok() == fs::read_link(&other).ok(),
                _ => same(&one, &other),
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("conf"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, dir.path().join(".conf.new")).unwrap();
        put(&path, b"one").unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o644);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        put(&path, b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"two".to_vec(), b"other".to_vec()));
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o640);
        assert!(put(&dir.path().join("none/x"), b"").is_err());
    }

    /// A person who presses Ctrl-C does not interrupt the commands of a change that has begun.
    #[test]
    fn commands_of_a_change_have_a_process_group_of_their_own() {
        let site = Site::new(Task::Install, Config::load(), "none");
        let leads_group = || {
            let stat = site.command("cat").arg("/proc/self/stat").output().unwrap().stdout;
            let words: Vec<_> = stat.split(|byte| *byte == b' ').collect();
            words[0] == words[4]
        };
        for (stage, expected) in [
            (signals::Stage::Ends(String::new()), false),
            (signals::Stage::Undoes, true),
            (signals::Stage::Ignored, true),
        ] {
            signals::set(stage);
            assert_eq!(leads_group(), expected);
        }
    }

    #[test]
    fn a_copy_has_links_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::create_dir_all(one.join("sub")).unwrap();
        fs::write(one.join("sub/file"), "content").unwrap();
        symlink("../nowhere", one.join("link")).unwrap();
        copy(&one, &two, Owner::Same).unwrap();
        assert!(same_below(&one, &two));
        fs::write(two.join("sub/file"), "changed").unwrap();
        assert!(!same_below(&one, &two) && !same_below(&one, &dir.path().join("none")));
        assert!(copy(&one, &two, Owner::Same).is_err());
        remove(&two).unwrap();
        remove(&two).unwrap();
        assert!(!exists(&two));
    }
}
