//! Shows metrics as pminfo(1) does: `pminfo [-h HOST] [-d] [-f] [-t] [-T] [-l] [NAME...]`.

use pcp_pdu::print::Print;
use std::collections::HashMap;
use std::error::Error;

use pcp_client::{Context, Sample};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::result::RawValue;
use pmapi::{Atom, Desc, Inst, OptionWord as _, PmId};

/// Prints a line. Names, texts and values are those of strangers: they are escaped on a terminal.
macro_rules! say {
    ($($text:tt)*) => { pcp_base::escape::print(format_args!("{}\n", format_args!($($text)*))) };
}

#[derive(Default)]
struct Show {
    desc: bool,
    values: bool,
    line: bool,
    help: bool,
    labels: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut host, mut show, mut names) = ("local:".to_owned(), Show::default(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" => host = arguments.next().ok_or("-h needs a host")?,
            "-d" => show.desc = true,
            "-f" => show.values = true,
            "-t" => show.line = true,
            "-T" => show.help = true,
            "-l" => show.labels = true,
            option if option.starts_with('-') => return Err(format!("unknown option {option}").into()),
            name => names.push(name.to_owned()),
        }
    }
    let mut pmcd = Context::connect(&host)?;
    if names.is_empty() {
        names.push(String::new());
    }
    for name in names {
        match pmcd.traverse(&name) {
            Ok(found) => found.iter().for_each(|name| metric(&mut pmcd, name, &show)),
            Err(e) => say!("{name}: {e}"),
        }
    }
    Ok(())
}

fn metric(pmcd: &mut Context, name: &str, show: &Show) {
    say!("{name}");
    if let Err(e) = details(pmcd, name, show) {
        say!("    Error: {e}");
    }
}

fn details(pmcd: &mut Context, name: &str, show: &Show) -> pmapi::Result {
    let pmid = pmcd.lookup_name(name)?;
    if show.line {
        say!("    [{}]", text(pmcd, pmid, TextKind::OneLine)?);
    }
    let desc = pmcd.lookup_desc(pmid)?;
    if show.desc {
        say!("    Data Type: {}  InDom: {} 0x{:x}", desc.ty, pmapi::OrNull(desc.indom), desc.indom.word());
        say!("    Semantics: {}  Units: {}", desc.semantics, desc.units);
    }
    if show.help {
        say!("Help:\n{}", text(pmcd, pmid, TextKind::Help)?);
    }
    if show.labels {
        say!("    labels {}", pmcd.merged_labels(pmid)?);
    }
    if show.values {
        let sample = pmcd.fetch(&[pmid])?;
        values(pmcd, desc, &sample)?;
    }
    Ok(())
}

fn text(pmcd: &mut Context, pmid: PmId, kind: TextKind) -> pmapi::Result<String> {
    let text = pmcd.lookup_text(Subject::Metric(pmid), kind)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn values(pmcd: &mut Context, desc: Desc, sample: &Sample) -> pmapi::Result {
    let Some(set) = sample.set(0) else { return Ok(()) };
    set.error.map_or(Ok(()), Err)?;
    let names: HashMap<Inst, Vec<u8>> = match desc.indom {
        Some(indom) => pmcd.indom(indom)?.into_iter().collect(),
        None => HashMap::new(),
    };
    if set.is_empty() {
        say!("No value(s) available!");
    }
    for (inst, value) in set.values() {
        let name = inst.and_then(|inst| names.get(&inst)).map(|name| String::from_utf8_lossy(name));
        match inst {
            None => say!("    value {}", shown(value, desc)),
            Some(inst) => say!("    inst [{inst} or {:?}] value {}", name.unwrap_or_default(), shown(value, desc)),
        }
    }
    Ok(())
}

fn shown(value: RawValue<'_>, desc: Desc) -> String {
    value.atom(desc.ty).map_or_else(|e| e.to_string(), |atom: Atom<'_>| Print::new(atom, 1).to_string())
}
