//! Metrics for benches: with `-n N`, two domains of N instances, and 1,000 singular metrics. `benches/peer.c` is the
//! same agent in C.
//!
//! In C: pmdaCacheStore(3) and pmdaCacheLookup(3) for one domain, an `indomtab` entry for the other.

use pmda::CacheError;
use pmda::clap::{Arg, Command, value_parser};
use pmda::prelude::*;

pub(crate) const CACHED_CLUSTER: u16 = 0;
pub(crate) const SINGLE_CLUSTER: u16 = 1;
pub(crate) const FIXED_CLUSTER: u16 = 2;

pub(crate) const CACHED: Serial = Serial::new(0);
const FIXED: Serial = Serial::new(1);

const WORD: u16 = 0;
const LONG: u16 = 1;
const REAL: u16 = 2;
const TEXT: u16 = 3;
const SINGLES: u16 = 1000;

#[derive(Debug)]
pub(crate) struct Large {
    /// Values of both domains.
    pub(crate) rows: Cache<Row>,
    fetches: u32,
}

#[derive(Debug)]
pub(crate) struct Row {
    word: u32,
    text: [u8; 16],
    long: u64,
    real: f64,
}

/// Adds the option `-n N`.
pub(crate) fn options(command: Command) -> Command {
    let n = Arg::new("instances").short('n').value_name("N").value_parser(value_parser!(u32).range(..1 << 31));
    command.arg(n.help("Add clusters 0 to 2 for benches: two domains of N instances, 1,000 singular metrics"))
}

impl Large {
    /// Declares the metrics. Returns `None` without the option `-n`.
    pub(crate) fn new(setup: &mut Setup) -> Result<Option<Self>, CacheError> {
        let Some(&instances) = setup.options().get_one::<u32>("instances") else { return Ok(None) };
        let names = (0..instances).map(|i| format!("inst-{i:010}"));
        setup.indom(CACHED).help("Instances of a cache", "N instances with -n N.");
        setup.indom(FIXED).instances((0..).zip(names.clone())).help("Instances of a list", "N instances with -n N.");
        for (cluster, name, indom) in [(CACHED_CLUSTER, "cached", CACHED), (FIXED_CLUSTER, "fixed", FIXED)] {
            for (item, column, ty) in [
                (WORD, "u32", Type::U32),
                (LONG, "u64", Type::U64),
                (REAL, "double", Type::Double),
                (TEXT, "string", Type::String),
            ] {
                let metric = setup.metric(format!("showcase.large.{name}.{column}"), Item::new(cluster, item), ty);
                metric.indom(indom).help(format!("A {column} for each instance"), "A constant.");
            }
        }
        for item in 0..SINGLES {
            let metric =
                setup.metric(format!("showcase.large.single.m{item}"), Item::new(SINGLE_CLUSTER, item), Type::U32);
            metric.help("A singular metric", "Its number plus the number of fetches so far.");
        }
        let mut rows = setup.cache(CACHED);
        for (i, name) in (0..).zip(names) {
            rows.store(&name, Row::new(i))?;
        }
        Ok(Some(Large { rows, fetches: 0 }))
    }

    /// Counts a fetch. Must be called once for each fetch request.
    pub(crate) fn step(&mut self) {
        self.fetches = self.fetches.wrapping_add(1);
    }

    /// Puts the value of a singular metric.
    #[inline]
    pub(crate) fn single(&self, item: Item, out: &mut Values<'_>) -> Result {
        out.put(self.fetches.wrapping_add(item.item().into()))
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match (item.cluster(), item.item()) {
            (CACHED_CLUSTER, WORD) => out.put_each(&self.rows, |row| row.word),
            (CACHED_CLUSTER, LONG) => out.put_each(&self.rows, |row| row.long),
            (CACHED_CLUSTER, REAL) => out.put_each(&self.rows, |row| row.real),
            (CACHED_CLUSTER, TEXT) => out.put_each(&self.rows, |row| Atom::String(&row.text)),
            (FIXED_CLUSTER, WORD) => self.rows.values().try_for_each(|(inst, row)| out.put_inst(inst, row.word)),
            (FIXED_CLUSTER, LONG) => self.rows.values().try_for_each(|(inst, row)| out.put_inst(inst, row.long)),
            (FIXED_CLUSTER, REAL) => self.rows.values().try_for_each(|(inst, row)| out.put_inst(inst, row.real)),
            (FIXED_CLUSTER, TEXT) => {
                self.rows.values().try_for_each(|(inst, row)| out.put_inst(inst, Atom::String(&row.text)))
            }
            _ => Err(Error::PMID),
        }
    }
}

impl Row {
    fn new(i: u32) -> Row {
        let mut text = *b"value-0000000000";
        let mut rest = i;
        for digit in text.iter_mut().rev().take(10) {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Row { word: i.wrapping_mul(7), text, long: u64::from(i) << 33, real: f64::from(i) * 1.5 }
    }
}
