//! Command line of `pmlogderive`. `packaging/manpages` has this file as a module, too.

use std::path::PathBuf;

use clap::Parser;

/// Evaluates derived metrics over an archive, and writes them to a new archive. The definitions are those of agent
/// derived.
#[derive(Parser, Debug)]
#[command(name = "pmlogderive", version = pcp_base::build::version(env!("CARGO_PKG_VERSION")))]
pub(crate) struct Options {
    /// Definitions: colon-separated files and directories; by default `$PCP_SYSCONF_DIR/pmdaderived`
    #[arg(short, long, value_name = "PATH")]
    pub(crate) config: Option<String>,
    /// Print the descriptors or errors of the definitions, and write no archive
    #[arg(long)]
    pub(crate) check: bool,
    /// --check: also print the values after N records
    #[arg(short, long, value_name = "N", requires = "check", default_value_t = 0)]
    pub(crate) samples: u32,
    /// --check: print one line for each definition, with tab-separated fields
    #[arg(long, requires = "check")]
    pub(crate) tsv: bool,
    /// Domain of the metrics' PMIDs
    #[arg(short, long, value_name = "NUMBER", default_value_t = 404)]
    pub(crate) domain: u32,
    /// Archive to read: its name without suffix, several names with commas between, or a directory
    pub(crate) input: PathBuf,
    /// Archive to write, which must not exist
    #[arg(required_unless_present = "check", conflicts_with = "check")]
    pub(crate) output: Option<PathBuf>,
}
