//! Runs and checks the agent in a folder, and prints the files that it writes.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use nix::unistd::{User, geteuid};
use pcp_view::{Failure, Plan};
use pmapi::Config;
use pmapi::escape::{self, Output};
use tempfile::TempDir;

use crate::cli::{Check, Print, Run};
use crate::package::Package;

/// Shows the live metrics of the agent.
pub(crate) fn run(run: &Run) -> Result<ExitCode, Failure> {
    let package = Package::find(&run.build.selection)?;
    let binary = package.build(&run.build, "dev")?;
    let mut command = vec![binary.clone().into_os_string()];
    command.extend(as_user(OsStr::new("-"))?);
    command.extend(run.args.iter().cloned());
    let logs = package.target.join("pmda");
    fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    pcp_view::show(&run.view, |scratch| {
        let dir = scratch.join("written");
        written(&binary, &run.args, &dir)?;
        // The log, which is the agent's standard error, stays there after the run.
        Ok(vec![Plan::with_names(&command, &dir.join("root"), &logs)?])
    })
}

/// Checks the agent as `dbpmda check` does, and prints the end of the agent's log if a rule is broken. Warns of metrics
/// whose names do not begin with the agent's.
pub(crate) fn check(check: &Check) -> Result<ExitCode, Failure> {
    let package = Package::find(&check.build.selection)?;
    let binary = package.build(&check.build, "dev")?;
    let scratch = scratch()?;
    let dir = scratch.path().join("written");
    written(&binary, &check.args, &dir)?;
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
    words.push(binary.into_os_string());
    words.extend(as_user(log.as_os_str())?);
    words.extend(check.args.iter().cloned());
    let code = dbpmda::check::cli::run(words.into_iter());
    if code != ExitCode::SUCCESS {
        print_end(&log)?;
    }
    warn_of_names(&name_space(&dir)?, package.agent());
    Ok(code)
}

/// Largest number of lines of a log, or of warnings, that are printed.
const MOST_LINES: usize = 20;

/// Prints the last lines of an agent's log, if it has any.
fn print_end(log: &Path) -> io::Result<()> {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with("Log ")).collect();
    let (last, before) = match lines.len().checked_sub(MOST_LINES) {
        Some(before @ 1..) => (&lines[before..], format!(", without {before} lines before")),
        _ => (&lines[..], String::new()),
    };
    if last.is_empty() {
        return Ok(());
    }
    let mut out = Output::to(io::stderr().lock());
    writeln!(out, "The agent's log{before}:")?;
    last.iter().try_for_each(|line| writeln!(out, "  {line}"))
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
pub(crate) fn names(of: &Print) -> Result<ExitCode, Failure> {
    print(of, |dir| Ok(pmns::write::root(&name_space(dir)?)))
}

/// Reads the name space in the directory that the agent writes.
fn name_space(dir: &Path) -> Result<pmns::Tree, Failure> {
    let include = Config::load().var_dir().join("pmns");
    Ok(pmns::Loader::new().include_dir(include).load(&dir.join("root")).map_err(|e| e.to_string())?)
}

/// Prints the help text of the agent, in the format of newhelp(1).
pub(crate) fn help(of: &Print) -> Result<ExitCode, Failure> {
    print(of, |dir| {
        let text = fs::read(dir.join("help")).map_err(|e| format!("help: {e}"))?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    })
}

/// Prints a text that is made from the directory that the agent writes.
fn print(of: &Print, text: impl FnOnce(&Path) -> Result<String, Failure>) -> Result<ExitCode, Failure> {
    let binary = Package::find(&of.build.selection)?.build(&of.build, "dev")?;
    let scratch = scratch()?;
    let dir = scratch.path().join("written");
    written(&binary, &of.args, &dir)?;
    let text = text(&dir)?;
    match Output::to(io::stdout().lock()).write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn scratch() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("cargo-pmda.").tempdir()
}

/// What an agent prints instead of writing its directory, because of an option such as `--help`.
#[derive(Debug)]
pub(crate) struct Printed(pub(crate) String);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Printed {}

/// Makes an agent write its directory.
///
/// # Errors
/// The agent's message, for example about its options. [`Printed`] if an option makes the agent print a text and exit.
pub(crate) fn written(binary: &Path, args: &[OsString], dir: &Path) -> Result<(), Failure> {
    let mut command = Command::new(binary);
    command.args(args).arg("--write-pmda").arg(dir).stdin(Stdio::null());
    let name = binary.display();
    let ended = command.output().map_err(|e| format!("{name}: {e}"))?;
    if ended.status.success() && dir.join("root").exists() {
        return Ok(());
    }
    if ended.status.success() && !ended.stdout.is_empty() {
        return Err(Printed(String::from_utf8_lossy(&ended.stdout).into_owned()).into());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    // An agent prints the reason first, and then its usage.
    match said.trim().lines().next() {
        Some(said) => Err(said.into()),
        None => Err(format!("{name} does not write the directory of an agent").into()),
    }
}

/// Returns the options that make an agent write its log to a file, and run as the current user. As root it would
/// otherwise become PCP's user, which may not have the right to read files here.
fn as_user(log: &OsStr) -> Result<Vec<OsString>, Failure> {
    let mut options = vec!["--log".into(), log.to_owned()];
    if let Some(user) = User::from_uid(geteuid())? {
        options.extend(["--username".into(), user.name.into()]);
    }
    Ok(options)
}
