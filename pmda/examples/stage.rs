//! The agent of the tests of events, clients and states as a daemon, for the tests with PCP.

#[path = "../tests/stage/mod.rs"]
mod stage;

fn main() -> std::process::ExitCode {
    pmda::main::<stage::Stage>()
}
