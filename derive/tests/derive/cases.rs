//! The 844 definitions of PCP's own tests, with the answers of libpcp 7.2.1.

/// Returns the name and the expression of each definition.
pub(crate) fn expressions() -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (name, expr) = line.split_once('=').unwrap();
        (name.trim().to_owned(), expr.to_owned())
    };
    include_str!("../data/derive/expressions.txt").lines().map(pair).collect()
}

/// Returns the columns of each answer as `oracle.py` prints them: name, OK, descriptor, values; or name, ERR, kind,
/// text.
pub(crate) fn expected() -> Vec<Vec<&'static str>> {
    let text = include_str!("../data/derive/expected-7.2.1.tsv");
    text.lines().map(|line| line.splitn(4, '\t').map(str::trim_end).collect()).collect()
}

/// Definition with two `novalue`, for which libpcp keeps the expression that it parsed before.
pub(crate) const TWO_NOVALUES: &str = "q1508.e016";

/// Whether values can be compared with the recorded ones: those of the sample agent that do not change.
pub(crate) fn comparable(expr: &str, theirs: &str) -> bool {
    let moving = [
        "disk.",
        "kernel.",
        "hinv.",
        "proc.",
        "network.",
        "pmcd.",
        "mem.",
        ".mirage",
        ".lights",
        ".scale_step",
        ".seconds",
        ".ulonglong.bin_ctr",
    ];
    !theirs.contains("<varies>") && !moving.iter().any(|name| expr.contains(name))
}
