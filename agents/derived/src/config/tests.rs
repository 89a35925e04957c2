//! Tests of valid configurations and of messages about mistakes.

use std::fs;
use std::time::Duration;

use pcp_client::HostSpec;
use pcp_pdu::metadata::TextKind;
use pmapi::Domain;
use pmns::Tree;

use super::{Config, NameSpace, Operands};

/// Loads files from a temporary directory, and removes the name of the directory from the messages.
fn load(files: &[(&str, &str)]) -> (Config, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let own = Domain::new(404).unwrap();
    let mut names = Tree::new();
    let pmid = |domain, cluster, item| pmapi::PmId::new(Domain::new(domain).unwrap(), pmapi::Item::new(cluster, item));
    names.insert("disk.dev.read", pmid(60, 0, 4)).unwrap();
    names.insert("mmv", pmns::dynamic_root(Domain::new(70).unwrap())).unwrap();
    names.insert("disk.dev.mine", pmns::dynamic_root(own)).unwrap();
    let host: HostSpec = "local:".parse().unwrap();
    let root = format!("{}/", dir.path().display());
    let config = Config::load(root.trim_end_matches('/'), &host, &NameSpace::new(names, own));
    let problems = config.problems.iter().map(|problem| problem.to_string().replace(&root, "")).collect();
    (config, problems)
}

const TOML: &str = r#"
metric.short = "2 * derived.plain"
[metric.deep.er]
expr = """
    disk.dev.read_bytes /
    disk.dev.read"""
name = "disk.dev.mine"
oneline = "Size of a read"
help = "Of each disk."
labels = { tier = "disk", n = 0x10, f = 1.5, on = true, at = 2026-11-21 }

[group.far]
interval = "2.5 sec"
host = "pcp://far:44321"
novalue = true
labels = { tier = "far", site = "b" }
[group.far.metric]
load = { expr = "kernel.all.load / 2", labels.tier = "near" }
[[group.own.agent]]
domain = 253
command = ["/opt/pmdasimple", "-d", "253"]
pmns = "names"
[[group.own.agent]]
name = "other"
domain = 30
command = "pmdasample -d 30"
[group.own.metric]
color = "simple.color + 1"
"#;

#[test]
fn everything_that_toml_can_say() {
    let (config, problems) = load(&[("a.conf", "plain = 1 + 2\nplain(oneline) = three\n"), ("sub/b.toml", TOML)]);
    assert_eq!(problems, [""; 0]);
    let [derived, far, own] = &config.groups[..] else { panic!("{:?}", config.groups) };
    let names = |group: &super::GroupConfig| -> Vec<String> {
        group.definitions.iter().map(|definition| group.name_of(definition.name())).collect()
    };
    assert_eq!(names(derived), ["derived.plain", "derived.short", "disk.dev.mine"]);
    assert_eq!((derived.interval, derived.novalue), (None, false));
    assert_eq!(derived.operands, Operands::Host("local:".parse().unwrap()));
    let deep = derived.definitions.get("deep.er").unwrap();
    assert_eq!(deep.names().collect::<Vec<_>>(), ["disk.dev.read_bytes", "disk.dev.read"]);
    assert_eq!(deep.text(TextKind::OneLine), Some("Size of a read"));
    assert_eq!(deep.text(TextKind::Help), Some("Of each disk."));
    let labels: Vec<String> =
        derived.shown["deep.er"].labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(labels, ["at=\"2026-11-21\"", "f=1.5", "n=16", "on=true", "tier=\"disk\""]);
    assert_eq!(derived.place("deep.er").map(|place| place.line), Some(4));
    assert_eq!(derived.place("plain").map(|place| place.line), Some(1));

    assert_eq!((far.name.as_str(), far.interval, far.novalue), ("far", Some(Duration::from_millis(2500)), true));
    assert_eq!(far.operands, Operands::Host("pcp://far:44321".parse().unwrap()));
    let labels: Vec<String> = far.shown["load"].labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(labels, ["site=\"b\"", "tier=\"near\""]);

    let Operands::Agents(agents) = &own.operands else { panic!("{:?}", own.operands) };
    let said: Vec<_> =
        agents.iter().map(|agent| (agent.name.as_str(), agent.domain.get(), agent.command.len())).collect();
    assert_eq!(said, [("simple", 253, 3), ("other", 30, 3)]);
    assert!(agents[0].pmns.as_ref().unwrap().ends_with("sub/names"));
    assert_eq!(agents[1].pmns, None);
}

