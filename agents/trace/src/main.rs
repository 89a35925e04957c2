//! The daemon `pmdatrace`.

fn main() -> std::process::ExitCode {
    pmda_trace::own_process();
    pmda::main::<pmda_trace::Trace>()
}
