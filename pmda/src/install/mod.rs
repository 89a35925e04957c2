//! Installs an agent into the Performance Co-Pilot of this host, and removes it: the program of an agent does both with
//! `--install` and `--remove`, for the scripts `Install` and `Remove` in its directory.
//!
//! Install puts the agent's directory into `$PCP_PMDAS_DIR/NAME`, adds the names of its metrics to the name space and its
//! line to pmcd's configuration, and makes pmcd read both. Remove restores the state before Install.
//!
//! This module is for programs that are installed in another way than an agent by itself: [`host`] for those that run
//! another agent, and [`ask`] for more questions before an Install.

mod about;
mod check;
mod choices;
mod domains;
mod host;
mod journal;
mod names;
mod outcome;
mod pmcd;
mod pmcd_conf;
mod questions;
mod remove;
mod run;
mod signals;
mod site;
mod task;
mod text;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::{Mode, umask};
use nix::unistd::geteuid;

pub(crate) use about::{About, FILE, Question, Spelling};
use choices::Choices;
use outcome::{Outcome, Stop};
use site::Site;
pub(crate) use task::Task;

/// Returns what the command line of an agent's program asks for, if it is Install or Remove.
pub(crate) fn task(first: Option<&OsString>) -> Option<Task> {
    let first = first?;
    [Task::Install, Task::Remove].into_iter().find(|task| first == task.option())
}

/// Runs Install or Remove for the agent of this program. `words` are the options after `--install` or `--remove`.
pub(crate) fn main(task: Task, own_name: &str, words: Vec<OsString>) -> ExitCode {
    ended(task, perform(task, own_name, words))
}

/// Performs `--install NAME` and `--remove NAME` of a program that loads agents which are shared objects: pmcd starts the
/// program in place of loading agent NAME, or loads the agent itself again. `args` is the command line. Returns `None` for
/// another command line.
pub fn host(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<_> = args.into_iter().collect();
    let task = task(args.get(1))?;
    Some(ended(task, perform_host(task, &args[2..])))
}

/// Asks a question on the terminal as Install does, until `check` accepts the answer. The answer `?` shows `about`. Returns
/// `None` if there is no answer, after a message.
pub fn ask<T>(prompt: &str, default: &str, about: &str, mut check: impl FnMut(&str) -> Result<T, String>) -> Option<T> {
    let asker = questions::Asker::new(Task::Install, false);
    asker
        .ask(prompt, default, about, |answer| check(answer).map_err(Stop::new))
        .inspect_err(|stop| stop.print(Task::Install))
        .ok()
}

/// Returns the agent's own options that an earlier Install of agent `name` has kept.
pub fn kept(name: &str) -> Vec<String> {
    let place = site::pmdas(&pmapi::Config::load()).join(name);
    run::words_of(&place.join("arguments.conf")).unwrap_or_default()
}

fn ended(task: Task, done: Outcome<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            stop.print(task);
            stop.code.into()
        }
    }
}

fn perform_host(task: Task, words: &[OsString]) -> Outcome<()> {
    umask(Mode::from_bits_truncate(0o022));
    let [name] = words else { return Err(Stop::new("host needs the name of an agent in pmcd's configuration.")) };
    let name = choices::name(&name.to_string_lossy())?;
    let config = site::find_pcp()?;
    if !geteuid().is_root() {
        let script = task.script();
        return Err(Stop::new(format!("only root can change pmcd's configuration: sudo ./{script} host {name}")));
    }
    signals::set(signals::Stage::Ends("nothing is changed".to_owned()));
    signals::handle(task, || {})?;
    let _lock = site::one_at_a_time()?;
    let site = Site::new(task, config, &name);
    match task {
        Task::Install => host::install(&site),
        Task::Remove => host::remove(&site),
    }
}

fn perform(task: Task, own_name: &str, words: Vec<OsString>) -> Outcome<()> {
    umask(Mode::from_bits_truncate(0o022));
    let asks_for_help = words.first().is_some_and(|word| word == "-?" || word == "--help");
    if asks_for_help {
        text::part(task.usage());
        return Ok(());
    }
    let config = site::find_pcp()?;
    let choices = Choices::parse(task, words)?;
    if !geteuid().is_root() {
        let what = if task == Task::Install { "install" } else { "remove" };
        return Err(Stop::new(format!("only root can {what} an agent.")));
    }
    signals::set(signals::Stage::Ends("nothing is changed".to_owned()));
    let name = run::name(&choices, own_name)?;
    let mut site = Site::new(task, config, &name);
    if let Some(namespace) = &choices.namespace {
        site.set_namespace(namespace);
    }
    // Files of another run are not this one's.
    let is_locked = Arc::new(AtomicBool::new(false));
    let (cleaned, cleans) = (site.clone(), is_locked.clone());
    signals::handle(task, move || {
        if cleans.load(Ordering::SeqCst) {
            journal::finish(&cleaned);
        }
    })?;
    let _lock = site::one_at_a_time()?;
    is_locked.store(true, Ordering::SeqCst);
    let done = match task {
        Task::Install => run::install(&site, choices),
        Task::Remove => remove::remove(&site, &choices),
    };
    signals::set(signals::Stage::Ignored);
    journal::finish(&site);
    done
}
