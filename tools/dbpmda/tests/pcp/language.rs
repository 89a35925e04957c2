//! Command language: errors, their marks, and what follows them.

use crate::sessions::{Sessions, is_libpcp_7, shows};

const LINES: &str = r#"
blah
blah blah
blah,foo
,
add
? x
status x
status,
status # comment
# comment
#
  status

close
close x
desc
desc nosuch
desc	nosuch one
desc one x
desc one, one
desc 1
desc 1.
desc 1.1
desc 1.1.
desc 1.1.1
desc 1.1.1.1
desc -1
desc 0x12
desc 0x1f
desc 4294967295
desc 99999999999999999999
desc 600.5000.2000
desc "one"
desc $one
desc %one
one
desc all
desc dyn.a.b
desc dyn
fetch
fetch one one
fetch one,one, one
fetch one,
fetch ,one
fetch one,,one
fetch one 1.1.2 0.5
fetch one nosuch one
fetch one "
fetch one 'x
store
store one
store one 5
store one "5
store one "5" x
store one ""
store one '"'
store one "'" "
store "5" one
text
text one one
text indom
text indom 1
text indom 1.1
text indom 1.1.1
text indom -1 x
instance
instance one
instance 1.1 1 1
instance 1.1 "a" b
instance 1.1 all
instance 1.1 -1
instance "bin
profile
profile 1.1
profile 1.1 x
profile 1.1 all x
profile 1.1 add
profile 1.1 add x
profile 1.1 add -1
profile 1.1 delete 99999999999
profile -1 add 1
profile -1 delete 1
profile -1 none
profile one all
profile 600.5000000 none
profile 1 none
profile 511.4194303 none
status
label
label x
label context x
label domain 1
label indom
label indom one
label cluster
label cluster 1.1.1
label cluster -1
label item
label item nosuch
label instances
label instances 1.1 x
name
name one
name 1.1
name 1.1.1 1.1.1
pmid
pmid 1.1.1
pmid one two
children
children all
children 1
traverse
traverse "one"
attr
attr x
attr 0
attr 17
attr -1
attr "nosuch"
attr 5 x
attr 5 "x" "y"
attribute "uid" 5
attr "an attribute with a name that is much longer than the message that tells of it can possibly be"
debug
debug blah
debug pdu blah fetch
debug -blah
debug 1,
debug ,pdu
debug pdu -
debug -1
debug all pdu
debug none none
debug label
debug appl0,-appl1 appl1 0 2048
status
debug "pdu"
debug a.name/that:is-much_longer.than/the:message-that_tells.of/it:can-possibly_be.however
debug -appl0
debug APPL2 TimeControl attribute profile fetch indom
status
debug none
timer
timer x
timer on x
timer on
getdesc
getdesc on off
getdesc on
getiname
getiname 1
getiname on
status
timer off
getdesc off
getiname off
wait
wait x
wait 0 x
wait 0
wait -1
wait "0"
help x
help help
help desc x
help 1
help "desc"
watch
watch "x"
watch x y
namespace
namespace x y
namespace "x"
open
open x
open pipe
open pipe "x"
open dso
open dso x
open dso x y z
open dso "x" y
open socket
open socket "x"
open socket inet
open socket inet x
open socket inet -1
open socket ipv6 1.1
open socket unix
quit x
exit 1
q q
=
+
=+,
-
-x
- x
$
$x
$1
1
1.1
%
%%
%x
"
""
"x"
'
''
'x'
"x
'x
\
a\b
a b\
é
desc é
store one "é"
`
0x
0xg
..
.
"#;

/// Returns whether a line has numbers as debug options, which PCP 7 refuses.
fn has_numbers(line: &str) -> bool {
    let is_number = |word: &str| word.trim_matches(',').parse::<u32>().is_ok();
    line.starts_with("debug") && line.split(' ').any(is_number)
}

/// Returns the lines that mean the same in the installed PCP.
fn lines() -> String {
    LINES.lines().filter(|line| !is_libpcp_7() || !has_numbers(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's dbpmda and ours run for each line.
fn each_line_alone() {
    let sessions = Sessions::new();
    for options in [&["-i", "-e"][..], &[]] {
        for line in LINES.lines() {
            // The next lines show the effects of this line.
            let session = format!("{line}\n\nstatus\ndesc 1.1.1\nblah\n\n");
            if has_numbers(line) {
                sessions.same_with_numbers(options, &session);
            } else {
                sessions.same_input(options, &session);
            }
        }
    }
}

#[test]
#[ignore = "needs PCP"]
fn one_after_the_other() {
    let sessions = Sessions::new();
    for options in [&["-i", "-e"][..], &["-e"], &["-i"], &[]] {
        let shown = sessions.same_input(options, &lines());
        shows(&shown, &["Error: Unrecognized command\n", "Error: Illegal character\n", "Error: Expected '\n"]);
    }
    sessions.same_input(&["-i", "-e"], &lines().replace('\n', "\r\n"));
    sessions.same_input(&["-i", "-e"], &lines().replace(' ', " \t "));
}

#[test]
#[ignore = "needs PCP"]
fn usage() {
    // The usage of commands is part of the language, so it is compared, unlike help texts.
    let commands = [
        "attr", "children", "debug", "desc", "fetch", "getdesc", "getiname", "instance", "label", "name", "open",
        "pmid", "profile", "store", "text", "timer", "traverse", "wait", "watch", "help", "?",
    ];
    Sessions::new().same_alone(&commands.join("\n"));
}

#[test]
#[ignore = "needs PCP"]
// Slow: PCP's dbpmda and ours run for each input.
fn the_end_of_the_input() {
    let sessions = Sessions::new();
    // PCP's dbpmda waits forever at an error in an unterminated last line.
    for input in [
        "",
        "\n",
        "blah",
        "add",
        "status",
        "status ",
        "desc one",
        "desc one\n",
        "#",
        "# x",
        "\"",
        "\"x",
        "open",
        "open pipe",
    ] {
        for options in [&["-i", "-e"][..], &[]] {
            sessions.same_input(options, input);
            sessions.same_input(options, &format!("status\n{input}"));
            sessions.same_input(options, &format!("status\n{input}\0status\n"));
        }
    }
    for input in ["desc %x", "blah x", "store one 'x' y"] {
        assert!(sessions.ours(&[], input).ends_with("exit code Some(0)\n"), "{input}");
    }
}
