//! Shared objects in C and of this framework.

use std::path::Path;
use std::process::Command;

use testkit::{Pcp, built};

use crate::sessions::{OURS, Sessions, is_libpcp_7, shows};

/// All requests, except those at which PCP's dbpmda frees the values of a shared object twice.
const SIMPLE: &str = include_str!("../../../../agents/simple/tests/session.dbpmda");

fn simple() -> String {
    let deadly = |line: &str| line == "store simple.numfetch \"-1\"" || line.starts_with("store simple.time");
    // The clock may differ between the two sessions.
    let of_time = |line: &str| line.contains("simple.now") || line.contains("all none");
    SIMPLE.lines().filter(|line| !deadly(line) && !of_time(line)).flat_map(|line| [line, "\n"]).collect()
}

fn open(object: &Path, init: &str, domain: u16) -> String {
    format!("open dso {} {init} {domain}\n", object.display())
}

#[test]
#[ignore = "needs PCP"]
fn simple_of_c() {
    let c = Pcp::required().c_agent("simple");
    let session = open(&c.shared_object(), "simple_init", 253) + &simple();
    let shown = Sessions::c_agent("simple").same_input(&["-i", "-e"], &session);
    shows(
        &shown,
        &["Connection:             dso\nDSO Interface Version:  7", "inst: 1 name: \"green\"", "pmResult dump"],
    );
}

#[test]
#[ignore = "needs PCP"]
fn simple_of_ours() {
    let session = open(&built("pmda_simple"), "simple_init", 253) + &simple();
    let shown = Sessions::c_agent("simple").same_input(&["-i", "-e"], &session);
    shows(&shown, &["inst: 1 name: \"green\"", "DSO desc() failed: Unknown or illegal metric", "model=\"RGB\""]);
}

#[test]
#[ignore = "needs PCP"]
fn sample_with_every_type() {
    let c = Pcp::required().c_agent("sample");
    let requests = "fetch sample.bin\nfetch sample.string.hullo\nfetch sample.longlong.ten\nfetch sample.float.bin\n\
        fetch sample.double.ten\nfetch sample.aggregate.hullo\nfetch sample.event.records\n\
        fetch sample.event.highres_records\nfetch sample.bogus_bin sample.dodgey.value\ndesc sample.float.bin\n\
        getdesc on\nfetch sample.event.records\nfetch sample.aggregate.null sample.string.null\ngetiname on\n\
        fetch sample.bin\nname 29.0.1\npmid sample.secret.bar\nchildren sample.secret\ntraverse sample.secret\n\
        children nothing\nname 29.0.999\ninstance 29.1\ninstance 29.2\nlabel instances 29.2\nlabel domain\n\
        text sample.control\nattr 5 \"root\"\nfetch sample.secret.foo.one\nstatus\n";
    let session = open(&c.shared_object(), "sample_init", 29) + requests;
    let shown = Sessions::c_agent("sample").same_input(&["-i", "-e"], &session);
    shows(&shown, &["non-leaf", "bin-900", "Attribute: username=root\nSuccess"]);
}

#[test]
#[ignore = "needs PCP"]
fn traces() {
    let c = Pcp::required().c_agent("simple");
    // This value cannot be stored: PCP's dbpmda may free stored values twice.
    let session = open(&c.shared_object(), "simple_init", 253)
        + "debug pdu\ndesc 253.0.1\ndesc 253.9.9\nprofile 253.0 none\nprofile 253.0 add 1\nfetch 253.0.1\n\
           getdesc on\nfetch 253.0.1\ngetiname on\nfetch 253.0.1\nfetch 253.9.9\ninstance 253.0\nprofile 253.0 all\n\
           label instances 253.0\ntext 253.0.1\nstore 253.0.1 \"x\"\ndebug pmns\nchildren nothing\n";
    let shown = Sessions::c_agent("simple").same_input(&["-i", "-e"], &session);
    shows(&shown, &["DSO desc()\n    Data Type", "DSO profile()\nDSO fetch()", "Sending Profile...\nGetting Result"]);
}

