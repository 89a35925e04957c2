//! Check of stores.

use pcp_collector::Channel;
use pcp_pdu::Pdu;
use pcp_pdu::result::Changes;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Desc, Inst, Item, PmId, Type};

use super::{Check, Metric, Rule};

impl<C: Channel> Check<C> {
    /// Stores values that every agent must refuse, so that nothing changes in an agent without mistakes.
    pub(super) fn check_stores(&mut self) {
        for metric in self.metrics.clone() {
            let Metric { name, desc } = &metric;
            let (Some(value), Some(other)) = (zero(desc.ty), other_type(desc.ty)) else { continue };
            let inst = desc.indom.and_then(|indom| self.indoms.get(&indom)?.iter().find_map(|(inst, _)| *inst));
            if desc.indom.is_none() || inst.is_some() {
                let what = format!("a value of type {}, not {}", other.ty().word(), desc.ty.word());
                self.check_refused(name, desc.pmid, inst, other, &what);
            }
            // A singular metric has no instance, and no domain has this one.
            self.check_refused(name, desc.pmid, Some(NOWHERE), value, "a value for an instance that does not exist");
        }
        let Some(Metric { desc: Desc { pmid, .. }, .. }) = self.metrics.first() else { return };
        let unknown = PmId::new(pmid.domain(), Item::new(Item::MAX_CLUSTER, Item::MAX_ITEM));
        if !self.named.contains(&unknown) {
            self.check_refused(&unknown.to_string(), unknown, None, Atom::U32(0), "a value, but is not a metric");
        }
    }

    fn check_refused(&mut self, subject: &str, pmid: PmId, inst: Option<Inst>, value: Atom<'_>, what: &str) {
        // The answer is always an ERROR PDU, here one with the code 0.
        let answer = self.asker.ask(
            subject,
            |out, from| {
                let mut writer = ResultWriter::new();
                writer.begin();
                writer.begin_set(Some(pmid));
                writer.push(inst, value.ty(), value)?;
                writer.end_set(Ok(()));
                let (head, blocks) = writer.seal(from, Changes::default())?;
                out.extend([head, blocks].concat());
                Ok(())
            },
            |pdu| matches!(pdu, Pdu::Error(_)).then_some(()),
        );
        if let Some(Ok(())) = answer {
            self.asker.note(Rule::Store, subject, format!("accepts {what}"));
        }
    }
}

/// Instance that no agent has: the largest identifier.
const NOWHERE: Inst = Inst::new(i32::MAX as u32);

/// Returns a value of a type; `None` for a type that cannot be stored.
fn zero(ty: Type) -> Option<Atom<'static>> {
    Some(match ty {
        Type::I32 => Atom::I32(0),
        Type::U32 => Atom::U32(0),
        Type::I64 => Atom::I64(0),
        Type::U64 => Atom::U64(0),
        Type::Float => Atom::Float(0.0),
        Type::Double => Atom::Double(0.0),
        Type::String => Atom::String(b""),
        _ => return None,
    })
}

/// Returns a value that does not convert to a type.
fn other_type(ty: Type) -> Option<Atom<'static>> {
    match ty {
        Type::String => Some(Atom::U32(0)),
        _ => zero(ty).map(|_| Atom::String(b"no number")),
    }
}
