//! Program `pcp-agents`. All of it is in the library.

fn main() -> std::process::ExitCode {
    pcp_agents::main()
}
