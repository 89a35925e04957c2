//! The factory of PCP's guide, with the names, identifiers and descriptions of the C example. To see the metrics, run
//! `cargo run --release -p pcp-mmv --example acme`, and then `pminfo -dfmtT mmv.acme`.
use std::{thread, time::Duration};

use mmv::{Counter, Registry, Units};

const PRODUCTS: [&str; 3] = ["Anvils", "Rockets", "Giant_Rubber_Bands"];

/// The counters of a product.
struct Product {
    count: Counter,
    machine: Counter,
    queue: Counter,
}

fn main() -> Result<(), mmv::Error> {
    let registry = Registry::builder("acme").cluster(321).persistent().build()?;
    let indom = registry
        .indom("products")
        .serial(61)
        .numbered((0..).zip(PRODUCTS))
        .help("What Acme makes")
        .long_help("The three products that sell best.")
        .register()?;
    let counts = registry
        .counter("products.count")
        .item(7)
        .help("Products made")
        .long_help("How many of each product have left the factory since the application started.")
        .over(&indom)?;
    let times = registry
        .counter("products.time")
        .item(8)
        .units(Units::MICROSECONDS)
        .help("Time on the machine")
        .long_help("How long the machine has worked on each product. Waiting for the machine does not count.")
        .over(&indom)?;
    let queues = registry
        .counter("products.queuetime")
        .item(10)
        .units(Units::MICROSECONDS)
        .help("Time in the queue")
        .long_help("How long each product has waited while the machine worked on another one.")
        .over(&indom)?;
    let product = |name| {
        Ok(Product { count: counts.instance(name)?, machine: times.instance(name)?, queue: queues.instance(name)? })
    };
    let products = PRODUCTS.into_iter().map(product).collect::<Result<Vec<Product>, mmv::Error>>()?;
    registry.start();

    let mut random = Random(321);
    loop {
        let working = random.below(50_000);
        let chosen = random.below(PRODUCTS.len() as u64) as usize;
        thread::sleep(Duration::from_micros(working));
        for (i, product) in products.iter().enumerate() {
            if i == chosen {
                product.machine.add(working);
                product.count.inc();
            } else {
                product.queue.add(working);
            }
        }
    }
}

/// A random number generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << shift } else { self.0 >> shift };
        }
        self.0 % limit
    }
}
