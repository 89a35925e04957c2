//! A pmcd with agents sample and derived, for several tests.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use pmapi::PmId;
use pmapi::context::{Context, HostSpec, Settings};
use tempfile::TempDir;
use testkit::{Agent, CAgent, Pcp, Pmcd, Builder};

/// A configuration of the agent, and a directory for what a test needs.
pub(crate) struct Scene {
    pub(crate) dir: TempDir,
    pub(crate) sample: CAgent,
}

impl Scene {
    pub(crate) fn new(config: &str) -> Scene {
        let scene = Scene { dir: tempfile::tempdir().unwrap(), sample: Pcp::required().c_agent("sample") };
        scene.write(config);
        scene
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("conf")
    }

    /// Changes the configuration.
    pub(crate) fn write(&self, config: &str) {
        fs::write(self.config(), config).unwrap();
    }

    /// Agent derived, with the names that its configuration has now.
    pub(crate) fn agent(&self, options: &[&str]) -> Agent {
        let binary = env!("CARGO_BIN_EXE_pmdaderived");
        let agent = Agent::new("derived", 404, binary).pmns(&self.pmns(&self.config()));
        agent.args(["-c", self.config().to_str().unwrap(), "-U", "root", "--notready"]).args(options).not_ready()
    }

    pub(crate) fn pmns(&self, config: &Path) -> PathBuf {
        let pmda = self.dir.path().join("pmda");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pmdaderived"));
        command.arg("-c").arg(config).arg("--write-pmda").arg(&pmda);
        assert!(command.status().unwrap().success());
        pmda.join("pmns")
    }

    /// A pmcd that agents reach as the local one.
    pub(crate) fn pmcd(&self) -> Builder {
        let pmcd = Pcp::required().pmcd().pmdas_dir(self.sample.pmdas_dir());
        // An agent that dies stays away until pmcd restarts. Agents run in the directory of the logs.
        pmcd.env("PMCD_RESTART_AGENTS", "0").env("PMCD_SOCKET", "../../pmcd.socket")
    }

    /// A pmcd with both agents.
    pub(crate) fn start(&self, options: &[&str]) -> Pmcd {
        self.pmcd().agent(self.sample.agent()).agent(self.agent(options)).start()
    }
}

/// Waits until what a tool says has something in it.
pub(crate) fn until(pmcd: &Pmcd, tool: &str, arguments: &[&str], part: &str) -> String {
    until_text(pmcd, tool, arguments, &format!("{part:?}"), |text| text.contains(part))
}

pub(crate) fn until_text(pmcd: &Pmcd, tool: &str, arguments: &[&str], what: &str, is_it: impl Fn(&str) -> bool) -> String {
    let says = || pmcd.run(tool, arguments).text;
    (0..600)
        .find_map(|_| {
            let text = says();
            if !is_it(&text) {
                sleep(Duration::from_millis(50));
                return None;
            }
            Some(text)
        })
        .unwrap_or_else(|| panic!("{what} is not in\n{}\n{}\n{}", says(), pmcd.log("derived"), pmcd.log("pmcd")))
}

/// A client.
pub(crate) fn client(pmcd: &Pmcd) -> Context {
    Context::new(pmcd.host().parse::<HostSpec>().unwrap(), Settings::default()).unwrap()
}

pub(crate) fn pmids(client: &mut Context, names: &[&str]) -> Vec<PmId> {
    names.iter().map(|name| client.lookup_name(name).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}
