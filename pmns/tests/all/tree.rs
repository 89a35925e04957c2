//! The tree and its writer, without files.

#![allow(clippy::unwrap_used)]

use pmapi::{Domain, Item, PmId};
use pmns::{InsertError, Tree, dynamic_root, write};
use proptest::prelude::*;

fn domain(number: u16) -> Domain {
    Domain::new(number).unwrap()
}

fn pmid(number: u16, cluster: u16, item: u16) -> PmId {
    PmId::new(domain(number), Item::new(cluster, item))
}

fn tree(names: &[(&str, PmId)]) -> Tree {
    let mut tree = Tree::new();
    for (name, pmid) in names {
        tree.insert(name, *pmid).unwrap();
    }
    tree
}

#[test]
fn lookups_both_ways() {
    let tree = tree(&[
        ("a.b.c", pmid(1, 1, 1)),
        ("a.d", pmid(1, 1, 2)),
        ("e", pmid(1, 1, 1)),
        ("dyn.amic", dynamic_root(domain(7))),
        ("a.b.f", pmid(1, 1, 1)),
    ]);
    assert_eq!(tree.lookup("a.b.c"), Ok(pmid(1, 1, 1)));
    assert_eq!(tree.lookup("a.b"), Err(pmapi::Error::NONLEAF));
    for absent in ["", "a.b.c.d", "b", "a.", ".a", "a..b", "A.d", "dyn.other"] {
        assert_eq!(tree.lookup(absent), Err(pmapi::Error::NAME), "{absent:?}");
    }
    assert_eq!(tree.lookup("dyn.amic.x.y"), Ok(dynamic_root(domain(7))));
    assert_eq!(tree.names(pmid(1, 1, 1)).collect::<Vec<_>>(), ["e", "a.b.f", "a.b.c"]);
    assert_eq!(tree.names(pmid(1, 1, 3)).count(), 0);
    let children: Vec<_> = tree.root().children().map(|node| node.name()).collect();
    assert_eq!(children, ["a", "e", "dyn"]);
    let below: Vec<_> = tree.node("a").unwrap().leaves().map(|node| node.path()).collect();
    assert_eq!(below, ["a.b.c", "a.b.f", "a.d"]);
}

#[test]
fn what_is_not_inserted() {
    let mut tree = tree(&[("a.b", pmid(1, 1, 1))]);
    assert!(tree.insert("a.b", pmid(1, 1, 1)).is_ok());
    assert!(matches!(tree.insert("a.b", pmid(1, 1, 2)), Err(InsertError::Pmid { present: Some(_), .. })));
    assert!(matches!(tree.insert("a", pmid(1, 1, 2)), Err(InsertError::Pmid { present: None, .. })));
    assert!(matches!(tree.insert("a.b.c", pmid(1, 1, 2)), Err(InsertError::BelowMetric { .. })));
    for name in ["", "1", "a..b", "a.", "_a", "a b", "a-b", "é"] {
        assert_eq!(tree.insert(name, pmid(1, 1, 2)), Err(InsertError::Name(name.into())));
    }
    for name in ["", "1", "1.a", "a..b", "a.", "_a", "a b", "a.b-c", "a.é"] {
        assert_eq!(tree.insert_dynamic(name, pmid(1, 1, 2)), Err(InsertError::Name(name.into())));
    }
    let mut dynamic = tree.clone();
    for (name, item) in [("a.1", 2), ("a._c.2d", 3)] {
        assert!(matches!(dynamic.insert(name, pmid(1, 1, item)), Err(InsertError::Name(_))));
        assert!(dynamic.insert_dynamic(name, pmid(1, 1, item)).is_ok());
        assert_eq!(dynamic.lookup(name), Ok(pmid(1, 1, item)));
    }
    assert_eq!(write::root(&tree), "root {\n\ta\n}\n\na {\n\tb\t1:1:1\n}\n");
}

#[test]
fn removing_takes_empty_nodes_along() {
    let mut names = tree(&[("a.b.c", pmid(1, 1, 1)), ("a.d", pmid(1, 1, 2)), ("e.f.g", pmid(1, 1, 3))]);
    assert!(names.remove("e.f.g"));
    assert!(names.node("e").is_none());
    assert!(names.remove("a.b"));
    assert!(!names.remove("a.b"));
    assert!(!names.remove(""));
    assert_eq!(names.names(pmid(1, 1, 1)).count(), 0);
    names.insert("a.b", pmid(1, 1, 4)).unwrap();
    assert_eq!(write::root(&names), "root {\n\ta\n}\n\na {\n\td\t1:1:2\n\tb\t1:1:4\n}\n");
    assert!(names.remove("a"));
    assert_eq!(write::root(&names), "root {\n}\n");
}

