//! Command line of `mmvdump`. `packaging/manpages` has this file as a module, too.

use std::path::PathBuf;

use clap::Parser;

/// Prints the contents of a memory mapped values file (mmv(5)), as PCP's mmvdump does.
#[derive(Parser, Debug)]
#[command(name = "mmvdump", version = pcp_base::build::version(env!("CARGO_PKG_VERSION")))]
pub(crate) struct Options {
    /// Prints a JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// The file to print; `$PCP_TMP_DIR/mmv/test` by default. Its name may begin with `-`, as by PCP's mmvdump.
    #[arg(allow_hyphen_values = true)]
    pub(crate) file: Option<PathBuf>,
}
