//! The daemon.

fn main() -> std::process::ExitCode {
    pmda_mmv::allow_many_files();
    pmda::main::<pmda_mmv::Mmv>()
}
