//! Sources that explode have a limit of memory, and leave some to others.

use std::fmt::Write as _;
use std::fs;

use crate::scene::{Agent, Scene, until, value, values};

/// Returns a document with very many instances, and one value that is not part of the explosion.
fn exploded(count: usize) -> String {
    (0..count).fold("alone 7\nfew{n=\"1\"} 1\n".to_owned(), |mut text, n| {
        let _ = writeln!(text, "m{{number=\"{n}\",of=\"an exploding source\"}} {n}");
        text
    })
}

fn honest(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "h{{n=\"{n}\"}} {n}");
        text
    })
}

fn left_out(agent: &mut Agent) -> f64 {
    value(agent, "control.limits.memory").unwrap()
}

#[test]
// Slow: documents of new instances until the limit of memory is reached.
fn sources_that_explode_have_a_limit_and_others_a_floor() {
    let scene = Scene::new(&["--memory", "16", "--instances", "1000000", "--wait", "20s", "--fresh", "-t", "20s"]);
    scene.document("first", &honest(1000));
    let agent = &mut scene.start();
    let all: Vec<_> = (0..1000).map(|n| (format!("{n} n:{n}"), f64::from(n))).collect();
    assert_eq!(values(agent, "first.h").unwrap(), all);
    assert_eq!(left_out(agent), 0.0);
    let exploding = ["u", "v", "w", "x", "y", "z"];
    for name in exploding {
        scene.document(name, &exploded(30_000));
    }
    until("all are there", || exploding.iter().all(|name| value(agent, &format!("{name}.alone")) == Ok(7.0)));
    // Sources that come later have their metrics although the memory is used up.
    for n in 0..8 {
        scene.document(&format!("later{n}"), &honest(200));
    }
    for n in 0..8 {
        let name = format!("later{n}.h");
        until("a new source", || agent.pmid(&format!("openmetrics.{name}")).is_ok());
        assert_eq!(values(agent, &name).unwrap().len(), 200, "{name}");
    }
    assert_eq!(values(agent, "first.h").unwrap(), all);
    let left_out = left_out(agent);
    assert!(left_out > 0.0);
    for name in exploding {
        let instances = values(agent, &format!("{name}.m")).unwrap();
        assert!(instances.len() < 30_000);
        let expected = |at: usize| format!("{at} number:{at} of:an exploding source");
        assert!(instances.iter().enumerate().all(|(at, (name, value))| *name == expected(at) && *value == at as f64));
    }
    let memory: Vec<f64> = values(agent, "control.memory").unwrap().into_iter().map(|(_, bytes)| bytes).collect();
    assert!(memory.iter().all(|bytes| *bytes <= f64::from(4 << 20)), "{memory:?}");
    assert!(memory.iter().sum::<f64>() <= f64::from(16 << 20), "{memory:?}");
    let log = scene.log();
    for name in exploding {
        let is_of = |line: &&str| line.contains("16 MiB in all") && line.contains(&format!("source {name}"));
        assert_eq!(log.lines().filter(is_of).count(), 1, "{log}");
    }
    // A source whose file is removed gives its memory back.
    for name in exploding {
        fs::remove_file(scene.path(&format!("config.d/{name}.url"))).unwrap();
    }
    scene.document("again", &exploded(5000));
    until("another source has more than the floor", || {
        values(agent, "again.m").is_ok_and(|values| values.len() == 5000)
    });
    let honest = ["first", "later"].map(|name| format!("in all: source {name}"));
    assert!(!honest.iter().any(|line| log.contains(line)), "{log}");
}
