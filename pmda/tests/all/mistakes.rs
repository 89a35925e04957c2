//! All mistakes in an agent's declarations are reported together when it starts.

use pmapi::Config;
use pmda::host::{Engine, Schema};
use pmda::prelude::*;

struct Careless;

impl Agent for Careless {
    const NAME: &'static str = "careless";
    const DOMAIN: u16 = 401;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("careless.2nd", Item::new(0, 0), Type::U32);
        setup.metric("careless.a", Item::new(0, 1), Type::U32);
        setup.metric("careless.a", Item::new(0, 2), Type::U32);
        setup.metric("careless.b", Item::new(0, 2), Type::U32);
        setup.metric("careless.a.below", Item::new(0, 3), Type::U32).indom(Serial::new(9));
        setup.metric("careless.c", Item::new(0, 4), Type::U32).help("two\nlines", "").labels(json!(["none"]));
        setup.metric("careless.d", Item::new(0, 5), Type::U32).restricted();
        setup.indom(Serial::new(1)).instances([(1, "x y"), (1, "z"), (2, "x")]);
        setup.indom(Serial::new(1)).instances([(0, "")]);
        setup.labels(json!({"first": 1, "2-nd": 2}));
        setup.pmlogconf("summary", "log everything");
        setup.pmieconf("../rules", "#pmieconf-rules 1\n");
        setup.configuration(".hidden", "");
        Ok(Careless)
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Ok(())
    }
}

#[test]
fn every_mistake_is_named() {
    let text = Schema::of::<Careless>().unwrap_err().to_string();
    for mistake in [
        "metric \"careless.2nd\": names are components",
        "metric careless.a: declared twice",
        "metrics careless.a and careless.b: both are item 0.2",
        "metric careless.a: there are metrics below it",
        "metric careless.a.below: instance domain 9 is not declared",
        "careless.c: the one-line help has several lines",
        "labels of metric careless.c: label text is not a JSON object",
        "metric careless.d: restricted, but Agent::WANTS has no Features::AUTHORIZE",
        "instance domain 1: instance 1 (\"z\") is declared twice",
        "instance domain 1: instance 2 (\"x\") is declared twice",
        "instance domain 1: declared twice",
        "instance domain 1: instance 0 has no name",
        "labels: label name \"2-nd\" must consist of letters, digits and underscores",
        "file \"pmlogconf/summary\": a template of pmlogconf begins with #pmlogconf-setup",
        "file \"pmieconf/../rules\": its name has letters, digits, . _ and - only, and begins with no dot",
        "file \"etc/.hidden\": its name has letters",
    ] {
        assert!(text.contains(mistake), "{mistake:?} is not in {text}");
    }
}

struct Files {
    dynamic: Dynamic,
}

impl Agent for Files {
    const NAME: &'static str = "dynamic";
    const DOMAIN: u16 = 401;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("dynamic.fixed", Item::new(0, 0), Type::U32);
        Ok(Files { dynamic: setup.dynamic(["dynamic.files", "dynamic.files2"]) })
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.dynamic as &dyn Catalog]
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Ok(())
    }
}

