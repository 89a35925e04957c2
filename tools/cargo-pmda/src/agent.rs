//! Runs and checks the agent in a folder, and prints the files that it writes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::unistd::{User, geteuid};
use pcp_base::escape::{self, Output, TerminalWriter};
use pcp_view::{BoxError, Plan, Printed, trial};
use pmapi::Config;
use tempfile::TempDir;

use crate::cli::{Check, Print, Run};
use crate::package::Package;

/// Shows the live metrics of the agent.
pub(crate) fn run(run: &Run) -> Result<ExitCode, BoxError> {
    let package = Package::find(&run.build.selection)?;
    let binary = package.build(&run.build, "dev")?;
    let logs = package.target.join("pmda");
    fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    pcp_view::show(&run.view, |scratch| {
        let dir = scratch.join("written");
        tried(&binary, &run.args, &dir, scratch)?;
        let mut command = Command::new(&binary);
        command.args(as_user(OsStr::new("-"))?).args(&run.args).envs(trial(scratch)?);
        // The log, which is the agent's standard error, stays there after the run.
        Ok(vec![Plan::with_names(command, &dir.join("root"), &logs)?])
    })
}

/// Checks the agent as `dbpmda check` does, and prints the end of the agent's log if a rule is broken. Warns of metrics
/// whose names do not begin with the agent's.
pub(crate) fn check(check: &Check) -> Result<ExitCode, BoxError> {
    let package = Package::find(&check.build.selection)?;
    let binary = package.build(&check.build, "dev")?;
    let scratch = scratch()?;
    let dir = scratch.path().join("written");
    tried(&binary, &check.args, &dir, scratch.path())?;
    let log = scratch.path().join("log");
    // The agent replaces this file.
    File::create(&log)?;
    let mut words: Vec<OsString> = vec!["cargo pmda check".into(), "--namespace".into(), dir.join("root").into()];
    words.extend(["--log".into(), log.clone().into()]);
    for (option, seconds) in [("--limit", check.limit), ("--timeout", check.timeout)] {
        words.push(format!("{option}={seconds}").into());
    }
    if check.store {
        words.push("--store".into());
    }
    // The agent is the only process with these variables.
    words.push("env".into());
    words.extend(trial(scratch.path())?.map(|(name, path)| {
        let mut word = name.to_owned();
        word.push("=");
        word.push(path);
        word
    }));
    words.push(binary.into_os_string());
    words.extend(as_user(log.as_os_str())?);
    words.extend(check.args.iter().cloned());
    let code = dbpmda::check::cli::run(words.into_iter());
    print_log(&log, code != ExitCode::SUCCESS)?;
    let name = name_in(&dir).unwrap_or_else(|| package.agent().to_owned());
    if name != package.agent() {
        escape::eprint(format_args!(
            "warning: the agent's NAME is {name}, and that of its program pmda{}: Install installs {name}, and cargo pmda \
             remove needs --name {name}\n",
            package.agent()
        ));
    }
    warn_of_names(&name_space(&dir)?, &name);
    Ok(code)
}

/// Returns the name of the agent that has written its directory: that of its program there.
fn name_in(dir: &Path) -> Option<String> {
    let files = fs::read_dir(dir).ok()?.flatten();
    let mut names = files.filter_map(|file| Some(file.file_name().to_str()?.strip_prefix("pmda")?.to_owned()));
    names.find(|name| pmns::is_name(name))
}

/// Largest number of lines of a log, or of warnings, that are printed.
const MOST_LINES: usize = 20;

/// Prints the last lines of an agent's log, or only its warnings and errors. A line that is there several times is printed
/// once.
fn print_log(log: &Path, all: bool) -> io::Result<()> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| all || is_trouble(line)).collect();
    print_lines(&lines, if all { "" } else { " has warnings" })
}

