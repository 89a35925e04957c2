//! Labels at each level, as clients see them: of an agent with the C library and of its counterpart here.

use testkit::{Agent, Pcp, Pmcd};

use super::{compile, example};

const NAMES: &str = "labelled { single LABELLED:0:0\n a LABELLED:1:0\n b LABELLED:1:1 }";

/// Starts the C agent and its counterpart, each under a pmcd.
fn both(environment: Option<&str>) -> [(Pmcd, tempfile::TempDir); 2] {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let c = compile("labelled.c", include_str!("labelled.c"), dirs[0].path());
    let mut dirs = dirs.into_iter();
    [c, example("labelled")].map(|binary| {
        let agent = Agent::new("labelled", 400, binary).names(NAMES);
        let pmcd = Pcp::required().pmcd().agent(agent);
        let pmcd = environment.into_iter().fold(pmcd, |pmcd, name| pmcd.env(name, "1"));
        (pmcd.start(), dirs.next().unwrap())
    })
}

fn equal(both: &[(Pmcd, tempfile::TempDir); 2], arguments: &[&str]) -> String {
    let [c, ours] = both.each_ref().map(|(pmcd, _)| pmcd.run("pminfo", arguments).ok());
    assert_eq!(c, ours);
    ours
}

#[test]
#[ignore = "needs PCP"]
fn an_agent_without_labels_has_its_name() {
    let both = both(Some("BARE"));
    assert!(equal(&both, &["-l", "labelled.single"]).contains(r#""agent":"labelled""#));
    equal(&both, &["-fl", "labelled"]);
}

#[test]
#[ignore = "needs PCP"]
fn labels_at_each_level_are_those_of_a_c_agent() {
    let both = both(None);
    let text = |arguments: &[&str]| equal(&both, arguments);
    let all = text(&["-l", "labelled"]);
    for label in
        [r#""version":[1,2]"#, r#""note":"by the way""#, r#""agent":"overruled""#, r#""n":3"#, r#""indom":null"#]
    {
        assert!(all.contains(label), "{label} is not in {all}");
    }
    for metric in ["labelled.single", "labelled.a"] {
        text(&["-l", metric]);
        text(&["-fl", metric]);
    }
    for (pmcd, _) in &both {
        pmcd.run("pmstore", ["labelled.single", "1"]).ok();
    }
    assert!(text(&["-l", "labelled.single"]).contains(r#""changed":true"#));
}
