//! The rules of `OpenMetrics` 1.0 for documents, of the kinds that its own test suite has (`prometheus/OpenMetrics`,
//! `tests/testdata/parsers`), in documents of our own. All 211 documents of that suite are accepted and refused as it
//! says.

#![allow(clippy::unwrap_used)]

use exposition::strict::{Checker, Format};

/// Returns the first problem of a document without its last line `# EOF`, as line and reason.
fn first(text: &str) -> Option<String> {
    let document = format!("{text}# EOF\n");
    let problem = Checker::check(&document, Format::OpenMetrics, 1).pop()?;
    Some(format!("{}: {}", problem.line, problem.reason))
}

#[test]
fn valid_metrics() {
    for text in [
        "",
        "up 1\n",
        "up 1 1700000000.5\n",
        "# HELP up \n# UNIT up \nup NaN\n",
        "# TYPE sent counter\nsent_total{to=\"a\"} 3 # {id=\"x # y\"} 1\nsent_created{to=\"a\"} 5.5\n",
        "# TYPE sent counter\nsent_total 3 12 # {} 1 11.5\n",
        "# HELP t_seconds x\\y\n# TYPE t_seconds gauge\n# UNIT t_seconds seconds\nt_seconds -Inf\n",
        "# TYPE t gauge\nt{a=\"\\z\",b=\"}, {\"} 1\n",
        "# TYPE t gauge\nt 1 5\nt 2 5\nt 3 6\n",
        "# TYPE build info\nbuild_info{v=\"1\"} 1 2\nbuild_info{v=\"2\"} 1 1\n",
        "# TYPE door stateset\ndoor{door=\"open\"} 1\ndoor{door=\"shut\"} 0.0\n",
        "# TYPE s summary\ns_count 2\ns_sum 5\ns{quantile=\"0.5\"} NaN\ns{quantile=\"1\"} 4\n",
        "# TYPE h histogram\nh_bucket{le=\"1e-3\"} 0\nh_bucket{le=\"+Inf\"} 2 # {a=\"b\"} 1\nh_count 2\nh_sum 1.5\n",
        "# TYPE h histogram\nh_bucket{le=\"-1\"} 0\nh_bucket{le=\"+Inf\"} 2\n",
        "# TYPE h gaugehistogram\nh_bucket{le=\"-1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_gcount 2\nh_gsum -5\n",
        "# TYPE h histogram\nh_bucket{a=\"1\",le=\"+Inf\"} 2\nh_bucket{a=\"2\",le=\"+Inf\"} 2\n",
        // Names of UTF-8, which later versions of the format have.
        "# TYPE \"a b\" counter\n{\"a b_total\"} 1\n{\"x\",\"y z\"=\"\\\"\"} 1\n{\"q\\\"\"} 1\n",
    ] {
        assert_eq!(first(text), None, "{text}");
    }
}

#[test]
fn metrics_that_are_refused() {
    let twice = |name: &str| format!("the document already has a metric whose samples may have the name {name:?}");
    let cases = [
        ("# TYPE a info\n# TYPE b info\n# TYPE a info\n", 3, twice("a")),
        ("# TYPE a_sum gauge\n# TYPE a summary\n", 2, twice("a_sum")),
        ("# TYPE a counter\na 1\n", 2, twice("a")),
        ("a 1\nb 1\na 2\n", 3, twice("a")),
        ("# TYPE a gauge\na 1\n# HELP a x\n", 3, "HELP comes after samples of its metric".to_owned()),
        ("# UNIT a_b b\n# UNIT a_b b\n", 2, "UNIT occurs twice for this metric".to_owned()),
    ];
    for (text, line, reason) in cases {
        assert_eq!(first(text), Some(format!("{line}: {reason}")), "{text}");
    }
    let unit = |unit: &str| {
        format!("the name does not end with _ and the unit {unit:?}, or the metric is an info or stateset")
    };
    assert_eq!(first("# UNIT a seconds\n"), Some(format!("1: {}", unit("seconds"))));
    assert_eq!(first("# UNIT a_u u\n# TYPE a_u info\n"), Some(format!("2: {}", unit("u"))));
    assert_eq!(first("# TYPE a_u stateset\n# UNIT a_u u\n"), Some(format!("2: {}", unit("u"))));
}

