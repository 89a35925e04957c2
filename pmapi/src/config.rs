//! Configuration of the installed PCP: `pcp.conf` and the `PCP_*` environment (pmGetConfig(3), pcp.conf(5)).

use std::ffi::{OsStr, OsString};
use std::io::BufRead as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, io};

use pcp_base::file;
use pcp_base::secure::is_secure;

/// Configuration variables of the installed PCP.
///
/// A variable of the environment takes precedence over `pcp.conf`. Without PCP on the machine the typed accessors
/// return the paths that PCP's packages use. So an agent can run under a collector without an installation, for
/// instance in a test.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    env: Arc<[(OsString, OsString)]>,
    file: Arc<File>,
}

/// Text of `pcp.conf`. Every agent loads it when it starts, so its variables are only looked up, not copied.
#[derive(PartialEq, Eq, Debug, Default)]
struct File {
    text: Vec<u8>,
    /// Places of the lines that may set a variable.
    lines: Vec<Range<usize>>,
}

impl File {
    fn new(text: Vec<u8>) -> File {
        let (mut lines, mut rest) = (Vec::new(), &*text);
        while !rest.is_empty() {
            let start = text.len() - rest.len();
            // Reading from memory does not fail.
            let len = rest.skip_until(b'\n').unwrap_or_default();
            if text.get(start) != Some(&b'#') {
                lines.push(start..start + len);
            }
        }
        File { text, lines }
    }

    /// Returns the value of a variable, from the first line that sets it.
    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.lines.iter().find_map(|line| {
            let value = self.text.get(line.clone())?.strip_prefix(name)?.strip_prefix(b"=")?;
            Some(unquote(value.strip_suffix(b"\n").unwrap_or(value)))
        })
    }
}

/// Failure to read `pcp.conf`.
#[derive(Debug, thiserror::Error)]
#[error("cannot read PCP's configuration {path:?}: {source}; PCP_CONF or PCP_DIR may need to be set")]
pub struct ConfigError {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason of the failure.
    pub source: io::Error,
}

/// Returns the environment. It is empty in a program with more rights than its caller, because the caller chose it.
fn environment() -> Vec<(OsString, OsString)> {
    if is_set_id() { Vec::new() } else { env::vars_os().collect() }
}

/// Returns whether the program was started with more rights than its caller: it is set-uid or set-gid, or has file
/// capabilities (`AT_SECURE` of getauxval(3)). The caller chose the environment, which must not be trusted then. This is
/// the condition under which `secure_getenv(3)` returns nothing.
///
/// A daemon that root has started, and that has changed its effective user since, is no such program. On Linux this
/// function makes no system call.
pub fn is_set_id() -> bool {
    is_secure()
}

impl Config {
    /// Loads the environment and `pcp.conf`. A file that cannot be read counts as empty (pmGetOptionalConfig(3)).
    ///
    /// A program with more rights than its caller ([`is_set_id`]) ignores the environment, by which the caller could
    /// redirect its files.
    pub fn load() -> Config {
        Self::try_load().unwrap_or_else(|_| Self::new(b"", environment()))
    }

    /// Loads the environment and `pcp.conf`, which must be readable (pmGetConfig(3)).
    ///
    /// # Errors
    /// [`ConfigError`] when `pcp.conf` cannot be read.
    pub fn try_load() -> Result<Config, ConfigError> {
        let path = Self::path();
        let text = file::read(&path, file::TEXT_LIMIT).map_err(|source| ConfigError { path, source })?;
        Ok(Self::of(text, environment()))
    }

    /// Creates a configuration from the text of a `pcp.conf` and the variables of an environment.
    pub fn new(text: &[u8], env: impl IntoIterator<Item = (OsString, OsString)>) -> Config {
        Self::of(text.to_vec(), env)
    }

    fn of(text: Vec<u8>, env: impl IntoIterator<Item = (OsString, OsString)>) -> Config {
        Config { env: env.into_iter().collect(), file: Arc::new(File::new(text)) }
    }

