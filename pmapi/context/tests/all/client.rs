//! The example `pmapi-client` beside pmclient(1).
#![allow(clippy::panic, clippy::unwrap_used)]

use std::process::{Command, Stdio};

use testkit::Pcp;

/// Returns the command of the example, which cargo builds with the tests.
fn example() -> Command {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/pmapi-client");
    let mut command = Command::new(program);
    command.envs([("LC_ALL", "C"), ("TZ", "UTC"), ("PCP_DERIVED_CONFIG", "")]);
    command
}

/// Returns whether pmclient has the older rules of interpolation. With `qa/newer` it is older than the rest of PCP.
fn is_before_6_3_2(pcp: &Pcp) -> bool {
    let said = pcp.run("pmclient", ["--version"]).text;
    let version = said.split_whitespace().last().unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap());
    [numbers.next(), numbers.next(), numbers.next()] < [Some(6), Some(3), Some(2)]
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's client and ours report an archive in several ways.
fn reports_as_pmclient() {
    let pcp = Pcp::required();
    let dir = pcp.testsuite().join("archives");
    let mut lines = 0;
    for (archive, options) in [
        ("20130706", &["-t", "10sec", "-s", "40"][..]),
        ("20130706", &["-t", "7.5s", "-S", "+1min"]),
        ("20130706", &["-t", "1min", "-A", "1min"]),
        ("20130706", &["-t", "2s", "-s", "3", "-Z", "EST-10"]),
        ("20130706", &["-t", "1min", "-s", "3", "-z"]),
        ("20130706", &["-t", "1min", "-A", "1min", "-O", "+90s", "-s", "3"]),
        ("20130706", &["-t", "1min", "-O", "-90s", "-T", "-1min", "-s", "3"]),
        ("20130706", &["-t", "1min", "-S", "@10:00", "-T", "+2min", "-s", "4"]),
        ("20130706", &["-t", "0", "-s", "3", "-S", "-5min"]),
        ("kenj-pc-1", &["-t", "10min", "-s", "0"]),
        ("kenj-pc-1", &["-t", "1min", "-s", "20"]),
        ("multi", &["-t", "7sec", "-s", "40"]),
    ] {
        let path = dir.join(archive);
        let arguments = |command: &mut Command| {
            command.arg("-a").arg(&path).args(options);
        };
        let (mut ours, mut theirs) = (example(), pcp.command("pmclient"));
        arguments(&mut ours);
        if is_before_6_3_2(&pcp) {
            ours.arg("--earlier");
        }
        arguments(&mut theirs);
        let [ours, theirs] = [ours, theirs].map(|command| pcp.run_command(command, ""));
        // At the end of an archive, both commands report their own name.
        let other = ["Reason: ", "pmclient: ", "pmapi-client: "];
        let is_report = |line: &&str| !other.iter().any(|start| line.starts_with(start));
        let report = |text: &str| text.lines().filter(is_report).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(report(&ours.text), report(&theirs.text), "{archive} {options:?}");
        assert_eq!(ours.status.success(), theirs.status.success(), "{archive} {options:?} {}", ours.text);
        lines += ours.text.lines().count();
    }
    assert!(lines > 50, "{lines}");
}

// PCP 7.2 refuses zones such as `<-03>3`, which earlier versions accept.
#[test]
#[ignore = "needs PCP"]
fn options_that_do_not_fit_together() {
    let archive = Pcp::required().testsuite().join("archives/20130706");
    let path = archive.to_str().unwrap();
    for options in [
        &["-a", path, "-z", "-Z", "UTC"][..],
        &["-a", path, "-h", "localhost"],
        &["-h", "localhost", "-P"],
        &["-h", "localhost", "-S", "+1min"],
        &["-h", "localhost", "-A", "1min"],
        &["-z"],
        &["-T", "+1min"],
    ] {
        let mut theirs = Pcp::required().command("pmclient");
        // With a pmcd, pmclient ignores the end of a time window.
        theirs.envs([("PMCD_SOCKET", "/none"), ("PMCD_PORT", "1")]);
        for mut command in [example(), theirs] {
            let output = command.args(options).args(["-s", "1"]).output().unwrap();
            assert!(!output.status.success() && output.stdout.is_empty(), "{command:?}");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!text.contains("pmcd on host"), "{command:?}: {text}");
        }
    }
    let mut command = example();
    command.arg("-a").arg(&archive).args(["-s", "1", "-Z", "<-03>3"]);
    let output = Pcp::required().run_command(command, "");
    assert!(output.text.starts_with("Note: timezone set to \"TZ=<-03>3\"\n\nArchive: "), "{}", output.text);
    assert!(output.text.contains("Fri Jul  5 11:17:06 2013"), "{}", output.text);
}

#[test]
#[ignore = "needs PCP"]
fn a_closed_output_ends_the_report() {
    let archive = Pcp::required().testsuite().join("archives/20130706");
    let mut command = example();
    command.arg("-a").arg(&archive).args(["-t", "10sec"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
#[ignore = "needs PCP"]
fn a_source_without_its_metrics() {
    let pcp = Pcp::required();
    let pmcd = pcp.pmcd().start();
    let mut command = example();
    command.args(["-h", &pmcd.host(), "-t", "10msec", "-s", "2"]);
    let output = pcp.run_command(command, "");
    assert_eq!(output.text, "pmapi-client: metric \"hinv.ncpu\": Unknown metric name\n");
    let mut command = example();
    command.args(["-p"]);
    let output = pcp.run_command(command, "");
    assert_eq!(output.text, "pmapi-client: pause can only be used with archives\n");
}
