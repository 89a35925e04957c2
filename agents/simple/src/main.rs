//! Daemon `pmdasimple`.

fn main() -> std::process::ExitCode {
    pmda::main::<pmda_simple::Simple>()
}