/// Prints the last lines of a log, below a line that says what it has.
fn print_lines(lines: &[&str], has: &str) -> io::Result<()> {
    let lines = distinct(lines.iter().copied());
    let (last, before) = match lines.len().checked_sub(MOST_LINES) {
        Some(before @ 1..) => (&lines[before..], format!(", without {before} lines before")),
        _ => (&lines[..], String::new()),
    };
    if last.is_empty() {
        return Ok(());
    }
    let mut out = TerminalWriter::new(io::stderr().lock());
    writeln!(out, "The agent's log{has}{before}:")?;
    last.iter().try_for_each(|(line, times)| match times {
        1 => writeln!(out, "  {line}"),
        _ => writeln!(out, "  {line} ({times} times)"),
    })
}

/// Returns the lines of a log without its head and end, each with the number of times that it is there, apart from its
/// time.
fn distinct<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
    let mut found: Vec<(&str, usize)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with("Log ")) {
        let text = line.strip_prefix('[').and_then(|line| Some(line.split_once("] ")?.1)).unwrap_or(line);
        match places.entry(text) {
            Entry::Occupied(place) => found[*place.get()].1 += 1,
            Entry::Vacant(place) => {
                place.insert(found.len());
                found.push((line, 1));
            }
        }
    }
    found
}

/// Returns whether a line is one of a log, which begins with a time in brackets.
fn is_logged(line: &str) -> bool {
    line.starts_with('[') && line.contains("] ")
}

/// Returns whether a line of a log, `[time] program(pid) Severity: text`, is a warning or an error.
fn is_trouble(line: &str) -> bool {
    let severity = line.split_once(") ").and_then(|(_, text)| text.split_once(": "));
    severity.is_some_and(|(severity, _)| ["Warning", "Error", "Critical"].contains(&severity))
}

/// Warns of names that do not begin with the name of the agent. They are allowed, and Install adds them.
fn warn_of_names(tree: &pmns::Tree, agent: &str) {
    let names = tree.root().leaves().map(|leaf| leaf.path());
    let others: Vec<_> = names.filter(|name| !pmapi::names::is_at_or_below(name, agent)).collect();
    for name in others.iter().take(MOST_LINES) {
        escape::eprint(format_args!(
            "warning: {name}: the name does not begin with {agent}. and may collide with those of other agents\n"
        ));
    }
    if others.len() > MOST_LINES {
        escape::eprint(format_args!("warning: {} more such names\n", others.len() - MOST_LINES));
    }
}

/// Prints the name space of the agent, as a file that `pminfo -n` reads.
pub(crate) fn names(of: &Print) -> Result<ExitCode, BoxError> {
    print(of, |dir| Ok(pmns::write::root(&name_space(dir)?)))
}

/// Reads the name space in the directory that the agent writes.
fn name_space(dir: &Path) -> Result<pmns::Tree, BoxError> {
    let include = Config::load().var_dir().join("pmns");
    Ok(pmns::Loader::new().include_dir(include).load(&dir.join("root")).map_err(|e| e.to_string())?)
}

/// Prints the help text of the agent, in the format of newhelp(1).
pub(crate) fn help(of: &Print) -> Result<ExitCode, BoxError> {
    print(of, |dir| {
        let text = fs::read(dir.join("help")).map_err(|e| format!("help: {e}"))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    })
}

/// Prints a text that is made from the directory that the agent writes.
fn print(of: &Print, text: impl FnOnce(&Path) -> Result<String, BoxError>) -> Result<ExitCode, BoxError> {
    let binary = Package::find(&of.build.selection)?.build(&of.build, "dev")?;
    let scratch = scratch()?;
    let dir = scratch.path().join("written");
    tried(&binary, &of.args, &dir, scratch.path())?;
    let text = text(&dir)?;
    match Output::to(io::stdout().lock()).write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn scratch() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("cargo-pmda.").tempdir()
}

