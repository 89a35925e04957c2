//! Program `pcp-view`, which is all in the library.

fn main() -> std::process::ExitCode {
    pcp_view::cli::main()
}
