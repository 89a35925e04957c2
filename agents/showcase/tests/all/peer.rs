//! Replies of this agent and of the same agent in C are equal byte for byte.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;
use std::process::Command;

use pcp_collector::{Collector, Launch, Process};
use pcp_pdu::instance::InstanceReq;
use pcp_pdu::metadata::{self, DescReq};
use pcp_pdu::profile::{Profile, ProfileState};
use pmapi::{Domain, InDom, Inst, Item, PmId, Serial};
use tempfile::TempDir;
use testkit::Pcp;

const DOMAIN: u16 = 400;

fn domain() -> Domain {
    Domain::new(DOMAIN).unwrap()
}

fn indom(serial: u32) -> InDom {
    InDom::new(domain(), Serial::new(serial))
}

/// Compiles `benches/peer.c`.
fn peer(dir: &Path) -> Command {
    Pcp::required();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peer.c");
    Command::new(testkit::compile(source, dir, &["-lpcp_pmda", "-lpcp"]))
}

fn start(mut command: Command, instances: u32, dir: &TempDir) -> Collector<Process> {
    command.args(["-d", &DOMAIN.to_string(), "-n", &instances.to_string(), "-l"]).arg(dir.path().join("log"));
    command.env("PCP_VAR_DIR", dir.path());
    Launch::pipe(command).start().unwrap()
}

/// Sends a request that the test has encoded. Returns the type and the bytes of the reply.
fn reply(
    agent: &mut Collector<Process>,
    request: &dyn Fn(&mut Vec<u8>, i32) -> pmapi::Result,
) -> (pcp_pdu::PduType, Vec<u8>) {
    agent.send_raw(request).unwrap();
    let (header, bytes) = agent.receive_bytes().unwrap();
    (header.pdu, bytes.to_owned())
}

fn agree(instances: u32) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("config/pmda")).unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut ours = Command::new(env!("CARGO_BIN_EXE_pmdashowcase"));
    ours.args(["-U", &user]);
    let mut agents = [start(peer(dir.path()), instances, &dir), start(ours, instances, &dir)];
    let mut same = |what: &str, request: &dyn Fn(&mut Vec<u8>, i32) -> pmapi::Result| {
        let [c, ours] = agents.each_mut().map(|agent| reply(agent, request));
        assert!(c == ours, "{instances} instances, {what}: {c:02x?}\n{ours:02x?}");
        c.1.len()
    };
    let many = [0, 2].into_iter().flat_map(|cluster| (0..4).map(move |item| Item::new(cluster, item)));
    let items: Vec<Item> = many.chain((0..1000).map(|item| Item::new(1, item))).collect();
    let pmids = |items: &[Item]| items.iter().map(|item| Some(PmId::new(domain(), *item))).collect::<Vec<_>>();

    for pmid in pmids(&items) {
        same("desc", &|out, from| DescReq { pmid }.encode(out, from));
    }
    for serial in [0, 1] {
        let len = same("instances", &|out, from| {
            InstanceReq { indom: Some(indom(serial)), inst: None, name: None }.encode(out, from)
        });
        assert!(len > 15 * instances as usize);
        for inst in [0, instances / 2, instances - 1, instances] {
            same("name of an instance", &|out, from| {
                InstanceReq { indom: Some(indom(serial)), inst: Some(Inst::new(inst)), name: None }.encode(out, from)
            });
            let name = format!("inst-{inst:010}");
            same("number of an instance", &|out, from| {
                InstanceReq { indom: Some(indom(serial)), inst: None, name: Some(name.as_bytes()) }.encode(out, from)
            });
        }
    }
    let mut fetches: Vec<Vec<Option<PmId>>> = items[..12].iter().map(|item| pmids(&[*item])).collect();
    fetches.push(pmids(&items));
    fetches.push(pmids(&[Item::new(2, 3), Item::new(1, 5), Item::new(0, 9), Item::new(0, 1), Item::new(0, 3)]));
    let mut profile = Profile::default();
    profile.set(indom(0), ProfileState::Exclude, &[0, 3, instances, instances - 1].map(Inst::new));
    profile.set(indom(1), ProfileState::Include, &[1, 2].map(Inst::new));
    for profile in [Profile::default(), profile, Profile::new(ProfileState::Exclude)] {
        for pmids in &fetches {
            same("fetch", &|out, from| {
                profile.encode(out, from, 0)?;
                metadata::encode_fetch(out, from, 0, pmids.iter().copied())
            });
        }
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: a peer in C is compiled.
fn replies_are_those_of_the_peer_in_c() {
    [1, 10, 1000, 20_000].into_iter().for_each(agree);
}
