//! Option `--check`.

use std::path::Path;
use std::process::Command;

/// Returns the exit code, and the output with the errors after it.
fn check(subject: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pmdaopenmetrics")).args(["--check", subject]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

fn write(path: &Path, text: &str, mode: u32) -> String {
    testkit::executable(path, text, mode);
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_a_document_becomes() {
    let dir = tempfile::tempdir().unwrap();
    let document =
        "# HELP sent_bytes_total Bytes.\n# TYPE sent_bytes_total counter\nsent_bytes_total{dev=\"a\"} 7\nup 1\n";
    let path = write(&dir.path().join("document.txt"), document, 0o644);
    let url = write(&dir.path().join("src.url"), &format!("file://{path}\nFILTER: EXCLUDE METRIC up\nodd\n"), 0o644);
    let (code, text) = check(&path);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "2 lines with values, 2 metrics",
        "openmetrics.SOURCE.sent_bytes_total (item 0) [Bytes.]",
        "units byte",
        "inst [0 or \"0 dev:a\"] value 7",
        // As in PCP's agent, a comment is about all samples up to the next comment.
        "openmetrics.SOURCE.up (item 1) [Bytes.]",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let (code, text) = check(&url);
    assert!(code == Some(0) && !text.contains("SOURCE.up") && text.contains("line 3: unknown entry"), "{text}");
    assert!(check(&format!("file://{path}")).1.contains("SOURCE.up"));
}

/// The server chooses help texts and reasons of refusals, and the script what it prints to standard error.
#[test]
fn documents_steer_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let document = "# HELP up \x1b[2Jone\u{9b}\nup 1\n\x1b]0;x 2\n";
    let plain = write(&dir.path().join("document"), document, 0o644);
    let text = format!("#!/bin/sh\nprintf '\\033[3J' >&2\ncat {plain}\n");
    let script = write(&dir.path().join("script"), &text, 0o755);
    for subject in [&plain, &script, "/nonexistent/\x1b[4J"] {
        // script(1) gives the command a terminal.
        let mut terminal = Command::new("script");
        terminal.args(["-qec", "\"$CHECK\" --check \"$SUBJECT\"", "/dev/null"]).stdin(std::process::Stdio::null());
        terminal.env("CHECK", env!("CARGO_BIN_EXE_pmdaopenmetrics")).env("SUBJECT", subject);
        let shown = String::from_utf8(terminal.output().unwrap().stdout).unwrap();
        assert!(!shown.contains(['\x1b', '\u{9b}']) && shown.contains(r"\u{1b}["), "{subject:?}: {shown:?}");
    }
    assert!(check(&plain).1.contains("\x1b[2Jone"));
}

#[test]
fn lines_that_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("document"), "a-b{c-d=\"1\"} 1\n", 0o644);
    let (code, text) = check(&path);
    assert!(code == Some(1) && text.contains("line 1 is refused: invalid metric name \"a-b\""), "{text}");
    assert!(text.contains("PCP's agent would read neither line 1 nor any line after it."), "{text}");
    // Every line is named, up to a limit, and the others are read.
    let lines: String = (0..30).map(|n| format!("a{n} 1\nb{{c{n}}} 2\n")).collect();
    let (code, text) = check(&write(&dir.path().join("many"), &lines, 0o644));
    assert!(code == Some(1) && text.contains("openmetrics.SOURCE.a29"), "{text}");
    assert_eq!(text.matches(" is refused: column 7: = must follow").count(), 10, "{text}");
    assert!(text.contains("and 10 more lines are refused\nPCP's agent would read neither line 2 nor"), "{text}");
    let (code, text) = check(&write(&dir.path().join("value"), "a 1\na{b=\"1\"} 2\nc x\n", 0o644));
    assert!(code == Some(1) && text.contains("line 3 is refused: \"x\" is not a number"), "{text}");
    assert!(text.contains("PCP's agent would read all lines, and have no value or an arbitrary one"), "{text}");
    let script = write(&dir.path().join("script"), "#!/bin/sh\necho 'b{c} 1'\n", 0o755);
    let (code, text) = check(&script);
    assert!(code == Some(1) && text.contains("line 1 is refused: column 6: = must follow"), "{text}");
    for (subject, reason) in
        [("/nonexistent", "No such file"), ("ftp://x", "must be a URL"), ("http://127.0.0.1:1/", "refused")]
    {
        let (code, text) = check(subject);
        assert!(code == Some(1) && text.contains(reason), "{subject}: {text}");
    }
}

#[test]
fn what_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..1100).map(|n| format!("m{n} 1\n")).collect();
    let (code, text) = check(&write(&dir.path().join("document"), &lines, 0o644));
    assert!(code == Some(1) && text.contains(" are left out: there are too many"), "{text}");
}
