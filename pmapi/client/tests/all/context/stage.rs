//! A private pmcd with PCP's sample agent, and a process that asks libpcp.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use testkit::{Agent, Pcp, Pmcd};

/// Starts pmcd with PCP's agents sample and simple, and an agent that cannot be started.
pub(crate) fn pmcd() -> Pmcd {
    let pcp = Pcp::required();
    let (sample, simple) = (pcp.c_agent("sample"), pcp.c_agent("simple"));
    let gone = Agent::new("gone", 77, "/nonexistent").names("gone { one GONE:0:1 }");
    pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).agent(simple.agent()).agent(gone).start()
}

/// Process that asks libpcp.
pub(crate) struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Result of pmNewContext(3).
    pub(crate) context: i32,
}

impl Oracle {
    pub(crate) fn new(host: &str) -> Oracle {
        static BINARY: OnceLock<tempfile::TempDir> = OnceLock::new();
        let binary = BINARY.get_or_init(|| {
            let dir = tempfile::tempdir().unwrap();
            testkit::compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/context/oracle.c"), &dir, &["-lpcp"]);
            dir
        });
        let mut child = Command::new(binary.path().join("oracle"))
            .arg(host)
            .env("PCP_DERIVED_CONFIG", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut oracle = Oracle { child, input, output, context: 0 };
        oracle.context = oracle.line().parse().unwrap();
        oracle
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').trim_end().to_owned()
    }

    /// Returns libpcp's answer to a request.
    pub(crate) fn answer(&mut self, request: &str) -> String {
        writeln!(self.input, "{request}").unwrap();
        self.line()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
