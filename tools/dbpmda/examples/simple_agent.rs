//! Agent simple, made with this framework, for the tests.

fn main() -> std::process::ExitCode {
    pmda::main::<pmda_simple::Simple>()
}
