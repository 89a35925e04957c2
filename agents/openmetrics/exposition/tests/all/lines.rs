//! Samples of documents, and lines that are not samples.

use exposition::{Line, Reason, Sample};

fn sample(line: &str) -> Sample<'_> {
    match Line::parse(line) {
        Ok(Line::Sample(sample)) => sample,
        other => panic!("{line}: {other:?}"),
    }
}

/// Returns the parts of a sample as one text.
fn parts(line: &str) -> String {
    let sample = sample(line);
    let labels: Vec<String> =
        sample.labels().map(|label| format!("{}={}", label.name, label.value.text().escape_debug())).collect();
    let labels = if sample.has_labels() { format!("{{{}}}", labels.join(",")) } else { String::new() };
    format!("{}{labels} {} [{}]", sample.name(), sample.value(), sample.rest())
}

#[test]
fn samples() {
    for (line, expected) in [
        ("m 1", "m 1 []"),
        (" m\t1 ", "m 1 []"),
        ("m{} 1", "m{} 1 []"),
        ("m{ } 1", "m{} 1 []"),
        ("m {a=\"1\"} 1", "m{a=1} 1 []"),
        ("m{ a = \"1\" , b = \"2\" } 1", "m{a=1,b=2} 1 []"),
        ("m{a=\"1\",} 1", "m{a=1} 1 []"),
        ("m{,a=\"1\"} 1", "m{,a=1} 1 []"),
        ("m{a=\"1\"}1", "m{a=1} 1 []"),
        ("m{==\"1\"} 1", "m{==1} 1 []"),
        ("m{a=\"}, x\"} 1", "m{a=}, x} 1 []"),
        (r#"m{a="x\"y\\",b="\n\t\é"} 1"#, r#"m{a=x\"y\\,b=\n\\t\\é} 1 []"#),
        ("m{é=\"漢\"} 1", "m{é=漢} 1 []"),
        ("m 1 1395066363000", "m 1 [1395066363000]"),
        ("m{a=\"1\"} 2 # {t=\"x\"} 0.67 5", "m{a=1} 2 [# {t=\"x\"} 0.67 5]"),
        ("m\u{a0}1", "m 1 []"),
        ("{\"m.x\",a=\"1\"} 1", "m.x{a=1} 1 []"),
        ("{ \"m x\" } 1", "m x 1 []"),
        (r#"{"m\"} x",a="1"} 1"#, r#"m\"} x{a=1} 1 []"#),
        (r#"m{"a b"="1","c=\"d"="2","e"="3"} 1"#, r#"m{"a b"=1,"c=\"d"=2,"e"=3} 1 []"#),
        (r#"{"m","a b" = "1"} 1"#, r#"m{"a b"=1} 1 []"#),
        (r#"m{"="1"} 1"#, r#"m{"=1} 1 []"#),
        ("é²/. abc", "é²/. abc []"),
    ] {
        assert_eq!(parts(line), expected, "{line}");
    }
}

#[test]
fn lines_that_are_no_samples() {
    for (line, column, reason) in [
        ("m", 2, Reason::NoValue),
        ("m{a=\"1\"}", 9, Reason::NoValue),
        ("m{a} 1", 6, Reason::NoEquals),
        ("m{a=1} 1", 5, Reason::NoQuote),
        ("  m{a='1'} 1", 7, Reason::NoQuote),
        ("m{a=\"1 1", 6, Reason::OpenQuote),
        ("m{a=\"1\\", 6, Reason::OpenQuote),
        ("m{a=\"1\" 1", 9, Reason::NoComma),
        ("m{a=\"1\" b=\"2\"} 1", 9, Reason::NoComma),
        ("m{a=\"1\",", 9, Reason::OpenBrace),
        ("m{", 3, Reason::OpenBrace),
        ("{a=\"1\"} 1", 1, Reason::NoName),
        ("{\"a 1", 2, Reason::Name),
        ("m{\"a b\"} 1", 6, Reason::NoEquals),
        ("{\"a\\\"b} 1", 2, Reason::Name),
        ("{\"a\" 1", 6, Reason::NoComma),
    ] {
        let refusal = Line::parse(line).unwrap_err();
        assert_eq!((refusal.reason, refusal.column), (reason, column), "{line}");
    }
}

#[test]
fn a_known_key_saves_the_labels() {
    for (line, key) in [("m{a=\"1\"} 5 6", "m{a=\"1\"}"), ("m 5 6", "m"), ("m{}5 6", "m{}")] {
        assert_eq!(Sample::parse_known(line, key), Some(("5", "6")), "{line}");
        assert_eq!(sample(line).key(), key);
    }
    for (line, key) in [("mm 5", "m"), ("m {a=\"1\"} 5", "m"), ("m{a=\"1\"} 5", "m"), ("m", "m"), ("m{} ", "m{}")] {
        assert_eq!(Sample::parse_known(line, key), None, "{line}");
    }
}
