//! A collection in the output format of `pminfo -dfmtTl`.
use pcp_pdu::print::Print;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use mmv::Semantics;
use mmv_reader::TextKind;
use mmv_reader::collection::{Collection, LabelSubject, MetricDesc};
use pmapi::{Domain, InDom, Inst, LabelSet, PmId};

/// Returns the block of each metric.
pub(crate) fn collection(files: &Path) -> BTreeMap<String, String> {
    let mut collection = Collection::new("mmv", files);
    collection.refresh();
    let metrics: Vec<(String, MetricDesc)> = collection.metrics().collect();
    assert_eq!(metrics.len(), collection.metric_count());
    metrics.into_iter().map(|(name, desc)| (name.clone(), metric(&mut collection, &name, desc))).collect()
}

fn metric(collection: &mut Collection, name: &str, desc: MetricDesc) -> String {
    let domain = Domain::new(70).unwrap();
    assert_eq!(collection.item(name), Ok(desc.item));
    assert_eq!(collection.name(desc.item).as_deref(), Ok(name));
    let mut out = format!("{name} PMID: {}", PmId::new(domain, desc.item));
    match collection.help(desc.item, TextKind::OneLine) {
        Ok(line) => writeln!(out, " [{}]", text(line)).unwrap(),
        Err(e) => writeln!(out, " One-line Help: Error: {e}").unwrap(),
    }
    let indom = desc.indom.map(|serial| InDom::new(domain, serial));
    let ty = desc.ty.exported().description();
    match indom {
        Some(indom) => writeln!(out, "    Data Type: {ty}  InDom: {indom} 0x{:x}", indom.word()).unwrap(),
        None => writeln!(out, "    Data Type: {ty}  InDom: PM_INDOM_NULL 0xffffffff").unwrap(),
    }
    let semantics = match desc.semantics {
        Semantics::Counter => "counter",
        Semantics::Instant => "instant",
        Semantics::Discrete => "discrete",
    };
    let units = desc.units.to_string();
    writeln!(out, "    Semantics: {semantics}  Units: {}", if units.is_empty() { "none" } else { &units }).unwrap();
    let labels = labels(collection, &desc, None);
    if !labels.is_empty() {
        writeln!(out, "    labels {}", labels.json()).unwrap();
    }
    help(&mut out, collection, &desc);
    values(&mut out, collection, &desc);
    out
}

fn help(out: &mut String, collection: &Collection, desc: &MetricDesc) {
    // A client requests the one-line text if there is no full one.
    let help = collection.help(desc.item, TextKind::Help);
    let line = || collection.help(desc.item, TextKind::OneLine);
    match if help.is_ok_and(|text| text.is_empty()) { line() } else { help.or_else(|_| line()) } {
        Ok([]) => writeln!(out, "Help: <empty entry>").unwrap(),
        Ok(help) => writeln!(out, "Help:\n{}", text(help)).unwrap(),
        Err(e) => writeln!(out, "Full Help: Error: {e}").unwrap(),
    }
}

fn values(out: &mut String, collection: &mut Collection, desc: &MetricDesc) {
    let (mut values, mut missing) = (Vec::new(), Ok(()));
    let fetched = collection.fetch(
        desc.item,
        |_| true,
        |inst, value| match value {
            Ok(atom) => values.push((inst, Print::new(atom, 1).to_string())),
            Err(e) => missing = Err(e),
        },
    );
    let status = if values.is_empty() { fetched.and(missing) } else { fetched };
    let order: Vec<(Inst, String)> = match desc.indom {
        Some(indom) => collection.instances(indom).unwrap().map(|(id, name)| (id, text(name))).collect(),
        None => Vec::new(),
    };
    let names: BTreeMap<Inst, String> = order.iter().cloned().collect();
    match status {
        Err(e) => writeln!(out, "Error: {e}").unwrap(),
        Ok(()) if values.is_empty() => writeln!(out, "No value(s) available!").unwrap(),
        Ok(()) => {}
    }
    for (inst, value) in &values {
        match inst {
            Some(inst) => writeln!(out, "    inst [{inst} or \"{}\"] value {value}", names[inst]).unwrap(),
            None => writeln!(out, "    value {value}").unwrap(),
        }
    }
    for (inst, name) in &order {
        let labels = labels(collection, desc, Some(*inst));
        if !labels.is_empty() {
            writeln!(out, "    inst [{inst} or \"{name}\"] labels {}", labels.json()).unwrap();
        }
    }
}

fn labels(collection: &Collection, desc: &MetricDesc, inst: Option<Inst>) -> LabelSet {
    let mut set = LabelSet::new();
    let levels = [
        desc.indom.map(LabelSubject::InDom),
        Some(LabelSubject::Cluster(desc.item.cluster())),
        Some(LabelSubject::Item(desc.item)),
        desc.indom.zip(inst).map(|(indom, inst)| LabelSubject::Instance(indom, inst)),
    ];
    for level in levels.into_iter().flatten() {
        collection.labels(level).into_iter().for_each(|labels| set.merge(labels).unwrap());
    }
    set
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
