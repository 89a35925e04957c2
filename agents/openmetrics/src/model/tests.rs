use std::fmt::Write as _;

use pmapi::Atom;
use proptest::prelude::*;

use super::*;
use crate::budget::Budget;
use crate::url_file::UrlFile;

fn model() -> Model {
    Model::unsaved("a".into(), 10_000)
}

fn rules(text: &str) -> Rules {
    UrlFile::parse(&format!("http://x\n{text}")).unwrap().rules
}

/// Returns the values, as `name=value` or `name[instance]=value`.
fn shown(sample: &Sample) -> String {
    let mut all = Vec::new();
    for metric in sample.metrics.iter() {
        let mut add = |slot: usize, instance: String| match sample.values.get(slot).and_then(Value::atom) {
            Some(Ok(Atom::Double(value))) => all.push(format!("{}{instance}={value}", metric.name)),
            Some(Ok(value)) => all.push(format!("{}{instance}={value}", metric.name)),
            Some(Err(_)) | None => {}
        };
        match &metric.shape {
            Shape::Singular(slot) => add(*slot as usize, String::new()),
            Shape::Plural(named) => {
                named.slots().for_each(|(inst, slot)| add(slot, format!("[{}]", named.names[inst.word() as usize])));
            }
        }
    }
    all.join(" ")
}

const LONG: usize = 100_000;

#[test]
fn a_bad_line_costs_that_line() {
    let long = ["x{a=\"", &"1".repeat(LONG)].concat();
    for bad in [
        "x",
        "x{",
        "x{a} 1",
        "x{a=1} 1",
        "x{a='1'} 1",
        "x{a=\"1} 1",
        "x{a=\"1\\\"} 1",
        "x{a=\"wall 27\" panel\"} -3",
        "x{a=\"1\" b=\"2\"} 1",
        "x{a=\"1\" 1",
        "x{a=\"1\"}",
        "{a=\"1\"} 1",
        "{\"x} 1",
        "x}{ 1",
        "x-y 1",
        "9x 1",
        "= 1",
        "\u{feff}x 1",
        "\u{fffd}\u{fffd} 1",
        "x\0 1",
        "x 1\0",
        "x 1,5",
        "x 0x10",
        "x --1",
        "x 1e",
        "x \"1\"",
        "x{a=\"1\"} one",
        "<x> 1",
        "# PCP",
        "# PCP5",
        "# PCP5 x 1.2.3 u64",
        &long,
    ] {
        let mut model = model();
        let text = format!("first 1\n{bad}\nlast{{a=\"1\"}} 2\n");
        // The second reading expects the samples of the first one.
        for _ in 0..2 {
            let sample = model.read(&text, &Rules::default());
            assert_eq!(shown(&sample), "first=1 last[0 a:1]=2", "{bad}");
            assert_eq!((sample.refused.count, sample.refused.first[0].0, sample.lines), (1, 2, 2), "{bad}");
            assert!(sample.status().starts_with("a line could not be read, line 2: "), "{}", sample.status());
        }
        let sample = model.read("last{a=\"1\"} 3\n", &Rules::default());
        assert_eq!((&*shown(&sample), &*sample.status()), ("last[0 a:1]=3", "success"), "{bad}");
    }
}

/// The value of a metric that is known already.
#[test]
fn a_bad_value_costs_that_value() {
    for (metadata, value, reason) in [
        ("# TYPE x gauge", "abc", "3: \"abc\" is not a number"),
        ("# PCP5 x 1.2.3 u32 PM_INDOM_NULL counter none", "1.5", "3: \"1.5\" is not a value of type U32"),
        ("# PCP5 x 1.2.3 32 PM_INDOM_NULL counter none", "3000000000", "3: \"3000000000\" is not a value of type 32"),
    ] {
        let mut model = model();
        let document = |value: &str| format!("y 1\n{metadata}\nx {value}\n");
        let shown = |sample: Sample| (shown(&sample), sample.refused.text());
        assert_eq!(shown(model.read(&document("7"), &Rules::default())), ("y=1 x=7".into(), String::new()));
        assert_eq!(shown(model.read(&document(value), &Rules::default())), ("y=1".into(), reason.into()));
        // The value of another line is not lost, whichever comes first.
        for (one, other) in [("7", value), (value, "7")] {
            let text = document(&format!("{one}\nx {other}"));
            assert_eq!(shown(model.read(&text, &Rules::default())).0, "y=1 x=7", "{text}");
        }
        assert_eq!(shown(model.read(&document("8"), &Rules::default())), ("y=1 x=8".into(), String::new()));
    }
}

