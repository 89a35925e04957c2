//! Documents of the two formats, and lines that they refuse.

#![allow(clippy::unwrap_used)]

use exposition::strict::{Checker, Format};

fn problems(text: &str) -> Vec<String> {
    let problems = Checker::check(text, Format::of(text), 100);
    problems.iter().map(|problem| format!("{}: {}", problem.line, problem.reason)).collect()
}

#[test]
fn valid_documents() {
    let prometheus = "\n# HELP sent_total Letters that were sent.\n# TYPE sent_total counter\n\
        sent_total{by=\"air\",class=\"1\"} 12 1700000000000\n# any comment\n   a  +Inf\n\
        escaped{a=\"\\\\x\\\\\",b=\"x\\n\\\"y\\\"\"} 1.5e9\n# TYPE h histogram\n\
        h_bucket{le=\"+Inf\"} 1\nh_sum 5\nh_count 1\nneg 1 -3982045\n";
    assert_eq!((Format::of(prometheus), problems(prometheus)), (Format::Prometheus, vec![]));
    let open = "# TYPE foo counter\n# UNIT foo seconds\n# HELP foo x\nfoo_total 17.0 1520879607.789 # {id=\"x\"} 5\n\
        foo_created 1520872607.123\nb_bucket{le=\"0.1\"} 8 # {} 0.054\n{\"a b\"} 1\n# EOF\n";
    assert_eq!((Format::of(open), problems(open)), (Format::OpenMetrics, vec![]));
}

#[test]
fn lines_that_prometheus_refuses() {
    for (line, reason) in [
        ("m{a} 1", "= must follow the name of a label"),
        ("a.b 1", "\"a.b\" is no name of a metric"),
        ("m{a-b=\"1\"} 1", "\"a-b\" is no name of a label"),
        ("m{a=\"1\",a=\"2\"} 1", "label \"a\" occurs twice"),
        ("m{a=\"\\t\"} 1", "label \"a\" has a backslash that escapes nothing"),
        ("m abc", "\"abc\" is no number"),
        ("m 1_0", "\"1_0\" is no number"),
        ("m 1 1.5", "\"1.5\" after the value is no timestamp"),
        ("m 1 # {} 5", "\"# {} 5\" after the value is no timestamp"),
        ("# TYPE m info", "\"info\" is no type"),
        ("# TYPE m", "TYPE lacks a name or a word after it"),
        ("# TYPE 1m counter", "\"1m\" is no name of a metric"),
    ] {
        assert_eq!(problems(&format!("{line}\n")), [format!("1: {reason}")], "{line}");
    }
    let text = "m{a=\"1\",b=\"2\"} 1\nm{b=\"2\",a=\"1\"} 1\n# TYPE m gauge\n# HELP n x\n# HELP n y\n";
    let expected = [
        "2: the sample has been before, with the same labels",
        "3: TYPE comes after samples of its metric",
        "5: HELP has been before for this metric",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn lines_that_openmetrics_refuses() {
    let text = "\n a 1\n# comment\n# TYPE b untyped\nb 1 x\nb 2 # nonsense\nc 1\n# EOF\nd 1\n# EOF\n";
    let blank = "OpenMetrics has no blank lines, and no white space around lines";
    let expected = [
        format!("1: {blank}"),
        format!("2: {blank}"),
        "3: OpenMetrics has only the comments TYPE, HELP, UNIT and EOF".to_owned(),
        "4: \"untyped\" is no type".to_owned(),
        "5: \"x\" after the value is no timestamp".to_owned(),
        "6: \"# nonsense\" after the value is no timestamp".to_owned(),
        "9: # EOF is not the last line".to_owned(),
        "10: # EOF is not the last line".to_owned(),
    ];
    assert_eq!(problems(text), expected);
}
