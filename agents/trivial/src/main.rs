//! Daemon `pmdatrivial`.
fn main() -> std::process::ExitCode {
    pmda::main::<pmda_trivial::Trivial>()
}
