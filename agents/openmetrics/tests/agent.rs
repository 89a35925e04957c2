//! The agent as a process, without PCP: names, numbers, values and labels of its sources.

#![allow(clippy::unwrap_used, clippy::panic)]

mod scene;

use std::fs;

use pcp_collector::LabelTarget;
use pmapi::{Error, Inst, Item, Semantics, Type, Units};
use scene::{Scene, control, until, value, values};

const DOCUMENT: &str = "# HELP sent_bytes_total Bytes sent.\\nTo anyone.\n# TYPE sent_bytes_total counter\n\
    sent_bytes_total{device=\"eth0\",zone=\"a\"} 10\nsent_bytes_total{device=\"eth1\",zone=\"b\"} 20.5\n\
    # TYPE up gauge\nup 1\n";

fn named(pairs: &[(&str, f64)]) -> Result<Vec<(String, f64)>, Error> {
    Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
}

#[test]
fn metrics_of_a_document() {
    let scene = Scene::new(&[]);
    let path = scene.document("net", DOCUMENT);
    let mut agent = scene.start();
    let pmid = agent.pmid("openmetrics.net.sent_bytes_total").unwrap();
    let desc = agent.desc(pmid).unwrap();
    assert_eq!((pmid.item(), desc.indom.unwrap().serial().get()), (Item::new(1, 0), 4096 + 1024));
    assert_eq!((desc.ty, desc.semantics, desc.units), (Type::Double, Semantics::Counter, Units::BYTES));
    let subject = pcp_pdu::metadata::Subject::Metric(pmid);
    assert_eq!(agent.text(subject, pcp_pdu::metadata::TextKind::OneLine).unwrap(), "Bytes sent.");
    assert_eq!(agent.text(subject, pcp_pdu::metadata::TextKind::Help).unwrap(), "To anyone.");
    let expected = named(&[("0 device:eth0 zone:a", 10.0), ("1 device:eth1 zone:b", 20.5)]);
    assert_eq!(values(&mut agent, "net.sent_bytes_total"), expected);
    assert_eq!(value(&mut agent, "net.up"), Ok(1.0));
    // Each fetch reads the file.
    fs::write(&path, "up 2\nsent_bytes_total{device=\"eth2\"} 5\nsent_bytes_total{zone=\"b\",device=\"eth1\"} 6\n")
        .unwrap();
    let expected = named(&[("1 device:eth1 zone:b", 6.0), ("2 device:eth2", 5.0)]);
    assert_eq!(values(&mut agent, "net.sent_bytes_total"), expected);
    assert_eq!(value(&mut agent, "net.up"), Ok(2.0));
    let mut names = agent.traverse("openmetrics.net").unwrap();
    names.sort_unstable();
    assert_eq!(names, ["openmetrics.net.sent_bytes_total", "openmetrics.net.up"]);
}

