//! Sessions of both programs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use regex::Regex;
use tempfile::TempDir;
use testkit::{CAgent, Pcp, Version, one_word};

/// Path of this dbpmda.
pub(crate) const OURS: &str = env!("CARGO_BIN_EXE_dbpmda");

/// Returns whether libpcp is that of PCP 7: with debug options and after failed reads it prints other messages, and it
/// accepts no numbers as debug options (docs/versions.md).
pub(crate) fn is_libpcp_7() -> bool {
    Pcp::required().version() >= Version(7, 0, 0)
}

/// Returns whether libpcp is later than that of Debian 12, which is 6.0.3.
pub(crate) fn is_after_6_0_3() -> bool {
    Pcp::required().version() > Version(6, 0, 3)
}

/// Setting of sessions: a directory with files, and the environment for both programs.
pub(crate) struct Sessions {
    pcp: Pcp,
    dir: TempDir,
    options: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    agent: String,
}

impl Sessions {
    /// Returns a setting without an agent, with a name space of two names.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::write(&root, "root {\n  one 1:1:1\n  dyn 253:*:*\n}\n").unwrap();
        let options = ["-n".into(), root.into_os_string()].to_vec();
        Sessions { pcp: Pcp::required(), dir, options, environment: Vec::new(), agent: "/nothing".to_owned() }
    }

    /// Returns a setting with one of PCP's agents in C, and its name space.
    pub(crate) fn c_agent(name: &str) -> Self {
        let agent = Pcp::required().c_agent(name);
        Sessions::of(&agent, &format!("{} -d {}", agent.binary().display(), agent.domain()))
    }

    /// Returns a setting with the agent of a command line, and the name space and help texts of an agent in C.
    pub(crate) fn of(agent: &CAgent, command: &str) -> Self {
        let mut sessions = Sessions::new();
        sessions.options = vec!["-n".into(), agent.root().into()];
        sessions.agent = format!("{command} -l {}", sessions.dir().join("agent.log").display());
        sessions.env("PCP_PMDAS_DIR", agent.pmdas_dir())
    }

    /// Adds a variable to the environment.
    pub(crate) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a file to the working directory.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        fs::write(self.dir().join(name), text).unwrap();
        self
    }

    /// Replaces the options `-n` and its file.
    pub(crate) fn options(mut self, options: &[&str]) -> Self {
        self.options = options.iter().map(OsString::from).collect();
        self
    }

    /// Returns the working directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a session that begins with `open pipe`, with echo, and returns the common output. In the script, AGENT
    /// stands for the agent's command line and DIR for the working directory.
    #[track_caller]
    pub(crate) fn same(&self, script: &str) -> String {
        self.same_input(&["-i", "-e"], &format!("open pipe AGENT\n{script}\n"))
    }

    /// Runs a session without an agent, with echo, and returns the common output.
    #[track_caller]
    pub(crate) fn same_alone(&self, script: &str) -> String {
        self.same_input(&["-i", "-e"], &format!("{script}\n"))
    }

    /// Runs a session whose debug options include numbers. PCP 7 refuses the numbers, this dbpmda accepts them as PCP 6
    /// does.
    #[track_caller]
    pub(crate) fn same_with_numbers(&self, options: &[&str], input: &str) {
        if is_libpcp_7() {
            let theirs = self.theirs(options, input);
            assert!(theirs.contains("debug flag"), "{input}: {theirs}");
        } else {
            self.same_input(options, input);
        }
    }

    /// Runs a session with options and an input, and returns the common output.
    #[track_caller]
    pub(crate) fn same_input(&self, options: &[&str], input: &str) -> String {
        let (theirs, ours) = (self.theirs(options, input), self.ours(options, input));
        assert!(theirs == ours, "{}", difference(&theirs, &ours));
        ours
    }

    /// Returns the output and the exit code of PCP's dbpmda.
    #[track_caller]
    pub(crate) fn theirs(&self, options: &[&str], input: &str) -> String {
        self.run(self.pcp.command("dbpmda"), options, input)
    }

    /// Returns the output and the exit code of this dbpmda.
    #[track_caller]
    pub(crate) fn ours(&self, options: &[&str], input: &str) -> String {
        let mut command = Command::new(OURS);
        command.envs([("LC_ALL", "C"), ("TZ", "UTC"), ("PCP_DERIVED_CONFIG", "")]);
        self.run(command, options, input)
    }

    #[track_caller]
    fn run(&self, mut command: Command, options: &[&str], input: &str) -> String {
        let dir = self.dir().display().to_string();
        let input = input.replace("AGENT", &self.agent).replace("DIR", &dir);
        command.args(&self.options).args(options).current_dir(self.dir());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = self.pcp.run_command(command, &input);
        let code = output.status.code();
        let text = output.text.replace(&self.agent, "AGENT").replace(&dir, "DIR");
        format!("{}exit code {code:?}\n", normalise(&text))
    }

    /// Returns the command line of the agent.
    pub(crate) fn agent(&self) -> &str {
        &self.agent
    }
}

