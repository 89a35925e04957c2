//! Answers of a context, in the form in which `oracle.c` prints those of libpcp.

use std::fmt::Write as _;

use pcp_client::{Context, Sample};
use pcp_pdu::metadata::{Subject, TextKind};
use pcp_pdu::names::Node;
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::RawValue;
use pmapi::{Atom, Desc, Domain, Error, InDom, Inst, LabelSet, OptionWord as _, OrNull, PmId, Result, Type};

/// Returns the answer to a request, whose words are separated by tabs.
pub(crate) fn answer(context: &mut Context, request: &str) -> String {
    try_answer(context, request).unwrap_or_else(|e| e.code().to_string())
}

fn word(text: &str) -> u32 {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => text.parse::<i64>().unwrap() as u32,
    }
}

fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        match byte {
            b'\\' | 0..=31 | 127.. => write!(out, "\\x{byte:02x}").unwrap(),
            _ => out.push(byte.into()),
        }
    }
    out
}

fn desc(desc: Option<Desc>) -> String {
    desc.map_or("none".into(), |d| {
        let (ty, indom, sem) = (d.ty.code(), d.indom.word(), d.semantics.code());
        format!("{}/{ty}/{indom:x}/{sem}/{}", d.pmid, d.units)
    })
}

fn values(sample: &Sample) -> String {
    let mut out = "0".to_owned();
    for set in sample.sets() {
        let count = set.error.map_or(set.len() as i32, Error::code);
        write!(out, " {}:{count}", OrNull(set.pmid)).unwrap();
        for (inst, value) in set.values() {
            write!(out, ",{:x}=", inst.word()).unwrap();
            let RawValue::Block(code, payload) = value else {
                let RawValue::InSitu(word) = value else { unreachable!() };
                write!(out, "{word:x}").unwrap();
                continue;
            };
            let number = || payload.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            match Type::from_code(code.into()) {
                Ok(Type::I64 | Type::U64 | Type::Double | Type::Float) => write!(out, "{code};{:x}", number()),
                Ok(Type::Event | Type::HighResEvent) => write!(out, "{code};{}", payload.len()),
                _ => write!(out, "{code};{}", text(payload)),
            }
            .unwrap();
        }
    }
    out
}

fn labels(sets: impl IntoIterator<Item = (Option<Inst>, Result<LabelSet>)>) -> String {
    let mut out = String::new();
    let mut count = 0;
    for (inst, set) in sets {
        count += 1;
        let (code, set) = set.map_or_else(|e| (e.code(), LabelSet::new()), |set| (set.len() as i32, set));
        write!(out, " [{:x}:{code}:{}", inst.word(), set.json()).unwrap();
        for raw in set.index() {
            let flags = raw.flags.bits();
            write!(out, ",{}/{}/{flags}/{}/{}", raw.name, raw.name_len, raw.value, raw.value_len).unwrap();
        }
        out.push(']');
    }
    format!("{count}{out}")
}

fn one_set(set: LabelSet) -> String {
    labels((!set.is_empty()).then_some((None, Ok(set))))
}

