//! The directory that an agent writes contains the shared object that Cargo has built beside the binary.

use std::fs;
use std::process::Command;

#[test]
fn the_shared_object_beside_the_binary_is_part_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let example = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/zoo");
    assert!(example.exists(), "{}: cargo build --examples makes it", example.display());
    let binary = dir.path().join("pmdazoo");
    testkit::copy_executable(example, &binary, 0o755);
    let files = |args: &[&str]| {
        let written = dir.path().join("written");
        let mut command = Command::new(&binary);
        assert!(command.args(args).arg("--write-pmda").arg(&written).status().unwrap().success());
        let object = fs::read_to_string(written.join(format!("pmda_{}.so", args.last().unwrap_or(&"zoo"))));
        fs::remove_dir_all(&written).unwrap();
        object.ok()
    };
    assert_eq!(files(&[]), None);
    fs::write(dir.path().join("libpmda_zoo.so"), "the shared object").unwrap();
    assert_eq!(files(&[]).unwrap(), "the shared object");
    assert_eq!(files(&["--name", "other"]).unwrap(), "the shared object");
}
