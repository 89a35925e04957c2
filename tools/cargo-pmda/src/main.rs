//! Command `cargo pmda`. All of it is in the library.

fn main() -> std::process::ExitCode {
    cargo_pmda::main()
}
