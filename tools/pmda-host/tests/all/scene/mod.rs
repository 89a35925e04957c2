//! The agent of `trouble.c` behind `pmda-host`.

// Each test uses a part of this module.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcp_collector::{Collector, Launch, Process};
use pmapi::{Atom, Domain, InDom, Item, PmId, Serial};
use tempfile::TempDir;

pub(crate) const DOMAIN: u16 = 400;

/// Items of the agent's metrics.
pub(crate) const FETCHES: u16 = 0;
pub(crate) const PAUSE: u16 = 1;
pub(crate) const CRASH: u16 = 2;
pub(crate) const SLOW: u16 = 3;
pub(crate) const USER: u16 = 4;
pub(crate) const ENDED: u16 = 5;
pub(crate) const KINDS: u16 = 6;
pub(crate) const PROCESS: u16 = 7;
pub(crate) const FORK: u16 = 8;
pub(crate) const TUNABLES: u16 = 9;
pub(crate) const CLOSE: u16 = 10;
pub(crate) const REPLACE: u16 = 11;
pub(crate) const NONBLOCK: u16 = 12;
pub(crate) const LARGE: u16 = 13;

pub(crate) fn domain() -> Domain {
    Domain::new(DOMAIN).unwrap()
}

pub(crate) fn pmid(item: u16) -> PmId {
    PmId::new(domain(), Item::new(0, item))
}

pub(crate) fn indom() -> InDom {
    InDom::new(domain(), Serial::new(0))
}

/// A directory with the shared object and the log.
pub(crate) struct Scene {
    dir: TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        // The agent runs as PCP's user.
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        compile("tests/trouble.c", &dir.path().join("pmda_trouble.so"));
        Scene { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn object(&self) -> PathBuf {
        self.path("pmda_trouble.so")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("trouble.log")).unwrap_or_default()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = host();
        command.arg("--so").arg(self.object()).args(["-d", "400", "-l"]).arg(self.path("trouble.log")).args(arguments);
        command
    }

    /// Starts the agent over a pipe.
    pub(crate) fn start(&self, arguments: &[&str]) -> Collector<Process> {
        Launch::pipe(self.command(arguments)).timeout(None).handshake_timeout(None).start().unwrap()
    }
}

pub(crate) fn host() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pmda-host"))
}

/// Compiles a shared object with PCP's headers.
pub(crate) fn compile(source: &str, object: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fPIC", "-shared", "-o"]).arg(object).arg(source).args(["-lpcp_pmda", "-lpcp"]);
    let output = gcc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn number(agent: &mut Collector<Process>, item: u16) -> u32 {
    match agent.value(pmid(item)).unwrap() {
        Atom::U32(value) => value,
        other => panic!("{other:?}"),
    }
}
