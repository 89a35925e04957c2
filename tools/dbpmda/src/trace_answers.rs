//! Output of debug options for requests and answers.

use pcp_pdu::PduType;
use pcp_pdu::instance::InstancePdu;
use pcp_pdu::label::LabelPdu;
use pcp_pdu::names::Node;
use pmapi::{OptionWord as _, OrNull, PmId};

use crate::show::until_nul;
use crate::trace::Trace;

pub(crate) fn instances(trace: &Trace, instances: &InstancePdu<'_>) {
    if !trace.has("indom") {
        return;
    }
    let (indom, count) = (instances.indom, instances.len());
    trace.line(
        "indom",
        format_args!(
            "pmInResult dump from {instances:p} for InDom {} ({:#x}), numinst={count}",
            OrNull(indom),
            indom.word()
        ),
    );
    for (at, (inst, name)) in instances.iter().enumerate() {
        let inst = if count > 1 || inst.is_some() { format!(" inst={}", OrNull(inst)) } else { String::new() };
        let text = String::from_utf8_lossy(until_nul(name));
        let name = if count > 1 || !name.is_empty() { format!(" name=\"{text}\"") } else { String::new() };
        trace.line("indom", format_args!("  [{at}]{inst}{name}"));
    }
}

pub(crate) fn ids(trace: &Trace, function: &str, pmids: &[Option<PmId>]) {
    trace.line("pmns", format_args!("{function}\nIDlist dump: numids = {}", pmids.len()));
    for (at, pmid) in pmids.iter().enumerate() {
        trace.line("pmns", format_args!("  PMID[{at}]: {:#010x} {}", pmid.word(), OrNull(*pmid)));
    }
}

/// Traces a list of names; an empty list shows nothing.
pub(crate) fn names<'a>(trace: &Trace, function: &str, names: impl Iterator<Item = (Option<Node>, &'a [u8])>) {
    if !trace.has("pmns") {
        return;
    }
    let names: Vec<_> = names.collect();
    if names.is_empty() {
        return;
    }
    trace.line("pmns", format_args!("{function}\nnamelist dump: numnames = {}", names.len()));
    for (at, (_, name)) in names.iter().enumerate() {
        trace.line("pmns", format_args!("  name[{at}]: \"{}\"", String::from_utf8_lossy(name)));
    }
    let nodes: Vec<_> = names.iter().filter_map(|(node, _)| *node).collect();
    if !nodes.is_empty() {
        trace.line("pmns", format_args!("statuslist dump: numstatus = {}", nodes.len()));
    }
    for (at, node) in nodes.into_iter().enumerate() {
        trace.line("pmns", format_args!("  status[{at}]: {}", i32::from(node == Node::NonLeaf)));
    }
}

pub(crate) fn name_request(trace: &Trace, name: &str, pdu: PduType, subtype: i32) {
    trace.line("pmns", format_args!("SendNameReq: from=0 name=\"{name}\" pdu={pdu} subtype={subtype}"));
}

pub(crate) fn attribute(trace: &Trace, key: i32, value: Option<&[u8]>) {
    let bytes = [value.unwrap_or_default(), if value.is_some() { b"\0" } else { b"" }].concat();
    let shown = printable(&bytes);
    trace.line("attr", format_args!("__pmSendAttr [len={}]: attr={key:#x} value=\"{shown}\"", bytes.len()));
}

pub(crate) fn labels(trace: &Trace, labels: &LabelPdu<'_>) {
    if !trace.has("labels") {
        return;
    }
    let (ident, bits, count) = (labels.ident as i32, labels.bits, labels.len());
    let at = if count == 0 { "(nil)".to_owned() } else { format!("{labels:p}") };
    let level_name = level(bits);
    trace.line(
        "labels",
        format_args!("__pmDecodeLabel(ident={ident},type={bits:#x}[{level_name}], {count} sets @{at})"),
    );
    for (at, set) in labels.sets().enumerate() {
        let count = set.error.map_or(set.len() as i64, |code| code.code().into());
        let inst = OrNull(set.inst);
        trace.line("labels", format_args!("[{at}] pmLabelSet dump from {labels:p} inst={inst} nlabels={count}"));
        if !set.is_empty() {
            let json = printable(set.json);
            trace.line("labels", format_args!("pmLabelSet {labels:p} json:\n    {json}\npmLabelSet {labels:p} index:"));
        }
        for (at, span) in set.spans().enumerate() {
            let bits = span.flags.bits();
            let mut flags = level((bits & 0x3f).into()).to_owned();
            flags.push_str(if bits & 0x40 != 0 { ",compound" } else { "" });
            flags.push_str(if bits & 0x80 != 0 { ",optional" } else { "" });
            let (name, name_len, value, value_len) = (span.name, span.name_len, span.value, span.value_len);
            trace.line(
                "labels",
                format_args!("    [{at}] name({name},{name_len}) : value({value},{value_len}) [{flags}]"),
            );
        }
    }
}

/// Returns libpcp's name of a label level.
fn level(bits: i32) -> &'static str {
    match bits {
        1 => "context",
        2 => "domain",
        4 => "indom",
        8 => "cluster",
        16 => "pmid",
        32 => "instances",
        _ => "?",
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|&c| if matches!(c, b' '..=b'~') { char::from(c) } else { '.' }).collect()
}
