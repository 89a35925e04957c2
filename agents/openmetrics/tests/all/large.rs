//! Documents with very many or very long parts: each costs a bounded time and memory.

use std::fmt::Write as _;

use pmda_openmetrics::Trial;

/// Number of labels of a sample, or of samples with different labels. With quadratic time, the tests would take
/// minutes.
const MANY: usize = 100_000;

fn trial(instances: usize) -> Trial {
    Trial::new("http://localhost", instances).unwrap()
}

#[test]
fn a_sample_with_very_many_labels() {
    let labels = (0..MANY).fold(String::new(), |mut labels, n| {
        let _ = write!(labels, "l{n}=\"{n}\",");
        labels
    });
    // The second half repeats the first.
    let document = format!("m{{{labels}{labels}}} 1\nn 2\n");
    let mut trial = trial(10_000);
    let seen = trial.read(document.as_bytes());
    assert_eq!((seen.values, seen.refused, seen.left_out), (1, None, 1));
    assert_eq!(trial.number("n"), Some(2.0));
}

#[test]
fn very_many_names_of_labels() {
    let document = (0..MANY).fold(String::new(), |mut document, n| {
        let _ = writeln!(document, "m{{l{n}=\"\"}} {n}");
        document
    });
    let seen = trial(MANY).read(document.as_bytes());
    assert_eq!((seen.values, seen.refused, seen.left_out), (MANY, None, 0));
}

#[test]
fn long_names_of_metrics_are_left_out() {
    let long = "a".repeat(100_000);
    let document = format!("{long} 1\n{long}{{b=\"1\"}} 1\n# PCP5 {long} 1.2.3 u32 1.2 counter none\nc 2\n");
    let mut trial = trial(100);
    let seen = trial.read(format!("{document}# a comment\nd 3\n").as_bytes());
    assert_eq!((seen.values, seen.refused, seen.left_out), (1, None, 3));
    assert_eq!(trial.number("d"), Some(3.0));
    let seen = trial.read(format!("\u{feff}e 4\nf_{{}} {long}\n-{long} 1\n").as_bytes());
    assert_eq!((seen.values, seen.refused), (2, Some(3)));
}

/// A source whose long labels change all the time uses no more memory than a source with many instances.
#[test]
fn long_instances_count_as_several() {
    let long = "x".repeat(20_000);
    let mut trial = trial(100);
    let mut values = 0;
    for n in 0..50 {
        let seen = trial.read(format!("m{{a=\"{n}{long}\"}} 1\n").as_bytes());
        values += seen.values;
        // The last instance that fits has no labels.
        assert!(seen.values as u64 + seen.left_out >= 1);
    }
    assert!((2..=5).contains(&values), "{values}");
    // PCP's tools would accept a very long name of an instance, but it would delay other clients of pmcd.
    let seen = self::trial(1000).read(format!("m{{a=\"{}\"}} 1\nb 2\n", long.repeat(4)).as_bytes());
    assert_eq!((seen.values, seen.left_out), (1, 1));
    // An instance with a short name may get long labels.
    let named = |labels: &str| format!("# PCP5 p.q 1.2.3 u32 1.2 counter none\np{{instname=\"i\",b=\"{labels}\"}} 5\n");
    let mut trial = self::trial(30);
    for (labels, left_out) in [("short", 0), (&long, 0), (&long.repeat(2), 1), ("short", 0)] {
        let seen = trial.read(named(labels).as_bytes());
        assert_eq!((seen.values, seen.left_out), (1, left_out), "{}", labels.len());
    }
}