    /// Returns this configuration with other values for some variables, for instance for the directories of a test.
    #[must_use]
    pub fn with(&self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Config {
        Config { env: self.env.iter().cloned().chain(variables).collect(), file: self.file.clone() }
    }

    /// Returns the path of `pcp.conf`: `$PCP_CONF`, otherwise `$PCP_DIR/etc/pcp.conf`, otherwise `/etc/pcp.conf`, or
    /// `/usr/local/etc/pcp.conf` when only that one exists.
    pub fn path() -> PathBuf {
        let (etc, local) = (Path::new("/etc/pcp.conf"), Path::new("/usr/local/etc/pcp.conf"));
        let given = |name| if is_set_id() { None } else { env::var_os(name) };
        if let Some(conf) = given("PCP_CONF") {
            conf.into()
        } else if let Some(dir) = given("PCP_DIR") {
            Path::new(&dir).join("etc/pcp.conf")
        } else if !etc.exists() && local.exists() {
            local.into()
        } else {
            etc.into()
        }
    }

    /// Returns the value of a variable in the environment, or otherwise in the file.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        let of_env = self.env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_os_str());
        of_env.or_else(|| self.file.get(name.as_bytes()).map(OsStr::from_bytes))
    }

    fn dir(&self, name: &str, default: &str) -> PathBuf {
        self.set(name).map_or_else(|| default.into(), PathBuf::from)
    }

    fn set(&self, name: &str) -> Option<&OsStr> {
        self.var(name).filter(|v| !v.is_empty())
    }

    fn text(&self, name: &str, default: &str) -> String {
        self.set(name).map_or_else(|| default.to_owned(), |v| v.to_string_lossy().into_owned())
    }

    /// Directory of configuration files: `$PCP_SYSCONF_DIR`, by default `/etc/pcp`.
    pub fn sysconf_dir(&self) -> PathBuf {
        self.dir("PCP_SYSCONF_DIR", "/etc/pcp")
    }

    /// Directory of state, with `config/pmda` and `pmns`: `$PCP_VAR_DIR`, by default `/var/lib/pcp`.
    pub fn var_dir(&self) -> PathBuf {
        self.dir("PCP_VAR_DIR", "/var/lib/pcp")
    }

    /// Directory of programs that users do not run: `$PCP_BINADM_DIR`, by default `/usr/lib/pcp/bin`.
    pub fn binadm_dir(&self) -> PathBuf {
        self.dir("PCP_BINADM_DIR", "/usr/lib/pcp/bin")
    }

    /// Directory with a subdirectory for each agent: `$PCP_PMDAS_DIR`, by default `pmdas` in [`Config::var_dir`].
    pub fn pmdas_dir(&self) -> PathBuf {
        self.set("PCP_PMDAS_DIR").map_or_else(|| self.var_dir().join("pmdas"), PathBuf::from)
    }

    /// Directory of logs: `$PCP_LOG_DIR`, by default `/var/log/pcp`.
    pub fn log_dir(&self) -> PathBuf {
        self.dir("PCP_LOG_DIR", "/var/log/pcp")
    }

    /// Directory of process identifiers and sockets: `$PCP_RUN_DIR`, by default `/run/pcp`.
    pub fn run_dir(&self) -> PathBuf {
        self.dir("PCP_RUN_DIR", "/run/pcp")
    }

    /// Directory of status files, with `mmv`: `$PCP_TMP_DIR`, by default `tmp` in [`Config::var_dir`].
    pub fn tmp_dir(&self) -> PathBuf {
        self.set("PCP_TMP_DIR").map_or_else(|| self.var_dir().join("tmp"), PathBuf::from)
    }

    /// Path of pmcd's list of agents: `$PCP_PMCDCONF_PATH`, by default `pmcd/pmcd.conf` in [`Config::sysconf_dir`].
    pub fn pmcdconf_path(&self) -> PathBuf {
        self.set("PCP_PMCDCONF_PATH").map_or_else(|| self.sysconf_dir().join("pmcd/pmcd.conf"), PathBuf::from)
    }

