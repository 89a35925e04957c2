//! A fetch of all metrics allocates nothing.

#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use pcp_pdu::{Header, metadata};
use pmapi::{Config, Domain, Item, PmId};
use pmda::host::Engine;
use pmda_simple::Simple;

#[test]
fn a_fetch_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("simple")).unwrap();
    std::fs::write(dir.path().join("simple/simple.conf"), "sec,min,hour\n").unwrap();
    let env = ["PCP_PMDAS_DIR", "PCP_VAR_DIR"].map(|name| (name.into(), dir.path().into()));
    let domain = Domain::new(253).unwrap();
    let mut engine = Engine::<Simple>::builder().domain(domain).config(Config::new(b"", env)).build().unwrap();
    let items = [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)].map(|(c, i)| Some(PmId::new(domain, Item::new(c, i))));
    let mut request = Vec::new();
    metadata::encode_fetch(&mut request, 0, 0, items.into_iter()).unwrap();
    let header = Header::parse(&request).unwrap().unwrap();
    let mut fetch = || engine.handle(header, &request, |reply| reply.len()) == 180;
    assert!((0..3).all(|_| fetch()));
    assert_eq!(measure(|| assert!((0..100).all(|_| fetch()))).count_total, 0);
}
