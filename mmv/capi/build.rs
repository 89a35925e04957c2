//! Gives the shared object its name, and its functions the names and versions of `exports.map`.
//!
//! Rust exports each function with an underscore in front, because the version script that rustc passes to the linker
//! would otherwise leave it without a version. The linker's option `--defsym` adds the name that programs know.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rerun-if-changed=build.rs");
    let dir = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let map = Path::new(&dir).join("exports.map");
    let text = fs::read_to_string(&map).unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpcp_mmv.so.1");
    // The handler of a signal stays in the process: the library must, too.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Otherwise a second copy of the library in a process would call functions of the first one.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    if !links_with_lld() {
        let Some(dir) = directory_of_lld() else {
            println!("cargo::warning=libpcp_mmv needs lld as the linker; see README.md of mmv/capi");
            return;
        };
        println!("cargo::rustc-cdylib-link-arg=-B{}", dir.display());
        println!("cargo::rustc-cdylib-link-arg=-fuse-ld=lld");
    }
    for name in functions(&text) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={name}=_{name}");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", map.display());
}

/// Returns the functions that a version script exports.
fn functions(map: &str) -> impl Iterator<Item = &str> {
    map.lines().filter_map(|line| line.trim().strip_suffix(';')).filter(|name| name.starts_with("mmv_"))
}

/// Returns whether rustc links with lld, which accepts a second version script. GNU ld does not.
fn links_with_lld() -> bool {
    let target = env::var("TARGET").unwrap_or_default();
    let minor = rustc(&["--version"]).split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    target == "x86_64-unknown-linux-gnu" && minor.is_some_and(|minor| minor >= 90)
}

/// Returns the directory of the lld that comes with rustc, under the name that the C compiler looks for.
fn directory_of_lld() -> Option<PathBuf> {
    let sysroot = rustc(&["--print", "sysroot"]);
    let dir = Path::new(sysroot.trim()).join("lib/rustlib").join(env::var("HOST").ok()?).join("bin/gcc-ld");
    dir.join("ld.lld").exists().then_some(dir)
}

/// Returns what rustc prints.
fn rustc(arguments: &[&str]) -> String {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).into_owned()
}
