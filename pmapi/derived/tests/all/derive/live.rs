//! The installed libpcp, which `data/derive/oracle.c` calls for metrics of a private pmcd.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Agent, Pcp, Pmcd};

use crate::derive::answers::Answers;
use crate::derive::generator::{BATCH, in_groups};

/// The oracle, compiled in its own directory, and the place of the metrics.
pub(crate) struct Oracle {
    dir: tempfile::TempDir,
    place: String,
}

/// libpcp's answers about definitions.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) answers: Answers,
    /// Expressions that crashed libpcp.
    pub(crate) deadly: Vec<String>,
}

impl Oracle {
    /// Compiles the oracle for the metrics of a pmcd or of an agent.
    pub(crate) fn new(dir: tempfile::TempDir, place: String) -> Oracle {
        compile(&data("oracle.c"), &dir.path().join("oracle"), &[]);
        Oracle { dir, place }
    }

    /// Returns the oracle's answers and its standard error; `None` if libpcp crashed.
    pub(crate) fn ask(&self, requests: &str, samples: u32, batch: usize) -> Option<(String, String)> {
        let errors = self.dir.path().join("errors");
        let mut oracle = Command::new(self.dir.path().join("oracle"))
            .args([&self.place, &samples.to_string(), &batch.to_string()])
            .env("PCP_DERIVED_CONFIG", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut input = oracle.stdin.take().unwrap();
        let requests = requests.to_owned();
        let writer = std::thread::spawn(move || input.write_all(requests.as_bytes()));
        let output = oracle.wait_with_output().unwrap();
        let _ = writer.join();
        let errors = String::from_utf8_lossy(&std::fs::read(errors).unwrap()).into_owned();
        assert!(!errors.contains("pmNewContext") && output.status.code() != Some(1), "{errors}");
        output.status.success().then(|| (String::from_utf8_lossy(&output.stdout).into_owned(), errors))
    }

    /// Returns whether the installed libpcp has the whole language, as versions since 7.1.0. Those from 6.3 on have a part.
    pub(crate) fn is_newer(&self) -> bool {
        self.version() == "7.2.1"
    }

    /// Returns the version whose language the installed libpcp has, of those that are recorded.
    pub(crate) fn version(&self) -> &'static str {
        let has = |expr: &str| !self.ask(&format!("define\tx\t{expr}\n"), 1, 1).unwrap().0.starts_with('E');
        match () {
            _ if has("1 ? 2 : novalue(indom=60.1)") => "7.2.1",
            _ if has("1 ? 2 : novalue()") => "6.3.8",
            _ => "6.0.3",
        }
    }

    /// Asks about definitions, given as names and expressions, and about the operands that they use. `samples` is the
    /// number of samples of each definition.
    pub(crate) fn ask_about<S: AsRef<str>>(
        &self,
        expressions: &[(String, String)],
        operands: &[S],
        samples: impl Fn(&str) -> u32,
    ) -> Asked {
        let mut asked = Asked::default();
        let deadly = in_groups(expressions, |definitions| {
            let requests: String = definitions.iter().map(|(name, expr)| format!("define\t{name}\t{expr}\n")).collect();
            let used = operands.iter().map(AsRef::as_ref).filter(|name| requests.contains(name));
            let operands: String = used.map(|name| format!("operand\t{name}\n")).collect();
            let answer = self.ask(&format!("{operands}{requests}"), samples(&requests), BATCH);
            if let Some((text, messages)) = &answer {
                asked.answers.add(text);
                asked.answers.add_messages(messages);
            }
            answer.is_some()
        });
        asked.deadly = deadly.into_iter().map(|(_, expr)| expr.clone()).collect();
        asked
    }
}

/// pmcd with PCP's agents sample (as a process and as a shared object), linux and proc.
pub(crate) struct Stage {
    pmcd: Pmcd,
    pub(crate) oracle: Oracle,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let pcp = Pcp::required();
        let sample = pcp.c_agent("sample");
        let pmns = std::fs::read_to_string(sample.pmns()).unwrap();
        let again = pmns.replacen("sample {", "sampledso {", 1).replace("\nsample.", "\nsampledso.");
        let dso = pcp.path("PCP_PMDAS_DIR").join("sample/pmda_sample.so");
        let sampledso = Agent::new("sampledso", 30, dso).dso("sample_init").names(&again);
        let system = |name: &str, domain| {
            let binary = pcp.path("PCP_PMDAS_DIR").join(name).join(format!("pmda{name}"));
            let pmns = pcp.path("PCP_VAR_DIR").join("pmns").join(format!("root_{name}"));
            Agent::new(name, domain, binary).pmns(&pmns)
        };
        let agents = [sample.agent(), sampledso, system("linux", 60), system("proc", 3)];
        let pmcd = agents.into_iter().fold(pcp.pmcd().pmdas_dir(sample.pmdas_dir()), |pmcd, agent| pmcd.agent(agent));
        let pmcd = pmcd.start();
        let oracle = Oracle::new(tempfile::tempdir().unwrap(), pmcd.host());
        Stage { pmcd, oracle }
    }
}

/// Compiles a program that uses libpcp.
pub(crate) fn compile(source: &Path, binary: &Path, arguments: &[&str]) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-w"]).args(arguments).arg("-o").args([binary, source]).args(["-lpcp_pmda", "-lpcp"]);
    assert!(gcc.status().unwrap().success());
}

impl Stage {
    /// Runs a PCP client with a configuration of derived metrics.
    pub(crate) fn tool(&self, tool: &str, config: &Path, arguments: &[&str]) -> Answer {
        let output = Command::new(tool)
            .args(["-h", &self.pmcd.host()])
            .args(arguments)
            .env("PCP_DERIVED_CONFIG", config)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Answer { text: text(&output.stdout), errors: text(&output.stderr) }
    }
}

/// Output of a program.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) errors: String,
}

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/derive").join(name)
}
