//! The C implementations of agents, as binaries of the PCP installation or compiled from its sources.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::output::run;
use crate::{Agent, Pcp, one_word};

/// A C agent in a separate directory under `target`, with help text compiled by PCP's newhelp.
///
/// It is compiled once and kept. It changes to the user `pcp` when it starts, so that only root can run it. PCP's C
/// agents look for `$PCP_PMDAS_DIR/NAME/help` and their configuration beside it. Therefore the test must set that
/// variable to [`CAgent::pmdas_dir`] ([`crate::Builder::pmdas_dir`]).
#[derive(Debug, Clone)]
pub struct CAgent {
    name: String,
    domain: u16,
    dir: PathBuf,
}

impl Pcp {
    /// Builds the C implementation of the agent `name`. The binary of `sample` is PCP's; `simple` and `trivial` are
    /// compiled from the installed sources.
    ///
    /// # Panics
    /// When PCP has no such agent, or it cannot be compiled.
    #[track_caller]
    pub fn c_agent(&self, name: &str) -> CAgent {
        CAgent::build(self, name)
    }
}

impl CAgent {
    #[track_caller]
    fn build(pcp: &Pcp, name: &str) -> Self {
        let pmdas = target_dir().join(format!("pcp-{}-so", pcp.config("PCP_VERSION"))).join("pmdas");
        // Its paths are words of pmcd's configuration and of dbpmda's commands.
        let dir = one_word(pmdas.join(name));
        if !dir.exists() {
            fs::create_dir_all(&pmdas).expect("a directory under target");
            let work = tempfile::Builder::new().prefix(".build").tempdir_in(&pmdas).expect("a directory under target");
            let new = work.path().join(name);
            make(pcp, name, &new);
            // Another test may have been faster, with an equal result.
            if let Err(error) = fs::rename(&new, &dir) {
                assert!(dir.exists(), "{}: {error}", dir.display());
            }
        }
        let domain = domain(&dir.join("domain.h"));
        Self { name: name.to_owned(), domain, dir }
    }

    /// Returns the directory with all files of the agent.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the parent of [`CAgent::dir`], for `PCP_PMDAS_DIR`.
    ///
    /// # Panics
    /// Never: the directory always has a parent.
    pub fn pmdas_dir(&self) -> &Path {
        self.dir.parent().expect("a directory below another")
    }

    /// Returns the agent's default domain, from its `domain.h`.
    pub fn domain(&self) -> u16 {
        self.domain
    }

    /// Returns the path of the binary.
    pub fn binary(&self) -> PathBuf {
        self.dir.join(format!("pmda{}", self.name))
    }

    /// Returns the path of the shared object.
    pub fn shared_object(&self) -> PathBuf {
        self.dir.join(format!("pmda_{}.so", self.name))
    }

    /// Returns the path of the compiled help without its `.dir` or `.pag`, for an agent's `-h`.
    pub fn help(&self) -> PathBuf {
        self.dir.join("help")
    }

    /// Returns the path of the file with the names of the metrics.
    pub fn pmns(&self) -> PathBuf {
        self.dir.join("pmns")
    }

    /// Returns the path of a root name space with only this agent, for dbpmda's `-n`.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Returns the agent for a private pmcd.
    ///
    /// # Panics
    /// When its `pmns` file cannot be read.
    #[track_caller]
    pub fn agent(&self) -> Agent {
        Agent::new(&self.name, self.domain, self.binary()).pmns(&self.pmns())
    }

    /// Copies the directory below `pmdas`, for a test that changes its files.
    ///
    /// # Panics
    /// When a file cannot be copied.
    #[track_caller]
    pub fn copy_to(&self, pmdas: &Path) -> Self {
        let dir = pmdas.join(&self.name);
        copy_files(&self.dir, &dir);
        Self { dir, ..self.clone() }
    }
}

fn make(pcp: &Pcp, name: &str, dir: &Path) {
    // Another agent may be installed under this name in `PCP_PMDAS_DIR`. The package's own files are in the other
    // directory.
    copy_files(&pcp.path("PCP_PMDASADM_DIR").join(name), dir);
    let conf = pcp.path("PCP_SYSCONF_DIR").join(name);
    if conf.exists() {
        copy_files(&conf, dir);
    }
    let domain = domain(&dir.join("domain.h"));

    let binary = format!("pmda{name}");
    if !dir.join(&binary).exists() {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-o", &binary, &format!("{name}.c"), "-lpcp_pmda", "-lpcp"]).current_dir(dir);
        run(gcc, "").ok();
    }

    let shared = format!("pmda_{name}.so");
    let from = pcp.path("PCP_PMDASADM_DIR").join(name).join(&shared);
    if from.exists() {
        fs::copy(from, dir.join(&shared)).expect("a copy of the shared object");
    } else if dir.join(format!("{name}.c")).exists() {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-fPIC", "-shared", "-o", &shared, &format!("{name}.c"), "-lpcp_pmda", "-lpcp"]);
        gcc.current_dir(dir);
        run(gcc, "").ok();
    }

    // newhelp does not know symbols: the entry of an instance domain needs the number, as PCP's pmdaproc.sh writes it.
    let help = fs::read_to_string(dir.join("help")).expect("the agent's help text");
    let symbol = format!("@ {}.", name.to_uppercase());
    let mut newhelp = pcp.command("newhelp");
    newhelp.args(["-n", "root", "-v", "2", "-o", "help"]).current_dir(dir);
    run(newhelp, &help.replace(&symbol, &format!("@ {domain}."))).ok();
}

/// Copies the sources of an agent's directory. Symbolic links are followed, and compiled files are not copied.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a new directory");
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.expect("an entry of the directory");
        let compiled = Path::new(&entry.file_name()).extension().is_some_and(|ext| ext == "o" || ext == "so");
        if entry.path().is_file() && !compiled {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy of the file");
        }
    }
}

fn domain(header: &Path) -> u16 {
    let text = fs::read_to_string(header).unwrap_or_else(|error| panic!("{}: {error}", header.display()));
    let words = text.lines().find(|line| line.starts_with("#define")).map(str::split_whitespace);
    words
        .and_then(|mut words| words.nth(2))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("{}: no domain", header.display()))
}

/// Returns the shared object that Cargo has built from the library of the package under test, `built("pmda_simple")`,
/// or from an example, `built("examples/zoo")`.
///
/// # Panics
/// When the test binary is not in `target/PROFILE/deps`.
pub fn built(library: &str) -> PathBuf {
    let exe = env::current_exe().expect("the path of this test");
    let profile = exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    let (dir, name) = library.split_once('/').unwrap_or(("deps", library));
    one_word(profile.join(dir).join(format!("lib{name}.so")))
}

/// Returns Cargo's target directory. The test binary is in its `PROFILE/deps`.
fn target_dir() -> PathBuf {
    let exe = env::current_exe().expect("the path of this test");
    exe.ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists() || dir.file_name() == Some(OsStr::new("target")))
        .map_or_else(|| env::temp_dir().join("pcp-testkit"), Path::to_path_buf)
}