fn try_answer(context: &mut Context, request: &str) -> Result<String> {
    let words: Vec<&str> = request.split('\t').filter(|word| !word.is_empty()).collect();
    let (what, rest) = words.split_first().unwrap();
    let first = rest.first().copied().unwrap_or_default();
    let pmid = || PmId::from_word(word(first)).unwrap();
    let indom = || InDom::from_word(word(first)).unwrap();
    let pmids = || rest.iter().map(|pmid| PmId::from_word(word(pmid)).unwrap()).collect::<Vec<_>>();
    let insts = || rest[1..].iter().map(|inst| Inst::from_word(word(inst)).unwrap()).collect::<Vec<_>>();
    let listed = |list: Vec<String>| format!("{} {}", list.len(), list.join(" ")).trim_end().to_owned();
    Ok(match *what {
        "names" if rest.len() == 1 => format!("1 {:x}", context.lookup_name(first)?.word()),
        "names" => {
            let pmids = context.lookup_names(rest)?;
            let found = pmids.iter().flatten().count();
            let words: Vec<String> = pmids.iter().map(|pmid| format!("{:x}", pmid.word())).collect();
            format!("{found} {}", words.join(" "))
        }
        "desc" => format!("0 {}", desc(Some(context.lookup_desc(pmid())?))),
        "descs" => {
            let descs = context.lookup_descs(&pmids())?;
            let found = descs.iter().flatten().count();
            let words: Vec<String> = descs.into_iter().map(desc).collect();
            format!("{found} {}", words.join(" "))
        }
        "nameid" => format!("0 {}", context.name_id(pmid())?),
        "nameall" => listed(context.name_all(pmid())?),
        "children" => {
            let children = context.children(first)?.into_iter();
            listed(children.map(|(name, node)| format!("{name}/{}", u8::from(node == Node::NonLeaf))).collect())
        }
        "traverse" => {
            let names = context.traverse(first)?;
            names.iter().map(|name| format!(" {name}")).collect::<String>() + &format!(" {}", names.len())
        }
        "indom" => {
            let list = context.indom(indom())?.into_iter();
            listed(list.map(|(inst, name)| format!("{:x}={}", inst.word(), text(&name))).collect())
        }
        "lookupin" => context.lookup_indom(indom(), rest[1].as_bytes())?.to_string(),
        "namein" => {
            let inst = Inst::from_word(word(rest[1])).unwrap();
            format!("0 {}", text(&context.name_indom(indom(), inst)?))
        }
        "add" | "del" if InDom::from_word(word(first)).is_none() => {
            let state = if *what == "add" { ProfileState::Include } else { ProfileState::Exclude };
            *context.profile_mut() = Profile::new(state);
            "0".into()
        }
        "add" => {
            context.profile_mut().add(indom(), &insts());
            "0".into()
        }
        "del" => {
            context.profile_mut().remove(indom(), &insts());
            "0".into()
        }
        "fetch" | "highres" => values(&context.fetch(&pmids())?),
        "store" => {
            let value = match Type::from_code(rest[2].parse().unwrap())? {
                Type::I32 => Atom::I32(rest[3].parse().unwrap()),
                Type::U32 => Atom::U32(rest[3].parse().unwrap()),
                Type::I64 => Atom::I64(rest[3].parse().unwrap()),
                Type::U64 => Atom::U64(rest[3].parse().unwrap()),
                Type::Float => Atom::Float(rest[3].parse().unwrap()),
                Type::Double => Atom::Double(rest[3].parse().unwrap()),
                _ => Atom::String(rest[3].as_bytes()),
            };
            context.store(pmid(), &[(Inst::from_word(word(rest[1])), value)])?;
            "0".into()
        }
        "text" | "indomtext" => {
            let about = if *what == "text" { Subject::Metric(pmid()) } else { Subject::InDom(indom()) };
            let kind = if rest[1] == "h" { TextKind::Help } else { TextKind::OneLine };
            format!("0 {}", text(&context.lookup_text(about, kind)?))
        }
        "contextlabels" => one_set(context.context_labels()?),
        "domainlabels" => one_set(context.domain_labels(Domain::new(word(first) as u16).unwrap())?),
        "indomlabels" => one_set(context.indom_labels(indom())?),
        "clusterlabels" => one_set(context.cluster_labels(pmid())?),
        "itemlabels" => one_set(context.item_labels(pmid())?),
        "instanceslabels" => {
            let sets = context.instances_labels(indom())?;
            labels(sets.into_iter().map(|(inst, set)| (Some(inst), set)))
        }
        "labels" => labels(context.lookup_labels(pmid())?.into_iter().map(|set| (None, Ok(set)))),
        other => panic!("{other}"),
    })
}
