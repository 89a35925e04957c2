//! Descriptors, instance domains, help texts and labels.

use std::io;

use pcp_archive::{Archive, LabelRecord, Part};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::TextKind;
use pmapi::{InDom, LabelFlags, LabelLevel, OrNull, PmId};

use crate::names::Names;
use crate::out::{Out, identifier, integer, put};
use crate::zone::Stamps;

/// Writes the descriptors of all metrics.
pub(crate) fn descs(out: &mut Out, archive: &Archive, names: &Names<'_>) -> io::Result<()> {
    put!(out.text, "\nDescriptions for Metrics in the Log ...\n");
    // Neighbours often differ only in their number and name.
    let (mut last, mut text) = (None, Vec::new());
    for (pmid, desc) in archive.metadata().descs() {
        out.text.extend_from_slice(b"PMID: ");
        identifier(&mut out.text, pmid);
        out.text.extend_from_slice(b" (");
        if !names.append_joined(pmid, &mut out.text) {
            out.text.extend_from_slice(b"<noname>");
        }
        let key = (desc.ty, desc.indom, desc.semantics, desc.units);
        if last.replace(key) != Some(key) {
            text.clear();
            put!(text, ")\n{desc}\n");
        }
        out.text.extend_from_slice(&text);
        out.pass()?;
    }
    Ok(())
}

/// Writes all instance domains in the order of time.
pub(crate) fn indoms(out: &mut Out, archive: &Archive, stamps: &Stamps) -> io::Result<()> {
    put!(out.text, "\nInstance Domains in the Log ...\n");
    let meta = archive.metadata();
    let mut names = meta.instance_names();
    for indom in meta.indoms() {
        put!(out.text, "InDom: {indom}\n");
        for record in meta.indom_records(indom).into_iter().flatten() {
            stamps.full(&mut out.text, record.time);
            let instances = names.instances_of(indom, record);
            put!(out.text, " {} instances\n", instances.len());
            for instance in instances {
                named(&mut out.text, b"   ", instance.inst, instance.name);
            }
            out.pass()?;
        }
    }
    Ok(())
}

fn named(out: &mut Vec<u8>, prefix: &[u8], inst: u32, name: &[u8]) {
    out.extend_from_slice(prefix);
    integer(out, inst as i32);
    out.extend_from_slice(b" or \"");
    out.extend_from_slice(name);
    out.extend_from_slice(b"\"\n");
}

/// Writes the records of instance domains, unchanged from the file.
pub(crate) fn disk_indoms(out: &mut Out, part: Part<'_>, stamps: &Stamps) -> io::Result<()> {
    put!(out.text, "Instance Domains on-disk ...\n");
    for record in part.disk_indoms() {
        stamps.full(&mut out.text, record.time);
        let delta = if record.is_delta { " delta" } else { "" };
        put!(out.text, " InDom: {}{delta} {} instances\n", OrNull(record.indom), record.len());
        for (inst, name) in record.instances() {
            match name {
                None => put!(out.text, "   del {}\n", inst as i32),
                Some(name) => named(&mut out.text, if record.is_delta { &b"   add "[..] } else { b"   " }, inst, name),
            }
        }
        out.pass()?;
    }
    Ok(())
}

/// Appends the help texts of metrics, then those of instance domains.
pub(crate) fn texts(out: &mut Vec<u8>, archive: &Archive) {
    put!(*out, "\nMetric Help Text in the Log ...\n");
    let meta = archive.metadata();
    let mut show = |subject: String, level, text: &[u8]| {
        out.extend_from_slice(subject.as_bytes());
        match level {
            TextKind::OneLine => {
                out.extend_from_slice(b" [");
                out.extend_from_slice(text);
                out.push(b']');
            }
            TextKind::Help => {
                out.push(b'\n');
                out.extend_from_slice(text);
            }
        }
        out.push(b'\n');
    };
    for (ident, level, text) in meta.metric_texts() {
        show(format!("PMID: {}", OrNull(PmId::from_word(ident))), level, text);
    }
    for (ident, level, text) in meta.indom_texts() {
        show(format!("InDom: {}", OrNull(InDom::from_word(ident))), level, text);
    }
}

/// Levels of labels in the order of the output.
const LEVELS: [LabelLevel; 6] = [
    LabelLevel::Context,
    LabelLevel::Domain,
    LabelLevel::Cluster,
    LabelLevel::Item,
    LabelLevel::InDom,
    LabelLevel::Instances,
];

/// Writes all labels by time, level and identifier.
pub(crate) fn labels(out: &mut Out, archive: &Archive, stamps: &Stamps) -> io::Result<()> {
    put!(out.text, "\nMetric Labels in the Log ...\n");
    // PCP looks for times after the epoch.
    let mut all: Vec<_> = archive.metadata().label_records().filter(|r| r.time > Stamp::default()).collect();
    let rank = |record: &LabelRecord<'_>| LEVELS.iter().position(|level| level.code() == record.level);
    // Of several records of the same time and subject, PCP shows the first one of the file first.
    all.reverse();
    all.sort_by_key(|record| (record.time, rank(record), record.ident));
    let mut time = None;
    for record in all {
        if time != Some(record.time) {
            stamps.full(&mut out.text, record.time);
            out.text.push(b'\n');
            time = Some(record.time);
        }
        if rank(&record).is_some() {
            label_sets(&mut out.text, &record);
        }
        out.pass()?;
    }
    Ok(())
}

fn label_sets(out: &mut Vec<u8>, record: &LabelRecord<'_>) {
    let level = LabelLevel::from_code(record.level);
    let subject = match level {
        Some(LabelLevel::Context) => "Context".to_owned(),
        Some(LabelLevel::Domain) => format!("Domain {}", record.ident),
        Some(LabelLevel::Cluster) => {
            let text = OrNull(PmId::from_word(record.ident)).to_string();
            format!("Cluster {}", text.rsplit_once('.').map_or(&*text, |(cluster, _)| cluster))
        }
        Some(LabelLevel::Item) => format!("PMID {}", OrNull(PmId::from_word(record.ident))),
        _ => format!("InDom {}", OrNull(InDom::from_word(record.ident))),
    };
    for set in record.sets() {
        put!(*out, "    {subject}");
        if level == Some(LabelLevel::Instances) {
            put!(*out, "[{}]", set.inst);
        }
        put!(*out, " labels ({} bytes): ", set.json.len());
        out.extend_from_slice(set.json.split(|b| *b == 0).next().unwrap_or_default());
        out.push(b'\n');
        for (nth, label) in set.labels().enumerate() {
            let (name, value) = ((label.name, label.name_len), (label.value, label.value_len));
            put!(*out, "        [{nth}] name({},{}) : value({},{}) ", name.0, name.1, value.0, value.1);
            put!(*out, "[{}]\n", flags(label.flags));
        }
    }
}

fn flags(flags: LabelFlags) -> String {
    let mut text = match flags.level() {
        Some(LabelLevel::Context) => "context",
        Some(LabelLevel::Domain) => "domain",
        Some(LabelLevel::InDom) => "indom",
        Some(LabelLevel::Cluster) => "cluster",
        Some(LabelLevel::Item) => "pmid",
        Some(LabelLevel::Instances) => "instances",
        None => "?",
    }
    .to_owned();
    if flags.contains(LabelFlags::COMPOUND) {
        text.push_str(",compound");
    }
    if flags.contains(LabelFlags::OPTIONAL) {
        text.push_str(",optional");
    }
    text
}
