//! The agent `stage` as a daemon, for the tests of events, clients and states with PCP.

#[path = "../tests/stage/mod.rs"]
mod stage;

fn main() -> std::process::ExitCode {
    pmda::main::<stage::Stage>()
}
