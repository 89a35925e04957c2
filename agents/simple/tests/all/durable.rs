//! When the agent replaces a file, a crash of the machine leaves the old or the complete new file: the content is on
//! the disk before the file gets its name.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::Command;

use pcp_collector::Launch;
use pmapi::{Domain, InDom, Serial};

#[test]
#[ignore = "needs PCP"] // And a C compiler.
fn an_instance_cache_is_synced_before_it_is_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/durable.c");
    let library = testkit::compile(source, dir.path(), &["-shared", "-fPIC", "-ldl"]);
    let calls = dir.path().join("calls");
    let caches = dir.path().join("config/pmda");
    fs::create_dir_all(&caches).unwrap();
    fs::create_dir(dir.path().join("simple")).unwrap();
    fs::write(dir.path().join("simple/simple.conf"), "sec,min\n").unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmdasimple"));
    command.args(["-l", "-", "-U", &user]).current_dir(dir.path()).env("PCP_CONF", "/nonexistent");
    command.env("PCP_VAR_DIR", dir.path()).env("PCP_PMDAS_DIR", dir.path());
    command.env("LD_PRELOAD", &library).env("CALLS", &calls);
    let mut agent = Launch::pipe(command).start().unwrap();
    let times = InDom::new(Domain::new(253).unwrap(), Serial::new(1));
    assert_eq!(agent.instances(times).unwrap().len(), 2);
    assert!(fs::read_to_string(caches.join("253.1")).unwrap().contains("sec"));
    let calls = fs::read_to_string(calls).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    let renamed = calls.iter().position(|call| call.starts_with("rename ") && call.ends_with("253.1"));
    let renamed = renamed.unwrap_or_else(|| panic!("{calls:?}"));
    let synced = |calls: &[&str], is_file: bool| {
        let caches = fs::canonicalize(&caches).unwrap();
        calls
            .iter()
            .filter_map(|call| call.strip_prefix("sync "))
            .any(|path| if is_file { Path::new(path).parent() == Some(&*caches) } else { Path::new(path) == caches })
    };
    assert!(synced(&calls[..renamed], true), "the file: {calls:?}");
    assert!(synced(&calls[renamed..], false), "the directory: {calls:?}");
}
