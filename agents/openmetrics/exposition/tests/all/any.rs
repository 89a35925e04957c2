//! Properties of any text, and of any sample that an exporter may write.

use exposition::{Line, Lines, Sample};
use proptest::prelude::*;

/// Text in which many characters have a meaning in the formats.
fn text() -> impl Strategy<Value = String> {
    "([a-z]{0,3}|[ \t\n\r{}=\",#\\\\]|[0-9.]|é|\u{2028}|\u{a0}|# TYPE |# HELP |\\PC){0,60}"
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

proptest! {
    #[test]
    fn lines_are_all_of_the_text(text in text()) {
        let lines: Vec<&str> = Lines::new(&text).map(|(_, line)| line).collect();
        let rest: usize = lines.iter().map(|line| line.len()).sum();
        prop_assert!(rest <= text.len());
        // Nothing but line ends is left out. Line ends are those of Python's str.splitlines, by which PCP's agent
        // splits.
        let is_end =
            |c| matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
        let ends = text.chars().filter(|c| is_end(*c)).count();
        prop_assert!(lines.len() <= ends + 1);
    }

    #[test]
    fn any_line_is_parsed_or_refused(text in text()) {
        for (_, line) in Lines::new(&text) {
            match Line::parse(line) {
                Ok(Line::Sample(sample)) => {
                    prop_assert!(sample.key().len() >= sample.name().len());
                    prop_assert!(!sample.value().is_empty());
                    // A line with a known key has the same value, whatever lines come before it.
                    let known = Sample::parse_known(line, sample.key());
                    prop_assert_eq!(known, Some((sample.value(), sample.rest())));
                    for label in sample.labels() {
                        prop_assert!(label.value.text().len() <= label.value.raw().len());
                    }
                }
                Ok(_) => {}
                Err(refusal) => prop_assert!(refusal.column >= 1 && refusal.column <= line.len() + 1),
            }
        }
    }

    #[test]
    fn what_an_exporter_writes_is_read(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,8}",
        labels in proptest::collection::vec(("[a-zA-Z_][a-zA-Z0-9_]{0,5}", any::<String>()), 0..5),
        value: f64,
    ) {
        let written: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let line = format!("{name}{{{}}} {value}", written.join(","));
        let Ok(Line::Sample(sample)) = Line::parse(&line) else { panic!("{line:?}") };
        let read: Vec<(String, String)> =
            sample.labels().map(|label| (label.name.to_owned(), label.value.text().into_owned())).collect();
        prop_assert_eq!((sample.name(), read), (&*name, labels));
        let number = exposition::number::float(sample.value()).unwrap_or_default();
        prop_assert!(number == value || number.is_nan() && value.is_nan());
    }
}
