//! Program `pcp-view`. All of it is in the library.

fn main() -> std::process::ExitCode {
    pcp_view::cli::main()
}
