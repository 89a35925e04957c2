//! Files of other users in the working directory. That of pmcd is its directory of logs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Stdio};

#[test]
fn a_shared_object_in_the_working_directory_is_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let (here, pmdas) = (dir.path().join("log"), dir.path().join("pmdas"));
    fs::create_dir_all(pmdas.join("jbd2")).unwrap();
    fs::create_dir(&here).unwrap();
    for name in ["pmda_jbd2.so", "jbd2.so"] {
        fs::write(here.join(name), "not to be loaded").unwrap();
        let run = |directory: &str| {
            let mut host = Command::new(env!("CARGO_BIN_EXE_pmda-host"));
            host.args(["--so", &format!("{directory}{name}"), "-d", "122", "-l", "-"]).env("PCP_PMDAS_DIR", &pmdas);
            let output = host.current_dir(&here).stdin(Stdio::null()).output().unwrap();
            assert!(!output.status.success());
            String::from_utf8(output.stderr).unwrap()
        };
        let missing = format!("pmda-host: {}: there is no such file\n", pmdas.join("jbd2").join(name).display());
        assert_eq!(run(""), missing);
        // A path is taken as it is.
        assert!(!run("./").contains("there is no such file"));
    }
}
