//! Options and `.dbpmdarc`.

use nix::unistd::{User, getuid};

use crate::sessions::{Sessions, shows};

const SCRIPT: &str = "status\nblah\ndesc 1.1.1\n\nfetch 1.1.2 nosuch\n";

#[test]
#[ignore = "needs PCP"]
fn echo_and_prompt() {
    let sessions = Sessions::new();
    for options in
        [&[][..], &["-e"], &["-i"], &["-ei"], &["-e", "-e", "-i", "-i"], &["--echo-input"], &["--interactive"]]
    {
        sessions.same_input(options, SCRIPT);
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's dbpmda and ours run for each file.
fn rc_file() {
    for rc in [
        "",
        "status\n",
        "status",
        "timer on",
        "\n\n# comment\n\ngetdesc on\nstatus\n",
        "blah\n\ndesc 1.1.1\nstore 1.1.2 \"x\nopen pipe /no/such\nprofile 1.1 x\nfetch %\n",
        "desc 1.1.1\n\0getdesc on\n",
        "status\nquit\nstatus\n",
        "open socket unix",
        "store 1.1.1 'x\n",
        "fetch 1.1.1",
    ] {
        let sessions = Sessions::new().file(".dbpmdarc", rc);
        for options in [&[][..], &["-e"], &["-i"], &["-f"], &["-f", "-ei"], &["--norc"]] {
            sessions.same_input(options, SCRIPT);
            sessions.same_input(options, "");
            sessions.same_input(options, "blah\nblah");
        }
    }
    let shown = Sessions::new().file(".dbpmdarc", "\nblah\n9.9.9\ndesc 9.9.9\n").same_input(&[], "");
    shows(
        &shown,
        &[".dbpmdarc> blah\n              ^ at or near here\nError [.dbpmdarc, line 2]: Unrecognized command\n"],
    );
    shows(&shown, &["Warning [.dbpmdarc, line 4]\nPMID (9.9.9) is not defined in the PMNS\n"]);
}

#[test]
#[ignore = "needs PCP"]
fn rc_file_that_is_none() {
    let sessions = Sessions::new();
    std::fs::create_dir(sessions.dir().join(".dbpmdarc")).unwrap();
    sessions.same_input(&[], SCRIPT);
    sessions.same_input(&["-i"], SCRIPT);
}

#[test]
#[ignore = "needs PCP"]
fn name_space_file() {
    let sessions = Sessions::new().options(&[]).file("names", "root { b 2:2:2 }\n").file("bad", "root { b 2:2 }\n");
    for file in ["names", "./names", "bad", "nosuch", "/dev/null"] {
        for options in [&["-n", file][..], &["--namespace", file], &["-n", "names", "-n", file]] {
            sessions.same_input(options, "desc b\ndesc 2.2.2\nstatus\n");
        }
    }
    // The default name space.
    let defaults = Sessions::new().options(&[]).file("names", "root { b 2:2:2 }\n").env("PMNS_DEFAULT", "names");
    defaults.same_input(&[], "desc b\ndesc 2.2.2\nstatus\nnamespace nosuch\nstatus\ndesc b\n");
    Sessions::new().options(&[]).env("PMNS_DEFAULT", "nosuch").same_input(&[], "status\n");
}

#[test]
#[ignore = "needs PCP"]
fn debug_option() {
    let sessions = Sessions::new();
    for spec in ["appl0", "appl0,appl1", "3", "2,fetch", "all", "-1", "appl0,", "", "timecontrol", "APPL1"] {
        if spec.starts_with(|c: char| c.is_ascii_digit()) {
            sessions.same_with_numbers(&["-D", spec], "status\n");
            sessions.same_with_numbers(&["-D", "appl2", "-D", spec], "status\n");
            continue;
        }
        // Other options trace the inside of the C library.
        if !matches!(spec, "all" | "-1") {
            sessions.same_input(&["-D", spec], "status\n");
            sessions.same_input(&["-D", "appl2", "-D", spec], "status\n");
        }
    }
}

/// The message and the exit code are the same; the help text after the message is not compared.
#[test]
#[ignore = "needs PCP"]
fn wrong_options() {
    let sessions = Sessions::new();
    let user = format!("--username={}", User::from_uid(getuid()).unwrap().unwrap().name);
    for options in [
        &["-x"][..],
        &["--nosuch"],
        &["-n"],
        &["-q"],
        &["--creds-timeout"],
        &["-q", "0"],
        &["-q", "x"],
        &["-q", "-1"],
        &["-q", "1x"],
        &["-q", "0", "-q", "x"],
        &["-q", "-n"],
        &["-q", "--"],
        &["-q"],
        &["-q", ""],
        &["-eiq"],
        &["-D", "-e"],
        &["-U", "-e"],
        &["-n", "-nosuch"],
        &["-n-nosuch"],
        &["-en", "--"],
        &["--namespace"],
        &["--name", "--nosuch"],
        &["--nor", "word"],
        &["--n"],
        &["--norc=1"],
        &["--nosuch=1"],
        &["-ez"],
        &["-1"],
        &["-"],
        &["--", "-e"],
        &["-e", "--", "word"],
        &["word", "-z"],
        &["-D", "nosuch"],
        &["-D", "nosuch", "-q", "0"],
        &["word"],
        &["-?"],
        &["--help"],
        &["-U", "no-such-user"],
    ] {
        let messages = [sessions.theirs(options, ""), sessions.ours(options, "")].map(|shown| {
            let kept = shown.lines().filter(|line| !line.starts_with("  ") && !line.ends_with("ptions:"));
            // PCP's prints the usage alone after a word.
            let ours = |line: &str| line.contains("dbpmda check") || line.ends_with("not the command \"check\"");
            kept.filter(|line| !line.is_empty() && !ours(line)).collect::<Vec<_>>().join("\n")
        });
        assert_eq!(messages[0], messages[1], "{options:?}");
        assert!(messages[0].contains("exit code Some(1)"), "{options:?}: {}", messages[0]);
    }
    sessions.same_input(&[&user], "status\n");
    for options in [
        &["-v", "-q", "1000"][..],
        &["-vq1000", "-ei"],
        &["-q", " +5"],
        &["-q", "007"],
        &["-q", "4294967297"],
        &["--"],
        &["-fei", "--"],
        &["--no", "--e"],
    ] {
        sessions.same_input(options, "status\n");
    }
}
