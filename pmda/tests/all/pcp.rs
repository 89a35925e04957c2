//! The test agents under the real pmcd, compared with PCP's C library.

mod cache;
mod clients;
mod dynamic;
mod events;
mod labels;
mod states;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use crate::stage::{self, Stage};
use crate::zoo::{self, Zoo};
use pmapi::Config;
use pmda::host::Engine;
use testkit::{Agent, Pcp, Pmcd};

/// Starts a private pmcd with the agent `zoo`.
fn zoo() -> Pmcd {
    let names = Engine::<Zoo>::builder().config(Config::new(b"", [])).schema().unwrap().pmns().unwrap();
    let agent = Agent::new("zoo", zoo::DOMAIN, example("zoo")).names(&names);
    Pcp::required().pmcd().agent(agent).start()
}

/// Returns the agent `stage`, for a private pmcd.
fn stage() -> Agent {
    let names = Engine::<Stage>::builder().config(Config::new(b"", [])).schema().unwrap().pmns().unwrap();
    Agent::new("stage", stage::DOMAIN, example("stage")).names(&names).args(["-l", "stage.log"])
}

/// Builds a program of `examples` and returns its path. Cargo itself builds these only for some selections of tests.
/// With the features of one package alone, it would compile most dependencies once more.
fn example(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--workspace", "--examples"]);
        cargo.args((!cfg!(debug_assertions)).then_some("--release"));
        assert!(cargo.status().unwrap().success());
    });
    let exe = std::env::current_exe().unwrap();
    exe.parent().and_then(Path::parent).unwrap().join("examples").join(name)
}

/// Compiles a C program against PCP's libraries in `dir`.
fn compile(source: &str, text: &str, dir: &Path) -> PathBuf {
    let file = dir.join(source);
    std::fs::write(&file, text).unwrap();
    testkit::compile(file, dir, &["-lpcp_pmda", "-lpcp"])
}
