//! A context over archives and over a live pmcd, and derived metrics in it.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::sync::Arc;

use pcp_context::{Context, Mode};
use pcp_derived::{Definitions, Scope};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::names::Node;
use pmapi::{Atom, Error, Inst, PmId};
use testkit::Pcp;

/// Archive of 10 minutes, with 61 records.
fn archive() -> Context {
    let dir = Pcp::required().testsuite().join("archives");
    Context::open_archive(dir.join("20130706")).unwrap()
}

fn values(context: &mut Context, pmid: PmId) -> Vec<(Option<Inst>, f64)> {
    let ty = context.lookup_desc(pmid).unwrap().ty;
    let sample = context.fetch(&[pmid]).unwrap();
    let number = |atom: Atom<'_>| match atom {
        Atom::I32(value) => value.into(),
        Atom::U32(value) => value.into(),
        Atom::I64(value) => value as f64,
        Atom::U64(value) => value as f64,
        Atom::Float(value) => value.into(),
        Atom::Double(value) => value,
        other => panic!("{other:?}"),
    };
    let set = sample.set(0).unwrap();
    assert_eq!(set.error, None);
    set.values().map(|(inst, value)| (inst, number(value.atom(ty).unwrap()))).collect()
}

#[test]
#[ignore = "needs PCP"]
fn an_archive() {
    let mut context = archive();
    assert_eq!(context.mode(), Mode::Forward);
    assert!(context.host().is_none() && context.archive().is_some());
    assert!(!context.host_name().unwrap().is_empty());
    let (start, end) = context.bounds().unwrap();
    assert!(start < end.unwrap());
    let pmid = context.lookup_name("kernel.all.load").unwrap();
    assert_eq!(context.lookup_name("kernel.all"), Err(Error::NONLEAF));
    assert_eq!(context.lookup_name("no.such"), Err(Error::NAME));
    assert_eq!(context.name_id(pmid).as_deref(), Ok("kernel.all.load"));
    assert!(context.traverse("kernel").unwrap().contains(&"kernel.all.load".to_owned()));
    assert!(context.children("kernel").unwrap().contains(&("all".to_owned(), Node::NonLeaf)));
    assert!(context.children("kernel.all").unwrap().contains(&("load".to_owned(), Node::Leaf)));
    assert_eq!(context.children("kernel.all.load"), Ok(vec![]));
    let indom = context.lookup_desc(pmid).unwrap().indom.unwrap();
    assert_eq!(context.fetch(&[]).unwrap_err().code(), Error::TOOSMALL);
    let first = values(&mut context, pmid);
    assert_eq!(first.len(), 3);
    let five = context.lookup_indom(indom, b"5 minute").unwrap();
    assert_eq!(context.name_indom(indom, five).as_deref(), Ok(&b"5 minute"[..]));
    assert_eq!(context.indom(indom).unwrap().len(), 3);
    assert_eq!(context.indom_ever(indom).unwrap().len(), 3);
    assert_eq!(context.lookup_indom_ever(indom, b"5 minute"), Ok(five));
    assert_eq!(context.name_indom_ever(indom, five).as_deref(), Ok(&b"5 minute"[..]));
    assert!(context.lookup_text(Subject::Metric(pmid), TextKind::OneLine).is_err());
    assert!(context.lookup_labels(pmid).unwrap().is_empty());
    context.profile_mut().add(indom, &[five]);
    assert_eq!(values(&mut context, pmid).len(), 1);
    // The copy continues from the same position.
    let mut copy = context.duplicate().unwrap();
    assert_eq!(copy.fetch(&[pmid]).unwrap().time(), context.time().unwrap());
    assert_eq!(context.set_mode(Mode::Live, None), Err(Error::MODE));
}

