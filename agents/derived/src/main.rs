//! Daemon `pmdaderived`, and its options `--check` and `--write`.

fn main() -> std::process::ExitCode {
    if let Some(ended) = pmda_derived::check(std::env::args_os()) {
        return ended;
    }
    pmda_derived::own_process();
    pmda::main::<pmda_derived::Derived>()
}
