//! The agent as a daemon.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use pcp_base::escape;
use pmapi::{Config, Domain};
use thiserror::Error;
use tracing::{error, warn};

use crate::agent::Agent;
use crate::command_line::{CommandLine, Options};
use crate::engine::{Engine, EngineBuilder, SetupError, Startup};
use crate::error::BoxError;
use crate::install::{self, Task};
use crate::options::spelling;
use crate::peer::{Starter, close_inherited};
use crate::program::{become_user, intended_user};
use crate::schema::Mistakes;
use crate::session::Session;
use crate::transport::{Bound, is_connected};
use crate::{log, user};

/// Runs an agent as its binary's `main`: parses the command line, opens the log, connects to pmcd, and answers requests
/// until pmcd closes the connection (pmdaDaemon(3) to pmdaMain(3)).
///
/// Closes descriptors that the process has inherited, other than standard input, output and error. An agent that pmcd has
/// started, and that waits for it at a socket, ends if pmcd ends without connecting.
pub fn main<A: Agent>() -> ExitCode {
    run::<A>(std::env::args_os())
}

/// Defines the `main` function of an agent's binary: `pmda::main!(Mine);` calls [`main::<Mine>()`](fn@crate::main).
#[macro_export]
macro_rules! main {
    ($agent:ty) => {
        fn main() -> ::std::process::ExitCode {
            $crate::main::<$agent>()
        }
    };
}

