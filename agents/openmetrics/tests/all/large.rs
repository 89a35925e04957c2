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
    assert_eq!((seen.values, seen.refused), (2, Some(2)));
}

/// PCP's tools would accept a very long name of an instance, but it would delay other clients of pmcd.
#[test]
fn long_names_of_instances_are_left_out() {
    let seen = trial(1000).read(format!("m{{a=\"{}\"}} 1\nb 2\n", "x".repeat(80_000)).as_bytes());
    assert_eq!((seen.values, seen.left_out), (1, 1));
}