/// Makes an agent write its directory in a trial, which does not read or change the state of the installed PCP.
///
/// # Errors
/// Those of [`written`].
pub(crate) fn tried(binary: &Path, args: &[OsString], dir: &Path, scratch: &Path) -> Result<(), BoxError> {
    let mut command = Command::new(binary);
    command.args(args).envs(trial(scratch)?);
    written(command, dir).map_err(Refused::explained)
}

/// An agent has not written its directory.
#[derive(Debug)]
pub(crate) struct Refused {
    reason: BoxError,
    /// The agent's log, which may have the cause.
    log: Vec<String>,
}

impl Refused {
    /// Prints the log. Returns the reason.
    pub(crate) fn explained(self) -> BoxError {
        let log: Vec<_> = self.log.iter().map(String::as_str).collect();
        let _ = print_lines(&log, "");
        self.reason
    }
}

impl<E: Into<BoxError>> From<E> for Refused {
    fn from(reason: E) -> Refused {
        Refused { reason: reason.into(), log: Vec::new() }
    }
}

/// Makes an agent write its directory.
///
/// # Errors
/// The agent's message, for example about its options. [`Printed`] if an option makes the agent print a text and exit.
pub(crate) fn written(mut command: Command, dir: &Path) -> Result<(), Refused> {
    command.arg("--write-pmda").arg(dir).stdin(Stdio::null());
    let name = command.get_program().to_owned();
    let name = Path::new(&name).display();
    let ended = command.output().map_err(|e| format!("{name}: {e}"))?;
    if ended.status.success() && dir.join("root").exists() {
        return Ok(());
    }
    if ended.status.success() && !ended.stdout.is_empty() {
        return Err(Printed(String::from_utf8_lossy(&ended.stdout).into_owned()).into());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    let lines = said.lines().filter(|line| !line.is_empty()).map(str::to_owned);
    let (log, said): (Vec<_>, Vec<_>) = lines.partition(|line| is_logged(line));
    // An agent prints the reason first, and then its usage. The message of a panic, such as that of clap about an option
    // that is defined twice, follows the place.
    let panics = said.first().is_some_and(|line| line.starts_with("thread '") && line.contains("panicked at"));
    let first = said.into_iter().nth(usize::from(panics));
    let reason = first.unwrap_or_else(|| format!("{name} does not write the directory of an agent ({})", ended.status));
    Err(Refused { reason: reason.into(), log })
}

/// Returns the options that make an agent write its log to a file, and run as the current user. As root it would
/// otherwise become PCP's user, which may not have the right to read files here.
fn as_user(log: &OsStr) -> Result<Vec<OsString>, BoxError> {
    let mut options = vec!["--log".into(), log.to_owned()];
    if let Some(user) = User::from_uid(geteuid())? {
        options.extend(["--username".into(), user.name.into()]);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_printed_once() {
        let log = "Log for pmdahello on host started Tue Nov 24 05:13:00 2026\n\n\
                   [Tue Nov 24 05:13:01] pmdahello(12) Warning: /etc/x: No such file\n\
                   [Tue Nov 24 05:13:01] pmdahello(12) Info: hello: all well\n\
                   [Tue Nov 24 05:13:02] pmdahello(12) Warning: /etc/x: No such file\n\
                   of a library: Error: none\n";
        let warning = "[Tue Nov 24 05:13:01] pmdahello(12) Warning: /etc/x: No such file";
        assert_eq!(distinct(log.lines().filter(|line| is_trouble(line))), [(warning, 2)]);
        let all: Vec<_> = distinct(log.lines()).into_iter().map(|(_, times)| times).collect();
        assert_eq!(all, [2, 1, 1]);
    }

    #[test]
    fn the_name_is_that_of_the_program_in_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["Install", "pmda_other.so", "root", "pmdaother"] {
            fs::write(dir.path().join(file), "").unwrap();
        }
        assert_eq!(name_in(dir.path()).as_deref(), Some("other"));
    }
}
