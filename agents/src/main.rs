//! Program `pcp-agents`, which is all in the library.

fn main() -> std::process::ExitCode {
    pcp_agents::main()
}
