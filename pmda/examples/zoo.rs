//! The agent `zoo` of the conformance suite as a daemon, for the tests with PCP.

#[path = "../tests/zoo/mod.rs"]
mod zoo;

fn main() -> std::process::ExitCode {
    pmda::main::<zoo::Zoo>()
}
