//! The PCP of this host as Install and Remove change it: paths, commands, and files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::{FsFlags, statvfs};
use pcp_base::file;
use pmapi::Config;

use super::pmcd_conf::{AgentLine, PmcdConf};
use super::report::{Outcome, Stop, do_signals_wait};

/// Directories of programs for commands that are not PCP's.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Lock file of all Installs and Removes.
const LOCK: &str = "/run/pmda.lock";

/// Time in seconds for which a lock is waited for. lockpmns of PCP also goes on after two minutes.
pub(crate) const PATIENCE: u32 = 120;

/// Place of an agent in the PCP of this host.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) config: Config,
    /// Name of the agent.
    pub(crate) name: String,
    /// Directory of the agents' directories.
    pub(crate) pmdas: PathBuf,
    /// Directory of the agent, `NAME`.
    pub(crate) place: PathBuf,
    /// The directory that Install has replaced, `NAME.kept`.
    pub(crate) kept: PathBuf,
    /// Files of a running or interrupted Install or Remove, `.NAME.tmp`.
    pub(crate) tmp: PathBuf,
    /// pmcd's configuration.
    pub(crate) conf: PathBuf,
    pub(crate) namespace: PathBuf,
    /// The name space is not PCP's own (option -n).
    pub(crate) is_other_namespace: bool,
    /// The agent's file of names in the directory of the name space.
    pub(crate) own_names: PathBuf,
    /// The agent's part of stdpmid, the list of domains.
    pub(crate) domains: PathBuf,
}

/// Returns the configuration of the PCP of this host.
///
/// # Errors
/// This host has no PCP, or variables select the shared objects of local contexts, which PCP 7.2 lists apart.
pub(crate) fn find_pcp() -> Outcome<Config> {
    let top = std::env::var_os("PCP_DIR").map(PathBuf::from).filter(|dir| !dir.as_os_str().is_empty());
    let file = top.unwrap_or_else(|| "/".into()).join("etc/pcp.env");
    if !file.is_file() {
        return Err(Stop::new("PCP is not installed (there is no file $PCP_DIR/etc/pcp.env)."));
    }
    let config = Config::try_load().map_err(|e| Stop::new(format!("{e}; nothing is changed.")))?;
    let local = |variable: &str| {
        let what = "selects the agents of local contexts, and not those of pmcd: unset it; nothing is changed.";
        Err(Stop::new(format!("{variable} {what}")))
    };
    if config.pmcdconf_path() == config.sysconf_dir().join("local.conf") {
        local("PCP_PMCDCONF_PATH")
    } else if names(&config) == config.var_dir().join("pmns/local.root") {
        local("PMNS_DEFAULT")
    } else {
        Ok(config)
    }
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
pub(crate) fn one_at_a_time() -> Outcome<Flock<File>> {
    let mut file = File::options().append(true).create(true).mode(0o600).open(LOCK).map_err(Stop::at(LOCK))?;
    for _ in 0..PATIENCE * 10 {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => file = back,
            Err((_, e)) => return Err(Stop::new(format!("{LOCK}: {e}."))),
        }
        sleep(Duration::from_millis(100));
    }
    Err(Stop::new("another Install or Remove is running."))
}

impl Site {
    pub(crate) fn new(config: Config, name: &str, namespace: Option<&Path>) -> Site {
        let pmdas = pmdas(&config);
        let is_other_namespace = namespace.is_some();
        let namespace = namespace.map_or_else(|| names(&config), Path::to_owned);
        Site {
            place: pmdas.join(name),
            kept: pmdas.join(format!("{name}.kept")),
            tmp: pmdas.join(format!(".{name}.tmp")),
            conf: config.pmcdconf_path(),
            own_names: namespace.with_file_name(name),
            domains: config.var_dir().join(format!("pmns/stdpmid.pmda_{name}")),
            name: name.to_owned(),
            namespace,
            is_other_namespace,
            pmdas,
            config,
        }
    }

    pub(crate) fn before(&self, name: &str) -> PathBuf {
        self.place.join(".before").join(name)
    }

    pub(crate) fn is_installed(&self) -> bool {
        self.place.join(".before").is_dir()
    }

    pub(crate) fn pmcd_conf(&self) -> Outcome<PmcdConf> {
        PmcdConf::read(&self.conf).map_err(Stop::at(self.conf.display()))
    }

