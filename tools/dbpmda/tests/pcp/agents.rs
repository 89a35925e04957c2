//! Agent simple in four languages.

use testkit::{CAgent, Pcp};

use crate::sessions::{Sessions, our_simple, shows};

/// Every form of a command about an agent. The values of time metrics differ between runs.
const SCRIPT: &str = r#"
status
getdesc on
desc simple.numfetch
desc simple.color
desc simple.time.user
desc simple.now
desc 253.0.9
desc 253.5.1
desc 0.1
desc 1061158913
instance 253.0
instance 253.1
instance 253.0 "green"
instance 253.0 green
instance 253.0 "lime"
instance 253.0 2
instance 253.0 7
instance 253.7
instance 1061158912
fetch simple.numfetch
fetch simple.color
fetch simple.color simple.numfetch
fetch simple.color, 253.0.0 253.0.9
fetch 253.0.9
getiname on
fetch simple.color simple.numfetch
profile 253.0 none
fetch simple.color
profile 253.0 add 1
profile 253.0 add 2
profile 253.0 add 7
status
fetch simple.color
getiname off
fetch simple.color
getdesc off
fetch simple.color
label instances 253.0
profile 253.0 delete 1
fetch simple.color
profile 253.0 all
profile 253.0 delete 0
fetch simple.color
profile 253.0 all
profile 253.1 delete 5
status
profile -1 none
status
fetch simple.color
profile -1 all
profile -1 add 1
profile -1 delete 1
fetch simple.color
store simple.numfetch "42"
fetch simple.numfetch
store simple.numfetch '-1'
fetch simple.numfetch
store simple.color "255"
fetch simple.color
store simple.color "256"
fetch simple.color
store simple.color "x"
store simple.color "1 2"
store simple.time.user "x"
store 253.0.9 "1"
store 253.7.9 "1"
profile 253.0 none
store simple.color "1"
profile 253.0 add 1
store simple.color "7"
profile 253.0 all
fetch simple.color
text simple.numfetch
text simple.color
text simple.time.user
text 253.0.9
text indom 253.0
text indom 253.1
text indom 253.9
text indom -1
label context
label domain
label indom 253.0
label indom 253.1
label indom 253.9
label cluster 253.0
label cluster 1061158912
label item simple.color
label item 253.9.9
label instances 253.0
label instances 253.9
pmid simple.color
pmid nosuch.name
name 253.0.1
name 253.9.9
children simple
children nosuch
traverse simple
traverse nosuch
attr 5 "root"
attr "userid" '0'
attr "container"
timer on
desc simple.color
desc 253.9.9
fetch simple.color
instance 253.0
instance 253.9
text simple.color
label domain
store simple.color "5"
store simple.color "y"
store 253.9.9 "5"
name 253.0.1
pmid simple.color
children simple
traverse simple
attr 5
timer off
fetch simple.color
close
fetch simple.color
close
status
open pipe AGENT
fetch simple.color
open pipe AGENT
status
quit
"#;

fn simple() -> CAgent {
    Pcp::required().c_agent("simple")
}

#[track_caller]
fn check(command: &str) {
    // Perl hashes have no fixed order.
    let sessions = Sessions::of(&simple(), command).env("PERL_HASH_SEED", "0").env("PERL_PERTURB_KEYS", "0");
    let shown = sessions.same(SCRIPT);
    // The agent has answered.
    shows(&shown, &["    inst [1 or \"green\"] value 10"]);
    assert!(shown.ends_with("dbpmda> quit\nexit code Some(0)\n"), "{shown}");
}

#[test]
#[ignore = "needs PCP"]
fn in_c() {
    check(&format!("{} -d 253", simple().binary().display()));
}

#[test]
#[ignore = "needs PCP"]
fn in_rust() {
    check(&format!("{} -d 253", our_simple().display()));
}

#[test]
#[ignore = "needs PCP"]
fn in_python() {
    // PCP's module is installed for this interpreter. With qa/newer it stays that of the installed PCP, which does not go
    // with libpcp.so.4.
    let pcp = Pcp::required();
    if !pcp.has_python() {
        return;
    }
    let agent = pcp.path("PCP_PMDASADM_DIR").join("simple/pmdasimple.python");
    check(&format!("/usr/bin/python3 {}", agent.display()));
}

#[test]
#[ignore = "needs PCP"]
fn in_perl() {
    let pcp = Pcp::required();
    if !pcp.has_perl() {
        return;
    }
    let agent = pcp.path("PCP_PMDASADM_DIR").join("simple/pmdasimple.perl");
    // The Perl agent ignores its options.
    check(&format!("/usr/bin/perl {}", agent.display()));
}
