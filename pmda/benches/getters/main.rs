//! Compares getters with the `match` of `Agent::fetch`: the time of a value, within the process.
//!
//! `cargo bench -p pcp-pmda --bench getters`

#![allow(clippy::expect_used)]

use std::hint::black_box;
use std::time::Instant;

use pcp_pdu::Header;
use pcp_pdu::metadata::encode_fetch;
use pmda::host::Engine;
use pmda::pmapi::{Config, PmId};
use pmda::prelude::*;

const METRICS: u16 = 20;
const ROWS: u64 = 1000;
const ROUNDS: u32 = 20_000;

/// An agent with 20 single values, by getters or by `fetch`, and a column of a thousand rows.
struct Contest<const GETTERS: bool> {
    values: [u64; METRICS as usize],
    rows: Table<u64>,
}

impl<const GETTERS: bool> Agent for Contest<GETTERS> {
    const NAME: &'static str = "contest";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        macro_rules! metrics {
            ($($n:literal)*) => {$(
                let name = concat!("contest.m", $n);
                if GETTERS {
                    setup.counter(name, Item::new(0, $n), |contest: &Self| contest.values[$n]);
                } else {
                    setup.metric(name, Item::new(0, $n), Type::U64).counter();
                }
            )*};
        }
        metrics!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
        let mut rows = setup.table(Serial::new(0), |contest: &Self| &contest.rows);
        if GETTERS {
            rows.gauge("contest.row", Item::new(1, 0), |row| *row);
        } else {
            rows.metric("contest.row", Item::new(1, 0), Type::U64);
        }
        let rows = rows.finish_with(setup, (0..ROWS).map(|row| (row.to_string(), row)))?;
        Ok(Contest { values: std::array::from_fn(|n| n as u64), rows })
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        macro_rules! arms {
            ($($n:literal)*) => {
                match (item.cluster(), item.item()) {
                    $((0, $n) => out.put(self.values[$n]),)*
                    (1, 0) => out.put_each(&self.rows, |row| *row),
                    _ => Err(Error::PMID),
                }
            };
        }
        arms!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19)
    }
}

/// Returns the nanoseconds of a value in a fetch of some metrics, the best of several rounds.
fn time<const GETTERS: bool>(items: &[Item], values: u64, rounds: u32) -> f64 {
    let builder = Engine::<Contest<GETTERS>>::builder().config(Config::new(b"", []));
    let mut engine = builder.build().expect("an agent without mistakes");
    let domain = engine.schema().domain();
    let mut request = Vec::new();
    let pmids = items.iter().map(|item| Some(PmId::new(domain, *item)));
    encode_fetch(&mut request, 1, 0, pmids).expect("a short request");
    let header = Header::parse(&request).ok().flatten().expect("a header");
    let best = (0..10).map(|_| {
        let start = Instant::now();
        for _ in 0..rounds / 10 {
            black_box(engine.handle(header, &request, |reply| reply.len()));
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds / 10) / values as f64
    });
    best.fold(f64::INFINITY, f64::min)
}

fn main() {
    let singles: Vec<Item> = (0..METRICS).map(|n| Item::new(0, n)).collect();
    for (what, items, values, rounds) in
        [("a single value", &singles[..], u64::from(METRICS), ROUNDS), ("a row", &[Item::new(1, 0)], ROWS, ROUNDS / 10)]
    {
        let (by_match, by_getter) = (time::<false>(items, values, rounds), time::<true>(items, values, rounds));
        println!("{what}: {by_match:.1} ns by match, {by_getter:.1} ns by getter");
    }
}
