//! The installed libpcp, which `data/derive/oracle.c` calls for metrics of a private pmcd.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Agent, Pcp, Pmcd};

use crate::answers::Answers;
use crate::recorded;

/// pmcd with PCP's agents sample (as a process and as a shared object), linux and proc.
pub(crate) struct Stage {
    pmcd: Pmcd,
    dir: tempfile::TempDir,
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
        let dir = tempfile::tempdir().unwrap();
        compile(&data("oracle.c"), &dir.path().join("oracle"), &[]);
        Stage { pmcd, dir }
    }

    /// Returns the oracle's answers and its standard error; `None` if libpcp crashed.
    pub(crate) fn ask(&self, requests: &str, samples: u32, batch: u32) -> Option<(String, String)> {
        ask(self.dir.path(), &self.pmcd.host(), requests, samples, batch)
    }
}

/// libpcp's answers about definitions.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) answers: Answers,
    /// Standard error of the oracle.
    pub(crate) errors: String,
    /// Expressions that crashed libpcp.
    pub(crate) deadly: Vec<String>,
}

impl Stage {
    /// Asks about definitions, given as names and expressions, and about the operands that they use.
    pub(crate) fn ask_about(&self, expressions: &[(String, String)], operands: &[&str]) -> Asked {
        const BATCH: usize = 100;
        let mut asked = Asked::default();
        let mut ask = |definitions: &[&(String, String)]| {
            let requests: String = definitions.iter().map(|(name, expr)| format!("define\t{name}\t{expr}\n")).collect();
            let used = operands.iter().filter(|name| requests.contains(**name));
            let operands: String = used.map(|name| format!("operand\t{name}\n")).collect();
            let samples = if requests.contains("delta(") || requests.contains("rate(") { 3 } else { 1 };
            let answer = self.ask(&format!("{operands}{requests}"), samples, BATCH as u32);
            if let Some((text, messages)) = &answer {
                asked.answers.add(text);
                asked.errors += messages;
            }
            answer.is_some()
        };
        let (alone, together): (Vec<_>, Vec<_>) =
            expressions.iter().partition(|(_, expr)| expr.contains("matchinst") || expr.contains(")["));
        // Some expressions crash libpcp; after a crash the oracle gets each definition of the batch alone.
        let mut deadly = Vec::new();
        for definitions in together.chunks(BATCH).chain(alone.chunks(1)) {
            if !ask(definitions) {
                deadly.extend(definitions.iter().filter(|definition| !ask(&[definition])).map(|pair| pair.1.clone()));
            }
        }
        asked.deadly = deadly;
        asked
    }
}

/// Runs the oracle in `dir` for the metrics of a pmcd or of an agent.
pub(crate) fn ask(dir: &Path, place: &str, requests: &str, samples: u32, batch: u32) -> Option<(String, String)> {
    let errors = dir.join("errors");
    let mut oracle = Command::new("timeout")
        .args(["-s", "KILL", "5"])
        .arg(dir.join("oracle"))
        .args([place, &samples.to_string(), &batch.to_string()])
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

/// The descriptors, instances and values in `operands.tsv` are those of PCP's agents. With `$DERIVE_RECORD` set, the
/// test rewrites the file.
#[test]
#[ignore = "needs PCP"]
fn recorded_operands_are_those_of_the_agents() {
    let requests: String = recorded::names().iter().map(|name| format!("operand\t{name}\n")).collect();
    let (text, _) = Stage::new().ask(&requests, 1, 1).unwrap();
    if std::env::var_os("DERIVE_RECORD").is_some() {
        std::fs::write(data("operands.tsv"), &text).unwrap();
    }
    let (live, recorded) = (Answers::parse(&text), recorded::answers());
    for (name, recorded) in &recorded.operands {
        if name.starts_with("sample") {
            assert_eq!(live.operands.get(name), Some(recorded), "{name}");
        }
    }
}
