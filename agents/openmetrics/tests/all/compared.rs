//! Scenes for both agents, this one and PCP's, each under a pmcd of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use testkit::{Agent, Pcp, Pmcd, wait_for};

use crate::both::{self, By};

/// A configuration directory, and both agents for it.
pub(crate) struct Scene {
    pub(crate) pcp: Pcp,
    dir: TempDir,
}

impl Scene {
    /// Returns `None` if PCP's agent cannot run with another libpcp (`qa/newer`).
    pub(crate) fn new() -> Option<Scene> {
        let pcp = Pcp::required();
        if !pcp.has_python() {
            return None;
        }
        let imports = "import requests, pcp.pmda";
        let works =
            Command::new("/usr/bin/python3").args(["-c", imports]).status().is_ok_and(|status| status.success());
        assert!(works, "PCP's agent needs the packages python3-pcp and python3-requests, which ./check installs");
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("config.d")).unwrap();
        Some(Scene { pcp, dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Adds a source that is a file with this document.
    pub(crate) fn document(&self, name: &str, text: &[u8]) {
        let path = self.path(&format!("{name}.txt"));
        fs::write(&path, text).unwrap();
        fs::write(self.path(&format!("config.d/{name}.url")), format!("file://{}\n", path.display())).unwrap();
    }

    pub(crate) fn agent(&self, by: By) -> Agent {
        let agent = both::agent(&self.pcp, self.dir.path(), by);
        if by == By::Us { agent.args(["--pcp", "--fresh", "--wait", "1min", "-t", "1min"]) } else { agent }
    }

    pub(crate) fn start(&self, by: By) -> Pmcd {
        let pmcd = self.pcp.pmcd().agent(self.agent(by)).options(["-t", "60"]).start();
        ready(&pmcd);
        pmcd
    }

    pub(crate) fn sources(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("config.d")).unwrap();
        let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap().path())).collect();
        names.sort_unstable();
        names
    }
}

pub(crate) fn ready(pmcd: &Pmcd) {
    wait_for("the agent is ready", || pmcd.run("pminfo", ["-f", "openmetrics.control.debug"]).text.contains("value"));
}

/// Text in place of the output about a source without metrics.
pub(crate) const NONE: &str = "no metrics\n";

/// Returns pminfo's output, with some options, about each metric of a source.
pub(crate) fn metrics(pmcd: &Pmcd, source: &str, options: &[&str]) -> String {
    let names = pmcd.run("pminfo", [format!("openmetrics.{source}")]).text;
    let mut names: Vec<&str> = names.lines().filter(|line| line.starts_with("openmetrics.")).collect();
    names.sort_unstable();
    if names.is_empty() {
        return NONE.to_owned();
    }
    pmcd.run("pminfo", [&["-b", "2000"], options, &names].concat()).text
}
