//! Output of answers.

use pcp_pdu::instance::InstancePdu;
use pcp_pdu::label::LabelPdu;
use pcp_pdu::result::{RawValue, ResultPdu, ValueSet};
use pmapi::zone::Zone;
use pmapi::{OrNull, Type};

use crate::console::{Console, out};
use crate::names::NameSpace;

/// Returns the first line of a result. `interface` is that of a shared object, whose results have microseconds.
pub(crate) fn result_head(result: &ResultPdu<'_>, bytes: &[u8], interface: Option<u8>) -> String {
    let (seconds, micros, count) = (result.seconds, result.microseconds, result.len());
    let clock = Zone::system().local(seconds.into()).clock();
    let (kind, fraction, shown) = match interface {
        Some(_) => ("pm", format!("{micros:06}"), format!("{:03}", micros / 1000)),
        None => ("__pm", format!("{:09}", i64::from(micros) * 1000), format!("{:09}", i64::from(micros) * 1000)),
    };
    let address = bytes.as_ptr();
    format!("{kind}Result dump from {address:p} timestamp: {seconds}.{fraction} {clock}.{shown} numpmid: {count}\n")
}

/// Returns the first line of a value set.
pub(crate) fn set_head(set: &ValueSet<'_>, names: &[String], separator: &str) -> String {
    let names = if names.is_empty() { "<noname>".to_owned() } else { names.join(separator) };
    let head = format!("  {} ({names}):", OrNull(set.pmid));
    match set.error {
        Some(code) => format!("{head} {code}\n"),
        None if set.is_empty() => format!("{head} No values returned!\n"),
        None => format!("{head} numval: {} valfmt: {} vlist[]:\n", set.len(), set.format().code()),
    }
}

/// Formats a result without the types of its metrics (`__pmPrintResult`).
pub(crate) fn result(head: String, result: &ResultPdu<'_>, names: &NameSpace) -> Vec<u8> {
    let mut text = head.into_bytes();
    for set in result.sets() {
        text.extend(set_head(&set, &names.all_quietly(set.pmid), ", ").bytes());
        for (inst, value) in set.values() {
            if set.len() > 1 || inst.is_some() {
                text.extend(format!("    inst [{} or ???] value ", OrNull(inst)).bytes());
            } else {
                text.extend(b"   value ");
            }
            let ty = match value {
                RawValue::InSitu(_) => None,
                RawValue::Block(code, _) => Type::from_code(code.into()).ok(),
            };
            text.extend(value.print(ty, 1).to_bytes());
            text.push(b'\n');
        }
    }
    text
}

/// Shows instances and names. The answer to a request for one instance has only its number or its name.
pub(crate) fn instances(instances: &InstancePdu<'_>, console: &Console) {
    if instances.is_empty() {
        return out!(console, "Instance domain is empty\n");
    }
    let single = instances.len() == 1;
    for (at, (inst, name)) in instances.iter().enumerate() {
        out!(console, "[{at:3}]");
        if !single || inst.is_some() {
            out!(console, " inst: {}", OrNull(inst));
        }
        if !single || !name.is_empty() {
            console.out_bytes(&[b" name: \"", until_nul(name), b"\""].concat());
        }
        out!(console, "\n");
    }
}

/// Shows label sets.
pub(crate) fn labels(labels: &LabelPdu<'_>, console: &Console) {
    for (at, set) in labels.sets().enumerate() {
        match set.inst {
            Some(inst) => out!(console, "[{at:3}] Labels inst: {inst}\n"),
            None => out!(console, "Labels:\n"),
        }
        for span in set.spans() {
            let name = span.name_in(set.json).unwrap_or_default();
            let value = span.value_in(set.json).unwrap_or_default();
            console.out_bytes(&[b"    ", name, b"=", value, b"\n"].concat());
        }
    }
    if labels.is_empty() {
        out!(console, "Info: __pmDecodeLabel() returns 0 label sets\n");
    }
}

/// Returns the text before the first NUL.
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&c| c == 0).next().unwrap_or_default()
}
