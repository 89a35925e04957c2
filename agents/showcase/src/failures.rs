//! Errors on demand: of a metric, of a request, and of the agent itself.
//!
//! In C: negative results of a fetch callback and of a store function. Where this agent panics, an agent in C crashes.

use pmda::prelude::*;

pub(crate) const CLUSTER: u16 = 12;

const CODE: Item = Item::new(CLUSTER, 0);
const ON_DEMAND: Item = Item::new(CLUSTER, 1);
const NO_VALUES: Item = Item::new(CLUSTER, 2);
const PANIC: Item = Item::new(CLUSTER, 3);

#[derive(Debug)]
pub(crate) struct Failures {
    error: Option<Error>,
}

impl Failures {
    pub(crate) fn new(setup: &mut Setup) -> Self {
        let code = setup.metric("showcase.fail.code", CODE, Type::I32).discrete().storable();
        code.help("The error of showcase.fail.on_demand", "A code that pmerr(1) knows, such as -12351, or 0 for none.");
        let on_demand = setup.metric("showcase.fail.on_demand", ON_DEMAND, Type::U32);
        on_demand.help("Fails as showcase.fail.code says", "1 as long as there is no error.");
        let no_values = setup.metric("showcase.fail.no_values", NO_VALUES, Type::U32);
        no_values.help("A metric without values", "A fetch returns none, and no error either.");
        let panic = setup.metric("showcase.fail.panic", PANIC, Type::U32).storable();
        panic.help("A store that panics in the agent", "The store fails, the log says where, and the agent goes on.");
        Failures { error: None }
    }

    pub(crate) fn fetch(&self, item: Item, out: &mut Values<'_>) -> Result {
        match item {
            CODE => out.put(self.error.map_or(0, Error::code)),
            ON_DEMAND => self.error.map_or_else(|| out.put(1u32), Err),
            NO_VALUES => Ok(()),
            PANIC => out.put(0u32),
            _ => Err(Error::PMID),
        }
    }

    #[allow(clippy::panic)]
    pub(crate) fn store(&mut self, item: Item, value: Atom<'_>) -> Result {
        match (item, value) {
            (CODE, Atom::I32(code)) if code <= 0 => {
                self.error = Error::from_code(code);
                Ok(())
            }
            (PANIC, _) => panic!("showcase.fail.panic was stored"),
            _ => Err(Error::BADSTORE),
        }
    }
}
