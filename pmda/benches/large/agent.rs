//! The agent: the metrics of `peer.c`.

use pmda::prelude::*;

pub(crate) const DOMAIN: u16 = 400;
const CACHED: Serial = Serial::new(0);
const FIXED: Serial = Serial::new(1);

#[derive(Debug, Clone)]
struct Row {
    word: u32,
    long: u64,
    real: f64,
    text: String,
}

#[derive(Debug)]
pub(crate) struct Large {
    cache: Cache<Row>,
    rows: Vec<Row>,
}

impl Agent for Large {
    const NAME: &'static str = "large";
    const DOMAIN: u16 = DOMAIN;

    fn new(setup: &mut Setup) -> Start<Self> {
        let instances: u32 = std::env::var(super::AGENT)?.parse()?;
        let names: Vec<String> = (0..instances).map(|i| format!("instance-{i:07}")).collect();
        setup.indom(CACHED);
        setup.indom(FIXED).instances((0..).zip(names.iter().map(String::as_str)));
        for (cluster, indom) in [(0, CACHED), (2, FIXED)] {
            for (item, ty) in (0..).zip([Type::U32, Type::U64, Type::Double, Type::String]) {
                setup.metric(format!("large.many.c{cluster}.i{item}"), Item::new(cluster, item), ty).indom(indom);
            }
        }
        for item in 0..1000 {
            setup.metric(format!("large.one.i{item}"), Item::new(1, item), Type::U32);
        }
        let row = |i: u32| Row {
            word: i.wrapping_mul(13),
            long: u64::from(i) << 24,
            real: f64::from(i) * 0.25,
            text: format!("text of {i:08}"),
        };
        let rows: Vec<Row> = (0..instances).map(row).collect();
        let mut cache = Cache::new(setup.indom_id(CACHED));
        for (name, row) in names.iter().zip(&rows) {
            cache.store(name, row.clone())?;
        }
        Ok(Large { cache, rows })
    }

    fn instances(&self, indom: Serial) -> Option<&dyn Instances> {
        (indom == CACHED).then_some(&self.cache)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        let mut rows = (0..).map(Inst::new).zip(&self.rows);
        match (item.cluster(), item.item()) {
            (0, 0) => out.put_each(&self.cache, |row| row.word),
            (0, 1) => out.put_each(&self.cache, |row| row.long),
            (0, 2) => out.put_each(&self.cache, |row| row.real),
            (0, 3) => out.put_each(&self.cache, |row| row.text.as_str()),
            (2, 0) => rows.try_for_each(|(inst, row)| out.put_inst(inst, row.word)),
            (2, 1) => rows.try_for_each(|(inst, row)| out.put_inst(inst, row.long)),
            (2, 2) => rows.try_for_each(|(inst, row)| out.put_inst(inst, row.real)),
            (2, 3) => rows.try_for_each(|(inst, row)| out.put_inst(inst, &row.text)),
            (1, n) => out.put(u32::from(n)),
            _ => Err(Error::PMID),
        }
    }
}
