//! Installs an agent into the Performance Co-Pilot of this host, and removes it: the program of an agent does both with
//! `--install` and `--remove`, for the scripts `Install` and `Remove` in its directory.
//!
//! Install puts the agent's directory into `$PCP_PMDAS_DIR/NAME`, adds the names of its metrics to the name space and its
//! line to pmcd's configuration, and makes pmcd read both. Remove restores the state before Install.
//!
//! This module is for programs that are installed in another way than an agent by itself: [`host`] for those that run
//! another agent, [`library`] for the library that comes with an agent, and [`ask`] for more questions before an Install.

mod about;
mod check;
mod directory;
mod domains;
mod host;
#[allow(clippy::module_inception, reason = "Install is the name of the thing")]
mod install;
mod library;
mod names;
mod options;
mod pmcd;
mod pmcd_conf;
mod questions;
mod remove;
mod report;
mod site;

use std::ffi::OsString;
use std::process::ExitCode;

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

pub(crate) use about::{About, FILE, Question, Spelling};
pub use library::library;
use options::{Install, Remove};
use report::{Outcome, Stop};
use site::Site;

/// What the program of an agent does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    Install,
    Remove,
}

impl Task {
    /// Returns what the command line of an agent's program asks for, if it is Install or Remove.
    pub(crate) fn of(args: &[OsString]) -> Option<Task> {
        let first = args.get(1)?;
        [Task::Install, Task::Remove].into_iter().find(|task| first == task.option())
    }

    /// Returns the name of the script in the agent's directory.
    pub(crate) fn script(self) -> &'static str {
        match self {
            Task::Install => "Install",
            Task::Remove => "Remove",
        }
    }

    /// Returns the option of the agent's program.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Task::Install => "--install",
            Task::Remove => "--remove",
        }
    }
}

/// Runs Install or Remove for the agent of this program. `words` are the options after `--install` or `--remove`.
pub(crate) fn main(task: Task, own_name: &str, words: Vec<OsString>) -> ExitCode {
    report::set_script(task.script());
    let done = match task {
        Task::Install => Install::of(words)
            .map(|options| perform(own_name, &options.here, task, |site| install::install(site, &options))),
        Task::Remove => options::parse::<Remove>(words)
            .map(|(options, _)| perform(own_name, &options.here, task, |site| remove::remove(site, &options))),
    };
    done.map_or_else(|code| code, ended)
}

/// Performs `--install NAME` and `--remove NAME` of a program that loads agents which are shared objects: pmcd starts the
/// program in place of loading agent NAME, or loads the agent itself again. `args` is the command line. Returns `None` for
/// another command line.
pub fn host(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<_> = args.into_iter().collect();
    let task = Task::of(&args)?;
    report::set_script(task.script());
    Some(ended(perform_host(task, &args[2..])))
}

/// Asks a question on the terminal as Install does, until `check` accepts the answer. The answer `?` shows `about`. Returns
/// `None` if there is no answer, after a message.
pub fn ask<T>(prompt: &str, default: &str, about: &str, check: impl FnMut(&str) -> Result<T, String>) -> Option<T> {
    questions::ask(false, prompt, default, about, check).inspect_err(Stop::print).ok()
}

/// Returns the agent's own options that an earlier Install of agent `name` has kept.
pub fn kept(name: &str) -> Vec<String> {
    install::words_of(&site::pmdas(&pmapi::Config::load()).join(name).join("arguments.conf"))
}

fn ended(done: Outcome<()>) -> ExitCode {
    done.map_or_else(
        |stop| {
            stop.print();
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// Performs `act` for the agent, while no other Install or Remove runs.
fn perform(own_name: &str, here: &options::Here, task: Task, act: impl FnOnce(&Site) -> Outcome<()>) -> Outcome<()> {
    umask(Mode::from_bits_truncate(0o022));
    let config = site::find_pcp()?;
    if !geteuid().is_root() {
        return Err(Stop::new(format!("only root can {} an agent.", task.script().to_lowercase())));
    }
    report::signals_end("nothing is changed", None);
    report::handle_signals()?;
    let site = Site::new(config, here.name.as_deref().unwrap_or(own_name), here.namespace.as_deref());
    let _lock = site::one_at_a_time()?;
    let done = act(&site);
    report::signals_wait();
    done.and(directory::finish(&site).map(drop))
}

fn perform_host(task: Task, words: &[OsString]) -> Outcome<()> {
    umask(Mode::from_bits_truncate(0o022));
    let [name] = words else {
        return Err(Stop::new("host needs the name of an agent in pmcd's configuration, and nothing else."));
    };
    let name = name.to_string_lossy();
    let name = crate::command_line::name(&name)
        .map_err(|why| Stop(format!("{name} cannot be the name of an agent: {why}.")))?;
    let config = site::find_pcp()?;
    if !geteuid().is_root() {
        let script = task.script();
        return Err(Stop::new(format!("only root can change pmcd's configuration: sudo ./{script} host {name}")));
    }
    report::signals_end("nothing is changed", None);
    report::handle_signals()?;
    let _lock = site::one_at_a_time()?;
    let site = Site::new(config, &name, None);
    match task {
        Task::Install => host::install(&site),
        Task::Remove => host::remove(&site),
    }
}
