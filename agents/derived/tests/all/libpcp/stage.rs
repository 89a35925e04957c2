//! pmcd with PCP's agents and `derived`, and its answers as `--check --tsv` prints them.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use testkit::{Agent, Pcp, Pmcd};

const BINARY: &str = env!("CARGO_BIN_EXE_pmdaderived");

/// pmcd with PCP's agents `sample` (as a process and as a shared object), `linux` and `proc`, and with `derived`.
pub(crate) struct Stage {
    pub(crate) pcp: Pcp,
    pub(crate) pmcd: Pmcd,
    config: PathBuf,
    _dir: tempfile::TempDir,
}

/// What pminfo prints about a metric.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) meta: String,
    pub(crate) values: String,
}

impl Stage {
    pub(crate) fn new(definitions: &str) -> Stage {
        let pcp = Pcp::required();
        let dir = tempfile::tempdir().unwrap();
        let (config, pmda) = (dir.path().join("conf"), dir.path().join("pmda"));
        fs::write(&config, definitions).unwrap();
        assert!(Command::new(BINARY).arg("--write-pmda").arg(&pmda).status().unwrap().success());
        let ours = Agent::new("derived", 404, BINARY).pmns(&pmda.join("pmns")).not_ready();
        let ours = ours.args(["-c", config.to_str().unwrap(), "-U", "root", "--notready", "-t", "500msec"]);

        let sample = pcp.c_agent("sample");
        let pmns = fs::read_to_string(sample.pmns()).unwrap();
        let again = pmns.replacen("sample {", "sampledso {", 1).replace("\nsample.", "\nsampledso.");
        let sampledso = Agent::new("sampledso", 30, sample.shared_object()).dso("sample_init").names(&again);
        let system = |name: &str, domain| {
            let binary = pcp.path("PCP_PMDAS_DIR").join(name).join(format!("pmda{name}"));
            let pmns = pcp.path("PCP_VAR_DIR").join("pmns").join(format!("root_{name}"));
            Agent::new(name, domain, binary).pmns(&pmns)
        };
        let agents = [sample.agent(), sampledso, system("linux", 60), system("proc", 3), ours];
        // The socket's path is relative to the log directory, where agents run.
        let pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).env("PMCD_SOCKET", "../../pmcd.socket");
        let pmcd = agents.into_iter().fold(pmcd, |pmcd, agent| pmcd.agent(agent)).start();
        Stage { pcp, pmcd, config, _dir: dir }
    }

    /// Returns the agent's answers about all its metrics, by definition, once each metric has been sampled.
    pub(crate) fn agent(&self) -> HashMap<String, Answer> {
        let mut said = String::new();
        for _ in 0..100 {
            said = self.pmcd.run("pminfo", ["-d", "-f", "derived"]).text;
            if said.contains("\nderived.") && !said.contains("Try again") {
                break;
            }
            sleep(Duration::from_millis(100));
        }
        answers(&said, "derived.")
    }

    /// Returns the answers and the messages of a client with its own definitions. `None` if the client crashes.
    pub(crate) fn client(&self, definitions: &str, names: &[&str]) -> Option<(HashMap<String, Answer>, String)> {
        let config = self.config.with_file_name("client");
        fs::write(&config, definitions).unwrap();
        let mut command = self.pcp.command("pminfo");
        command.args(["-h", &self.pmcd.host(), "-d", "-f"]).args(names).env("PCP_DERIVED_CONFIG", &config);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        output.status.code().map(|_| (answers(&text(&output.stdout), ""), text(&output.stderr)))
    }

    /// Returns what `--check` prints.
    pub(crate) fn check_text(&self) -> String {
        let mut command = Command::new(BINARY);
        command.arg("--check").arg(&self.config).args(["--host", &self.pmcd.host()]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the configuration files of the agent and of clients.
    pub(crate) fn files(&self) -> [String; 2] {
        [&self.config, &self.config.with_file_name("client")].map(|path| path.display().to_string())
    }

    /// Returns the lines of `--check --tsv`, by definition.
    pub(crate) fn check(&self, options: &[&str]) -> HashMap<String, Vec<String>> {
        self.check_path(&self.config.display().to_string(), options)
    }

    pub(crate) fn check_path(&self, path: &str, options: &[&str]) -> HashMap<String, Vec<String>> {
        let mut command = Command::new(BINARY);
        command.args(["--check", path]).args(["--host", &self.pmcd.host(), "--tsv"]).args(options);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let line = |line: &str| {
            let (name, rest) = line.split_once('\t').unwrap();
            (name.to_owned(), rest.splitn(3, '\t').map(|column| column.trim_end().to_owned()).collect())
        };
        text.lines().map(line).collect()
    }
}

/// Parses the output of `pminfo -d -f`.
fn answers(text: &str, prefix: &str) -> HashMap<String, Answer> {
    let mut answers: HashMap<String, Answer> = HashMap::new();
    // Help texts may have empty lines, but hardly one that is followed by a line with a name alone.
    for block in text.split("\n\n") {
        let (head, body) = block.trim_start_matches('\n').split_once('\n').unwrap_or((block, ""));
        let name = head.trim_start_matches('\n').strip_prefix(prefix);
        let Some(name) = name.filter(|name| !name.contains([' ', ':']) && !name.is_empty()) else { continue };
        answers.insert(name.to_owned(), answer(body));
    }
    answers
}

pub(crate) fn answer(body: &str) -> Answer {
    let between = |start: &str, end: &str| {
        let rest = body.split_once(start).map_or("", |(_, rest)| rest);
        rest.split(end).next().unwrap_or_default().trim().to_owned()
    };
    let indom = if between("InDom: ", " ") == "PM_INDOM_NULL" { "NULL" } else { "SET" };
    let (ty, semantics, units) =
        (between("Data Type: ", "  InDom"), between("Semantics: ", "  Units"), between("Units: ", "\n"));
    let mut values: Vec<String> = Vec::new();
    let mut error = None;
    for line in body.lines() {
        if let Some((instance, value)) = line.strip_prefix("    inst [").and_then(|rest| rest.split_once("] value ")) {
            values.push(format!("{}={value}", instance.split_once(" or ").map_or(instance, |(_, name)| name)));
        } else if let Some(value) = line.strip_prefix("    value ") {
            values.push(format!("\"\"={value}"));
        } else if line.starts_with("Error: ") {
            error = Some(format!("E:{line}"));
        }
    }
    let values = error.unwrap_or_else(|| format!("{{{}}}", values.join(",")));
    Answer { meta: format!("type={ty} indom={indom} sem={semantics} units={units}"), values }
}
