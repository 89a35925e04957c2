//! The program prints the same about an agent as PCP's pminfo.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use testkit::Pcp;

/// Returns a paragraph for each metric of the agent, sorted. Only constant values are kept.
fn comparable(text: &str) -> Vec<String> {
    let constant = [".one", ".hullo", ".null", ".million", "sample.bin", "sample.bad."];
    let paragraphs = text.split("\n\n").map(str::trim).filter(|text| text.starts_with("sample."));
    // Leaves out a name of a metric that belongs to pmcd.
    let paragraphs = paragraphs.filter(|text| !text.starts_with("sample.secret.foo.bar.max.redirect"));
    let mut metrics: Vec<String> = paragraphs
        .map(|text| {
            let name = text.split([' ', '\n']).next().unwrap_or_default();
            let is_constant = constant.iter().any(|part| name.ends_with(part) || name.starts_with(part));
            // Parameters of events are indented twice; pminfo prints them with an option.
            let is_param = |line: &str| line.starts_with("        ");
            let is_value = |line: &str| is_param(line) || line.starts_with("    ") && line.contains("value ");
            let lines = text.lines().filter(|line| !line.starts_with("pmNameIndom: "));
            lines.filter(|line| is_constant || !is_value(line)).collect::<Vec<_>>().join("\n")
        })
        .collect();
    metrics.sort();
    metrics
}

#[test]
#[ignore = "needs PCP"]
fn sample_as_pminfo_shows_it() {
    let pcp = Pcp::required();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("sample.log");
    let sample = pcp.c_agent("sample");

    let viewer = Command::new(env!("CARGO_BIN_EXE_pcp-agents"))
        .args([Path::new("-s1"), Path::new("--pmns"), &sample.root(), Path::new("--"), &sample.binary()])
        .args([Path::new("-d29"), Path::new("-l"), &log])
        .env("PCP_PMDAS_DIR", sample.pmdas_dir())
        .output()
        .unwrap();
    assert!(viewer.status.success(), "{viewer:?}");
    let ours = comparable(&String::from_utf8(viewer.stdout).unwrap());

    let pmcd = pcp.pmcd().pmdas_dir(sample.pmdas_dir()).agent(sample.agent()).start();
    // pminfo prints no empty line before a metric that it cannot look up. For a metric without support, it prints the
    // missing semantics as a number.
    let text = pmcd.run("pminfo", ["-tdf", "sample"]).text;
    let text = text.replace("sample.bad.unknown: pmLookupDesc: ", "\nsample.bad.unknown: ");
    // That of PCP 7 prints the help of such a metric, too.
    let start = text.find("sample.bad.unknown [");
    let unknown = start.and_then(|at| text[at..].split_once("\nError: ").map(|(head, _)| format!("{head}\nError: ")));
    let text = unknown.map_or(text.clone(), |head| text.replace(&head, "\nsample.bad.unknown: "));
    let theirs = comparable(&text.replace("Semantics: ??? (0)", "Semantics: instant"));
    assert!(ours.len() > 150, "{}", ours.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}
