//! The daemon. Called `pmdapmproxy`, it exports the files of pmproxy, as PCP's agent does.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = pmda::install::library(std::env::args_os()) {
        return code;
    }
    pmda_mmv::allow_many_files();
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == "pmdapmproxy") {
        pmda::main::<pmda_mmv::PmProxy>()
    } else {
        pmda::main::<pmda_mmv::Mmv>()
    }
}
