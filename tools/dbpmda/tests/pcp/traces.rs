//! Debug options that show requests and answers.

use crate::sessions::{Sessions, is_after_6_0_3, is_libpcp_7, shows};

const SCRIPT: &str = r#"
desc simple.color
desc simple
desc nosuch.name
desc 253.9.9
fetch simple.color
getiname on
fetch simple.color 253.0.9
profile 253.0 none
profile 253.0 add 1
profile 253.0 delete 1
profile 253.0 add 2
profile 253.1 all
profile -1 none
profile -1 all
profile 253.0 delete 2
store simple.color "7"
profile 253.0 all
store simple.color "8"
store simple.color "x"
instance 253.0
instance 253.0 1
instance 253.0 "blue"
instance 253.1 "grey"
text simple.color
text indom 253.0
label domain
label item simple.color
label instances 253.0
label indom 253.9
children simple
traverse simple.time
pmid simple.color
pmid simple.nosuch
name 253.0.1
name 253.7.7
attr 5 "somebody"
attr 13
namespace DIR/root
desc one
fetch dyn.x
close
desc 1.1.1
open pipe AGENT
status
"#;

#[test]
#[ignore = "needs PCP"]
fn one_by_one() {
    for (option, part) in [
        ("pdu", "pmXmitPDU: DESC_REQ fd=FD len=16\n000:       10     7004"),
        ("fetch", "Getting Result Structure...\n__pmResult dump"),
        ("profile", "pmDelProfile() indom: 253.0\n"),
        ("indom", "  [1] inst=1 name=\"green\"\n"),
        ("pmns", "SendNameReq: from=0 name=\"simple\" pdu=PMNS_CHILD subtype=1\n"),
        ("pmapi", "pmLookupName(1, name[0] simple.color, ...) <::> returns 1 (pmid[0] 253.0.1)\n"),
        ("attr", "__pmSendAttr [len=9]: attr=0x5 value=\"somebody"),
        ("labels", "__pmDecodeLabel(ident=-1,type=0x2[domain], 1 sets"),
        ("appl0", "Debug options:          appl0\n"),
    ] {
        if is_libpcp_7() && option == "pmapi" {
            continue;
        }
        let sessions = Sessions::c_agent("simple");
        let shown = sessions.same_input(&["-i", "-e"], &format!("debug {option}\nopen pipe AGENT\n{SCRIPT}"));
        shows(&shown, &[part]);
        // With `-D pmapi`, the C library also traces a context that it creates without need.
        if option != "pmapi" {
            sessions.same_input(&["-i", "-e", "-D", option], &format!("open pipe AGENT\n{SCRIPT}"));
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn several() {
    let script =
        format!("debug pdu,profile indom\nopen pipe AGENT\n{SCRIPT}debug pmns pmapi -pdu -profile -indom\n{SCRIPT}");
    Sessions::c_agent("simple").same_input(&["-i", "-e"], &script);
}

#[test]
#[ignore = "needs PCP"]
fn dead_agents() {
    let shown = Sessions::new().same_alone(
        "debug pdu\nopen pipe /bin/true\nwait 1\ndesc 1.1.1\nclose\nopen pipe /etc/passwd\nwait 1\ndesc 1.1.1",
    );
    shows(&shown, &["__pmXmitPDU: non-socket write() result -1 != 16\n__pmXmitPDU: error -32 from oserror()\n"]);
}

#[test]
#[ignore = "needs PCP"]
fn every_option_can_be_set() {
    let options = "pdu fetch profile value context indom pdubuf log logmeta optfetch af appl0 appl1 appl2 pmns libpmda \
        timecontrol pmc derive interp config pmapi fault auth discovery attr http desperate deprecated exec labels series \
        libweb alloc services appl3 appl4 appl5 access qa search query compress dev0 dev1 dev2 pmlc appl6 appl7 appl8 \
        appl9 tls lock";
    // Later versions have more, so that these are not all of them there.
    let options = if is_after_6_0_3() { options.trim_end_matches(" lock") } else { options };
    let mut script = String::new();
    for option in options.split_whitespace() {
        script += &format!("debug {option}\nstatus\n");
    }
    for option in options.split_whitespace() {
        script += &format!("debug -{option}\nstatus\n");
    }
    script += "debug all\nstatus\ndebug none\nstatus\ndebug -1\n";
    Sessions::new().same_alone(&script);
    for number in (0..31).map(|bit| 1_u32 << bit) {
        let script = format!("debug {number}\nstatus\ndebug none\nstatus\n");
        Sessions::new().same_with_numbers(&["-i", "-e"], &script);
    }
}
