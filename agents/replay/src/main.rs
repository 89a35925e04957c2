//! Daemon `pmdareplay`.

fn main() -> std::process::ExitCode {
    pmda_replay::main()
}
