//! Processes that end with this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{getegid, geteuid};
use pmapi::pdu::handshake::Attribute;
use pmda::collector::{self, Collector, Process};

/// The first argument of this agent's program when it is to become another agent.
const AS_OPERAND: &str = "operand-agent";

/// This agent's program, even when there is another one in its place by now.
const SELF: &str = "/proc/self/exe";

/// Whether this process is a program that knows what to do with it.
static KNOWS: AtomicBool = AtomicBool::new(false);

/// In every agent that this one has started: such an agent starts none, or a configuration could go round in circles.
const NESTED: &str = "PMDADERIVED_OPERAND";

/// What `main` does first. As `operand-agent PROGRAM ARGUMENT…` this process becomes an agent whose metrics are
/// operands, which is killed when the process that has started it ends: the end of its input ends an agent, but not one
/// that hangs.
pub fn become_operand(args: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut args = args.into_iter().skip(1);
    if args.next().is_none_or(|first| first != AS_OPERAND) {
        KNOWS.store(true, Relaxed);
        return None;
    }
    let program = args.next()?;
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let e = Command::new(&program).args(args).exec();
    eprintln!("{}: {e}", program.display());
    Some(ExitCode::FAILURE)
}

/// Whether this process is an agent that was started for its metrics itself.
pub(super) fn is_nested() -> bool {
    std::env::var_os(NESTED).is_some()
}

/// The command that starts an agent.
pub(super) fn command(words: &[String]) -> Command {
    let own = KNOWS.load(Relaxed).then_some([SELF, AS_OPERAND]).into_iter().flatten();
    let mut words = own.chain(words.iter().map(String::as_str));
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).env(NESTED, "1");
    command
}

/// Tells an agent that wants to know for whom it works: for this process.
pub(super) fn introduce(agent: &mut Collector<Process>) -> collector::Result {
    agent.attribute(Attribute::USERID, &geteuid().to_string())?;
    agent.attribute(Attribute::GROUPID, &getegid().to_string())?;
    agent.attribute(Attribute::PROCESSID, &std::process::id().to_string())?;
    Ok(())
}
