//! The installed PCP and its tools.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::one_word;
use crate::output::{Output, run};

/// The reason why there is no PCP to test with.
#[derive(Debug, Clone)]
pub struct Missing(String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PCP is not installed: {}", self.0)
    }
}

impl std::error::Error for Missing {}

/// Version of PCP: major, minor and revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

/// The installed PCP.
#[derive(Debug, Clone)]
pub struct Pcp {
    config: HashMap<String, String>,
}

impl Pcp {
    /// Finds PCP by its `pcp.conf` (`$PCP_CONF`, or `$PCP_DIR/etc/pcp.conf`) and its pmcd.
    ///
    /// # Errors
    /// [`Missing`] when `pcp.conf` cannot be read, or pmcd does not exist.
    ///
    /// # Panics
    /// When `pcp.conf` lacks `PCP_BINADM_DIR`.
    pub fn locate() -> Result<Self, Missing> {
        let path = match env::var_os("PCP_CONF") {
            Some(path) => PathBuf::from(path),
            None => Path::new(&env::var_os("PCP_DIR").unwrap_or_else(|| "/".into())).join("etc/pcp.conf"),
        };
        let text = fs::read_to_string(&path).map_err(|error| Missing(format!("{}: {error}", path.display())))?;
        let config = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| name.starts_with("PCP_"))
            .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
            .collect();
        let pcp = Self { config };
        let pmcd = pcp.pmcd_binary();
        if pmcd.exists() { Ok(pcp) } else { Err(Missing(format!("there is no {}", pmcd.display()))) }
    }

    /// Finds PCP, for tests marked `#[ignore = "needs PCP"]`.
    ///
    /// # Panics
    /// When PCP is not installed, with the missing file.
    #[track_caller]
    pub fn required() -> Self {
        Self::locate().unwrap_or_else(|missing| panic!("{missing}"))
    }

    /// Returns a variable of `pcp.conf`, such as `PCP_VERSION`.
    ///
    /// # Panics
    /// When `pcp.conf` does not have the variable.
    #[track_caller]
    pub fn config(&self, name: &str) -> &str {
        self.config.get(name).unwrap_or_else(|| panic!("pcp.conf has no {name}"))
    }

    /// Returns the version of PCP in `pcp.conf`. `docs/versions.md` lists differences between versions, and the tests
    /// that depend on them.
    ///
    /// # Panics
    /// When `pcp.conf` has no version of three numbers.
    #[track_caller]
    pub fn version(&self) -> Version {
        let text = self.config("PCP_VERSION");
        let numbers: Vec<u32> = text.split('.').filter_map(|number| number.parse().ok()).collect();
        let [major, minor, revision] = numbers[..] else { panic!("PCP_VERSION is {text}") };
        Version(major, minor, revision)
    }

    /// Returns whether PCP's Python modules are of this version. `qa/newer` replaces libpcp, and not these.
    ///
    /// # Panics
    /// When `/usr/bin/python3` cannot be started.
    #[track_caller]
    pub fn has_python(&self) -> bool {
        self.works("PCP's Python module pmapi", Command::new("/usr/bin/python3").args(["-c", "import pcp.pmapi"]))
    }

    /// Returns whether `PCP::PMDA`, PCP's Perl module, works with this libpcp.
    ///
    /// # Panics
    /// When `/usr/bin/perl` cannot be started, or the module is missing.
    #[track_caller]
    pub fn has_perl(&self) -> bool {
        self.works("PCP::PMDA", Command::new("/usr/bin/perl").args(["-MPCP::PMDA", "-e", "1"]))
    }

    /// Returns whether PCP's agents that `qa/newer` does not compile, such as linux, work with this libpcp.
    ///
    /// # Panics
    /// When agent linux is missing.
    #[track_caller]
    pub fn has_all_agents(&self) -> bool {
        let object = self.path("PCP_PMDASADM_DIR").join("linux/pmda_linux.so");
        assert!(object.exists(), "{} is missing", object.display());
        // The library of another version may be installed beside this one.
        let library = if self.version() >= Version(7, 0, 0) { "libpcp.so.4" } else { "libpcp.so.3" };
        self.works("agent linux", Command::new("sh").args(["-c", r#"ldd "$1" | grep -qF "$0""#, library]).arg(object))
    }

    /// Returns whether a command succeeds, which it must for versions before 7.
    #[track_caller]
    fn works(&self, what: &str, command: &mut Command) -> bool {
        let program = command.get_program().to_owned();
        let output = command.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
        assert!(output.status.success() || self.version() >= Version(7, 0, 0), "{what} does not work");
        output.status.success()
    }

    /// Returns a directory or file that `pcp.conf` names, such as `PCP_PMDAS_DIR`.
    ///
    /// # Panics
    /// When `pcp.conf` does not have the variable.
    #[track_caller]
    pub fn path(&self, name: &str) -> &Path {
        Path::new(self.config(name))
    }

    /// Returns the directory of PCP's own tests: that of the package pcp-testsuite, or the one that `./check` unpacks.
    ///
    /// # Panics
    /// When there is neither.
    #[track_caller]
    pub fn testsuite(&self) -> PathBuf {
        let installed = self.path("PCP_VAR_DIR").join("testsuite");
        let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|dir| dir.join("target/pcp-testsuite"));
        let found = std::iter::once(installed).chain(unpacked).find(|dir| dir.join("225").exists());
        found.unwrap_or_else(|| panic!("there is no package pcp-testsuite, and ./check has not unpacked it"))
    }

    /// Returns the path of pmcd.
    pub(crate) fn pmcd_binary(&self) -> PathBuf {
        self.path("PCP_BINADM_DIR").join("pmcd")
    }

    /// Creates a command for a PCP tool, with messages in English and times in UTC.
    pub fn command(&self, tool: &str) -> Command {
        let found = ["PCP_BIN_DIR", "PCP_BINADM_DIR"].iter().map(|dir| self.path(dir).join(tool)).find(|p| p.exists());
        let mut command = Command::new(found.unwrap_or_else(|| PathBuf::from(tool)));
        command.envs([("LC_ALL", "C"), ("TZ", "UTC")]);
        // A derived-metric configuration on this machine would add metrics.
        command.env("PCP_DERIVED_CONFIG", "");
        command
    }

    /// Creates a command that runs a program under valgrind. Its exit code is 9 if the program leaks memory or accesses
    /// invalid memory.
    pub fn valgrind(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("valgrind");
        command.args(["--error-exitcode=9", "--num-callers=30", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite,indirect", "--errors-for-leak-kinds=definite,indirect"]).arg(program);
        command
    }

    /// Runs a PCP tool that needs no pmcd.
    ///
    /// # Panics
    /// When coreutils' `timeout` cannot be started.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, tool: &str, arguments: impl IntoIterator<Item = S>) -> Output {
        let mut command = self.command(tool);
        command.args(arguments);
        run(command, "")
    }

    /// Runs a command of the caller, such as one of [`Pcp::command`] with more environment.
    ///
    /// # Panics
    /// When coreutils' `timeout` cannot be started.
    #[track_caller]
    pub fn run_command(&self, command: Command, input: &str) -> Output {
        run(command, input)
    }

    /// Runs a session of PCP's dbpmda: `open pipe` with the agent's command line, then the lines of `script`, each
    /// echoed.
    ///
    /// `pmns` is a root name space such as [`CAgent::root`](crate::CAgent::root), and `pmdas_dir` is where C agents
    /// look for their help text.
    ///
    /// # Panics
    /// When coreutils' `timeout` cannot be started.
    #[track_caller]
    pub fn dbpmda(&self, pmns: &Path, pmdas_dir: &Path, agent: &[&OsStr], script: &str) -> Output {
        let agent: Vec<_> = agent.iter().map(|word| one_word(word).display().to_string()).collect();
        self.dbpmda_open(pmns, pmdas_dir, &format!("pipe {}", agent.join(" ")), script)
    }

    /// Creates a directory for `$PCP_VAR_DIR`, in which shared objects save instance caches, with the installed name
    /// space.
    ///
    /// # Panics
    /// When the directory cannot be created.
    #[track_caller]
    pub fn var_dir(&self) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(dir.path().join("config/pmda")).expect("a directory for instance caches");
        let pmns = self.path("PCP_VAR_DIR").join("pmns");
        std::os::unix::fs::symlink(pmns, dir.path().join("pmns")).expect("a link to the name space");
        dir
    }

    /// Runs dbpmda with an `open` command, such as `dso pmda_simple.so simple_init 253`. The agent saves its instance
    /// caches in a temporary directory.
    ///
    /// # Panics
    /// When coreutils' `timeout` cannot be started.
    #[track_caller]
    pub fn dbpmda_open(&self, root: &Path, pmdas_dir: &Path, open: &str, script: &str) -> Output {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let var = self.var_dir();
        let mut command = self.command("dbpmda");
        command.env("PCP_VAR_DIR", var.path());
        command.args(["-f", "-e", "-n"]).arg(root).current_dir(dir.path()).env("PCP_PMDAS_DIR", pmdas_dir);
        run(command, &format!("open {open}\n{script}\nquit\n"))
    }
}

/// Returns the directories of the installed agents that have a certain file, sorted.
///
/// # Panics
/// When PCP is not installed, or no agent has such a file.
#[track_caller]
pub fn agents_with(file: &str) -> Vec<PathBuf> {
    let pmdas = Pcp::required().path("PCP_PMDAS_DIR").to_owned();
    let dirs = fs::read_dir(pmdas).expect("the agents' directory").map(|entry| entry.expect("an agent").path());
    let mut dirs: Vec<_> = dirs.filter(|dir| dir.join(file).is_file()).collect();
    dirs.sort();
    assert!(!dirs.is_empty(), "no agent has a file {file}");
    dirs
}
