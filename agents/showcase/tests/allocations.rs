//! A steady fetch of any metric allocates nothing.

#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use pcp_pdu::{Header, metadata};
use pmapi::{Config, Domain, PmId};
use pmda::host::Engine;
use pmda::{Agent as _, clap};
use pmda_showcase::Showcase;

#[test]
fn fetches_allocate_nothing() {
    let options = Showcase::options(clap::Command::new("showcase")).get_matches_from(["showcase", "-n", "1000"]);
    let mut engine = Engine::<Showcase>::builder()
        .domain(Domain::new(402).unwrap())
        .config(Config::new(b"", []))
        .options(options)
        .build()
        .unwrap();
    let pmids: Vec<PmId> = engine.schema().metrics().iter().map(|m| m.desc(engine.schema().domain()).pmid).collect();
    assert!(pmids.len() > 1000);
    for pmids in pmids.chunks(1).chain([&pmids[..]]) {
        let mut request = Vec::new();
        metadata::encode_fetch(&mut request, 0, 0, pmids.iter().copied().map(Some)).unwrap();
        let header = Header::parse(&request).unwrap().unwrap();
        let mut fetch = || engine.handle(header, &request, |reply| reply.len()) > 0;
        // The domain that grows and shrinks needs ten fetches.
        assert!((0..20).all(|_| fetch()));
        assert_eq!(measure(|| assert!((0..20).all(|_| fetch()))).count_total, 0, "{pmids:?}");
    }
}
