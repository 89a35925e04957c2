//! The output of a tool, without the parts that differ between two runs.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::thread;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use regex::Regex;

/// Longest time that a tool may run, in seconds. The `timeout` of coreutils then ends it with exit code 124.
const LIMIT: &str = "60";

/// Exit status and output of a tool.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// The exit status; code 124 after a time-out.
    pub status: ExitStatus,
    /// Standard output and standard error in one stream, in the order of writing.
    pub text: String,
}

impl Output {
    /// Returns the text of a tool that ended with exit code 0.
    ///
    /// # Panics
    /// With the text, when the tool ended with another exit code.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status.success(), "{}: {}\n{}", self.command, self.status, self.text);
        self.text
    }

    /// Returns the text of a tool that ended with an exit code other than 0.
    ///
    /// # Panics
    /// With the text, when the tool ended with exit code 0.
    #[track_caller]
    pub fn failed(self) -> String {
        assert!(!self.status.success(), "{} succeeded:\n{}", self.command, self.text);
        self.text
    }

    /// Returns the text without the parts that differ between runs; see [`normalise`].
    pub fn normalised(&self) -> String {
        normalise(&self.text)
    }
}

/// Replaces process IDs, times of day, agents' command lines and addresses of dumped results in the output of a PCP
/// tool.
///
/// Values stay. A test that reads a clock must leave that metric out of its comparison.
pub fn normalise(text: &str) -> String {
    static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        [
            (r"(?m)^(_*pm\w*Result dump) from .*? numpmid", "$1 numpmid"),
            (r"\(pid: \d+\)", "(pid: PID)"),
            (r"(?m)^Start \S+ PMDA: .*", "Start PMDA"),
            (r"(?m)^(open (pipe|socket|dso)) .*", "$1 AGENT"),
            (r"(?m)^Timer: .*", "Timer: TIME"),
            (
                r"\[?\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d( \d{4})?\]?",
                "TIME",
            ),
            (r"\b\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
        ]
        .into_iter()
        .map(|(pattern, with)| (Regex::new(pattern).expect("a constant pattern"), with))
        .collect()
    });
    RULES.iter().fold(text.to_owned(), |text, (pattern, with)| pattern.replace_all(&text, *with).into_owned())
}

/// Returns the output of pmdumplog(1) with the metrics and the instance domains in the order of their identifiers. PCP
/// prints them in the order of a hash table. `change` changes the lines of each.
///
/// # Panics
/// When a metric or an instance domain has no identifier.
pub fn with_sorted_metadata(text: &str, change: impl Fn(&str) -> String) -> String {
    let metrics = with_sorted_blocks(text, "Descriptions for Metrics in the Log ...\n", "PMID: ", &change);
    with_sorted_blocks(&metrics, "Instance Domains in the Log ...\n", "InDom: ", &change)
}

/// Sorts the blocks of the section below `title`, whose first lines begin with `key` and numbers.
fn with_sorted_blocks(text: &str, title: &str, key: &str, change: impl Fn(&str) -> String) -> String {
    let Some(start) = text.find(title).map(|at| at + title.len()) else { return text.to_owned() };
    let end = text[start..].find("\n\n").map_or(text.len(), |at| start + at + 1);
    let mut blocks: Vec<String> = Vec::new();
    for line in text[start..end].split_inclusive('\n') {
        match blocks.last_mut() {
            Some(block) if !line.starts_with(key) => block.push_str(line),
            _ => blocks.push(line.to_owned()),
        }
    }
    blocks.sort_by_cached_key(|block| -> Vec<u32> {
        let id = block[key.len()..].split([' ', '\n']).next().expect("an identifier");
        id.split('.').map(|number| number.parse().unwrap_or(0)).collect()
    });
    let blocks: String = blocks.iter().map(|block| change(block)).collect();
    [&text[..start], &blocks, &text[end..]].concat()
}

/// Returns the output of a command without the words of its usage message, which are our own. Only the options of that
/// message are kept.
pub fn without_usage_words(text: &str) -> String {
    let Some((before, usage)) = text.split_once("Usage:") else { return text.to_owned() };
    let options = usage.lines().filter_map(|line| {
        let line = line.strip_prefix("  ").filter(|line| line.starts_with('-'))?;
        Some(line.split_once("  ").map_or(line, |(option, _)| option))
    });
    format!("{before}Usage: {}\n", options.collect::<Vec<_>>().join(" "))
}

/// Runs `command` with `input` on its standard input, and both outputs in one stream, within the time limit.
#[track_caller]
pub(crate) fn run(command: Command, input: &str) -> Output {
    let words: Vec<&OsStr> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");

    let mut limited = Command::new("timeout");
    limited.args(["-k", "1", LIMIT]).args(&words);
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(key, value),
            None => limited.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }

    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
    let mut child = limited
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().expect("a second descriptor"))
        .stderr(writer)
        .spawn()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    drop(limited); // It holds the pipe's writing end, and the reader waits until all writing ends are closed.

    let mut stdin = child.stdin.take().expect("a piped standard input");
    let mut bytes = Vec::new();
    thread::scope(|scope| {
        // A tool may end before it has read everything. Its status shows whether it succeeded.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        File::from(reader).read_to_end(&mut bytes).expect("the tool's output");
    });
    let status = child.wait().expect("the tool's exit status");
    Output { command: line, status, text: String::from_utf8_lossy(&bytes).into_owned() }
}
