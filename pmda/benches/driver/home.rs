//! Where the agents of a bench have their files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use testkit::{CAgent, Pcp};

use super::Program;

/// A directory for logs, recorded replies and what agents keep, instead of PCP's own.
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        let home = Home { dir: tempfile::tempdir().expect("a temporary directory") };
        // Agents that root starts become PCP's user.
        let open = |path: &Path| {
            fs::create_dir_all(path).expect("a directory");
            fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("a directory for all");
        };
        let config = home.path("config");
        [home.dir.path(), &config, &config.join("pmda")].into_iter().for_each(open);
        home
    }

    /// A file in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// PCP's C implementation of an agent. Without PCP there is none, which is said loudly.
    pub(crate) fn c_agent(name: &str) -> Option<CAgent> {
        let missing = match Pcp::locate() {
            // Compiling it panics, having said why.
            Ok(pcp) => match catch_unwind(|| pcp.c_agent(name)) {
                Ok(agent) => return Some(agent),
                Err(_) => "PCP's C agent cannot be compiled".into(),
            },
            Err(missing) => missing.to_string(),
        };
        no_peer(&missing);
        None
    }

    /// An agent's program with its log here, PCP's variable files here, and its directory below `pmdas`.
    pub(crate) fn agent(&self, label: &'static str, binary: &Path, pmdas: &Path) -> Program {
        let log = self.path(&format!("{label}.log"));
        let program = Program::new(label, binary).arg("-l").arg(log);
        program.env("PCP_PMDAS_DIR", pmdas).env("PCP_VAR_DIR", self.dir.path())
    }
}

pub(crate) fn no_peer(why: &str) {
    println!("\n*** NO C PEER: {why}.");
    println!("*** Our agent stands beside the floor alone; nothing here says how it compares with C.\n");
}
