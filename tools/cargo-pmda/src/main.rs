//! Command `cargo pmda`, which is all in the library.

fn main() -> std::process::ExitCode {
    cargo_pmda::main()
}