#[test]
fn samples_that_are_refused() {
    const NOT_NEGATIVE: &str = "the value must be a number, and not negative";
    const COUNT: &str = "the value must be an integer, and not negative";
    const EXEMPLAR: &str = "only buckets and totals of counters have exemplars";
    const QUANTILE: &str = "a summary needs a label \"quantile\" from 0 to 1";
    const BOUND: &str = "a bucket needs a label \"le\" with a number or +Inf";
    for (ty, line, reason) in [
        ("counter", "a_total NaN", NOT_NEGATIVE),
        ("counter", "a_total -1", NOT_NEGATIVE),
        ("counter", "a_created 1 # {} 1", EXEMPLAR),
        ("gauge", "a 1 # {} 1", EXEMPLAR),
        ("histogram", "a_sum 1 # {} 1", EXEMPLAR),
        ("histogram", "a_count 0.5", COUNT),
        ("histogram", "a_bucket{le=\"+Inf\"} -1", COUNT),
        ("histogram", "a_bucket 1", BOUND),
        ("histogram", "a_bucket{le=\"+INF\"} 1", BOUND),
        ("gaugehistogram", "a_gcount NaN", COUNT),
        ("gaugehistogram", "a_gsum NaN", "the value must be a number"),
        ("summary", "a_sum -1", NOT_NEGATIVE),
        ("summary", "a_count 1.5", COUNT),
        ("summary", "a{quantile=\"0\"} -1", "the value must be not negative"),
        ("summary", "a 1", QUANTILE),
        ("summary", "a{quantile=\"1.5\"} 1", QUANTILE),
        ("summary", "a{quantile=\"NaN\"} 1", QUANTILE),
        ("info", "a_info 2", "the value must be 1"),
        ("stateset", "a{a=\"x\"} 2", "the value must be 0 or 1"),
        ("stateset", "a 1", "a stateset needs a label with the name of the metric"),
    ] {
        assert_eq!(first(&format!("# TYPE a {ty}\n{line}\n")), Some(format!("2: {reason}")), "{ty} {line}");
    }
    let long = "x".repeat(128);
    let text = format!("# TYPE a counter\na_total 1 # {{b=\"{long}\"}} 1\n");
    assert_eq!(first(&text), Some("2: the labels of the exemplar have more than 128 characters".to_owned()));
}

#[test]
fn histograms_that_are_refused() {
    let wrong = |reason: &str| format!("the histogram before this line is not valid: {reason}");
    for (ty, samples, line, reason) in [
        ("histogram", "sum 1", 3, wrong("it has no last bucket with le=\"+Inf\"")),
        ("histogram", "bucket{le=\"1\"} 1", 3, wrong("it has no last bucket with le=\"+Inf\"")),
        ("histogram", "bucket{le=\"+Inf\"} 1|sum 1", 4, wrong("it has a sum, but no count")),
        ("gaugehistogram", "bucket{le=\"+Inf\"} 1|gsum 1", 4, wrong("it has a sum, but no count")),
        ("histogram", "bucket{le=\"+Inf\"} 1|count 1", 4, wrong("it has a count, but no sum")),
        ("histogram", "bucket{le=\"+Inf\"} 1|count 2", 4, wrong("its count is not the value of its last bucket")),
        (
            "histogram",
            "bucket{le=\"-1\"} 1|bucket{le=\"+Inf\"} 1|count 1|sum 1",
            6,
            wrong("it has a negative bound, and a sum"),
        ),
        ("gaugehistogram", "bucket{le=\"+Inf\"} 1|gcount 1|gsum -1", 5, wrong("its sum is negative, but no bound is")),
        (
            "histogram",
            "bucket{le=\"2\"} 1|bucket{le=\"1\"} 1",
            3,
            "the bound of the bucket is not greater than that of the previous bucket".to_owned(),
        ),
        (
            "histogram",
            "bucket{le=\"1\"} 2|bucket{le=\"+Inf\"} 1",
            3,
            "the value of the bucket is less than that of the previous bucket".to_owned(),
        ),
        (
            "histogram",
            "bucket{b=\"1\",le=\"+Inf\"} 1|bucket{b=\"2\",le=\"+Inf\"} 1|count{b=\"1\"} 1",
            4,
            "samples of this metric with the same labels are not adjacent".to_owned(),
        ),
    ] {
        let samples: String = samples.split('|').map(|sample| format!("h_{sample}\n")).collect();
        assert_eq!(first(&format!("# TYPE h {ty}\n{samples}")), Some(format!("{line}: {reason}")), "{samples}");
    }
}