#[test]
fn odd_lines_that_are_good() {
    let long = format!("# HELP x {}", "word ".repeat(LONG));
    for odd in [
        "x 1 99999999999999999999999999",
        "x 1 -1",
        "x 1 soon",
        "x 1 # {trace=\"",
        "x 1 # {} abc 1e999",
        "x NaN",
        "x{a=\"\\q\"} 1",
        "x{a=\"1\",a=\"2\"} 1",
        "x{a=\"\u{fffd}\"} 1",
        "x 1\r",
        "# TYPE",
        "# TYPE x",
        "# TYPE x nonsense more",
        "# HELP",
        "# HELP \"x",
        "# HELP x \u{fffd}\0",
        "# UNIT",
        "# METADATA",
        "# EOF",
        "#",
        &long,
    ] {
        let sample = model().read(&format!("\u{feff}first 1\r\n{odd}\nlast 2"), &Rules::default());
        let shown = shown(&sample);
        assert!(
            shown.starts_with("first=1") && shown.ends_with("last=2") && sample.status() == "success",
            "{odd}: {shown}"
        );
    }
}

/// Nothing of such texts becomes a metric, and gets a number for ever.
#[test]
fn documents_of_which_nothing_can_be_read() {
    let utf16: Vec<u8> = "# TYPE a gauge\na 1\nb{c=\"d\"} 2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf16 = String::from_utf8_lossy(&[b"\xff\xfe", &utf16[..]].concat()).into_owned();
    let binary = String::from_utf8_lossy(&(0..=255).collect::<Vec<u8>>().repeat(3)).into_owned();
    for text in [
        "<!DOCTYPE html>\n<title>404</title>\nError 404\n",
        "\n <html>\nerror 404\n",
        "Not Found\n",
        "{\"a\": 1,\n\"b\": 2}\n",
        "# TYPE a gauge\na\n",
        &utf16,
        &binary,
    ] {
        let mut model = model();
        let sample = model.read(text, &Rules::default());
        assert!(sample.status().starts_with("no line could be read, line "), "{text}: {}", sample.status());
        assert_eq!((sample.metrics.len(), model.items.names(0).count()), (0, 0), "{text}");
    }
    for text in ["", "\u{feff}", "\n \n\t\n", "# EOF\n", "# HELP a b\n# TYPE a counter\n"] {
        assert_eq!(model().read(text, &Rules::default()).status(), "success", "{text:?}");
    }
}

const INSTNAME: &str = "# PCP5 p 1.2.3 double 1.2 instant none";
const SINGULAR: &str = "# PCP5 p 1.2.3 double PM_INDOM_NULL instant none";

