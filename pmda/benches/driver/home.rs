//! The directory for the files of a bench's agents.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::{CAgent, Pcp};

use super::Program;

/// A directory for logs, recorded replies and files of the agents, instead of PCP's directories.
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let home = Home { dir: tempfile::tempdir().expect("a temporary directory") };
        // Agents that root starts change to PCP's user.
        let open = |path: &Path| {
            fs::create_dir_all(path).expect("a directory");
            fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("a directory for all");
        };
        let config = home.path("config");
        [home.dir.path(), &config, &config.join("pmda")].into_iter().for_each(open);
        home
    }

    /// Returns the path of a file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Builds PCP's C implementation of an agent. Without PCP it prints a prominent message and returns `None`.
    pub(crate) fn c_agent(name: &str) -> Option<CAgent> {
        let missing = match Pcp::locate() {
            // A failed compilation panics with the reason.
            Ok(pcp) => match catch_unwind(|| pcp.c_agent(name)) {
                Ok(agent) => return Some(agent),
                Err(_) => "PCP's C agent cannot be compiled".into(),
            },
            Err(missing) => missing.to_string(),
        };
        no_peer(&missing);
        None
    }

    /// Returns the program of an agent, with its log and PCP's variable files in this directory, and its own directory
    /// below `pmdas`.
    pub(crate) fn agent(&self, label: &'static str, binary: &Path, pmdas: &Path) -> Program {
        let log = self.path(&format!("{label}.log"));
        let program = Program::new(label, binary).arg("-l").arg(log);
        program.env("PCP_PMDAS_DIR", pmdas).env("PCP_VAR_DIR", self.dir.path())
    }
}

pub(crate) fn no_peer(why: &str) {
    println!("\n*** NO C PEER: {why}.");
    println!("*** Our agent is compared with the floor only, and not with C.\n");
}
