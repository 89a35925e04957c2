//! Links the unwinder of panics into agents statically.
//!
//! Otherwise agents load `libgcc_s`, which takes a tenth of their start, while pmcd waits. Agents load `libgcc_s` where
//! the C compiler has no static library of the unwinder.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let target = |what: &str| env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    // With a static C library, Rust's standard library links it statically itself.
    let is_static = target("FEATURE").split(',').any(|feature| feature == "crt-static");
    if target("OS") != "linux" || target("ENV") != "gnu" || is_static {
        return;
    }
    let cc = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let Ok(output) = Command::new(cc).arg("-print-file-name=libgcc_eh.a").output() else { return };
    let path = String::from_utf8_lossy(&output.stdout).into_owned();
    // A compiler that does not find the file prints its bare name.
    if let Some(dir) = Path::new(path.trim()).parent().filter(|dir| dir.is_absolute()) {
        println!("cargo::rustc-link-search=native={}", dir.display());
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