/// A value is shown only if it is that of one series.
#[test]
fn no_value_is_an_arbitrary_one() {
    let two = |name: &str, one: &str, other: &str| format!("{name}{{{one}}} 1\n{name}{{{other}}} 2\n");
    let instname = format!("{INSTNAME}\n{}", two("p", "instname=\"i\",z=\"1\"", "instname=\"i\",z=\"2\""));
    let singular = format!("{SINGULAR}\n{}", two("p", "z=\"1\"", "z=\"2\""));
    let floors = two("a", "floor=\"1\"", "floor=\"2\"");
    let wings = two("a", "floor=\"1\",wing=\"x\"", "floor=\"2\",wing=\"x\"");
    for (rules, first, second, expected) in [
        // Labels appear and disappear.
        ("", "a 1\n", &*floors, ""),
        ("", "a{} 1\n", "a{floor=\"1\"} 4\n", ""),
        ("", "a 1\n", "a 5\na{floor=\"1\"} 4\n", "a=5"),
        ("", "a{floor=\"1\"} 4\na 5\n", "a 5\na{floor=\"1\"} 4\n", "a[0 floor:1]=4"),
        ("", &floors, "a 5\n", ""),
        ("", INSTNAME, &format!("{INSTNAME}\np 3\np{{instname=\"i\"}} 4\n"), "p=3"),
        // Filters and PCP's metadata leave out what distinguishes samples.
        ("FILTER: EXCLUDE LABEL floor", &floors, &floors, ""),
        ("FILTER: OPTIONAL LABEL floor", &wings, &wings, ""),
        ("FILTER: EXCLUDE LABEL floor", "", &wings, ""),
        ("", &instname, &instname, ""),
        ("", &singular, &singular, ""),
        ("", "", &format!("{SINGULAR}\np 1\np{{z=\"1\"}} 2\n"), ""),
        ("FILTER: EXCLUDE LABEL floor", "", &format!("{floors}{floors}b 1\n"), "b=1"),
        ("", "", &format!("{SINGULAR}\np{{z=\"1\"}} 1\np{{z=\"2\"}} x\n"), ""),
        ("", "", &format!("{SINGULAR}\np{{z=\"1\"}} x\np{{z=\"2\"}} 1\n"), ""),
        ("FILTER: EXCLUDE LABEL z", "", "p{z=\"1\"} x\ny 1\np{z=\"2\"} 5\n", "y=1 p=5"),
        // The same instance by another text.
        ("", "", &two("a", "x=\"1 y:2\"", "x=\"1\",y=\"2\""), ""),
        // Invalid UTF-8.
        ("", "", &two("a", "city=\"Z\u{fffd}rich\"", "city=\"Z\u{fffd}rich\""), ""),
    ] {
        let (mut model, rules) = (model(), self::rules(rules));
        model.read(first, &rules);
        for _ in 0..2 {
            let sample = model.read(second, &rules);
            assert!(shown(&sample) == expected && sample.refused.count > 0, "{first}{second}{}", shown(&sample));
        }
    }
}

/// Another label set is another instance, and the same series twice has its last value.
#[test]
fn labels_that_change() {
    let one = "a{floor=\"1\",wing=\"x\"} 1\n";
    for (rules, first, second, expected) in [
        ("", "a{floor=\"1\"} 4\n", "a{floor=\"1\",wing=\"x\"} 5\n", "a[1 floor:1 wing:x]=5"),
        ("", one, "a{wing=\"x\"} 5\n", "a[1 wing:x]=5"),
        ("FILTER: EXCLUDE LABEL floor", one, "a{floor=\"2\",wing=\"x\"} 5\n", "a[0 wing:x]=5"),
        ("FILTER: OPTIONAL LABEL floor", one, "a{floor=\"2\",wing=\"x\"} 5\n", "a[0 wing:x]=5"),
        ("FILTER: EXCLUDE LABEL .*", one, "a{floor=\"2\"} 5\n", "a=5"),
        ("", "a 1\n", "a 1\na 2 5\n", "a=2"),
        ("", one, "a{floor=\"1\",wing=\"x\"} 1\na{wing=\"x\",floor=\"1\"} 2\n", "a[0 floor:1 wing:x]=2"),
    ] {
        let (mut model, rules) = (model(), self::rules(rules));
        model.read(first, &rules);
        for _ in 0..2 {
            let sample = model.read(second, &rules);
            assert_eq!((&*shown(&sample), &*sample.status()), (expected, "success"), "{first}{second}");
        }
    }
}