#[test]
#[ignore = "needs PCP"]
fn modes_of_an_archive() {
    let mut context = archive();
    let (start, end) = context.bounds().unwrap();
    let pmid = context.lookup_name("kernel.all.load").unwrap();
    let mut forward = Vec::new();
    while let Ok(sample) = context.fetch(&[pmid]) {
        forward.push(sample.time());
    }
    assert_eq!(context.fetch(&[pmid]).unwrap_err().code(), Error::EOL);
    context.set_mode(Mode::Backward, end).unwrap();
    let mut backward = Vec::new();
    while let Ok(sample) = context.fetch(&[pmid]) {
        backward.push(sample.time());
    }
    backward.reverse();
    assert_eq!(forward, backward);
    context.set_mode(Mode::Forward, Some(start)).unwrap();
    let mut records = 0;
    while context.fetch_archive().is_ok() {
        records += 1;
    }
    assert!(records > forward.len(), "{records}");
    context.set_mode(Mode::Interpolated { step: 1_000_000_000 }, Some(forward[1])).unwrap();
    assert_eq!(context.fetch_archive().unwrap_err().code(), Error::MODE);
    let times: Vec<_> = (0..5).map(|_| context.fetch(&[pmid]).unwrap().time()).collect();
    assert!(times.windows(2).all(|pair| pair[1].seconds - pair[0].seconds == 1), "{times:?}");
    // Fetches of another list of metrics continue at the same origin.
    let uptime = context.lookup_name("hinv.ncpu").unwrap();
    assert_eq!(context.fetch(&[uptime, pmid]).unwrap().time().seconds, times[4].seconds + 1);
}

#[test]
#[ignore = "needs PCP"]
fn derived_metrics_of_a_context() {
    let mut context = archive();
    let mut global = Definitions::new(Scope::Global);
    global.register("my.load", "kernel.all.load * 100").unwrap();
    global.register("my.other", "kernel.all.load * 3").unwrap();
    context.set_global_derived(Arc::new(global));
    let double = context.add_derived("my.load", "kernel.all.load * 2").unwrap();
    context.add_derived("kernel.all.load", "hinv.ncpu").unwrap();
    let wrong = context.add_derived("my.wrong", "no.such + 1").unwrap();
    assert!(context.add_derived("my.load", "1").is_err());
    // A metric of the archive takes precedence over one of the context, and that over one of all contexts.
    let load = context.lookup_name("kernel.all.load").unwrap();
    assert_eq!(context.lookup_name("my.load"), Ok(double));
    assert_eq!(context.name_id(double).as_deref(), Ok("my.load"));
    assert_eq!(context.lookup_desc(wrong), Err(Error::BADDERIVE));
    let names = context.traverse("my").unwrap();
    assert_eq!(names, ["my.load", "my.other"]);
    let other = context.lookup_name("my.other").unwrap();
    let mut plain = context.duplicate().unwrap();
    for _ in 0..5 {
        let sample = context.fetch(&[double, load, other, wrong]).unwrap();
        let wanted = values(&mut plain, load);
        for (at, factor) in [(0, 2.0), (1, 1.0), (2, 3.0)] {
            let ty = context.lookup_desc([double, load, other][at]).unwrap().ty;
            let found = sample.set(at).unwrap();
            assert_eq!(found.values().count(), wanted.len());
            for ((inst, value), (right_inst, right)) in found.values().zip(&wanted) {
                assert_eq!(inst, *right_inst);
                let number: f64 = match value.atom(ty).unwrap() {
                    Atom::Float(value) => value.into(),
                    Atom::Double(value) => value,
                    other => panic!("{other:?}"),
                };
                assert!((number - right * factor).abs() < 1e-4, "{number} {right} {factor}");
            }
        }
        assert_eq!(sample.set(3).unwrap().error, Some(Error::BADDERIVE));
    }
}

#[test]
#[ignore = "needs PCP"]
fn a_live_pmcd() {
    let pmcd = Pcp::required().pmcd().start();
    let mut context = Context::connect(&pmcd.host()).unwrap();
    assert_eq!(context.mode(), Mode::Live);
    assert_eq!(context.set_mode(Mode::Forward, None), Err(Error::MODE));
    assert_eq!(context.set_mode(Mode::Live, None), Ok(()));
    assert!(!context.host_name().unwrap().is_empty());
    assert!(!context.zone().unwrap().text().is_empty());
    assert_eq!(context.time(), Err(Error::NOTARCHIVE));
    assert_eq!(context.fetch_archive().unwrap_err().code(), Error::NOTARCHIVE);
    let agents = context.lookup_name("pmcd.numagents").unwrap();
    let count = values(&mut context, agents)[0].1;
    assert!(count >= 1.0);
    let twice = context.add_derived("twice", "pmcd.numagents * 2").unwrap();
    assert_eq!(values(&mut context, twice)[0].1, count * 2.0);
    let mut copy = context.duplicate().unwrap();
    assert_eq!(values(&mut copy, twice)[0].1, count * 2.0);
    assert!(context.traverse("").unwrap().contains(&"twice".to_owned()));
    assert!(!context.lookup_text(Subject::Metric(agents), TextKind::Help).unwrap().is_empty());
}