/// Runs an agent as [`main`](fn@main) does, with a command line of the caller, whose first argument is the program.
pub fn run<A: Agent>(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(task) = Task::of(&args) {
        return install::main(task, A::NAME, args.into_iter().skip(2).collect());
    }
    let mut options = match Options::parse::<A>(args) {
        Ok(options) => options,
        Err(refused) => return refused.complain().into(),
    };
    // Now, because pmcd may end before the agent waits for it.
    let starter = options.address.as_ref().and_then(|_| Starter::find());
    if let Some(code) = A::command_line(&mut CommandLine(&mut options)) {
        return code;
    }
    if options.write_pmda.is_some() || options.write_help.is_some() {
        return written::<A>(&options);
    }
    if options.address.is_none() && !is_connected() {
        escape::eprint(format_args!("{}\n", without_pmcd(&options.program)));
        return ExitCode::FAILURE;
    }
    close_inherited();
    let file =
        options.log.clone().unwrap_or_else(|| format!("{}.log", options.name.as_deref().unwrap_or(A::NAME)).into());
    let config = Config::load();
    let user = intended_user(options.username.as_deref(), &config);
    log::open(&options.program, &file, user);
    log::subscribe(&options.program, options.debug, A::layers());
    log::panics();
    for operand in &options.operands {
        warn!("ignoring the argument {operand:?}");
    }
    // The panic has been logged. The last line of the log is written as after a normal end.
    let served = catch_unwind(AssertUnwindSafe(|| serve::<A>(&options, config, user, starter)))
        .unwrap_or_else(|_| Err("the agent panicked".into()));
    if let Err(e) = &served {
        for reason in reasons(e) {
            error!(critical = !e.is::<NotOpened>(), "{reason}");
        }
    }
    log::close();
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the reasons why an agent does not start, one text for each mistake in its declarations.
fn reasons(failure: &BoxError) -> Vec<String> {
    match failure.downcast_ref::<SetupError>() {
        Some(SetupError::Declarations(Mistakes(mistakes))) => mistakes.iter().map(ToString::to_string).collect(),
        // An error of the system has no path and no place.
        Some(SetupError::Agent(e)) if e.is::<std::io::Error>() || e.is::<pmapi::Error>() => {
            vec![format!("Agent::new: {e}")]
        }
        _ => vec![failure.to_string()],
    }
}

/// Returns the message for a user who starts an agent without pmcd, where its PDUs would be garbage.
fn without_pmcd(program: &str) -> String {
    format!(
        "{program}: this is an agent of Performance Co-Pilot, which pmcd(1) starts to talk to it over standard input \
         and output; `cargo pmda run` shows its metrics, --write-pmda DIR writes its directory with the script Install, \
         and --help lists the options"
    )
}

/// The agent cannot open its resources. As in C agents this is logged as an error, not as critical.
#[derive(Debug, Error)]
#[error(transparent)]
struct NotOpened(BoxError);

fn builder<A: Agent>(options: &Options) -> EngineBuilder<A> {
    let mut builder = Engine::builder().options(options.matches.clone());
    if let Some(name) = &options.name {
        builder = builder.name(name);
    }
    if let Some(domain) = options.domain.and_then(Domain::new) {
        builder = builder.domain(domain);
    }
    builder
}

/// Connects to pmcd and answers it.
///
/// Sockets are created before the change of user. The version is sent before the agent opens its source, because pmcd
/// waits for it. If looking up users takes time, the version is sent to a pipe even before that.
fn serve<A: Agent>(
    options: &Options,
    config: Config,
    user: Option<user::UserIds>,
    starter: Option<Starter>,
) -> Result<(), BoxError> {
    let bound = match &options.address {
        Some(address) => address.bind(&config, user).map_err(|e| format!("{address}: {e}"))?,
        None => Bound::Pipe,
    };
    let waits = matches!(bound, Bound::Pipe) && !user::is_quick();
    if !waits {
        become_user(options.username.as_deref(), &config)?;
    }
    let connection = bound.accept(&config, starter).map_err(|e| match &options.address {
        Some(address) => format!("{address}: {e}"),
        None => format!("pipe: {e}"),
    })?;
    let mut session = Session::open(connection.input, connection.output, A::WANTS)?;
    if waits {
        become_user(options.username.as_deref(), &config)?;
    }
    let mut engine = builder::<A>(options).config(config).build()?;
    if let Some(base) = &options.helpfile {
        engine.open_help(base).unwrap_or_else(|e| warn!("unable to open help text files: {e}"));
    }
    if options.open_control {
        engine.access_mut().open();
    }
    engine.agent_mut().open().map_err(NotOpened)?;
    Ok(session.serve(&mut engine, if options.not_ready { Startup::NotReady } else { Startup::Ready })?)
}

/// Writes files. An error, and also a panic of the agent's code, becomes a line on standard error. The log of
/// [`Agent::new`], which may have the cause of the error, precedes it.
fn written<A: Agent>(options: &Options) -> ExitCode {
    log::subscribe(&options.program, options.debug, A::layers());
    log::panics();
    let outcome = log::catch(|| write::<A>(options));
    log::finish();
    match outcome.unwrap_or_else(|panic| Err(format!("the agent panicked{panic}").into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            for reason in reasons(&e) {
                // The message of a panic may have several lines.
                let line = reason.lines().map(str::trim).collect::<Vec<_>>().join(" ");
                escape::eprint(format_args!("{}: {line}\n", options.program));
            }
            ExitCode::FAILURE
        }
    }
}

fn write<A: Agent>(options: &Options) -> Result<(), BoxError> {
    if let Some(reason) = options.unfit_for_install().filter(|_| options.write_pmda.is_some()) {
        return Err(reason.into());
    }
    let schema = builder::<A>(options).schema()?;
    if let Some(dir) = &options.write_pmda {
        schema.write_dir(dir, &std::env::current_exe()?, spelling::<A>)?;
    }
    if let Some(base) = &options.write_help {
        schema.write_help(base)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_error_of_new_says_where_it_comes_from() {
        let failed = |e: BoxError| reasons(&SetupError::Agent(e).into());
        let e = std::fs::read("/nonexistent").map(drop).map_err(BoxError::from);
        assert_eq!(e.map_err(failed), Err(vec!["Agent::new: No such file or directory (os error 2)".to_owned()]));
        assert_eq!(failed("/nonexistent: not there".into()), ["/nonexistent: not there"]);
    }
}
