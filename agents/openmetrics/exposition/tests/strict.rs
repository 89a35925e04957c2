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
    let open = "# TYPE foo_seconds counter\n# UNIT foo_seconds seconds\n# HELP foo_seconds x\n\
        foo_seconds_total 17.0 1520879607.789 # {id=\"x\"} 5\nfoo_seconds_created 1520872607.123 1520879607.789\n\
        {\"a b\"} 1\n# EOF\n";
    assert_eq!((Format::of(open), problems(open)), (Format::OpenMetrics, vec![]));
}

#[test]
fn lines_that_prometheus_refuses() {
    for (line, reason) in [
        ("m{a} 1", "= must follow the name of a label"),
        ("a.b 1", "\"a.b\" is not a metric name"),
        ("m{a-b=\"1\"} 1", "\"a-b\" is not a label name"),
        ("m{a=\"1\",a=\"2\"} 1", "label \"a\" occurs twice"),
        ("m{a=\"\\t\"} 1", "the value of label \"a\" has a backslash before a character other than \\, \" and n"),
        ("m{\"a b\"=\"1\",\"a b\"=\"2\"} 1", "label \"\\\"a b\\\"\" occurs twice"),
        ("m abc", "\"abc\" is not a number"),
        ("m 1_0", "\"1_0\" is not a number"),
        ("m 1 1.5", "\"1.5\" after the value is not a timestamp"),
        ("m 1 # {} 5", "\"# {} 5\" after the value is not a timestamp"),
        ("# TYPE m info", "\"info\" is not a type"),
        ("m -NaN", "\"-NaN\" is not a number"),
        ("m{a=\"1\"}\u{a0}1", "the parts of the sample are not separated as the format requires"),
        ("m 1\r", "the line ends with a carriage return"),
        ("#\tTYPE m info", "\"info\" is not a type"),
        ("# TYPE m", "TYPE must be followed by a metric's name and, except for HELP, another word"),
        ("# TYPE 1m counter", "\"1m\" is not a metric name"),
    ] {
        assert_eq!(problems(&format!("{line}\n")), [format!("1: {reason}")], "{line}");
    }
    let text = "m{a=\"1\",b=\"2\"} 1\nm{b=\"2\",a=\"1\"} 1\n# TYPE m gauge\n# HELP n x\n# HELP n y\n";
    let expected = [
        "2: the document already has a sample with this name and these labels",
        "3: TYPE comes after samples of its metric",
        "5: HELP occurs twice for this metric",
    ];
    assert_eq!(problems(text), expected);
}

#[test]
fn lines_that_openmetrics_refuses() {
    let text = "\n a 1\n# comment\n# TYPE b untyped\nb 1 x\nb 2 # nonsense\nc 1\n# EOF\nd 1\n# EOF\n";
    let blank = "OpenMetrics allows neither blank lines nor white space at the ends of a line";
    let expected = [
        format!("1: {blank}"),
        format!("2: {blank}"),
        "3: OpenMetrics has only the comments TYPE, HELP, UNIT and EOF".to_owned(),
        "4: \"untyped\" is not a type".to_owned(),
        "5: \"x\" after the value is not a timestamp".to_owned(),
        "6: \"# nonsense\" after the value is not a timestamp".to_owned(),
        "9: the document continues after # EOF".to_owned(),
        "10: the document continues after # EOF".to_owned(),
    ];
    assert_eq!(problems(text), expected);
}

/// Documents that `client_python` accepts in its own tests.
#[test]
fn documents_of_another_parser() {
    let accepted = [
        "\n# TYPE  a  counter\n# FOO a\n#\tHELP\ta\thelp\n\na\t1\n",
        "a{ b = \"1\" } 1\na\t\t{\t\tb\t\t=\t\t\"2\"\t\t}\t\t2\na{b=\"3\"}6\na{b=\"4\",  } 1\n",
        "# HELP a\na 1 000   \n",
        "# TYPE \"m.{} # = \\\" \\n\" counter\n{\"m.{} # = \\\" \\n\", \"b. }}{{ # EOF\"=\"\\n } \\\" v\"} 1\n",
    ];
    for text in accepted {
        assert_eq!(problems(text), [""; 0], "{text}");
    }
    for text in
        ["a{,} 1\n", "a{b=\"\\x\"} 1\n", "a 1 1\na 1 2\n", "a +NaN\n", "a {count:24,sum:100} 1\n", "a{b=\"1\",, } 1\n"]
    {
        assert_eq!(problems(text).len(), 1, "{text}");
    }
}
