//! The daemon.

fn main() -> std::process::ExitCode {
    pmda::main::<pmda_derived::Derived>()
}
