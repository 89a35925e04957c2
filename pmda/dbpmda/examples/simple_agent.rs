//! The agent simple, for the tests: an agent that is made with this framework.

fn main() -> std::process::ExitCode {
    pmda::main::<pmda_simple::Simple>()
}