    /// Account that daemons and agents run under: `$PCP_USER`, by default `pcp` (pmGetUsername(3)).
    pub fn user(&self) -> String {
        self.text("PCP_USER", "pcp")
    }

    /// Returns the identifier of [`Config::user`] in `/etc/passwd`. A number stands for itself, for instance in a
    /// container that has no such user. Never blocks, in contrast to getpwnam(3).
    pub fn uid(&self) -> Option<u32> {
        let user = self.user();
        let passwd = file::read_text("/etc/passwd").unwrap_or_default();
        passwd
            .lines()
            .find_map(|line| line.strip_prefix(&*user)?.strip_prefix(':')?.split(':').nth(1)?.parse().ok())
            .or_else(|| user.parse().ok())
    }

    /// Group that daemons and agents run under: `$PCP_GROUP`, by default `pcp`.
    pub fn group(&self) -> String {
        self.text("PCP_GROUP", "pcp")
    }
}

/// Removes a pair of equal quotes around a value.
fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str, env: &[(&str, &str)]) -> Config {
        Config::new(text.as_bytes(), env.iter().map(|(k, v)| (k.into(), v.into())))
    }

    #[test]
    fn environment_then_first_line_of_the_file() {
        let text = "# PCP_A=0\nPCP_A=1\nPCP_A=2\n\nno assignment\nPCP_B=\"gawk --posix\"\nPCP_C='\nPCP_D=a=b\nPCP_E=\n";
        let c = config(text, &[("PCP_D", "env"), ("PCP_F", "only")]);
        let var = |name| c.var(name).map(|v| v.to_str().unwrap());
        assert_eq!(var("PCP_A"), Some("1"));
        assert_eq!(var("PCP_B"), Some("gawk --posix"));
        assert_eq!(var("PCP_C"), Some("'"));
        assert_eq!(var("PCP_D"), Some("env"));
        assert_eq!(var("PCP_E"), Some(""));
        assert_eq!(var("PCP_F"), Some("only"));
        assert_eq!(var("# PCP_A"), None);
        assert_eq!(config(text, &[]).var("PCP_D").unwrap().as_bytes(), b"a=b");
        let c = c.with([("PCP_A".into(), "2".into()), ("PCP_D".into(), "other".into())]);
        assert_eq!((c.var("PCP_A"), c.var("PCP_D")), (Some("2".as_ref()), Some("other".as_ref())));
        assert_eq!((c.var("PCP_F"), c.var("PCP_E")), (Some("only".as_ref()), Some("".as_ref())));
    }

    #[test]
    fn users_have_an_identifier_or_are_one() {
        let uid = |user: &str| config("", &[("PCP_USER", user)]).uid();
        assert_eq!((uid("root"), uid("4000000000"), uid("roo"), uid("-1")), (Some(0), Some(4_000_000_000), None, None));
    }

    #[test]
    fn defaults_follow_what_is_set() {
        let c = config("", &[]);
        assert_eq!(c.pmdas_dir(), Path::new("/var/lib/pcp/pmdas"));
        assert_eq!(c.pmcdconf_path(), Path::new("/etc/pcp/pmcd/pmcd.conf"));
        assert_eq!((c.user(), c.group()), ("pcp".into(), "pcp".into()));
        let c = config("PCP_VAR_DIR=/srv/pcp\nPCP_USER=\n", &[("PCP_RUN_DIR", "/tmp/run")]);
        assert_eq!(c.pmdas_dir(), Path::new("/srv/pcp/pmdas"));
        assert_eq!(c.tmp_dir(), Path::new("/srv/pcp/tmp"));
        assert_eq!(c.run_dir(), Path::new("/tmp/run"));
        assert_eq!(c.user(), "pcp");
    }
}