#[test]
#[ignore = "needs PCP"]
fn old_interfaces() {
    let pcp = Pcp::required();
    if !pcp.has_all_agents() {
        return;
    }
    let object = pcp.path("PCP_PMDASADM_DIR").join("jbd2/pmda_jbd2.so");
    assert!(object.exists(), "{} is missing", object.display());
    let requests =
        "name 122.0.0\npmid a.b\nchildren a\ntraverse a\nattr 5 \"root\"\nstatus\ninstance 122.0\ndesc 122.0.0\n";
    let shown = Sessions::new().same_input(&["-i", "-e"], &(open(&object, "jbd2_init", 122) + requests));
    shows(&shown, &["does not support authentication", "DSO Interface Version:  4"]);
}

#[test]
#[ignore = "needs PCP"]
fn what_cannot_be_loaded() {
    let c = Pcp::required().c_agent("simple");
    let object = c.shared_object().display().to_string();
    let session = format!(
        "open dso /nonexistent init 3\nopen dso /etc/passwd init\nopen dso {object} nothing 3\nstatus\n\
         open dso {object} simple_init 253\nstatus\nopen dso /nonexistent init 3\nfetch 253.0.1\n\
         open dso {object} nothing 3\nfetch 253.0.1\nstatus\nopen dso {object} simple_init 253\n\
         debug pdu\nfetch 253.0.1\nclose\nfetch 253.0.1\n"
    );
    let shown = Sessions::c_agent("simple").same_input(&["-i", "-e"], &session);
    shows(&shown, &["invalid ELF header", "couldn't find init function", "DSO fetch()", "opendso: /nonexistent"]);
}

#[test]
#[ignore = "needs PCP"]
fn versions_of_the_interface_and_of_the_pmapi() {
    let dir = tempfile::tempdir().unwrap();
    let mut session = String::new();
    // Version 4 of the PMAPI belongs to PCP 7.
    // Version 3 of the PMAPI is 4 since PCP 7.
    let newest = if is_libpcp_7() { 4 } else { 3 };
    for (interface, pmapi) in [(7, 2), (7, newest), (2, newest), (1, 2), (8, 2), (7, 1), (7, 5), (7, 253)] {
        let (source, object) = (dir.path().join("bare.c"), dir.path().join(format!("bare_{interface}_{pmapi}.so")));
        let text = format!(
            "#include <pcp/pmapi.h>\n#include <pcp/pmda.h>\nstatic pmdaExt ext;\n\
             void bare_init(pmdaInterface *i)\n\
             {{ i->comm.pmda_interface = {interface}; i->comm.pmapi_version = {pmapi};\n\
             i->version.any.ext = &ext; }}\n"
        );
        std::fs::write(&source, text).unwrap();
        let gcc = Command::new("gcc").args(["-shared", "-fPIC", "-o"]).args([&object, &source]).status().unwrap();
        assert!(gcc.success());
        session += &(open(&object, "bare_init", 3) + "status\n");
    }
    let shown = Sessions::new().same_input(&["-i", "-e"], &session);
    shows(&shown, &[&format!("PMDA PMAPI Version:     {newest}"), "PMDA interface version 8", "PMAPI version 253"]);
}

/// The C library keeps some memory until its end, but no more memory for more answers.
#[test]
#[ignore = "needs PCP"]
// Slow: dbpmda runs under valgrind.
fn valgrind_sees_the_values_of_a_shared_object_freed() {
    let pcp = Pcp::required();
    let c = pcp.c_agent("simple");
    let lost = |fetches: usize| {
        let mut valgrind = pcp.valgrind(OURS);
        valgrind.arg("-n").arg(c.root()).env("PCP_PMDAS_DIR", c.pmdas_dir());
        let requests = "fetch 253.0.0 253.0.1 253.1.2 253.1.3 253.2.4\n".repeat(fetches) + &simple() + "quit\n";
        let text = pcp.run_command(valgrind, &(open(&c.shared_object(), "simple_init", 253) + &requests)).text;
        let lost = text.split_once("definitely lost:").unwrap_or_else(|| panic!("{text}")).1;
        shows(&text, &["inst [0 or ???]", "ERROR SUMMARY"]);
        assert!(!text.contains("Invalid"), "{text}");
        lost.lines().take(2).map(|line| line.split("==").last().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(lost(2), lost(50));
}
