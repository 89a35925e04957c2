//! A directory of files under PCP's agent and this one, each in its own pmcd.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mmv::Registry;
use tempfile::TempDir;
use testkit::{Agent, Pcp, Pmcd, built};

const NAMES: &str = "root {\n    mmv MMV:*:*\n}\n";

/// A directory that replaces `$PCP_TMP_DIR`.
pub(crate) struct Scene {
    pub(crate) pcp: Pcp,
    dir: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mmv")).unwrap();
        Scene { pcp: Pcp::required(), dir }
    }

    /// Returns the directory of the files.
    pub(crate) fn files(&self) -> PathBuf {
        self.dir.path().join("mmv")
    }

    /// Creates a registry, whose file exists while it lives.
    pub(crate) fn registry(&self, name: &str) -> Registry {
        let registry = Registry::builder(name).directory(self.files()).build().unwrap();
        registry.try_start().unwrap();
        registry
    }

    /// Returns PCP's agent, run as root because the directory belongs to the test.
    pub(crate) fn c(&self) -> Agent {
        let binary = self.pcp.path("PCP_PMDASADM_DIR").join("mmv/pmdammv");
        Agent::new("mmv", 70, binary).names(NAMES).args(["-U", "root"])
    }

    /// Returns PCP's agent as a shared object in pmcd, as PCP installs it.
    pub(crate) fn c_object(&self) -> Agent {
        let object = self.pcp.path("PCP_PMDASADM_DIR").join("mmv/pmda_mmv.so");
        Agent::new("mmv", 70, object).names(NAMES).dso("mmv_init")
    }

    pub(crate) fn our_object(&self) -> Agent {
        Agent::new("mmv", 70, built("pmda_mmv")).names(NAMES).dso("mmv_init")
    }

    pub(crate) fn ours(&self) -> Agent {
        Agent::new("mmv", 70, env!("CARGO_BIN_EXE_pmdammv")).names(NAMES).args(["-U", "root"])
    }

    /// Starts a pmcd with an agent.
    pub(crate) fn under(&self, agent: Agent) -> Pmcd {
        self.pcp.pmcd().env("PCP_TMP_DIR", self.dir.path()).agent(agent).start()
    }

    /// Compiles a program that uses the C library.
    pub(crate) fn compile(&self, source: &Path) -> PathBuf {
        testkit::compile(source, &self.dir, &["-lpcp_mmv", "-lpcp"])
    }

    /// Starts a program that writes a file, and waits for the file.
    pub(crate) fn start(&self, mut program: Command, file: &str) -> Application {
        program.env("PCP_TMP_DIR", self.dir.path()).stdout(Stdio::null());
        let application = Application(program.spawn().unwrap());
        let begin = Instant::now();
        while !self.files().join(file).exists() {
            assert!(begin.elapsed() < Duration::from_secs(300), "{file} does not come");
            sleep(Duration::from_millis(10));
        }
        application
    }
}

/// A program that runs until this is dropped.
pub(crate) struct Application(Child);

impl Drop for Application {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Asserts that two texts are equal, and shows where they begin to differ.
#[track_caller]
pub(crate) fn assert_same(c: &str, ours: &str) {
    let Some(at) = c.lines().zip(ours.lines()).position(|(a, b)| a != b) else {
        assert_eq!(c.lines().count(), ours.lines().count(), "--- C\n{c}\n--- ours\n{ours}");
        return;
    };
    let around = |text: &str| text.lines().skip(at.saturating_sub(6)).take(12).collect::<Vec<_>>().join("\n");
    panic!("line {at}\n--- C\n{}\n--- ours\n{}", around(c), around(ours));
}
