//! Drives agents over pipes as pmcd does, and compares them in one run.
//!
//! All agents and the driver share one CPU: across cores the wake-up of a process takes longer than the agent's work.
//! Blocks of requests go to the agents forwards and backwards (A B C, C B A), so that a machine that slows down in
//! between affects all of them. The floor is a process that answers each request with a recorded reply of our agent, by
//! one read and one write.

// Each bench uses a part of this module.
#![allow(dead_code, unused_imports, clippy::expect_used, clippy::panic)]

mod calls;
mod contest;
mod echo;
mod figures;
mod home;
mod process;

use std::sync::OnceLock;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, alarm};
use pcp_pdu::instance::InstanceReq;
use pcp_pdu::metadata::{self, DescReq, Subject, TextKind, TextReq};
use pcp_pdu::names::Traverse;
use pmapi::{Domain, InDom, Item, PmId, Serial};

pub(crate) use contest::{Contest, Goal, Shape};
pub(crate) use home::{Home, no_peer};
pub(crate) use process::Program;

/// Prepares this process for a bench, and returns whether to run it.
///
/// It returns false after the process has run as the floor, and without cargo's `--bench`, when the bench is only
/// tested.
pub(crate) fn begin(title: &str) -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(reply) = echo::asked(&arguments) {
        echo::run(reply);
        return false;
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        println!("{title}: measures with cargo bench only");
        return false;
    }
    // A hanging agent must not hang the bench. The end of the driver is the end of file for all agents.
    alarm::set(300);
    let cpu = share_one_cpu();
    println!("\n{title}, all on CPU {cpu}");
    true
}

/// Binds this process and the processes that it starts to one CPU.
fn share_one_cpu() -> usize {
    let first = cpus().into_iter().next().expect("a CPU");
    ALL.set(cpus()).expect("a first time");
    run_on(first);
    first
}

/// The CPUs that this process could use at its start.
static ALL: OnceLock<Vec<usize>> = OnceLock::new();

/// Runs `work` on another CPU than that of the agents, if there is one.
fn apart<T>(work: impl FnOnce() -> T) -> Option<T> {
    let [own, other, ..] = ALL.get()?[..] else { return None };
    run_on(other);
    let done = work();
    run_on(own);
    Some(done)
}

fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).expect("the CPUs of this process");
    (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)).collect()
}

fn run_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu).expect("a CPU of the set");
    sched_setaffinity(Pid::from_raw(0), &one).expect("one CPU for this process");
}

/// The requests that pmcd sends to an agent.
#[derive(Clone, Copy)]
pub(crate) struct Requests(pub(crate) Domain);

impl Requests {
    pub(crate) fn of(domain: u16) -> Requests {
        Requests(Domain::new(domain).expect("a domain"))
    }

    fn pmid(self, (cluster, item): (u16, u16)) -> PmId {
        PmId::new(self.0, Item::new(cluster, item))
    }

    pub(crate) fn indom(self, serial: u32) -> InDom {
        InDom::new(self.0, Serial::new(serial))
    }

    /// Encodes a fetch of metrics, given by cluster and item.
    pub(crate) fn fetch(self, items: &[(u16, u16)]) -> Vec<u8> {
        encode(|out| metadata::encode_fetch(out, 0, 0, items.iter().map(|&item| Some(self.pmid(item)))))
    }

    pub(crate) fn desc(self, item: (u16, u16)) -> Vec<u8> {
        encode(|out| DescReq { pmid: Some(self.pmid(item)) }.encode(out, 0))
    }

    pub(crate) fn text(self, item: (u16, u16), kind: TextKind) -> Vec<u8> {
        encode(|out| TextReq::new(Subject::Metric(self.pmid(item)), kind).encode(out, 0))
    }

    pub(crate) fn names(self, below: &str) -> Vec<u8> {
        encode(|out| Traverse { name: below.as_bytes() }.encode(out, 0))
    }

    pub(crate) fn instances(self, serial: u32) -> Vec<u8> {
        encode(|out| InstanceReq { indom: Some(self.indom(serial)), inst: None, name: None }.encode(out, 0))
    }
}

pub(crate) fn encode(pdu: impl FnOnce(&mut Vec<u8>) -> pmapi::Result) -> Vec<u8> {
    let mut out = Vec::new();
    pdu(&mut out).expect("a request of reasonable size");
    out
}
