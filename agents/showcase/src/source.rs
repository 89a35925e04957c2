//! Source that is slow, fails or hangs. It is read in the background, while the agent answers at once.
//!
//! C has no counterpart: there an agent that waits for its source also delays pmcd, which drops the agent after five
//! seconds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 13;

const READINGS: Item = Item::new(CLUSTER, 0);
const AGE: Item = Item::new(CLUSTER, 1);
const TAKES: Item = Item::new(CLUSTER, 2);
const FAILS: Item = Item::new(CLUSTER, 3);

const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Source {
    background: Background<Snapshot>,
    moods: Arc<Moods>,
}

/// Result of one reading.
#[derive(Debug)]
struct Snapshot {
    readings: u64,
}

/// Behavior of the source, which clients can change.
#[derive(Debug, Default)]
struct Moods {
    /// Duration of a reading, in milliseconds.
    takes: AtomicU32,
    /// Code of the error with which a reading ends, or 0.
    fails: AtomicI32,
}

impl Moods {
    fn read(&self, readings: &mut u64) -> Result<Snapshot> {
        sleep(Duration::from_millis(self.takes.load(Ordering::Relaxed).into()));
        Error::from_code(self.fails.load(Ordering::Relaxed)).map_or(Ok(()), Err)?;
        *readings += 1;
        Ok(Snapshot { readings: *readings })
    }
}

impl Source {
    pub(crate) fn new(setup: &mut Setup) -> io::Result<Self> {
        let readings = setup.metric("showcase.source.readings", READINGS, Type::U64).counter().units(Units::COUNT);
        readings.help("How often the source has been read", "Each second. After a failed reading it has its error.");
        let age = setup.metric("showcase.source.age", AGE, Type::Double).units(Units::SECONDS);
        age.help("Age of the value of showcase.source.readings", "It grows while the source hangs.");
        let takes = setup.metric("showcase.source.takes", TAKES, Type::U32).discrete().units(Units::MILLISECONDS);
        takes.storable().help("How long a reading takes", "While a reading hangs, the agent still answers.");
        let fails = setup.metric("showcase.source.fails", FAILS, Type::I32).discrete().storable();
        fails.help("Error with which a reading ends", "A code that pmerr(1) knows, such as -12386, or 0 for none.");
        let moods = Arc::new(Moods::default());
        let (of, mut readings) = (Arc::clone(&moods), 0);
        Ok(Source {
            background: Background::spawn(PERIOD, move || Ok(of.read(&mut readings)?))?.named("showcase.source"),
            moods,
        })
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            READINGS => out.put(self.background.latest()?.readings),
            AGE => out.put(self.background.age().ok_or(Error::AGAIN)?.as_secs_f64()),
            TAKES => out.put(self.moods.takes.load(Ordering::Relaxed)),
            FAILS => out.put(self.moods.fails.load(Ordering::Relaxed)),
            _ => Err(Error::PMID),
        }
    }

    pub(crate) fn store(&self, item: Item, value: Atom<'_>) -> Result {
        match (item, value) {
            (TAKES, Atom::U32(milliseconds)) => self.moods.takes.store(milliseconds, Ordering::Relaxed),
            (FAILS, Atom::I32(code)) if code <= 0 => self.moods.fails.store(code, Ordering::Relaxed),
            (FAILS, _) => return Err(Error::BADSTORE),
            _ => return Err(Error::PERMISSION),
        }
        self.background.request_snapshot();
        Ok(())
    }
}