#[test]
fn a_mistake_in_a_dynamic_metric_changes_nothing() {
    let mut local = pcp_collector::Local::<Files>::new().unwrap();
    let dynamic = &mut local.engine_mut().agent_mut().dynamic;
    let metric = |name: &str, item: u16| MetricDef::new(name, Item::new(0, item), Type::U32);
    dynamic.insert(&metric("dynamic.files.a.b", 1)).unwrap();
    for (metric, mistake) in [
        (metric("dynamic.files.a.b", 2), "metric dynamic.files.a.b: declared twice"),
        (metric("dynamic.files.a", 2), "metric dynamic.files.a: there are metrics below it"),
        (metric("dynamic.files.a.b.c", 2), "metric dynamic.files.a.b: there are metrics below it"),
        (metric("dynamic.other", 2), "metric dynamic.other: not below a name that is declared dynamic"),
        (metric("dynamic.files3.a", 2), "metric dynamic.files3.a: not below a name that is declared dynamic"),
        (metric("dynamic.files.2-nd", 2), "metric \"dynamic.files.2-nd\": names are components of letters"),
        (metric("dynamic.files.", 2), "metric \"dynamic.files.\": names are components of letters"),
        (metric("dynamic.files.c", 1), "metrics dynamic.files.a.b and dynamic.files.c: both are item 0.1"),
        (metric("dynamic.files.c", 0), "metrics dynamic.fixed and dynamic.files.c: both are item 0.0"),
        (metric("dynamic.files.c", 2).help("a\nb", "").clone(), "dynamic.files.c: the one-line help has several lines"),
        (metric("dynamic.files.c", 2).labels(7).clone(), "metric dynamic.files.c: label text is not a JSON object"),
        (metric("dynamic.files.c", 2).notes(r#"{"a":}"#).clone(), "metric dynamic.files.c: label text is not JSON"),
    ] {
        let text = dynamic.insert(&metric).unwrap_err().to_string();
        assert!(text.starts_with(mistake), "{text}, not {mistake}");
    }
    let text = dynamic.alias("dynamic.files.c", Item::new(0, 2)).unwrap_err().to_string();
    assert_eq!(text, "metric dynamic.files.c: there is no metric 0.2");
    for (indom, mistake) in [
        (
            InDomDef::new(Serial::new(1)).instances([(u32::MAX, "x")]),
            "instance domain 1: \"x\" has the invalid number 4294967295",
        ),
        (
            InDomDef::new(Serial::new(1)).instances([(1, "x"), (2, "x y")]),
            "instance domain 1: instance 2 (\"x y\") is declared twice",
        ),
        (InDomDef::new(Serial::new(1)).labels([1]), "instance domain 1: label text is not a JSON object"),
    ] {
        let text = dynamic.insert_indom(indom).unwrap_err().to_string();
        assert!(text.starts_with(mistake), "{text}, not {mistake}");
    }
    assert_eq!((dynamic.len(), dynamic.remove("dynamic.files.c"), dynamic.remove("")), (1, 0, 0));
    assert_eq!(dynamic.remove("dynamic.files"), 1);
    assert!(dynamic.is_empty());
    dynamic.insert(&metric("dynamic.files2", 1)).unwrap();
}

#[test]
fn clients_are_notified_of_labels_that_end_with_their_domain() {
    let mut local = pcp_collector::Local::<Files>::new().unwrap();
    let dynamic = &mut local.engine_mut().agent_mut().dynamic;
    let serial = Serial::new(1);
    let mut changes = |change: &mut dyn FnMut(&mut Dynamic)| {
        let before = dynamic.version().labels;
        change(dynamic);
        dynamic.version().labels - before
    };
    assert_eq!(changes(&mut |all| all.insert_indom(InDomDef::new(serial).labels(json!({"a": 1}))).unwrap()), 1);
    assert_eq!(changes(&mut |all| assert!(all.remove_indom(serial))), 1);
    assert_eq!(changes(&mut |all| assert!(!all.remove_indom(serial))), 0);
    assert_eq!(changes(&mut |all| all.insert_indom(&InDomDef::new(serial)).unwrap()), 0);
    assert_eq!(changes(&mut |all| assert!(all.remove_indom(serial))), 0);
}

/// An agent with conflicting declarations: a declared metric below a dynamic name, or a dynamic metric with the item of
/// a declared one.
struct Mixed {
    dynamic: Dynamic,
}

impl Agent for Mixed {
    const NAME: &'static str = "mixed";
    const DOMAIN: u16 = 401;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        let mut dynamic = setup.dynamic(["mixed.files"]);
        if setup.config().var("MIXED").is_some() {
            dynamic.insert(&MetricDef::new("mixed.files.a", Item::new(0, 1), Type::U32))?;
        } else {
            setup.metric("mixed.files.a", Item::new(0, 0), Type::U32);
        }
        setup.metric("mixed.b", Item::new(0, 1), Type::U32);
        Ok(Mixed { dynamic })
    }

    fn catalogs(&self) -> impl IntoIterator<Item = &dyn Catalog> {
        [&self.dynamic as &dyn Catalog]
    }

    fn fetch(&mut self, _: Item, _: &mut Values<'_>) -> Result {
        Ok(())
    }
}

#[test]
fn declared_and_dynamic_metrics_keep_clear_of_each_other() {
    let mistake = |variables: Option<(std::ffi::OsString, std::ffi::OsString)>| {
        Engine::<Mixed>::builder().config(Config::new(b"", variables)).schema().unwrap_err().to_string()
    };
    assert_eq!(mistake(None), "metric mixed.files.a: at, below or above the dynamic name mixed.files");
    let clash = "metrics mixed.b and mixed.files.a: both are item 0.1";
    assert_eq!(mistake(Some(("MIXED".into(), "1".into()))), clash);
}