proptest! {
    /// Compares the tree with a list: siblings are in the order of insertion, forwards and backwards, after any
    /// removals.
    #[test]
    fn any_order_of_insertions_and_removals(steps in prop::collection::vec((any::<bool>(), 0..4u8, 0..4u8), 0..60)) {
        let mut names = Tree::new();
        let mut list: Vec<(u8, u8)> = Vec::new();
        for (insert, a, b) in steps {
            let name = format!("n{a}.m{b}");
            if insert {
                names.insert(&name, pmid(1, a.into(), b.into())).unwrap();
                list.extend(Some((a, b)).filter(|pair| !list.contains(pair)));
            } else {
                prop_assert_eq!(names.remove(&name), list.contains(&(a, b)));
                list.retain(|pair| *pair != (a, b));
            }
            for a in 0..4 {
                let expected: Vec<String> = list.iter().filter(|p| p.0 == a).map(|p| format!("m{}", p.1)).collect();
                let node = names.node(&format!("n{a}"));
                prop_assert_eq!(node.is_some(), !expected.is_empty());
                let Some(node) = node else { continue };
                prop_assert!(node.children().map(|n| n.name()).eq(&expected));
                prop_assert!(node.children().rev().map(|n| n.name()).eq(expected.iter().rev()));
            }
        }
    }
}

#[test]
fn merging_keeps_what_is_there() {
    let mut names = tree(&[("a.b", pmid(1, 1, 1)), ("c", pmid(1, 1, 2))]);
    let other = tree(&[
        ("new.x", pmid(1, 1, 3)),
        ("a.b", pmid(2, 2, 2)),
        ("a.e", pmid(1, 1, 4)),
        ("c.d", pmid(1, 1, 5)),
        ("last", pmid(1, 1, 6)),
    ]);
    let left_out: Vec<_> = names.merge(&other).iter().map(ToString::to_string).collect();
    assert_eq!(
        left_out,
        ["a.b is already 1.1.1, so it cannot be 2.2.2", "c.d would be below c, which is a metric (1.1.2)"]
    );
    // Metrics directly below a node come before deeper ones, as with pmnsmerge.
    let tops: Vec<_> = names.root().children().map(|node| node.name()).collect();
    assert_eq!(tops, ["a", "c", "last", "new"]);
}

#[test]
fn agents_files() {
    let simple = domain(253);
    let names = tree(&[("simple.numfetch", pmid(253, 0, 0)), ("simple.other", pmid(60, 0, 0))]);
    let files = write::agent(&names, simple, "SIMPLE").unwrap();
    assert_eq!(files.pmns, "simple {\n\tnumfetch\tSIMPLE:0:0\n\tother\t60:0:0\n}\n");
    let head = "#define SIMPLE 253\n\n";
    assert_eq!(files.root, format!("{head}root {{\n\tsimple\n}}\n\n#include \"pmns\"\n"));

    // Metrics at the root need a block `root` in the file `pmns`, which pmnsadd recognizes.
    let names = tree(&[("dyn", dynamic_root(simple)), ("simple.x", pmid(253, 0, 0))]);
    let files = write::agent(&names, simple, "SIMPLE").unwrap();
    assert_eq!(files.pmns, "root {\n\tdyn\tSIMPLE:*:*\n\tsimple\n}\n\nsimple {\n\tx\tSIMPLE:0:0\n}\n");
    assert_eq!(files.root, format!("{head}#include \"pmns\"\n"));

    for symbol in ["", "A.B", "1A", "A B", "A\n"] {
        assert_eq!(write::agent(&names, simple, symbol), Err(write::Error(symbol.into())));
    }
}

#[test]
fn deep_and_wide_names() {
    let deep = vec!["a"; 100_000].join(".");
    let wide = (0..100_000).map(|n| format!("w.n{n}"));
    let mut names = Tree::new();
    names.insert(&deep, pmid(1, 1, 1)).unwrap();
    for name in wide {
        names.insert(&name, pmid(1, 1, 2)).unwrap();
    }
    assert_eq!(names.lookup(&deep), Ok(pmid(1, 1, 1)));
    assert_eq!(names.nodes(pmid(1, 1, 2)).count(), 100_000);
    assert!(names.remove("a"));
    assert!(names.remove("w.n99999"));
    assert_eq!(names.root().leaves().count(), 99_999);
}
