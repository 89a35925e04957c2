//! Sources that explode share the memory of all sources, and take nothing from the others.

use std::fmt::Write as _;
use std::fs;

use crate::scene::{Agent, Scene, until, value, values};
use pmapi::Inst;

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

/// Returns the instances of an exploded metric, without their names, which may be gone already.
fn numbers(agent: &mut Agent, source: &str) -> Vec<(Inst, f64)> {
    let pmid = agent.pmid(&format!("openmetrics.{source}.m")).unwrap();
    let values = agent.values(pmid).unwrap();
    values.iter().filter_map(|(inst, value)| Some((inst?, value.to_string().parse().unwrap()))).collect()
}

#[test]
fn sources_that_explode_lose_instances_and_others_do_not() {
    let scene = Scene::new(&["--memory", "16", "--instances", "1000000", "--wait", "20s", "--fresh", "-t", "20s"]);
    scene.document("first", &honest(1000));
    let agent = &mut scene.start();
    let all: Vec<_> = (0..1000).map(|n| (format!("{n} n:{n}"), f64::from(n))).collect();
    assert_eq!(values(agent, "first.h").unwrap(), all);
    assert_eq!(left_out(agent), 0.0);
    for name in ["x", "y", "z"] {
        scene.document(name, &exploded(60_000));
    }
    until("all are there", || ["x", "y", "z"].iter().all(|name| value(agent, &format!("{name}.alone")) == Ok(7.0)));
    // Sources that come later, even many, get all of their instances at once.
    for n in 0..8 {
        scene.document(&format!("later{n}"), &honest(2000));
    }
    for n in 0..8 {
        let name = format!("later{n}.h");
        until("a new source", || agent.pmid(&format!("openmetrics.{name}")).is_ok());
        assert_eq!(values(agent, &name).unwrap().len(), 2000, "{name}");
    }
    assert_eq!(values(agent, "first.h").unwrap(), all);
    assert!(left_out(agent) > 0.0);
    let memory =
        |agent: &mut Agent| values(agent, "control.memory").unwrap().iter().map(|(_, bytes)| *bytes).sum::<f64>();
    until("the largest give memory back", || {
        for name in ["x", "y", "z"] {
            // Those that are left have their values and numbers.
            assert!(numbers(agent, name).iter().all(|(inst, value)| f64::from(inst.word()) == *value));
            assert_eq!(value(agent, &format!("{name}.alone")), Ok(7.0));
        }
        memory(agent) <= f64::from(16 << 20)
    });
    let log = scene.log();
    for name in ["x", "y", "z"] {
        let lines =
            log.lines().filter(|line| line.contains("at most 16 MiB") && line.contains(&format!("source {name}")));
        assert_eq!(lines.count(), 1, "{log}");
    }
    let honest = ["first", "later"].map(|name| format!("for all sources: source {name}"));
    assert!(!honest.iter().any(|line| log.contains(line)), "{log}");
    // When the others are gone, there is room for more instances of one. They have the numbers of their table.
    let count = |agent: &mut Agent, name: &str| numbers(agent, name).len();
    let least = ["x", "y", "z"].into_iter().min_by_key(|name| count(agent, name)).unwrap();
    assert!(count(agent, least) < 8000);
    for file in fs::read_dir(scene.path("config.d")).unwrap().map(|file| file.unwrap().path()) {
        if !["first.url", &format!("{least}.url")].contains(&file.file_name().unwrap().to_str().unwrap()) {
            fs::remove_file(file).unwrap();
        }
    }
    fs::write(scene.path(&format!("{least}.txt")), exploded(9500)).unwrap();
    until("the source gets memory again", || count(agent, least) == 9500);
    let instances = values(agent, &format!("{least}.m")).unwrap();
    let expected = |at: usize| format!("{at} number:{at} of:an exploding source");
    assert!(instances.iter().enumerate().all(|(at, (name, value))| *name == expected(at) && *value == at as f64));
}
