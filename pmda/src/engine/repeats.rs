//! Metrics that a request names more than once.
//!
//! A fetch of 64 KiB names 16,000 metrics. If a metric has very many instances, a client that repeats it could make the
//! agent work for minutes. Repetitions therefore get a limited time. Different metrics are not limited: an agent
//! limits how many it has.

use std::time::Duration;

use hashbrown::HashSet;
use pcp_pdu::metadata::Fetch;
use pmapi::PmId;

use crate::work::Work;

/// Processor time for all repetitions in a request.
pub(super) const LONGEST: Duration = Duration::from_millis(20);

/// The repetitions in a fetch.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// A fetch of several parts, which are compared with each other once it has taken long.
    whole: Option<Work>,
    /// The metrics of the earlier parts, if they are needed.
    earlier: HashSet<PmId>,
    spent: Duration,
    /// Whether the client has been logged.
    is_logged: bool,
}

impl Repeats {
    /// Begins a fetch, which has several parts or only one.
    pub(super) fn new(has_parts: bool) -> Repeats {
        Repeats { whole: has_parts.then(|| Work::up_to(LONGEST)), ..Repeats::default() }
    }

    /// Begins the next part of a fetch that is answered in parts. `before` has the parts that are answered already.
    pub(super) fn begin_part<'a>(&mut self, before: impl Iterator<Item = Fetch<'a>>) {
        if self.whole.as_ref().is_some_and(Work::is_over) {
            self.earlier.extend(before.flat_map(Fetch::pmids).flatten());
        }
    }

    /// Returns whether an earlier part is known to name a metric.
    #[inline]
    pub(super) fn has(&self, pmid: PmId) -> bool {
        !self.earlier.is_empty() && self.earlier.contains(&pmid)
    }

    /// Returns whether there is time for another repetition.
    pub(super) fn has_time(&self) -> bool {
        self.spent <= LONGEST
    }

    /// Counts the processor time of a repetition.
    pub(super) fn spend(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Returns whether this is the first repetition without time.
    pub(super) fn is_first(&mut self) -> bool {
        !std::mem::replace(&mut self.is_logged, true)
    }
}

#[cfg(test)]
mod tests {
    use pcp_pdu::metadata::encode_fetch;
    use pcp_pdu::result::Changes;
    use pcp_pdu::result_writer::ResultWriter;
    use pcp_pdu::{Header, Pdu};
    use pmapi::{Config, Domain, Error, Item, Type};

    use super::super::{Engine, Reply, plans};
    use super::*;
    use crate::limits::FixedLimit;
    use crate::prelude::*;

    /// Counts values that are fetched or stored. Each of them takes a millisecond.
    struct Slow(u32);

    const METRICS: u16 = 40;
    const KINDS: Serial = Serial::new(0);
    const DOMAIN: Domain = Domain::new(400).unwrap();

    impl Agent for Slow {
        const NAME: &'static str = "slow";
        const DOMAIN: u16 = 400;

        fn new(setup: &mut Setup) -> Start<Self> {
            (0..METRICS).for_each(|item| {
                setup.metric(format!("slow.m{item}"), Item::new(0, item), Type::U32).storable().help("A count", "");
            });
            setup.indom(KINDS).instances((0..METRICS.into()).map(|inst| (inst, format!("kind{inst}"))));
            let of_kinds = setup.metric("slow.kinds", Item::new(1, 0), Type::U32).indom(KINDS);
            of_kinds.storable().help("A count of each kind", "");
            Ok(Slow(0))
        }

        fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
            self.work();
            out.put(self.0)
        }