#[test]
fn order_and_timestamps() {
    for (samples, reason) in [
        ("a 1 2\na 1 1\n", "the timestamp is earlier than that of the previous sample"),
        ("a 1 -1\na 1 -1.5\n", "the timestamp is earlier than that of the previous sample"),
        ("a 1\na 1 0\n", "samples with the same labels must either all have timestamps, or all have none"),
        ("a 1 0\na 1\n", "samples with the same labels must either all have timestamps, or all have none"),
        ("a 1\na 1\n", "the document already has a sample with this name and these labels"),
    ] {
        assert_eq!(first(&format!("# TYPE a gauge\n{samples}")), Some(format!("3: {reason}")), "{samples}");
    }
}

#[test]
fn lines_of_another_form() {
    const SEPARATOR: &str = "the parts of the sample are not separated as the format requires";
    for line in [
        "a  1",
        "a\t1",
        "a 1  2",
        "a {} 1",
        "a{ } 1",
        "a{b=\"1\",} 1",
        "a{b=\"1\", c=\"2\"} 1",
        "a{b=\"1\"}1",
        "a{b =\"1\"} 1",
    ] {
        assert_eq!(first(&format!("{line}\n")), Some(format!("1: {SEPARATOR}")), "{line}");
    }
    for line in ["1 #", "1 #{} 1", "1 # {}1", "1 # {} x", "1 # {} 1 NaN", "1 # {} 1 1_0", "1 1 # b=\"1\"} 1", "1 1 id"]
    {
        assert!(
            first(&format!("# TYPE a counter\na_total {line}\n")).is_some_and(|problem| problem.starts_with("2: ")),
            "{line}"
        );
    }
    for line in [
        "a 1_0",
        "a 0x1",
        "a +NaN",
        "a 1 Inf",
        "a 1 z",
        "a",
        "a ",
        "a{1=\"1\"} 1",
        "a{b=\"1\",b=\"1\"} 1",
        "a{b=\"1\",,c=\"1\"} 1",
        "a.b 1",
        "# HELP",
        "# HELP ",
        "# HELP a",
        "# TYPE a",
        "# TYPE a gauge ",
        "# TYPE a\t",
        "# UNIT a",
        "#HELP a b",
        " a 1",
        "# EOF ",
        "a 1\r",
        "# TYPE a gauge\r",
        "\"a\" 1",
    ] {
        assert!(first(&format!("{line}\n")).is_some_and(|problem| problem.starts_with("1: ")), "{line}");
    }
}

#[test]
fn documents_end_with_eof() {
    let problems = |text| {
        let problems = Checker::check(text, Format::OpenMetrics, 10);
        problems.iter().map(|problem| format!("{}: {}", problem.line, problem.reason)).collect::<Vec<_>>()
    };
    assert_eq!(problems(""), ["1: # EOF is missing at the end"]);
    assert_eq!(problems("a 1\nb 2\n"), ["2: # EOF is missing at the end"]);
    assert_eq!(problems("# EOF"), [""; 0]);
    assert_eq!(
        problems("# EOFx\n"),
        ["1: OpenMetrics has only the comments TYPE, HELP, UNIT and EOF", "1: # EOF is missing at the end"]
    );
}