const C: &str = "[group.x]
	intervall = '1s'
	interval = 'soon'
metric.fine.too = '1'
metric.no.expr = { oneline = 'x' }
metric.labels = { expr = '1', labels = 3 }
";
const D: &str = "[group.x]
[group.y]
host = 1
metric.nowhere = '1'
[group.z]
host = 'local:'
[group.z.agent]
domain = 1000
";

#[test]
fn a_problem_leaves_the_rest() {
    let (config, problems) = load(&[
        ("a.conf", "bad = 1 +\ngood = 1\n"),
        ("b.toml", "metric.wrong = 'disk.dev.read +'\nmetric.good = '2'\nmetric.fine = '3'\nmatric = 1\n"),
        ("c.toml", C),
        ("d.toml", D),
        ("e.toml", "metric.last = '4'\nthis is no TOML\nmetric.more = '5'\n"),
        ("f.toml", "\n[metric.x]\noneline = 'of nothing'\n"),
    ]);
    let expected = r#"[a.conf:1] Error: pmRegisterDerived(bad, ...) syntax error
 1 +
   ^
Arithmetic expression expected to follow PLUS
[b.toml:1] Error: pmRegisterDerived(wrong, ...) syntax error
disk.dev.read +
              ^
Arithmetic expression expected to follow PLUS
[b.toml:2] Error: pmRegisterDerived(good, ...) syntax error
2
^
Duplicate global derived metric name
[b.toml:4] Error: unknown key "matric"; the known keys are metric, group
matric = 1
^
[c.toml:2] Error: unknown key "intervall"; the known keys are interval, host, agent, novalue, labels, metric
	intervall = '1s'
	^
[c.toml:3] Error: "interval": soon
^ -- unexpected value
	interval = 'soon'
	           ^
[c.toml:5] Error: "expr" must be a string, not table
metric.no.expr = { oneline = 'x' }
                 ^
[c.toml:6] Error: "labels" must be a table of strings, numbers and truth values, not integer
metric.labels = { expr = '1', labels = 3 }
                                       ^
[d.toml:1] Error: group "x" is also in c.toml, line 1
[group.x]
       ^
[d.toml:3] Error: "host" must be a string, not integer
host = 1
       ^
[d.toml:7] Error: operands come from a host or from agents, not from both
[group.z.agent]
         ^
[e.toml:2] Error: key with no value, expected `=`
this is no TOML
     ^
[f.toml:2] Error: metric x has no expr
[metric.x]
        ^
[c.toml:4] Error: derived.fine.too is below derived.fine, which is a metric
"#;
    compare(&problems, expected);
    let names: Vec<&str> =
        config.groups.iter().flat_map(|group| &group.definitions).map(|definition| definition.name()).collect();
    assert_eq!(names, ["good", "fine", "last", "labels"]);
}