/// With PCP's metadata, the labels of an instance or singular metric may be others in each document.
#[test]
fn labels_are_those_of_the_last_document() {
    for (metadata, instname) in [(INSTNAME, "instname=\"i\","), (SINGULAR, "")] {
        let mut model = model();
        for zone in ["1", "2", "1", "1", "2"] {
            let sample = model.read(&format!("{metadata}\np{{{instname}z=\"{zone}\"}} 3\n"), &Rules::default());
            let metric = &sample.metrics[0];
            let labels = metric.instances().map_or(&metric.labels, |named| named.labels[0].as_ref().unwrap());
            assert_eq!(labels.iter().last(), Some(("z", zone)), "{metadata}");
        }
    }
}

/// PCP's agent reads nothing after the first line that it refuses, and shows the last of several samples.
#[test]
fn as_pcps_agent() {
    let mut model = model();
    model.likeness = Likeness::Exact;
    let sample = model.read("a 1\nb x\na{c=\"1\"} 2\nd{ 3\ne 4\n", &Rules::default());
    assert_eq!(shown(&sample), "a=2");
    assert!(sample.metrics.len() == 2 && sample.status() == "success" && sample.refusal().starts_with("line 4: "));
}

fn limited(memory: usize) -> Model {
    Model { share: Share::new(&Budget::new(memory), "a"), ..model() }
}

fn document(names: impl Iterator<Item = usize>) -> String {
    names.map(|n| format!("m{{n=\"{n}\"}} {n}\n")).collect()
}

/// New instances are left out. Those that are known stay, whatever comes before them in a document.
#[test]
fn a_source_that_explodes_keeps_its_first_instances() {
    let mut model = limited(4 << 20);
    let known = model.read(&document(0..100), &Rules::default());
    assert_eq!((known.left_out, known.metrics.len()), (0, 1));
    let mut used = Vec::new();
    for round in 1..20 {
        let sample = model.read(&document((round * 5000..round * 5000 + 5000).chain(0..100)), &Rules::default());
        assert!(sample.left_out > 0 && shown(&sample).contains("m[99 n:99]=99"), "{round}");
        used.push(model.share.used());
    }
    assert!(used.iter().all(|used| *used <= 1 << 20), "{used:?}");
    let sample = model.read(&document(0..100), &Rules::default());
    assert_eq!((sample.left_out, shown(&sample).matches("m[").count()), (0, 100));
}

/// What was taken for a sample that is refused is not lost at each reading.
#[test]
fn documents_that_are_refused_use_no_more_memory_each_time() {
    for text in ["a{x=\"1\"} 1\na 2\n", "b 1\n0c 2\n", "# TYPE d histogram\nd 1\n", "e 1\ne{a=\"1\"} 2\n", "f x\n"] {
        let mut model = limited(64 << 20);
        let used: Vec<usize> = (0..50)
            .map(|_| {
                model.read(text, &Rules::default());
                model.share.used()
            })
            .collect();
        assert_eq!(used[1], used[49], "{text}");
    }
}

/// Names of metrics and samples that change all the time use no more memory than their limits allow.
#[test]
fn names_that_change_all_the_time_use_no_more_memory() {
    let mut model = limited(64 << 20);
    let mut used = Vec::new();
    for round in 0..60 {
        let text: String =
            (0..500).map(|n| format!("m{round}_{n} 1\np{{instname=\"i\",n=\"{round}_{n}\"}} 1\n")).collect();
        model.read(&format!("{INSTNAME}\n{text}"), &Rules::default());
        used.push(model.share.used());
    }
    let largest = |from: usize| used.iter().skip(from).take(20).max();
    assert_eq!(largest(20), largest(40), "{used:?}");
}

fn limited_to(instances: usize) -> Model {
    Model::unsaved("a".into(), instances)
}

fn values(sample: &Sample) -> usize {
    sample.values.iter().filter(|value| value.atom().is_some()).count()
}

fn refused(sample: &Sample) -> Option<usize> {
    sample.refused.first.first().map(|(line, _)| *line)
}

/// With quadratic time, this and the next test would take minutes.
#[test]
fn a_sample_with_very_many_labels() {
    let labels = (0..LONG).fold(String::new(), |mut labels, n| {
        let _ = write!(labels, "l{n}=\"{n}\",");
        labels
    });
    // The second half repeats the first.
    let sample = model().read(&format!("m{{{labels}{labels}}} 1\nn 2\n"), &Rules::default());
    assert_eq!((shown(&sample).as_str(), refused(&sample), sample.left_out), ("n=2", None, 1));
}

