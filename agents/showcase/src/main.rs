//! Daemon `pmdashowcase`.

fn main() -> std::process::ExitCode {
    pmda::main::<pmda_showcase::Showcase>()
}
