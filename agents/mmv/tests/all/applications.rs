//! Applications in C and in Rust, compared under PCP's agent and this one.
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::scene::{Application, Scene, assert_same};
use testkit::Pmcd;

/// Runs a program that shows the use of the crate `mmv`.
fn example(scene: &Scene, program: &str, file: &str, args: &[&str]) -> Application {
    let mut program = Command::new(built().join(program));
    program.args(args);
    scene.start(program, file)
}

/// Builds the programs. Returns the folder that they are in.
fn built() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).args(["build", "--quiet", "--offline"]);
    // With the features of one package alone, Cargo would compile most dependencies once more.
    cargo.args(["--workspace", "--example", "acme"]);
    assert!(cargo.status().unwrap().success());
    // The test is `debug/deps/NAME` in the target folder.
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().join("debug")
}

/// Returns descriptors and instances, which must be equal; help texts and values differ.
fn described(pmcd: &Pmcd) -> String {
    let descriptors = pmcd.run("pminfo", ["-dms", "mmv.acme"]).ok();
    let instances = pmcd.run("pmprobe", ["-I", "mmv.acme"]).ok();
    descriptors + &instances
}

#[test]
#[ignore = "needs PCP"]
// Slow: both agents answer the clients of PCP, for each application.
fn acme_is_the_same_in_c_and_in_rust_under_both_agents() {
    let in_c = Scene::new();
    let source = in_c.pcp.path("PCP_SHARE_DIR").join("demos/mmv/acme.c");
    assert!(source.exists(), "{}: the package pcp has it", source.display());
    let in_rust = Scene::new();
    let _applications =
        [in_c.start(Command::new(in_c.compile(&source)), "acme"), example(&in_rust, "examples/acme", "acme", &[])];
    let c = described(&in_c.under(in_c.c()));
    for part in ["PMID: 70.321.10", "mmv.acme.products.queuetime", "Units: microsec", "InDom: 70.657469"] {
        assert!(c.contains(part), "{part} is not in\n{c}");
    }
    assert_same(&c, &described(&in_c.under(in_c.ours())));
    assert_same(&c, &described(&in_rust.under(in_rust.c())));
    assert_same(&c, &described(&in_rust.under(in_rust.ours())));
    // The values change.
    let pmcd = in_rust.under(in_rust.ours());
    let made = || pmcd.run("pmprobe", ["-v", "mmv.acme.products.count"]).ok();
    let (first, start) = (made(), Instant::now());
    while made() == first {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is made: {first}");
        sleep(Duration::from_millis(20));
    }
}
