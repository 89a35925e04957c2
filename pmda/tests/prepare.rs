//! `Agent::prepare` gets the metrics of a fetch before the values are requested.

#![allow(clippy::unwrap_used, missing_docs)]

use pcp_collector::Local;
use pmapi::{Domain, PmId};
use pmda::Client;
use pmda::prelude::*;

struct Reader {
    prepared: Vec<Item>,
    log: String,
}

impl Agent for Reader {
    const NAME: &'static str = "reader";
    const DOMAIN: u16 = 400;

    fn new(setup: &mut Setup) -> Start<Self> {
        for item in 0..3 {
            setup.metric(format!("reader.m{item}"), Item::new(0, item), Type::U32);
        }
        Ok(Reader { prepared: Vec::new(), log: String::new() })
    }

    fn refresh(&mut self, _: Request, _: Client) -> Result {
        self.log.push('r');
        Ok(())
    }

    fn prepare(&mut self, items: &mut dyn Iterator<Item = Item>, client: Client) -> Result {
        self.log.push('p');
        self.prepared = items.collect();
        if client.number() == 7 { Err(Error::PERMISSION) } else { Ok(()) }
    }

    fn fetch(&mut self, _: Item, out: &mut Values<'_>) -> Result {
        self.log.push('f');
        out.put(self.prepared.len() as u32)
    }
}

#[test]
fn the_metrics_of_a_fetch() {
    let mut agent = Local::<Reader>::collector().unwrap();
    let domain = |number| Domain::new(number).unwrap();
    let pmid = |number, item| PmId::new(domain(number), Item::new(0, item));
    // The agent gets metrics of its own domain, known or not, but not those of other domains.
    let fetched = agent.fetch(&[pmid(400, 2), pmid(400, 0), pmid(401, 1), pmid(400, 2), pmid(400, 9)]).unwrap();
    assert_eq!(
        fetched.sets().map(|set| set.error).collect::<Vec<_>>(),
        [None, None, Some(Error::PMID), None, Some(Error::PMID)]
    );
    let reader = agent.channel_mut().engine_mut().agent_mut();
    assert_eq!(reader.prepared, [2, 0, 2, 9].map(|item| Item::new(0, item)));
    assert_eq!(reader.log, "rpfff");

    let refused = agent.as_client(7).fetch(&[pmid(400, 1)]).unwrap_err();
    assert_eq!(refused.code(), Error::PERMISSION);
    assert_eq!(agent.channel_mut().engine_mut().agent_mut().log, "rpfffrp");
}
