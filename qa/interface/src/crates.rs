//! The library crates of the workspace.

use std::path::{Path, PathBuf};

/// Library crate of the workspace.
#[derive(Clone, Copy, Debug)]
pub struct Crate {
    /// Name of the package.
    pub package: &'static str,
    /// Directory of the package, from the root of the repository.
    pub directory: &'static str,
}

/// Returns the crates whose public interface is recorded.
pub fn library_crates() -> [Crate; 14] {
    [
        ("pcp-archive", "archive"),
        ("pcp-pmcd-client", "client"),
        ("pcp-collector", "collector"),
        ("pcp-context", "context"),
        ("pcp-derive", "derive"),
        ("pcp-exposition", "agents/openmetrics/exposition"),
        ("pcp-help", "help"),
        ("pcp-mmv", "mmv"),
        ("pcp-mmv-reader", "mmv/reader"),
        ("pcp-pdu", "pdu"),
        ("pcp-pmapi", "pmapi"),
        ("pcp-pmda", "pmda"),
        ("pcp-pmns", "pmns"),
        ("pcp-trace", "trace"),
    ]
    .map(|(package, directory)| Crate { package, directory })
}

impl Crate {
    /// Returns the path of the crate's root module.
    pub fn root(&self) -> PathBuf {
        repository().join(self.directory).join("src/lib.rs")
    }

    /// Returns the path of the file with the crate's recorded interface.
    pub fn record(&self) -> PathBuf {
        repository().join("qa/interface/crates").join(self.package).with_extension("txt")
    }
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
