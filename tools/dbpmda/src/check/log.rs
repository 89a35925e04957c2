//! Panics in the log of an agent.

use super::{Finding, Rule};

/// Returns a finding for each place in an agent's log at which a thread panicked.
///
/// The lines are those of this framework, as in `Error: a source panicked at src/lib.rs:7:5: message`, or those of Rust's
/// standard library, which have the message in the next line.
pub(super) fn panics(log: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(rest) = ["panicked at ", "panic at "].iter().find_map(|words| Some(line.split_once(words)?.1)) else {
            continue;
        };
        let (subject, detail) = match (rest.split_once(": "), rest.strip_suffix(':')) {
            (Some((place, message)), _) => (place, message),
            (None, Some(place)) => (place, lines.peek().copied().unwrap_or_default()),
            (None, None) => (rest, ""),
        };
        if findings.iter().all(|finding| finding.subject != subject) {
            findings.push(Finding { rule: Rule::Panic, subject: subject.to_owned(), detail: detail.to_owned() });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_of_threads_are_found_once_for_each_place() {
        let log = "Log for pmdahello on host started Tue Nov 24 05:13:00 2026\n\n\
                   [Tue Nov 24 05:13:01] pmdahello(12) Error: panic at src/lib.rs:25:31: index out of bounds: the len is 0\n\
                   [Tue Nov 24 05:13:01] pmdahello(12) Error: a source panicked at src/lib.rs:7:5: no\n\
                   [Tue Nov 24 05:13:02] pmdahello(12) Error: a source panicked at src/lib.rs:7:5: no\n\
                   [Tue Nov 24 05:13:02] pmdahello(12) Warning: no panic so far\n\
                   thread 'worker' (13) panicked at src/main.rs:3:4:\nfrom the standard library\n\
                   \nLog finished Tue Nov 24 05:13:03 2026\n";
        let found: Vec<_> = panics(log).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "panic: src/lib.rs:25:31: index out of bounds: the len is 0",
                "panic: src/lib.rs:7:5: no",
                "panic: src/main.rs:3:4: from the standard library",
            ]
        );
        assert_eq!(panics(""), []);
    }
}