        fn store(&mut self, _: Item, _: Option<Inst>, _: Atom<'_>, _: Client) -> Result {
            self.work();
            Ok(())
        }
    }

    impl Slow {
        fn work(&mut self) {
            let work = Work::up_to(Duration::from_millis(1));
            while !work.is_over() {}
            self.0 += 1;
        }
    }

    fn engine() -> Engine<Slow> {
        Engine::<Slow>::builder().domain(DOMAIN).config(Config::new(b"", [])).build().unwrap()
    }

    fn pmid(item: u16) -> PmId {
        PmId::new(DOMAIN, Item::new(0, item))
    }

    fn request(engine: &mut Engine<Slow>, bytes: &[u8]) -> Vec<u8> {
        engine.handle(Header::parse(bytes).unwrap().unwrap(), bytes, |reply| match reply {
            Reply::Pdu(head, rest) => [head, rest].concat(),
            reply => panic!("{reply:?}"),
        })
    }

    /// Fetches these items. Returns the metrics that have values, and those that are refused.
    fn fetch(items: &[u16]) -> (usize, usize) {
        let mut bytes = Vec::new();
        encode_fetch(&mut bytes, 1, 0, items.iter().map(|item| Some(pmid(*item)))).unwrap();
        let reply = request(&mut engine(), &bytes);
        let Ok(Pdu::Result(result)) = Pdu::decode(Header::parse(&reply).unwrap().unwrap(), &reply) else { panic!() };
        let refused = result.sets().filter(|set| set.error == Some(Error::TOOBIG)).count();
        (result.sets().filter(|set| !set.is_empty()).count(), refused)
    }

    #[test]
    fn metrics_that_are_named_again_have_a_limited_time() {
        let each: Vec<u16> = (0..METRICS).collect();
        assert_eq!(fetch(&each), (40, 0));
        assert_eq!(fetch(&[3, 3, 4, 3]), (4, 0));
        // A metric that one part of the request repeats, one that is in each part, and all metrics in each part.
        let parts = std::iter::once(5).chain(vec![METRICS; plans::LONGEST - 1]);
        let lists: [Vec<u16>; 3] = [
            vec![5; 1000],
            parts.cycle().take(80 * plans::LONGEST).collect(),
            each.iter().copied().cycle().take(4 * plans::LONGEST).collect(),
        ];
        for (list, most) in lists.into_iter().zip([30, 50, 90]) {
            let before = FixedLimit::Pdus.exceeded();
            let (served, refused) = fetch(&list);
            let known = list.iter().filter(|item| **item < METRICS).count();
            // Each value has taken a millisecond.
            assert!(served + refused == known && (15..=most).contains(&served), "{served} {refused}");
            assert!(FixedLimit::Pdus.exceeded() >= before + refused as u64);
        }
    }

    /// Stores a value for each of these sets: an item, and its number of values. Returns how many were stored.
    fn store(sets: &[(u16, u32)]) -> (u32, Result) {
        store_with(sets, |_| None)
    }

    /// Stores values as [`store`] does, each for the instance that `inst` returns for its number. The item after the
    /// last stands for the metric of the kinds.
    fn store_with(sets: &[(u16, u32)], inst: impl Fn(u32) -> Option<Inst>) -> (u32, Result) {
        let (mut writer, mut engine) = (ResultWriter::new(), engine());
        writer.begin();
        for (item, count) in sets {
            let of_kinds = PmId::new(DOMAIN, Item::new(1, 0));
            writer.begin_set(Some(if *item == METRICS { of_kinds } else { pmid(*item) }));
            (0..*count).for_each(|n| writer.push(inst(n), Type::U32, n.into()).unwrap());
            writer.end_set(Ok(()));
        }
        let (head, rest) = writer.seal(1, Changes::default()).unwrap();
        let reply = request(&mut engine, &[head, rest].concat());
        let Ok(Pdu::Error(e)) = Pdu::decode(Header::parse(&reply).unwrap().unwrap(), &reply) else { panic!() };
        (engine.agent().0, e.status())
    }

    #[test]
    fn values_that_are_stored_again_have_a_limited_time() {
        let each: Vec<(u16, u32)> = (0..METRICS).map(|item| (item, 1)).collect();
        assert_eq!(store(&each), (40, Ok(())));
        assert_eq!(store(&[(3, 1); 5]), (5, Ok(())));
        assert_eq!(store(&[(3, 2)]), (0, Err(Error::INST)));
        let (stored, outcome) = store(&[(3, 1); 1000]);
        assert!((15..=30).contains(&stored) && outcome == Err(Error::TOOBIG), "{stored} {outcome:?}");
    }

    #[test]
    fn values_of_an_instance_that_are_stored_again_have_a_limited_time() {
        let kinds = |count, different| store_with(&[(METRICS, count)], |n| Some(Inst::new(n % different)));
        assert_eq!(kinds(METRICS.into(), METRICS.into()), (METRICS.into(), Ok(())));
        assert_eq!(kinds(5, 1), (5, Ok(())));
        let (stored, outcome) = kinds(1000, METRICS.into());
        assert!((20..=60).contains(&stored) && outcome == Err(Error::TOOBIG), "{stored} {outcome:?}");
    }
}