/// Asserts that the output has certain parts, so that a session tests what it should.
#[track_caller]
pub(crate) fn shows(shown: &str, parts: &[&str]) {
    let missing: Vec<_> = parts.iter().filter(|part| !shown.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:#?} does not show in\n{shown}");
}

/// Returns the path of the agent simple of this framework.
pub(crate) fn our_simple() -> PathBuf {
    // The test runs in `target/PROFILE/deps`.
    let exe = std::env::current_exe().unwrap();
    let agent = exe.parent().and_then(Path::parent).unwrap().join("examples/simple_agent");
    assert!(agent.exists(), "no {}: `cargo test --examples` builds it", agent.display());
    one_word(agent)
}

/// Replaces what differs between runs: process identifiers, times, addresses and file descriptors. Unlike testkit's
/// rules, these keep the lines that open an agent.
fn normalise(text: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (r"(pmResult dump) from 0x[0-9a-f]+ ", "$1 "),
            // libpcp in our process does not know the name of the program.
            (r"\] pcp\(", "] dbpmda("),
            (r"(dump from|@|pmLabelSet) ?0x[0-9a-f]+", "$1 ADDRESS"),
            (r"\(pid: \d+\)", "(pid: PID)"),
            (r"\[\d+\](pmXmitPDU|pmGetPDU)", "[PID]$1"),
            (r"(pmGetPDU: CREDS .* from=)\d+", "${1}PID"),
            (r"(?m)^(000: +14 +700c) +[0-9a-f]+ ", "$1 PID "),
            (r"\[... ... .. ..:..:..\] dbpmda\(\d+\)", "[TIME] dbpmda(PID)"),
            (r" fd=\d+", " fd=FD"),
            (r"__pmGetPDU\(\d+\)", "__pmGetPDU(FD)"),
            (r"Timer: \d\.\d{6} seconds", "Timer: TIME"),
            (r"\d\d:\d\d:\d\d\.\d+", "CLOCK"),
            // libpcp after 6.0.3 prints this for an empty list.
            (r"(?m)^__pmDecodeNameList: no names\n", ""),
        ]
        .into_iter()
        .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
        .collect()
    });
    // Rules for what libpcp 6.0.3 and this dbpmda print, and later versions (6.3.8, 7.2.1) do not, or the other way round.
    static LATER: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            // The end of the value, a zero, as a dot.
            (r#"(?m)^(__pmSendAttr .* value=".+)\."$"#, "$1\""),
            (r"(?m)^\[TIME\] dbpmda\(PID\) Error: __pmGetPDU: .*\n", ""),
            (r"(?m)^Warning: version exchange failed for PMDA .*\n", ""),
        ]
        .into_iter()
        .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
        .collect()
    });
    let apply = |text: String, rules: &[(Regex, &str)]| {
        rules.iter().fold(text, |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
    };
    let text = apply(text.to_owned(), &RULES);
    if is_after_6_0_3() { apply(text, &LATER) } else { text }
}

/// Returns the first lines that differ, with some lines before them.
fn difference(theirs: &str, ours: &str) -> String {
    let (theirs, ours): (Vec<_>, Vec<_>) = (theirs.lines().collect(), ours.lines().collect());
    let same = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
    let part = |lines: &[&str]| lines.iter().skip(same).take(12).map(|line| format!("\n  {line}")).collect::<String>();
    let before: String =
        ours.iter().take(same).skip(same.saturating_sub(6)).map(|line| format!("\n  {line}")).collect();
    format!("after line {same}:{before}\nPCP's dbpmda goes on with{}\nours with{}", part(&theirs), part(&ours))
}
