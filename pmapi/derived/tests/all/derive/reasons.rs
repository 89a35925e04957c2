//! The documented differences from libpcp, for definitions over the metrics of `data/derive/agent.c`.

use crate::derive::compare::Difference;

/// Returns the documented reason of a difference; `None` if it is not documented. `newer` is whether libpcp is newer
/// than 6.0.3.
pub(crate) fn reason(difference: &Difference, newer: bool) -> Option<&'static str> {
    let bound = difference.ours.starts_with("Bound") && difference.theirs.starts_with("Bound");
    of_values(difference, bound)
        .or_else(|| if newer { of_newer(&difference.expr) } else { of_older(difference) })
        .or_else(|| of_descriptor(difference, bound))
}

fn has(expr: &str, words: &[&str]) -> bool {
    words.iter().any(|word| expr.contains(word))
}

/// Reasons why values, or their presence, may differ.
fn of_values(difference: &Difference, bound: bool) -> Option<&'static str> {
    let Difference { expr, ours, .. } = difference;
    let has = |words: &[&str]| has(expr, words);
    let times = has(&["msec_", "hour_", "sec2_", "\"hour\""]) && has(&["per_msec_", "byte_sec_", "kbyte_hour_"]);
    match () {
        _ if bound => None,
        _ if has(&["?"]) && has(&["[", "e.named"]) && ours.starts_with("sample") => Some("ternary by instance"),
        _ if has(&["/^.$/"]) => Some("characters in UTF-8"),
        _ if has(&["meta=e.text"]) => Some("a constant that is no number"),
        _ if times && has(&[" * ", " / "]) => Some("direction of a conversion"),
        _ if ["max(e.sometimes)", "max(e.never)", "min(e.sometimes)", "min(e.never)"].contains(&expr.as_str()) => {
            Some("largest of nothing")
        }
        _ if has(&["novalue("]) && !ours.contains("Bound") => Some("novalue() as an instance's value"),
        _ if expr == "delta(e.fails)" => Some("after an error"),
        _ => None,
    }
}

/// Reasons that concern versions after 6.0.3.
fn of_newer(expr: &str) -> Option<&'static str> {
    let expr = expr.trim_start();
    match () {
        _ if has(expr, &["rate(", "delta("]) && expr.contains('[') => Some("difference of a selection"),
        _ if expr.starts_with("rate(") && !expr.contains("counter") => Some("rate of what is no counter"),
        // For example the difference of -1 and the largest number. A negated U32 is an I32.
        _ if expr.starts_with("rate(") && (has(expr, &["i64"]) || has(expr, &["-"]) && has(expr, &["u32"])) => {
            Some("a difference that wraps around")
        }
        _ => None,
    }
}

/// Differences between 6.0.3 and 7.2.1.
fn of_older(difference: &Difference) -> Option<&'static str> {
    let Difference { expr, theirs, .. } = difference;
    match () {
        _ if has(expr, &["celsius", "fahrenheit", "volt", "watt"]) => Some("extra units"),
        _ if expr.contains("rate(") => Some("rate of what falls"),
        _ if expr.contains('?') && (has(expr, &["3", "0.25"]) || theirs.is_empty()) => Some("a known guard"),
        _ => None,
    }
}

/// Reasons why two descriptors may differ.
fn of_descriptor(difference: &Difference, bound: bool) -> Option<&'static str> {
    let Difference { expr, ours, theirs } = difference;
    let without = |text: &str| {
        let words = text.split("semantics: ").map(|part| part.split_once(',').map_or(part, |(_, rest)| rest));
        words.collect::<Vec<_>>().concat()
    };
    let negates = expr.replace("!=", "==").replace("matchinst(!", "matchinst(").contains('!');
    match () {
        _ if !bound => None,
        _ if expr.matches("novalue()").count() > 1 => Some("the expression before two novalue()"),
        _ if negates => Some("negation"),
        _ if expr.starts_with("mkconst(") && expr.contains("units=") => Some("scale of a constant"),
        _ if without(ours) == without(theirs) && expr.contains("counter") => Some("semantics with a counter"),
        _ => None,
    }
}
