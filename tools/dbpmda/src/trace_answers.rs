//! Output of debug options for requests and answers. Without a console, the option is not set.

use pcp_pdu::instance::InstancePdu;
use pcp_pdu::label::LabelPdu;
use pcp_pdu::names::Node;
use pmapi::{OptionWord as _, OrNull, PmId};

use crate::console::{Console, err};
use crate::show::until_nul;

pub(crate) fn instances(console: Option<&Console>, instances: &InstancePdu<'_>) {
    let Some(console) = console else { return };
    let (indom, count) = (instances.indom, instances.len());
    let (shown, word) = (OrNull(indom), indom.word());
    err!(console, "pmInResult dump from {instances:p} for InDom {shown} ({word:#x}), numinst={count}\n");
    for (at, (inst, name)) in instances.iter().enumerate() {
        let inst = if count > 1 || inst.is_some() { format!(" inst={}", OrNull(inst)) } else { String::new() };
        let text = String::from_utf8_lossy(until_nul(name));
        let name = if count > 1 || !name.is_empty() { format!(" name=\"{text}\"") } else { String::new() };
        err!(console, "  [{at}]{inst}{name}\n");
    }
}

pub(crate) fn ids(console: Option<&Console>, function: &str, pmids: &[Option<PmId>]) {
    let Some(console) = console else { return };
    err!(console, "{function}\nIDlist dump: numids = {}\n", pmids.len());
    for (at, pmid) in pmids.iter().enumerate() {
        err!(console, "  PMID[{at}]: {:#010x} {}\n", pmid.word(), OrNull(*pmid));
    }
}

/// Traces a list of names; an empty list shows nothing.
pub(crate) fn names<'a>(
    console: Option<&Console>,
    function: &str,
    names: impl Iterator<Item = (Option<Node>, &'a [u8])>,
) {
    let (Some(console), (nodes, names)) = (console, names.unzip::<_, _, Vec<_>, Vec<_>>()) else { return };
    if names.is_empty() {
        return;
    }
    err!(console, "{function}\nnamelist dump: numnames = {}\n", names.len());
    for (at, name) in names.into_iter().enumerate() {
        err!(console, "  name[{at}]: \"{}\"\n", String::from_utf8_lossy(name));
    }
    let nodes: Vec<_> = nodes.into_iter().flatten().collect();
    if !nodes.is_empty() {
        err!(console, "statuslist dump: numstatus = {}\n", nodes.len());
    }
    for (at, node) in nodes.into_iter().enumerate() {
        err!(console, "  status[{at}]: {}\n", i32::from(node == Node::NonLeaf));
    }
}

pub(crate) fn attribute(console: Option<&Console>, key: i32, value: Option<&[u8]>) {
    let Some(console) = console else { return };
    let bytes = [value.unwrap_or_default(), if value.is_some() { b"\0" } else { b"" }].concat();
    let shown = printable(&bytes);
    err!(console, "__pmSendAttr [len={}]: attr={key:#x} value=\"{shown}\"\n", bytes.len());
}

pub(crate) fn labels(console: Option<&Console>, labels: &LabelPdu<'_>) {
    let Some(console) = console else { return };
    let (ident, bits, count) = (labels.ident as i32, labels.bits, labels.len());
    let at = if count == 0 { "(nil)".to_owned() } else { format!("{labels:p}") };
    err!(console, "__pmDecodeLabel(ident={ident},type={bits:#x}[{}], {count} sets @{at})\n", level(bits));
    for (at, set) in labels.sets().enumerate() {
        let count = set.error.map_or(set.len() as i64, |code| code.code().into());
        err!(console, "[{at}] pmLabelSet dump from {labels:p} inst={} nlabels={count}\n", OrNull(set.inst));
        if !set.is_empty() {
            let json = printable(set.json);
            err!(console, "pmLabelSet {labels:p} json:\n    {json}\npmLabelSet {labels:p} index:\n");
        }
        for (at, span) in set.spans().enumerate() {
            let bits = span.flags.bits();
            let mut flags = level((bits & 0x3f).into()).to_owned();
            flags.push_str(if bits & 0x40 != 0 { ",compound" } else { "" });
            flags.push_str(if bits & 0x80 != 0 { ",optional" } else { "" });
            let (name, name_len, value, value_len) = (span.name, span.name_len, span.value, span.value_len);
            err!(console, "    [{at}] name({name},{name_len}) : value({value},{value_len}) [{flags}]\n");
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
