//! Time to load the merged name space of the installed PCP, with this crate and with libpcp.
//!
//! The environment variable `PMNS_FILE` names another file.

#![allow(clippy::unwrap_used)]

use pmns::Loader;
use std::path::{Path, PathBuf};
use std::process::Command;

fn file() -> PathBuf {
    std::env::var_os("PMNS_FILE").map_or_else(|| "/var/lib/pcp/pmns/root".into(), PathBuf::from)
}

fn main() {
    if !file().exists() {
        println!("not run: {} is missing (cd /var/lib/pcp/pmns && ./Rebuild)", file().display());
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    for (mode, function) in [("time", "pmLoadASCIINameSpace"), ("plain", "pmLoadNameSpace, no preprocessor")] {
        println!("libpcp, {function}: {} µs, the least of 100", libpcp(tmp.path(), mode));
    }
    divan::main();
}

/// Runs `tests/support/oracle.c` and returns the microseconds that it prints.
fn libpcp(tmp: &Path, mode: &str) -> String {
    let program = tmp.join("oracle");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/oracle.c");
    assert!(Command::new("gcc").args(["-O2", "-o"]).arg(&program).args([source, "-lpcp"]).status().unwrap().success());
    let output = Command::new(program).arg(mode).arg(file()).arg("100").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().into()
}

#[divan::bench]
fn load() -> pmns::Tree {
    Loader::new().load(&file()).unwrap()
}

#[divan::bench]
fn lookup(bencher: divan::Bencher<'_, '_>) {
    let tree = Loader::new().load(&file()).unwrap();
    let name = tree.root().leaves().last().unwrap().path();
    bencher.bench(|| tree.lookup(divan::black_box(&name)));
}