    /// Returns the lines of the agents that Install has replaced.
    pub(crate) fn replaced(&self) -> Vec<String> {
        let text = file::read_text(self.before("replaced")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the installed agent's line of pmcd's configuration. An interrupted Install or Remove may have left the lines
    /// of the agents that this one replaces, perhaps with the same name: those are not the agent's.
    pub(crate) fn own_line(&self, conf: &PmcdConf) -> Option<AgentLine> {
        let replaced = self.replaced();
        let is_own = self.is_installed() && (replaced.is_empty() || !conf.has_all(&replaced));
        conf.agent(&self.name).filter(|_| is_own)
    }

    /// Returns the line that the last Install has written.
    pub(crate) fn written_line(&self) -> Option<AgentLine> {
        AgentLine::parse(file::read_text(self.before("line")).ok()?.trim())
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

    /// Returns a command with the variables of PCP and the terminal, a path of the system's and PCP's programs, and no
    /// input.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut path = OsString::from(PATH);
        let bin = self.config.var("PCP_BIN_DIR").filter(|dir| !dir.is_empty());
        for dir in std::iter::once(self.config.binadm_dir().as_os_str()).chain(bin) {
            path.push(":");
            path.push(dir);
        }
        let mut command = Command::new(program);
        command.env_clear().env("PATH", path).stdin(Stdio::null());
        if do_signals_wait() {
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
    /// The owner of the original, with its mode.
    Same,
    /// Root, and only root may write to it.
    Root,
}

/// Copies a file, directory or link to a path that does not exist.
pub(crate) fn copy(from: &Path, to: &Path, owner: Owner) -> io::Result<()> {
    let found = from.symlink_metadata()?;
    if found.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
    } else if found.is_dir() {
        fs::create_dir(to)?;
        file_names(from)?.iter().try_for_each(|name| copy(&from.join(name), &to.join(name), owner))?;
    } else {
        io::copy(&mut file::open(from)?, &mut file::create_new(to, 0o600)?)?;
    }
    let (uid, gid, mode) = if owner == Owner::Same { (found.uid(), found.gid(), 0o7777) } else { (0, 0, 0o755) };
    lchown(to, Some(uid), Some(gid))?;
    if found.is_symlink() { Ok(()) } else { fs::set_permissions(to, Permissions::from_mode(found.mode() & mode)) }
}

/// Returns whether two files have the same content.
pub(crate) fn same(one: &Path, other: &Path) -> bool {
    let read = |path: &Path| file::read(path, file::TEXT_LIMIT).ok();
    read(one).is_some_and(|content| Some(content) == read(other))
}

/// Returns the names in a directory, in order.
pub(crate) fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::report::{signals_end, signals_wait};
    use super::*;

    /// A person who presses Ctrl-C does not interrupt the commands of a change that has begun.
    #[test]
    fn commands_of_a_change_have_a_process_group_of_their_own() {
        let site = Site::new(Config::load(), "none", None);
        let leads_group = || {
            let stat = site.command("cat").arg("/proc/self/stat").output().unwrap().stdout;
            let words: Vec<_> = stat.split(|byte| *byte == b' ').collect();
            words[0] == words[4]
        };
        signals_end("", None);
        assert!(!leads_group());
        signals_wait();
        assert!(leads_group());
    }

    #[test]
    fn a_copy_has_links_and_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs::create_dir_all(one.join("sub")).unwrap();
        fs::write(one.join("sub/file"), "content").unwrap();
        symlink("../nowhere", one.join("link")).unwrap();
        copy(&one, &two, Owner::Same).unwrap();
        assert_eq!(fs::read_link(two.join("link")).unwrap(), Path::new("../nowhere"));
        assert!(same(&one.join("sub/file"), &two.join("sub/file")));
        fs::write(two.join("sub/file"), "changed").unwrap();
        assert!(!same(&one.join("sub/file"), &two.join("sub/file")) && !same(&one, &dir.path().join("none")));
        assert_eq!(file_names(&two).unwrap(), ["link", "sub"]);
        assert!(copy(&one, &two, Owner::Same).is_err());
        remove(&two).unwrap();
        remove(&two).unwrap();
        assert!(!exists(&two));
    }
}
