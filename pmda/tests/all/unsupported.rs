//! Metrics without support answer with an error, or without values if the agent declares that.

use pcp_collector::Local;
use pmapi::{Domain, PmId};
use pmda::prelude::*;

const ERROR: Item = Item::new(0, 0);
const NO_VALUES: Item = Item::new(0, 1);
const VALUE: Item = Item::new(0, 2);

struct Partly;

impl Agent for Partly {
    const NAME: &'static str = "partly";
    const DOMAIN: u16 = 403;

    fn new(setup: &mut Setup) -> Result<Self, BoxError> {
        setup.metric("partly.error", ERROR, Type::NoSupport);
        setup.metric("partly.no_values", NO_VALUES, Type::NoSupport).no_values();
        setup.metric("partly.value", VALUE, Type::U32);
        Ok(Partly)
    }

    fn fetch(&mut self, item: Item, out: &mut Values<'_>) -> Result {
        assert_eq!(item, VALUE, "a metric without support has been fetched");
        out.put(7_u32)
    }
}

#[test]
fn an_error_or_no_values() {
    let mut agent = Local::<Partly>::collector().unwrap();
    let pmid = |item| PmId::new(Domain::new(Partly::DOMAIN).unwrap(), item);
    assert_eq!(agent.desc(pmid(NO_VALUES)).unwrap().ty, Type::NoSupport);
    let fetched = agent.fetch(&[ERROR, NO_VALUES, VALUE].map(pmid)).unwrap();
    let sets: Vec<_> = fetched.sets().map(|set| (set.error, set.values().count())).collect();
    assert_eq!(sets, [(Some(Error::APPVERSION), 0), (None, 0), (None, 1)]);
}
