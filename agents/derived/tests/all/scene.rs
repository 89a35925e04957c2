//! pmcd with agents `sample` and `derived`, for several tests.

#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use pcp_client::{Context, HostSpec, Settings};
use pcp_pdu::result::ValueSet;
use pmapi::{Atom, Desc, Error, Inst, PmId, Type};
use tempfile::TempDir;
use testkit::{Agent, Builder, CAgent, Pcp, Pmcd};

/// Configuration of the agent, and a directory for the files of a test.
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

    /// Returns agent `derived`, with the names of its current configuration.
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

    /// Returns a pmcd that agents connect to as `local:`.
    pub(crate) fn pmcd(&self) -> Builder {
        let pmcd = Pcp::required().pmcd().pmdas_dir(self.sample.pmdas_dir());
        // pmcd must not restart agents by itself. The socket's path is relative to the log directory, where agents run.
        pmcd.env("PMCD_RESTART_AGENTS", "0").env("PMCD_SOCKET", "../../pmcd.socket")
    }

    /// Starts a pmcd with both agents.
    pub(crate) fn start(&self, options: &[&str]) -> Pmcd {
        self.pmcd().agent(self.sample.agent()).agent(self.agent(options)).start()
    }
}

/// Runs a tool until its output contains `part`.
pub(crate) fn until(pmcd: &Pmcd, tool: &str, arguments: &[&str], part: &str) -> String {
    until_text(pmcd, tool, arguments, &format!("{part:?}"), |text| text.contains(part))
}

pub(crate) fn until_text(
    pmcd: &Pmcd,
    tool: &str,
    arguments: &[&str],
    what: &str,
    is_it: impl Fn(&str) -> bool,
) -> String {
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

/// Connects a client.
pub(crate) fn client(pmcd: &Pmcd) -> Context {
    Context::new(pmcd.host().parse::<HostSpec>().unwrap(), Settings::default()).unwrap()
}

pub(crate) fn pmids(client: &mut Context, names: &[&str]) -> Vec<PmId> {
    names.iter().map(|name| client.lookup_name(name).unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

/// Returns agent `operand`, an example of this package.
pub(crate) fn operand() -> Agent {
    let example = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/operand");
    let dir = tempfile::tempdir().unwrap();
    let pmda = dir.path().join("pmda");
    assert!(Command::new(&example).arg("--write-pmda").arg(&pmda).status().unwrap().success());
    Agent::new("operand", 405, example).pmns(&pmda.join("pmns")).args(["-U", "root"])
}

/// Client that fetches the same metrics repeatedly.
pub(crate) struct Watch {
    client: Context,
    descs: Vec<Desc>,
}

/// Values of a metric, or the error in their place.
pub(crate) type Outcome = Result<Vec<(Option<Inst>, f64)>, Error>;

impl Watch {
    pub(crate) fn new(pmcd: &Pmcd, names: &[&str]) -> Watch {
        let mut client = Context::new(pmcd.host().parse::<HostSpec>().unwrap(), Settings::default()).unwrap();
        // The agent is not ready at once.
        let mut desc = |name: &str| {
            let patience =
                (0..1000).find_map(|_| match client.lookup_name(name).and_then(|pmid| client.lookup_desc(pmid)) {
                    Err(Error::AGAIN | Error::NAME) => {
                        sleep(Duration::from_millis(20));
                        None
                    }
                    desc => Some(desc.unwrap_or_else(|e| panic!("{name}: {e}"))),
                });
            patience.unwrap_or_else(|| panic!("{name} does not come: {}", pmcd.log("derived")))
        };
        let descs = names.iter().map(|name| desc(name)).collect();
        Watch { client, descs }
    }

    pub(crate) fn fetch(&mut self) -> Vec<Outcome> {
        let pmids: Vec<PmId> = self.descs.iter().map(|desc| desc.pmid).collect();
        let sample = self.client.fetch(&pmids).unwrap();
        let number = |value: Atom<'_>| match value.convert(Type::Double).unwrap().as_atom() {
            Atom::Double(n) => n,
            other => panic!("{other}"),
        };
        let set = |(set, desc): (ValueSet<'_>, &Desc)| {
            set.error.map_or(Ok(()), Err)?;
            set.values().map(|(inst, value)| Ok((inst, number(value.atom(desc.ty)?)))).collect()
        };
        sample.sets().zip(&self.descs).map(set).collect()
    }

    /// Returns the values of singular metrics: `None` for errors and missing values.
    pub(crate) fn numbers(&mut self) -> Vec<Option<f64>> {
        self.fetch().into_iter().map(|outcome| Some(outcome.ok()?.first()?.1)).collect()
    }

    /// Fetches until `is_it` returns true.
    pub(crate) fn until(&mut self, what: &str, is_it: impl Fn(&[Outcome]) -> bool) -> Vec<Outcome> {
        for _ in 0..1000 {
            let values = self.fetch();
            if is_it(&values) {
                return values;
            }
            sleep(Duration::from_millis(20));
        }
        panic!("not {what}: {:?}", self.fetch());
    }
}
