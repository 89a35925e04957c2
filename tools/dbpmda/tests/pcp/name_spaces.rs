//! Command `namespace`.

use crate::sessions::{Sessions, shows};

#[test]
#[ignore = "needs PCP"]
fn replaced() {
    let sessions = Sessions::new()
        .file("two", "#define X 7\nroot { two X:2:2 both X:3:3 again X:3:3 }\n")
        .file("bad", "root {\n  a\n  b 1:2:x\n}\n")
        .file("twice", "root {\n  x 1:1:1\n  x 1:1:2\n}\n")
        .file("missing", "root {\n  x\n}\n")
        .file("include", "#include \"nosuch\"\n");
    let shown = sessions.same_alone(
        "status\ndesc one\nnamespace two\nstatus\ndesc one\ndesc two\ndesc 7.3.3\nnamespace DIR/two\nstatus\n\
         namespace bad\nstatus\ndesc two\ndesc one\nnamespace twice\nnamespace missing\nnamespace include\n\
         namespace nosuch\nnamespace /dev/null\nstatus\ndesc one\nnamespace 9names\nhelp x",
    );
    shows(&shown, &["Namespace:              ./two\n", "dbpmda: Reload namespace from \"DIR/root\"\n"]);
}

#[test]
#[ignore = "needs PCP"]
fn with_an_agent() {
    let sessions = Sessions::c_agent("simple").file("names", "root {\n  colour 253:0:1\n  empty 253:0:9\n}\n");
    let shown = sessions.same(
        "getdesc on\nfetch simple.color\nnamespace names\nfetch simple.color\nfetch colour\ngetdesc off\nfetch colour\n\
         fetch empty\nfetch 253.0.0",
    );
    shows(&shown, &["  253.0.1 (colour): numval: 3", "  253.0.0 (<noname>): numval: 1"]);
}
