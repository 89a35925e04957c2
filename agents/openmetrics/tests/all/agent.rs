//! The agent as a process, without PCP: names, numbers, values and labels of its sources.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::scene::{Agent, Scene, control, until, value, values};
use pcp_collector::LabelTarget;
use pmapi::{Error, Inst, Item, Semantics, Type, Units};

const DOCUMENT: &str = "# HELP sent_bytes_total Bytes sent.\\nTo anyone.\n# TYPE sent_bytes_total counter\n\
    sent_bytes_total{device=\"eth0\",zone=\"a\"} 10\nsent_bytes_total{device=\"eth1\",zone=\"b\"} 20.5\n\
    # TYPE up gauge\nup 1\n";

/// Each fetch waits for its sources. By default a fetch on a busy machine may show the reading before.
const FRESH: [&str; 3] = ["--fresh", "--wait", "1min"];

fn named(pairs: &[(&str, f64)]) -> Result<Vec<(String, f64)>, Error> {
    Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
}

#[test]
fn metrics_of_a_document() {
    let scene = Scene::new(&FRESH);
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
    let scene = Scene::new(&FRESH);
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
    let scene = Scene::new(&FRESH);
    fs::write(scene.table("144.0.py"), "(lp0\nVcontrol\np1\naVgone\np2\naVb\np3\na.I00\n.").unwrap();
    fs::write(scene.table("144.2.py"), "(lp0\nVold\np1\naVm\np2\na.I00\n.").unwrap();
    fs::write(scene.table("144.6145.py"), "(lp0\nVx:9\np1\naVx:1\np2\na.I01\n.").unwrap();
    scene.document("a", "n{y=\"1\"} 1\n");
    scene.document("b", "new 3\nm{x=\"1\"} 1\nm{x=\"2\"} 2\n");
    for _ in 0..2 {
        let mut agent = scene.start();
        let item = |agent: &mut Agent, name: &str| agent.pmid(name).unwrap().item();
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
    let scene = Scene::new(&FRESH);
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

/// With `--fresh`, the next request shows each change of the directory, however fast the changes follow each other.
#[test]
fn each_request_shows_the_changes_before() {
    let scene = Scene::new(&FRESH);
    scene.document("steady", "a 1\n");
    let mut agent = scene.start();
    for round in 0..20 {
        scene.document("src", "a 1\n");
        assert!(agent.pmid("openmetrics.src.a").is_ok(), "round {round}");
        fs::remove_file(scene.path("config.d/src.url")).unwrap();
        assert!(agent.pmid("openmetrics.src.a").is_err(), "round {round}");
    }
}

/// The names of a source may be below the node of another one, which comes, becomes another file, and goes.
#[test]
fn sources_below_others() {
    let scene = Scene::new(&FRESH);
    scene.document("a.b", "m 1\n");
    scene.document("control.status", "m 1\n");
    let mut agent = scene.start();
    assert_eq!(value(&mut agent, "a.b.m"), Ok(1.0));
    scene.document("a", "m 2\n");
    until("the upper one is there", || value(&mut agent, "a.m") == Ok(2.0));
    assert_eq!(value(&mut agent, "a.b.m"), Ok(1.0));
    fs::remove_file(scene.path("config.d/a.url")).unwrap();
    scene.config("a", "#!/bin/sh\necho n 3\n", 0o755);
    until("it is a script", || value(&mut agent, "a.n") == Ok(3.0));
    assert!(agent.pmid("openmetrics.a.m").is_err());
    assert_eq!(value(&mut agent, "a.b.m"), Ok(1.0));
    fs::remove_file(scene.path("config.d/a")).unwrap();
    until("it is gone", || agent.pmid("openmetrics.a.n").is_err());
    assert_eq!(value(&mut agent, "a.b.m"), Ok(1.0));
    // A source cannot take the names of control metrics.
    assert_eq!(control(&mut agent, "status", "a.b"), "success");
}

/// A changed file applies to all samples of the next document, and metrics keep their numbers.
#[test]
fn rules_that_change() {
    let scene = Scene::new(&FRESH);
    let path = scene.document("src", "a 1\nb{x=\"1\",y=\"2\"} 2\nb{x=\"2\",y=\"2\"} 3\n");
    let url = format!("file://{}", path.display());
    scene.url("src", &format!("{url}\nFILTER: EXCLUDE METRIC a\nINSTANCES: 1"));
    let mut agent = scene.start();
    assert_eq!(values(&mut agent, "src.b"), named(&[("0 x:1 y:2", 2.0)]));
    assert!(agent.pmid("openmetrics.src.a").is_err());
    let pmid = agent.pmid("openmetrics.src.b").unwrap();
    scene.url("src", &url);
    until("more instances", || values(&mut agent, "src.b") == named(&[("0 x:1 y:2", 2.0), ("1 x:2 y:2", 3.0)]));
    until("the other metric", || value(&mut agent, "src.a") == Ok(1.0));
    scene.url("src", &format!("{url}\nFILTER: OPTIONAL LABEL y"));
    until("other names", || values(&mut agent, "src.b") == named(&[("2 x:1", 2.0), ("3 x:2", 3.0)]));
    scene.url("src", &format!("{url}\nFILTER: EXCLUDE METRIC b"));
    until("no values", || values(&mut agent, "src.b") == Err(Error::AGAIN));
    assert_eq!(value(&mut agent, "src.a"), Ok(1.0));
    scene.url("src", &url);
    until("the first names", || values(&mut agent, "src.b") == named(&[("0 x:1 y:2", 2.0), ("1 x:2 y:2", 3.0)]));
    assert_eq!(agent.pmid("openmetrics.src.b").unwrap(), pmid);
}

/// Metrics appear and disappear with the documents, as in PCP 7, and keep their numbers.
#[test]
fn names_follow_the_documents() {
    let scene = Scene::new(&[&FRESH[..], &["-R", "1msec"]].concat());
    let path = scene.document("src", "a 1\nb{x=\"1\"} 2\n");
    let mut agent = scene.start();
    let names = |agent: &mut Agent| {
        let mut names = agent.traverse("openmetrics.src").unwrap_or_default();
        names.sort_unstable();
        names.join(" ")
    };
    assert_eq!(names(&mut agent), "openmetrics.src.a openmetrics.src.b");
    let pmid = agent.pmid("openmetrics.src.b").unwrap();
    fs::write(&path, "a 1\n").unwrap();
    until("the name is gone", || names(&mut agent) == "openmetrics.src.a");
    fs::write(&path, "b{x=\"1\"} 3\n").unwrap();
    until("the names are exchanged", || names(&mut agent) == "openmetrics.src.b");
    assert_eq!(agent.pmid("openmetrics.src.b").unwrap(), pmid);
    assert_eq!(value(&mut agent, "src.b"), Ok(3.0));
}

#[test]
fn files_of_others_are_refused() {
    let scene = Scene::new(&FRESH);
    scene.config("open", "#!/bin/sh\necho a 1\n", 0o757);
    scene.document("good", "a 1\n");
    let mut agent = scene.start();
    assert_eq!(value(&mut agent, "good.a"), Ok(1.0));
    assert!(agent.pmid("openmetrics.open.a").is_err());
    let status = control(&mut agent, "status", "open");
    assert!(status.ends_with("refused: other users may write to it (mode 757)"), "{status}");
}

/// The file beside a script may be a link into a directory that others may write to.
#[test]
fn a_link_beside_a_script() {
    let scene = Scene::new(&FRESH);
    scene.config("tool.sh", "#!/bin/sh\necho a 1\n", 0o755);
    let open = scene.path("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(open.join("conf"), "TIMEOUT: 1min\n").unwrap();
    std::os::unix::fs::symlink(open.join("conf"), scene.path("config.d/tool.conf")).unwrap();
    let mut agent = scene.start();
    let status = control(&mut agent, "status", "tool");
    assert!(status.contains("/tool.conf: refused: ") && status.contains("open"), "{status}");
}

/// The agent raises its limit of open files, because each source keeps a connection. Scripts have the usual one.
#[test]
fn descriptors_of_the_agent_and_of_scripts() {
    let scene = Scene::new(&FRESH);
    scene.config("limit.sh", "#!/bin/sh\necho a $(ulimit -Sn)\n", 0o755);
    let mut agent = scene.start();
    assert!(value(&mut agent, "limit.a").unwrap() <= 1024.0);
}

#[test]
fn refused_lines_are_logged_once() {
    let scene = Scene::new(&FRESH);
    let path = scene.document("src", "a 1\nb{c} 2\nd 3\n");
    let mut agent = scene.start();
    let status = |agent: &mut Agent| (control(agent, "status", "src"), control(agent, "refused", "src"));
    assert_eq!((value(&mut agent, "src.a"), value(&mut agent, "src.d")), (Ok(1.0), Ok(3.0)));
    let refused = "2: column 6: = must follow the name of a label".to_owned();
    assert_eq!(status(&mut agent), (format!("a line could not be read, line {refused}"), refused));
    fs::write(&path, "a 1\nd abc\nb{} x\n").unwrap();
    assert_eq!((value(&mut agent, "src.a"), value(&mut agent, "src.d")), (Ok(1.0), Err(Error::AGAIN)));
    let refused = "2: \"abc\" is not a number".to_owned();
    assert_eq!(status(&mut agent), (format!("2 lines could not be read, the first is line {refused}"), refused));
    fs::write(&path, "a 1\nd 2\n").unwrap();
    assert_eq!((value(&mut agent, "src.d"), status(&mut agent)), (Ok(2.0), ("success".to_owned(), String::new())));
    let log = scene.log();
    assert_eq!(
        log.matches("source src: a line could not be read, line 2: column 6: = must follow").count(),
        1,
        "{log}"
    );
    assert_eq!(log.matches("could not be read").count(), 1, "{log}");
    assert_eq!(log.matches("all lines are valid again").count(), 1, "{log}");
}

#[test]
fn a_source_that_explodes_is_cut() {
    let scene = Scene::new(&[&FRESH[..], &["--instances", "100"]].concat());
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

/// PCP's tools print names of instances and labels as they are, and the server chooses them. The table keeps them.
#[test]
fn names_of_instances_steer_no_terminal() {
    let scene = Scene::new(&FRESH);
    scene.document(
        "x",
        "a{b=\"\x1b[2J\u{9b}é\\n\"} 1\nc{d=\"plain\"} 2\n# PCP5 e 0:0 double 0 instant none\ne{instname=\"\x07\"} 3\n",
    );
    let mut agent = scene.start();
    assert_eq!(values(&mut agent, "x.a"), named(&[(r"0 b:\u{1b}[2J\u{9b}é\n", 1.0)]));
    assert_eq!(values(&mut agent, "x.c"), named(&[("0 d:plain", 2.0)]));
    assert_eq!(values(&mut agent, "x.e"), named(&[(r"\u{7}", 3.0)]));
    for name in ["a", "e"] {
        let pmid = agent.pmid(&format!("openmetrics.x.{name}")).unwrap();
        let indom = agent.desc(pmid).unwrap().indom.unwrap();
        for target in [LabelTarget::Item(pmid), LabelTarget::Instances(Some(indom))] {
            let sets = agent.labels(target).unwrap();
            let json: Vec<String> = sets.into_iter().map(|(_, set)| set.unwrap().json().to_owned()).collect();
            assert!(!json.concat().contains(char::is_control), "{json:?}");
        }
    }
    drop(agent);
    // PCP's agent escapes nothing, and test 1221 of its suite has such a name.
    let exact = Scene::new(&[&FRESH[..], &["--pcp"]].concat());
    exact.document("x", "a{b=\"1\\n2\"} 1\n");
    assert_eq!(values(&mut exact.start(), "x.a"), named(&[("0 b:1\n2", 1.0)]));
    let table = fs::read(scene.table("144.5120.py")).unwrap();
    assert!(table.windows(4).any(|part| part == b"\x1b[2J"), "{table:?}");
}

/// A server sends so many labels that a reply with all of them would take longer than pmcd waits for the agent.
#[test]
// Slow: a reply with 800,000 labels, which takes about as long as the limit of two seconds.
fn very_many_labels_of_instances() {
    let labels: String = (0..200).map(|n| format!(",l{n}=\"1\"")).collect();
    let scene = Scene::new(&["-t", "1min", "--wait", "1min", "--fresh"]);
    let lines: String = (0..4000).map(|n| format!("a{{a=\"{n}\"{labels}}} 1\n")).collect();
    scene.document("x", &format!("{lines}b{{c=\"d\"}} 2\n"));
    let mut agent = scene.start();
    until("there are instances", || values(&mut agent, "x.b").is_ok());
    let mut sets = |name: &str| {
        let pmid = agent.pmid(&format!("openmetrics.x.{name}")).unwrap();
        let indom = agent.desc(pmid).unwrap().indom.unwrap();
        let begin = std::time::Instant::now();
        let sets = agent.labels(LabelTarget::Instances(Some(indom))).unwrap();
        (sets, begin.elapsed())
    };
    let (all, took) = sets("a");
    assert!(took < std::time::Duration::from_secs(8), "{took:?}");
    let json = all[0].1.as_ref().unwrap().json();
    assert!(json.contains("\"a\":\"0\"") && json.contains("\"l199\":\"1\""), "{json}");
    // The next request has its own time.
    assert!(sets("b").0[0].1.as_ref().unwrap().json().contains("\"c\":\"d\""));
    if !scene.log().contains("source x: labels of further instances of a are left out of a reply") {
        assert!(all.len() == 4000 && all.iter().all(|(_, set)| !set.as_ref().unwrap().is_empty()));
    }
}
