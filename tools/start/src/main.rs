//! Program behind `cargo run` in the repository's root. It has cargo compile `pcp-agents` with profile `quick`, and
//! then start it with the same arguments.
//!
//! A first try of the agents takes as long as their compilation, and without optimization they are compiled in half the
//! time. `cargo run --release` can only choose profile `release`, which has to optimize for all other uses. Therefore this
//! program starts cargo again, with another profile.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args([
        "run",
        "--profile",
        "quick",
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../agents/Cargo.toml"),
    ]);
    for (name, chosen) in [("openmetrics", cfg!(feature = "openmetrics")), ("trace", cfg!(feature = "trace"))] {
        cargo.args(chosen.then(|| format!("--features={name}")));
    }
    if let Some(directory) = target() {
        cargo.arg("--target-dir").arg(directory);
    }
    let error = cargo.arg("--").args(std::env::args_os().skip(1)).exec();
    let _ = writeln!(std::io::stderr(), "start: cannot run {:?}: {error}", cargo.get_program());
    ExitCode::FAILURE
}

/// The target directory that this program was compiled into, which an option of cargo may have chosen.
fn target() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.parent().and_then(Path::parent).map(Path::to_owned)
}