#[test]
fn very_many_names_of_labels() {
    let document = (0..LONG).fold(String::new(), |mut document, n| {
        let _ = writeln!(document, "m{{l{n}=\"\"}} {n}");
        document
    });
    let sample = limited_to(LONG).read(&document, &Rules::default());
    assert_eq!((values(&sample), refused(&sample), sample.left_out), (LONG, None, 0));
}

#[test]
fn long_names_are_left_out() {
    let long = "a".repeat(LONG);
    let document = format!("{long} 1\n{long}{{b=\"1\"}} 1\n# PCP5 {long} 1.2.3 u32 1.2 counter none\nc 2\n");
    let mut model = limited_to(100);
    let sample = model.read(&format!("{document}# a comment\nd 3\n"), &Rules::default());
    assert_eq!((shown(&sample).as_str(), refused(&sample), sample.left_out), ("d=3", None, 3));
    let sample = model.read(&format!("\u{feff}e 4\nf_{{}} {long}\n-{long} 1\n"), &Rules::default());
    assert_eq!((values(&sample), refused(&sample)), (2, Some(2)));
    // PCP's tools would accept a very long name of an instance, but it would delay other clients of pmcd.
    let sample = model.read(&format!("m{{a=\"{}\"}} 1\nb 2\n", "x".repeat(80_000)), &Rules::default());
    assert_eq!((shown(&sample).as_str(), sample.left_out), ("b=2", 1));
}

/// Lines of documents, good and bad ones.
const LINES: [&str; 24] = [
    "# HELP a Some help.",
    "# TYPE a counter",
    "# TYPE b histogram",
    "# PCP5 p.q 1.2.3 u64 1.2 counter count",
    "# PCP5 a 1.2.4 string PM_INDOM_NULL discrete none",
    "# METADATA",
    "#",
    "",
    "a 1",
    "a{x=\"1\"} 2",
    "a{x=\"2\",y=\"z\"} 3",
    "a{y=\"z\",x=\"2\"} 4",
    "b_bucket{le=\"+Inf\"} 5",
    "b_sum NaN",
    "p_q{instname=\"i\",z=\"1\"} 6",
    "p_q{instname=\"i\",z=\"2\"} 7",
    "{\"x y\",\"a b\"=\"c\"} 8",
    "a{x=\"1\"",
    "a{x=1} 2",
    "a-b 1",
    "c abc",
    "d 1e400 1395066363000",
    "e 5 # {a=\"b\"} 1 2",
    "\u{fffd} 1",
];

proptest! {
    /// A document has the same values when it is read again, also after another one.
    #[test]
    fn values_depend_on_their_document(
        first in proptest::collection::vec((0..LINES.len(), any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        second in proptest::collection::vec(0..LINES.len(), 0..12),
    ) {
        let damaged = |line: &str, at: &proptest::sample::Index, byte: u8| {
            let mut bytes = line.as_bytes().to_vec();
            if byte < 64 && !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = 2 * byte;
            }
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let first: Vec<_> = first.iter().map(|(line, at, byte)| damaged(LINES[*line], at, *byte)).collect();
        let first = format!("honest 12345\n\n# x\n{}\n", first.join("\n"));
        let second: String = second.iter().map(|line| format!("{}\n", LINES[*line])).collect();
        let mut model = model();
        let before = model.read(&first, &Rules::default());
        let honest = shown(&before);
        prop_assert!(honest.split(' ').any(|value| value == "honest=12345"), "{honest}");
        let again = model.read(&first, &Rules::default());
        prop_assert_eq!((shown(&again), refused(&again)), (honest, refused(&before)));
        model.read(&second, &Rules::default());
        let later = model.read(&first, &Rules::default());
        prop_assert_eq!((values(&later), refused(&later)), (values(&before), refused(&before)), "after {}", second);
    }
}
