//! Fixed instance domain. Clients store values of single instances. Some instances have no values, and all have labels.
//!
//! In C: a `pmdaInstid` table in `indomtab`, a store function that checks the instance, `PM_ERR_VALUE` for some
//! instances in the fetch callback, and pmdaSetLabelCallBack(3).

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 5;
pub(crate) const INDOM: Serial = Serial::new(2);

const SIZE: Item = Item::new(CLUSTER, 0);
const LEVEL: Item = Item::new(CLUSTER, 1);
const ODD: Item = Item::new(CLUSTER, 2);

const NAMES: [&str; 9] =
    ["bin-100", "bin-200", "bin-300", "bin-400", "bin-500", "bin-600", "bin-700", "bin-800", "bin-900"];

#[derive(Debug)]
pub(crate) struct Bins {
    levels: [f64; 9],
}

/// Returns the bins: instances and sizes. The identifier of an instance is the bin's size.
fn sizes() -> impl Iterator<Item = (Inst, u32)> {
    (100..=900).step_by(100).map(|size| (Inst::new(size), size))
}

impl Bins {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        let bins = setup.indom(INDOM).instances((100..).step_by(100).zip(NAMES));
        bins.help("Bins", "Nine bins of 100, 200 … 900 bytes. The number of an instance is the size of the bin.");
        bins.labels(json!({"indom_name": "bin"}));
        let size = setup.metric("showcase.bin.size", SIZE, Type::U32).indom(INDOM).discrete().units(Units::BYTES);
        size.help("Size of each bin", "A constant for each instance.");
        let level = setup.metric("showcase.bin.level", LEVEL, Type::Double).indom(INDOM).storable();
        level.help("How full each bin is", "A value from 0 to 1. pmstore(1) sets one bin with -i, and otherwise all.");
        let odd = setup.metric("showcase.bin.odd", ODD, Type::U32).indom(INDOM).discrete().units(Units::BYTES);
        odd.help("Size of every second bin", "The other bins have no value. Their errors are only in the log.");
        Bins { levels: [0.0; 9] }
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            SIZE => sizes().try_for_each(|(inst, size)| out.put_inst(inst, size)),
            LEVEL => sizes().zip(self.levels).try_for_each(|((inst, _), level)| out.put_inst(inst, level)),
            ODD => sizes().try_for_each(|(inst, size)| {
                if size % 200 == 0 {
                    out.fail_inst(inst, Error::VALUE);
                    return Ok(());
                }
                out.put_inst(inst, size)
            }),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&mut self, item: Item, inst: Option<Inst>, value: Atom<'_>) -> Result {
        let (LEVEL, Atom::Double(value)) = (item, value) else { return Err(Error::PERMISSION) };
        let mut levels = sizes().zip(&mut self.levels);
        let (_, level) = levels.find(|((bin, _), _)| Some(*bin) == inst).ok_or(Error::INST)?;
        if !(0.0..=1.0).contains(&value) {
            return Err(Error::BADSTORE);
        }
        *level = value;
        Ok(())
    }

    pub(crate) fn labels(inst: Inst) -> Result<LabelSet> {
        Ok(LabelSet::from_serialize(json!({"bin": inst.word()}))?)
    }
}
