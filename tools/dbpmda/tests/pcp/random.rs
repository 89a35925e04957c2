//! Random sessions.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::sessions::Sessions;

/// Requests to the agent simple, and commands that change the settings.
const COMMANDS: &[&str] = &[
    "desc simple.color",
    "fetch simple.numfetch simple.color",
    "fetch simple.color, 253.0.9",
    "instance 253.0",
    "instance 253.0 1",
    "instance 253.0 red",
    "instance 253.1 \"grey\"",
    "profile 253.0 none",
    "profile 253.0 add 1",
    "profile 253.0 delete 2",
    "profile 253.0 all",
    "text simple.color",
    "text indom 253.0",
    "store simple.numfetch \"7\"",
    "store simple.color '300'",
    "label domain",
    "label indom 253.0",
    "label instances 253.0",
    "label item simple.color",
    "label cluster 253.0",
    "getdesc on",
    "getiname on",
    "getdesc off",
    "getiname off",
    "timer on",
    "timer off",
    "status",
    "children simple",
    "traverse simple",
    "pmid simple.color",
    "name 253.0.1",
    "attr 5 \"x\"",
    "attr 11",
    "debug pdu",
    "debug none",
    "debug appl0 -pdu",
    "namespace /dev/null",
    "close",
    "open pipe AGENT",
    "wait 0",
    "help",
];

/// Words for any position, except those for help texts, shared objects and windows, and numbers of the C library's own
/// debug options.
const WORDS: &[&str] = &[
    "add",
    "all",
    "attr",
    "attribute",
    "children",
    "close",
    "cluster",
    "context",
    "delete",
    "desc",
    "domain",
    "fetch",
    "getiname",
    "getdesc",
    "indom",
    "inet",
    "instance",
    "instances",
    "ipv6",
    "item",
    "label",
    "name",
    "namespace",
    "none",
    "off",
    "on",
    "open",
    "pipe",
    "pmid",
    "profile",
    "socket",
    "status",
    "store",
    "text",
    "timer",
    "traverse",
    "unix",
    " ",
    ",",
    "=",
    "+",
    "#",
    "\"",
    "'",
    "\"a b\"",
    "''",
    "-",
    "-x",
    "$x",
    "$",
    "simple.numfetch",
    "simple.color",
    "simple",
    "nosuch",
    "./x",
    "c:/x",
    "0",
    "1",
    "2",
    "3",
    "-7",
    "0x",
    "0x1f",
    "1.",
    "1.2",
    "1.2.",
    "253.0",
    "253.1",
    "253.0.0",
    "253.0.1",
    "1.2.3",
    "1.2.3.4",
    "99999999999999999999",
    "\r",
    "\t",
    "%",
    "9x",
    "-1.5",
    "red",
    "\"green\"",
    "\"5\"",
    "'7'",
    "\"uid\"",
    "5",
    "253",
];

/// Returns a line: a command unchanged, a command with a word added, removed or replaced, or random words.
fn line() -> impl Strategy<Value = String> {
    // A replaced word after `debug` could be an option that traces the inside of the C library.
    let others: Vec<_> = COMMANDS.iter().copied().filter(|line| !line.starts_with("debug")).collect();
    let other = select(others).prop_map(|line| line.split(' ').collect::<Vec<_>>());
    let changed = (other, any::<prop::sample::Index>(), 0..3, select(WORDS)).prop_map(|(mut words, at, how, word)| {
        let at = at.index(words.len());
        match how {
            0 => words[at] = word,
            1 => words.insert(at, word),
            _ => drop(words.remove(at)),
        }
        words.join(" ")
    });
    let spaced = (select(WORDS), select(&["", " ", " "][..])).prop_map(|(word, space)| format!("{word}{space}"));
    let line = prop_oneof![
        5 => select(COMMANDS).prop_map(str::to_owned),
        3 => changed,
        3 => vec(spaced, 1..8).prop_map(|words| words.concat()),
    ];
    // PCP's dbpmda crashes at the cluster of `PM_ID_NULL`, which is what this number stands for.
    line.prop_filter("a crash of PCP's dbpmda", |line| {
        !(line.contains("cluster") && line.contains("99999999999999999999"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    #[ignore = "needs PCP"]
    // Slow: PCP's dbpmda and ours run random sessions.
    fn sessions(lines in vec(line(), 1..40), is_open in any::<bool>(), echo in any::<bool>(), prompt in any::<bool>()) {
        let mut options = vec!["-f"];
        options.extend(echo.then_some("-e"));
        options.extend(prompt.then_some("-i"));
        let open = if is_open { "open pipe AGENT\n" } else { "" };
        // PCP's dbpmda would wait forever at an error in the last line.
        let input = format!("{open}{}\n\n\n", lines.join("\n"));
        Sessions::c_agent("simple").same_input(&options, &input);
    }
}