#[test]
fn labels_of_every_level() {
    let scene = Scene::new(&[]);
    let path = scene.document("net", DOCUMENT);
    let url = scene.path("config.d/net.url");
    fs::write(&url, format!("file://{}\nFILTER: OPTIONAL LABEL zone\n", path.display())).unwrap();
    let mut agent = scene.start();
    assert_eq!(values(&mut agent, "net.sent_bytes_total"), named(&[("0 device:eth0", 10.0), ("1 device:eth1", 20.5)]));
    let pmid = agent.pmid("openmetrics.net.sent_bytes_total").unwrap();
    let indom = agent.desc(pmid).unwrap().indom.unwrap();
    let mut json = |of| {
        let sets = agent.labels(of).unwrap();
        sets.into_iter().map(|(_, set)| set.unwrap().json().to_owned()).collect::<Vec<_>>()
    };
    let host = nix::unistd::gethostname().unwrap().to_string_lossy().into_owned();
    let cluster = format!("{{\"hostname\":\"{host}\",\"source\":\"net\",\"url\":\"file://{}\"}}", path.display());
    assert_eq!(json(LabelTarget::Cluster(pmid)), [cluster]);
    assert_eq!(json(LabelTarget::Item(pmid)), [r#"{"device":"eth1","zone":"a"}"#]);
    assert_eq!(json(LabelTarget::InDom(indom)), [r#"{"source":"net"}"#]);
    let instances = json(LabelTarget::Instances(Some(indom)));
    assert_eq!(instances[0], r#"{"device":"eth0","instname":"0 device:eth0"}"#);
    assert_eq!(instances.len(), 2);
}

#[test]
fn numbers_stay_over_restarts_and_are_those_of_pcps_tables() {
    let scene = Scene::new(&[]);
    fs::write(scene.table("144.0.py"), "(lp0\nVcontrol\np1\naVgone\np2\naVb\np3\na.I00\n.").unwrap();
    fs::write(scene.table("144.2.py"), "(lp0\nVold\np1\naVm\np2\na.I00\n.").unwrap();
    fs::write(scene.table("144.6145.py"), "(lp0\nVx:9\np1\naVx:1\np2\na.I01\n.").unwrap();
    scene.document("a", "n{y=\"1\"} 1\n");
    scene.document("b", "new 3\nm{x=\"1\"} 1\nm{x=\"2\"} 2\n");
    for _ in 0..2 {
        let mut agent = scene.start();
        let item = |agent: &mut scene::Agent, name: &str| agent.pmid(name).unwrap().item();
        assert_eq!(item(&mut agent, "openmetrics.b.m"), Item::new(2, 1));
        assert_eq!(item(&mut agent, "openmetrics.b.new"), Item::new(2, 2));
        assert_eq!(item(&mut agent, "openmetrics.a.n"), Item::new(3, 0));
        assert_eq!(values(&mut agent, "b.m"), named(&[("1 x:1", 1.0), ("2 x:2", 2.0)]));
        let pmid = agent.pmid("openmetrics.b.m").unwrap();
        let indom = agent.desc(pmid).unwrap().indom.unwrap();
        assert_eq!(agent.instances(indom).unwrap()[0], (Inst::new(0), "0 x:9".to_owned()));
        // Tables are written after the values are there.
        for (table, names) in
            [("144.6145.py", &["x:9", "x:1", "x:2"][..]), ("144.0.py", &["control", "gone", "b", "a"])]
        {
            let flag = if table == "144.0.py" { "I00" } else { "I01" };
            let member = |(at, name): (usize, &&str)| format!("V{name}\np{}\na", at + 1);
            let expected = format!("(lp0\n{}.{flag}\n.", names.iter().enumerate().map(member).collect::<String>());
            until("the table is written", || fs::read_to_string(scene.table(table)).unwrap() == expected);
        }
    }
}

#[test]
fn sources_come_and_go() {
    let scene = Scene::new(&[]);
    scene.document("first", "a 1\n");
    let mut agent = scene.start();
    scene.document("dir/second".replace('/', "_").as_str(), "b 2\n");
    let script = scene.config("dir/third.sh", "#!/bin/sh\necho c 3\n", 0o755);
    until("the new sources have metrics", || {
        value(&mut agent, "dir_second.b") == Ok(2.0) && value(&mut agent, "dir.third.c") == Ok(3.0)
    });
    let pmid = agent.pmid("openmetrics.dir.third.c").unwrap();
    let labels = agent.labels(LabelTarget::Cluster(pmid)).unwrap();
    let expected = format!("{{\"script\":\"{}\",\"source\":\"dir.third\"}}", script.display());
    assert_eq!(labels[0].1.as_ref().unwrap().json(), expected);
    fs::remove_file(&script).unwrap();
    until("the names are gone", || agent.pmid("openmetrics.dir.third.c").is_err());
    scene.config("dir/third.sh", "#!/bin/sh\necho c 4\n", 0o755);
    until("the names are back", || value(&mut agent, "dir.third.c") == Ok(4.0));
    assert_eq!(agent.pmid("openmetrics.dir.third.c").unwrap(), pmid);
    assert_eq!(value(&mut agent, "first.a"), Ok(1.0));
}

#[test]
fn files_of_others_are_refused() {
    let scene = Scene::new(&[]);
    scene.config("open", "#!/bin/sh\necho a 1\n", 0o757);
    scene.document("good", "a 1\n");
    let mut agent = scene.start();
    assert_eq!(value(&mut agent, "good.a"), Ok(1.0));
    assert!(agent.pmid("openmetrics.open.a").is_err());
    let status = control(&mut agent, "status", "open");
    assert!(status.ends_with("refused: other users may write to it (mode 757)"), "{status}");
}

#[test]
fn refused_lines_are_logged_once() {
    let scene = Scene::new(&[]);
    let path = scene.document("src", "a 1\nb{c} 2\nd 3\n");
    let mut agent = scene.start();
    assert_eq!(value(&mut agent, "src.a"), Ok(1.0));
    assert!(agent.pmid("openmetrics.src.d").is_err());
    let refused = "2: column 6: = must follow the name of a label";
    assert_eq!(control(&mut agent, "refused", "src"), refused);
    fs::write(&path, "a 1\nd abc\n").unwrap();
    assert_eq!(value(&mut agent, "src.a"), Ok(1.0));
    assert_eq!((control(&mut agent, "refused", "src").as_str(), value(&mut agent, "src.d")), ("", Err(Error::AGAIN)));
    let log = scene.log();
    assert_eq!(log.matches("source src: line 2: column 6: = must follow").count(), 1, "{log}");
    assert_eq!(log.matches("all lines are good again").count(), 1, "{log}");
}

#[test]
fn a_source_that_explodes_is_cut() {
    let scene = Scene::new(&["--instances", "100"]);
    let lines = |from: u32| (from..from + 200).map(|i| format!("m{{i=\"{i}\"}} {i}\n")).collect::<String>();
    let path = scene.document("src", &lines(0));
    let mut agent = scene.start();
    assert_eq!(values(&mut agent, "src.m").unwrap().len(), 100);
    fs::write(&path, lines(50)).unwrap();
    assert_eq!(values(&mut agent, "src.m").unwrap().len(), 50);
    assert_eq!(control(&mut agent, "samples", "src"), "200");
    // Each instance counts once: 100 to 199, and 200 to 249.
    assert_eq!(control(&mut agent, "left_out", "src"), "150");
    let log = scene.log();
    assert!(log.contains("is left out: 100 instances at most") && log.lines().count() < 40, "{log}");
}
