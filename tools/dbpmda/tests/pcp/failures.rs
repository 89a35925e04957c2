//! Agents that end, send invalid PDUs, or do not answer.

use crate::sessions::{Sessions, shows};

const REQUESTS: &str = "\
timer on
status
desc 1.1.1
fetch one 1.1.2
instance 1.1
instance 1.1 \"x\"
text one
text indom 1.1
label domain
label instances 1.1
store one \"1\"
name 1.1.1
pmid one
children one
traverse one
attr 5 \"x\"
desc dyn.x
getdesc on
fetch one
getiname on
fetch one
close
status
";

/// Runs a session with a program in the working directory and all requests. Requests wait, because the program may
/// close its output before it ends.
#[track_caller]
fn program(options: &[&str], script: &str) -> String {
    let sessions = Sessions::new();
    testkit::executable(sessions.dir().join("agent"), script, 0o755);
    let input = format!("open pipe DIR/agent a 'b c'\nwait 1\n{REQUESTS}");
    sessions.same_input(&[&["-i", "-e"], options].concat(), &input)
}

#[test]
#[ignore = "needs PCP"]
fn no_agents() {
    let shown = program(&[], "#!/bin/sh\nexit 1\n");
    shows(&shown, &["pmdaversion: expecting PDU_CREDS, got EOF\n"]);
    shows(&shown, &["Error: __pmSendDescReq() failed: Broken pipe\n"]);
    shows(&shown, &["PMDA PMAPI Version:     unknown!\n"]);
    program(&[], "#!/bin/sh\necho hello\n");
    program(&[], "#!/bin/sh\necho hello world, this is no agent\n");
    program(&[], "#!/bin/sh\nprintf '\\0'\n");
    program(&[], "#!/bin/sh\nprintf '\\0\\0\\0\\4hello world!!'\n");
    program(&[], "#!/bin/sh\nprintf '\\0\\0\\0\\014\\377\\0\\0\\0\\0\\0\\0\\0'\n");
    // An ERROR PDU, and a CREDS PDU with invalid content.
    let shown = program(&[], "#!/bin/sh\nprintf '\\0\\0\\0\\020\\0\\0\\160\\0\\0\\0\\0\\0\\0\\0\\0\\0'\n");
    shows(&shown, &["pmdaversion: expecting PDU_CREDS, got PDU type ERROR\n"]);
    program(&[], "#!/bin/sh\nprintf '\\0\\0\\0\\020\\0\\0\\160\\014\\0\\0\\0\\0\\0\\0\\0\\5'\n");
    program(&[], "#!/bin/sh\nprintf '\\0\\0\\0\\020\\0\\0\\160\\014\\0\\0\\0\\0\\0\\0\\0\\0'\n");
}

#[test]
#[ignore = "needs PCP"]
fn no_programs() {
    let sessions = Sessions::new().file("empty", "");
    sessions.same_alone("open pipe DIR/empty\nwait 1\nstatus\ndesc 1.1.1\nopen pipe DIR\nwait 1\nstatus");
    sessions.same_alone("open pipe nosuch\nopen pipe /no/such/agent x y\nstatus\nopen pipe DIR/empty/x");
    // Without a `#!` line, the shell executes the script.
    let script = Sessions::new();
    testkit::executable(script.dir().join("script"), "exit 0\n", 0o755);
    script.same_alone("open pipe DIR/script\nwait 1\nstatus");
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_stays_gets_the_profile_again() {
    let fetch = "fetch simple.color\n";
    let opens = ["open pipe ./nosuch\n", "open socket unix ./nosuch\n", "open dso ./nosuch x_init\n", "open pipe\n"];
    Sessions::c_agent("simple")
        .same(&["open pipe AGENT\n", &*opens.map(|open| format!("{fetch}{open}{fetch}")).concat()].concat());
}

#[test]
#[ignore = "needs PCP"]
fn answers_that_are_none() {
    // A CREDS PDU, and then the same answer to each request after the exchange.
    let creds = "printf '\\0\\0\\0\\024\\0\\0\\160\\014\\0\\0\\0\\0\\0\\0\\0\\1\\1\\2\\0\\0'\n";
    let pdu =
        |code: &str, body: &str, len: &str| format!("printf '\\0\\0\\0\\{len}\\0\\0\\160\\{code}\\0\\0\\0\\0{body}'\n");
    // All answers are waiting when the first request is sent.
    for (answer, shows) in [
        (pdu("0", "\\0\\0\\0\\0", "020"), "Error PDU: No error\n"),
        (pdu("0", "\\0\\0\\0\\7", "020"), "Error PDU: No such PMAPI error code (7)\n"),
        (pdu("0", "\\377\\377\\377\\376", "020"), "Error PDU: No such file or directory\n"),
        (pdu("0", "", "014"), "Error: __pmDecodeError() failed: IPC protocol failure\n"),
        (pdu("5", "\\0\\0\\0\\0", "020"), "Error: __pmDecodeDesc() failed: IPC protocol failure\n"),
        (pdu("13", "\\0\\0\\0\\0", "020"), "Error: __pmGetPDU() failed: No such PMAPI error code (28683)\n"),
        // A descriptor with invalid numbers.
        (
            pdu("5", "\\0\\100\\4\\1\\0\\0\\0\\143\\377\\377\\377\\377\\0\\0\\0\\2\\0\\0\\0\\0", "040"),
            "Data Type: ??? (99)  InDom: PM_INDOM_NULL 0xffffffff\n    Semantics: ??? (2)  Units: none\n",
        ),
    ] {
        let answers = answer.repeat(40);
        let shown = program(&[], &format!("#!/bin/sh\n{creds}{answers}cat >/dev/null; :\n"));
        assert!(shown.contains(shows), "{shows}{shown}");
    }
}

#[test]
#[ignore = "needs PCP"]
fn time_outs() {
    let shown = program(&["-q", "1"], "#!/bin/sh\nexec 1>&-\nexec cat >/dev/null\n");
    shows(&shown, &["got EOF\nWarning: no version exchange with PMDA DIR/agent after 1 secs\n"]);
    let sessions = Sessions::new();
    let silent = "open pipe /bin/sh -c 'cat >/dev/null; :'\nstatus\nclose\nstatus\n";
    let shown = sessions.same_input(&["-q", "1"], silent);
    shows(&shown, &["__pmGetPDU(FD): Timeout waiting for a response from PMCD\n"]);
    shows(&shown, &["Warning: no version exchange with PMDA /bin/sh after 1 secs\n"]);
    sessions.same_input(&["--creds-timeout=1"], "open pipe /bin/sh -c 'echo hello; cat >/dev/null; :'\nstatus\n");
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_that_ends() {
    let sessions = Sessions::c_agent("simple");
    // `timeout` keeps the agent's input open, so the agent does not see its end.
    let script = format!(
        "open pipe /usr/bin/timeout 1 {}\nfetch simple.color\ngetdesc on\nfetch simple.color\nwait 3\n\
         desc simple.color\nfetch simple.color\nstatus\ninstance 253.0\nstore simple.color \"1\"\nopen pipe AGENT\n\
         fetch simple.color",
        sessions.agent()
    );
    let shown = sessions.same_alone(&script);
    shows(&shown, &["Error: __pmSendDescReq() failed: Broken pipe"]);
}
