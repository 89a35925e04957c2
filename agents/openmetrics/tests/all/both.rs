//! This agent and PCP's, for tests and benches that compare them.

use std::path::{Path, PathBuf};

use testkit::{Agent, Pcp};

/// An agent, PCP's or this one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum By {
    Pcp,
    Us,
}

/// Returns the agent for pmcd, with the sources of `config.d` in a directory.
pub(crate) fn agent(pcp: &Pcp, dir: &Path, by: By) -> Agent {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let binary = match by {
        By::Us => PathBuf::from(env!("CARGO_BIN_EXE_pmdaopenmetrics")),
        By::Pcp => {
            let program = Path::new(pcp.config("PCP_PMDAS_DIR")).join("openmetrics/pmdaopenmetrics.python");
            let script = dir.join("python");
            let text = format!("#!/bin/sh\nexec /usr/bin/python3 {} \"$@\"\n", program.display());
            testkit::executable(&script, text, 0o755);
            script
        }
    };
    let agent = Agent::new("openmetrics", 144, binary).names("root {\n openmetrics 144:*:*\n}\n").not_ready();
    agent.args(["-l", "openmetrics.log", "-u", &user, "-c"]).args([dir.join("config.d")])
}
