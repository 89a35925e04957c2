//! Option `--check`.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the option `--check`.
pub fn check(_: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    None
}