#[track_caller]
fn compare(problems: &[String], expected: &str) {
    let text: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn names_that_are_not_free() {
    let named = |name: &str, shown: &str| format!("[metric.{name}]\nexpr = \"1\"\nname = \"{shown}\"\n");
    let cases = [
        ("a", "disk.dev.read"),
        ("b", "disk.dev"),
        ("c", "disk.dev.read.size"),
        ("d", "mmv.d"),
        ("e", "disk.dev.e"),
        ("f", "disk.dev.e"),
        ("g", "disk.dev.e.g"),
        ("h", "derived.control.samples"),
        ("i", "disk..i"),
        ("control", "derived.control"),
        ("k", "derived.a"),
    ];
    let text: String = cases.iter().map(|(name, shown)| named(name, shown)).collect();
    let (config, problems) = load(&[("a.toml", &text)]);
    let expected = "\
[a.toml:2] Error: disk.dev.read is a metric of the agent with domain 60
[a.toml:5] Error: disk.dev has other metrics below it
[a.toml:8] Error: disk.dev.read.size is below disk.dev.read, which is a metric
[a.toml:11] Error: mmv.d is below mmv, whose names belong to the agent with domain 70
[a.toml:14] Warning: pmcd's name space does not have disk.dev.e yet: run Install again
[a.toml:17] Error: disk.dev.e is the name of another metric of this agent
[a.toml:20] Error: disk.dev.e.g is below disk.dev.e, which is a metric
[a.toml:23] Error: derived.control.samples is below derived.control, which is a metric
[a.toml:26] Error: \"disk..i\" is not the name of a metric
[a.toml:29] Error: derived.control is the name of another metric of this agent
[a.toml:32] Error: derived.a is the name of another metric of this agent
";
    compare(&problems, expected);
    let group = &config.groups[0];
    let names: Vec<String> = group.definitions.iter().map(|definition| group.name_of(definition.name())).collect();
    let shown = "derived.a derived.b derived.c derived.d disk.dev.e derived.f derived.g derived.h derived.i derived.k";
    assert_eq!(names.join(" "), shown);
    assert_eq!(config.roots(), ["derived", "disk.dev.e"]);
}

#[test]
fn groups_use_definitions_of_one_another() {
    let text = "
metric.a = 'group.two.is.no.name + derived.b'
metric.x = '1'
metric.same = { expr = '1', name = 'elsewhere.same' }
metric.via = 'same'
[group.two.metric]
b = 'derived.c * 2'
bad.one = 'derived.e'
bad.two = 'derived.d'
y = 'hinv.ncpu'
same = '2'
user = 'derived.via'
[group.three]
interval = '5s'
[group.three.metric]
c = 'x + a'
d = 'derived.x + y'
[group.far]
host = 'far'
[group.far.metric]
e = '1 + derived.y'
";
    let (config, problems) = load(&[("a.toml", text)]);
    let expected = "\
[a.toml:4] Warning: pmcd's name space does not have elsewhere.same yet: run Install again
[a.toml:8] Error: derived.e belongs to group \"far\", whose operands come from another source
[a.toml:12] Error: derived.via belongs to group \"derived\", and refers to a name that is defined differently in this group
[a.toml:21] Error: derived.y belongs to group \"two\", whose operands come from another source
";
    compare(&problems, expected);
    let names = |group: &super::GroupConfig| -> Vec<(String, bool)> {
        let names = group.definitions.iter().map(|definition| definition.name().to_owned());
        names.map(|name| (name.clone(), group.shows(&name))).collect()
    };
    let all: Vec<String> = config
        .groups
        .iter()
        .map(|group| {
            let name = |(name, shown)| if shown { name } else { format!("({name})") };
            names(group).into_iter().map(name).collect::<Vec<_>>().join(" ")
        })
        .collect();
    let expected = [
        "a x same via (derived.b) (derived.c)",
        "b bad.one bad.two y same user (derived.c) (derived.d) (derived.x) (derived.a)",
        "c d (derived.x) (derived.a) (derived.y) (derived.b)",
        "e",
    ];
    assert_eq!(all, expected);
}

/// Loads a file that is damaged at random.
#[test]
fn a_damaged_file_is_no_panic() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33) as usize % below
    };
    let parts: [&[u8]; 12] =
        [b"\n", b"\"", b"[", b"]", b"{", b"}", b"=", b"\"\"\"", b".", b"\xff", "é".as_bytes(), b"group.own."];
    let host: HostSpec = "local:".parse().unwrap();
    let mut problems = 0;
    for _ in 0..3000 {
        let mut text = TOML.as_bytes().to_vec();
        for _ in 0..1 + next(4) {
            let at = next(text.len());
            match next(3) {
                0 => drop(text.drain(at..(at + 1 + next(20)).min(text.len()))),
                1 => text[at] = next(256) as u8,
                _ => drop(text.splice(at..at, parts[next(parts.len())].iter().copied())),
            }
        }
        let mut loader = super::loader::Loader::new(&host);
        let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
        super::toml::read(&mut loader, &"FILE".into(), &text);
        problems += loader.config.problems.len();
        assert!(loader.config.problems.iter().all(|problem| problem.place.line <= lines));
        assert!(loader.config.problems.iter().all(|problem| problem.text.len() < 1000 + 3 * text.len()));
    }
    assert!(problems > 1000, "{problems}");
}

#[test]
fn problems_of_a_long_line_are_short() {
    let metrics: String = (0..5000).map(|n| format!("a{n} = 1, ")).collect();
    let (_, problems) = load(&[("a.toml", &format!("metric = {{ {metrics} b = '1' }}"))]);
    assert_eq!(problems.len(), 5000);
    assert!(problems.iter().all(|problem| problem.len() < 500), "{}", problems[2500]);
    let caret = problems[2500].lines().last().unwrap().find('^').unwrap();
    assert!(problems[2500].lines().nth(1).unwrap()[caret..].starts_with("1, a2501"), "{}", problems[2500]);
}
