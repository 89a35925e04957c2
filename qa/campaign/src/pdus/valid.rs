//! Random PDUs like those of pmcd, with identifiers and names that the agent has, and others.

use pcp_pdu::handshake::{Attr, Attribute, Features, encode_creds, encode_error};
use pcp_pdu::instance::InstanceReq;
use pcp_pdu::label::LabelReq;
use pcp_pdu::metadata::{DescReq, TextReq, encode_fetch};
use pcp_pdu::names::{Child, Node, Statuses, Traverse, encode_ids, encode_names};
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::Changes;
use pcp_pdu::result_writer::ResultWriter;
use pmapi::{Atom, Error, Inst, PmId, Result};

use crate::rng::Rng;
use crate::spec::Spec;

/// Generator of random PDUs.
#[derive(Debug)]
pub(crate) struct Valid {
    spec: &'static Spec,
    values: ResultWriter,
}

impl Valid {
    pub(crate) fn new(spec: &'static Spec) -> Valid {
        Valid { spec, values: ResultWriter::new() }
    }

    fn pmid(&self, rng: &mut Rng) -> Option<PmId> {
        match rng.below(24) {
            0 => None,
            1 => PmId::from_word(rng.word()),
            _ => {
                let item = rng.below(self.spec.items.into()) as u16 + 10 * u16::from(rng.one_in(8));
                Some(self.spec.pmid(rng.pick(self.spec.clusters), item))
            }
        }
    }

    fn indom_word(&self, rng: &mut Rng) -> u32 {
        match rng.below(24) {
            0 => rng.word(),
            1 => u32::MAX,
            _ => self.spec.indom(rng.below(self.spec.serials as usize) as u32).word(),
        }
    }

    fn inst(rng: &mut Rng) -> Option<Inst> {
        if rng.one_in(6) { None } else { Inst::from_word(rng.below(9) as u32) }
    }

    fn name(&self, rng: &mut Rng) -> &'static [u8] {
        rng.pick(self.spec.names).as_bytes()
    }

    /// Appends one random PDU.
    pub(crate) fn append(&mut self, rng: &mut Rng, out: &mut Vec<u8>) -> Result {
        let from = if rng.one_in(40) { rng.word().cast_signed() } else { rng.below(8) as i32 };
        match rng.below(20) {
            0..=5 => {
                let mut pmids = [None; 8];
                let count = 1 + rng.below(pmids.len());
                pmids.iter_mut().take(count).for_each(|pmid| *pmid = self.pmid(rng));
                encode_fetch(out, from, 0, pmids.into_iter().take(count))
            }
            6 => self.profile(rng, out, from),
            7 | 8 => DescReq { pmid: self.pmid(rng) }.encode(out, from),
            9 | 10 => {
                let name = rng.one_in(3).then(|| self.name(rng));
                let inst = if rng.one_in(2) { Self::inst(rng) } else { None };
                let indom = pmapi::InDom::from_word(self.indom_word(rng));
                InstanceReq { indom, inst, name }.encode(out, from)
            }
            11 | 12 => {
                let (ident, bits) = match rng.below(4) {
                    0 => (self.indom_word(rng), 8 | (1 + rng.below(2) as i32)),
                    1 => (rng.word(), rng.below(64) as i32),
                    _ => (self.pmid(rng).map_or(u32::MAX, PmId::word), 4 | (1 + rng.below(2) as i32)),
                };
                TextReq { ident, bits }.encode(out, from)
            }
            13 => {
                let bits = 1 << rng.below(6);
                let ident = match bits {
                    1 => u32::MAX,
                    2 => self.spec.domain.into(),
                    4 | 32 => self.indom_word(rng),
                    _ => self.pmid(rng).map_or(u32::MAX, PmId::word),
                };
                LabelReq { ident, bits }.encode(out, from)
            }
            14 => encode_names(out, from, Statuses::Omitted, [(Node::Leaf, self.name(rng))]),
            15 if rng.one_in(2) => {
                let statuses = if rng.one_in(2) { Statuses::Included } else { Statuses::Omitted };
                Child { statuses, name: self.name(rng) }.encode(out, from)
            }
            15 => Traverse { name: self.name(rng) }.encode(out, from),
            16 => encode_ids(out, from, 0, &[self.pmid(rng)]),
            17 | 18 => self.store(rng, out, from),
            _ => self.news(rng, out, from),
        }
    }

    fn profile(&self, rng: &mut Rng, out: &mut Vec<u8>, from: i32) -> Result {
        let state = if rng.one_in(2) { ProfileState::Include } else { ProfileState::Exclude };
        let mut profile = Profile::new(state);
        for serial in 0..rng.below(3) {
            let insts: Vec<Inst> = (0..rng.below(6)).filter_map(|_| Self::inst(rng)).collect();
            let state = if rng.one_in(2) { ProfileState::Include } else { ProfileState::Exclude };
            profile.set(self.spec.indom(serial as u32), state, &insts);
        }
        profile.encode(out, from, 0)
    }

    /// Appends a store of values of random types into random metrics.
    fn store(&mut self, rng: &mut Rng, out: &mut Vec<u8>, from: i32) -> Result {
        let text = self.name(rng);
        self.values.begin();
        for _ in 0..=rng.below(3) {
            let pmid = self.pmid(rng);
            self.values.begin_set(pmid);
            // All values of a set must have one format.
            let ty = rng.below(8);
            for _ in 0..rng.below(3) {
                let number = rng.odd_number();
                let atom = match ty {
                    0 => Atom::I32(number as i32),
                    1 => Atom::U32(number as u32),
                    2 => Atom::I64(number.cast_signed()),
                    3 => Atom::U64(number),
                    4 => Atom::Float(f32::from_bits(number as u32)),
                    5 => Atom::Double(f64::from_bits(number)),
                    6 => Atom::String(text),
                    _ => Atom::Aggregate(text),
                };
                self.values.push(Self::inst(rng), atom.ty(), atom)?;
            }
            self.values.end_set(Ok(()));
        }
        let (lists, blocks) = self.values.seal(from, Changes::default())?;
        out.extend_from_slice(lists);
        out.extend_from_slice(blocks);
        Ok(())
    }

    /// Appends a PDU that has no answer: CREDS, ERROR or ATTR.
    fn news(&self, rng: &mut Rng, out: &mut Vec<u8>, from: i32) -> Result {
        match rng.below(4) {
            0 => encode_creds(out, from, Features::from_bits_retain(rng.word() as u16)),
            1 => encode_error(out, from, Err(Error::NOTCONN)),
            2 => encode_error(out, from, Error::from_code(-(rng.below(13_000) as i32)).map_or(Ok(()), Err)),
            _ => {
                let known = [
                    Attribute::USERNAME,
                    Attribute::USERID,
                    Attribute::GROUPID,
                    Attribute::PROCESSID,
                    Attribute::CONTAINER,
                ];
                let attribute = known.get(rng.below(6)).copied().unwrap_or(Attribute::new(rng.word().cast_signed()));
                let value = match rng.below(3) {
                    0 => rng.odd_number().to_string(),
                    1 => "root\u{1b}[31m\nforged".repeat(1 + rng.below(40)),
                    _ => "0".to_owned(),
                };
                Attr { attribute, value: value.as_bytes() }.encode(out, from)
            }
        }
    }
}
