//! Daemon `pmdareplay`.

fn main() -> std::process::ExitCode {
    pmda::main::<pmda_replay::Replay>()
}
