//! Requests that no pmcd sends, to C agents behind `pmda-host`, under limits of memory and descriptors.
//!
//! `PDUS` sets their number for each agent, 20,000 by default, and `SEED` the seed. `qa/host` runs this with more. A command in
//! `UNDER`, valgrind for instance, runs the host without the limits.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pcp_collector::{Collector, Launch, Process};
use pcp_pdu::result::Changes;
use pcp_pdu::result_writer::ResultWriter;
use pcp_pdu::{Header, Pdu, PduType};
use pmapi::{Atom, Error, PmId};
use testkit::Pcp;

/// Limit of the address space of each of the two processes, in KiB, and of their descriptors.
const MEMORY: u32 = 512 << 10;
const DESCRIPTORS: u32 = 32;

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A generator of numbers (xorshift64*).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n.max(1)
    }
}

/// Returns the requests of PCP's dbpmda to its agents, with another domain.
fn requests(domain: u16) -> Vec<Vec<u8>> {
    let captured =
        include_str!("../../../../pmapi/pdu/tests/data/pdus.hex").lines().filter_map(|line| line.strip_prefix("> "));
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    let head = (domain << 6).to_be_bytes();
    let mut all: Vec<Vec<u8>> = captured.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect();
    for pdu in &mut all {
        // The captured agents have the domains 253 and 29, in the upper half of a word.
        for i in (12..pdu.len().saturating_sub(3)).step_by(4) {
            if [[0x3f, 0x40], [0x07, 0x40]].contains(&[pdu[i], pdu[i + 1]]) {
                pdu[i..i + 2].copy_from_slice(&head);
            }
        }
    }
    all
}

/// Changes a request: words, bytes, its end, its sender or its type. The length in the header stays correct.
fn damage(rng: &mut Rng, pdu: &mut Vec<u8>) {
    const WORDS: [u32; 8] = [0, 1, 2, u32::MAX, 0x7fff_ffff, 0x8000_0000, 0xffff_0000, 0x0001_0000];
    for _ in 0..1 + rng.below(3) {
        let at = 12 + rng.below(pdu.len().saturating_sub(12));
        match rng.below(8) {
            0 => pdu.truncate(at),
            1 => pdu.extend((0..4 * rng.below(64)).map(|n| n as u8)),
            2 => pdu[4..8].copy_from_slice(&(0x7000 + rng.below(0x18) as u32).to_be_bytes()),
            3 => pdu[8..12].copy_from_slice(&WORDS[rng.below(8)].to_be_bytes()),
            4 | 5 => {
                if let Some(place) = pdu.get_mut(at / 4 * 4..at / 4 * 4 + 4) {
                    let word = if rng.below(2) == 0 { rng.next() as u32 } else { WORDS[rng.below(8)] };
                    place.copy_from_slice(&word.to_be_bytes());
                }
            }
            _ => {
                if let Some(byte) = pdu.get_mut(at) {
                    *byte = rng.next() as u8;
                }
            }
        }
    }
    let len = pdu.len() as u32;
    pdu[..4].copy_from_slice(&len.to_be_bytes());
}

/// A C agent behind the host.
struct Hosted {
    object: PathBuf,
    entry: String,
    domain: u16,
    environment: Vec<(&'static str, OsString)>,
    log: PathBuf,
}

impl Hosted {
    fn start(&self) -> Collector<Process> {
        let mut command = Command::new("sh");
        let under = env::var("UNDER").unwrap_or_default();
        let limits = format!("ulimit -v {MEMORY} && ulimit -n {DESCRIPTORS} &&");
        let limits = if under.is_empty() { &limits } else { "" };
        command.args(["-c", &format!("{limits} exec {under} \"$0\" \"$@\"")]);
        command.arg(env!("CARGO_BIN_EXE_pmda-host")).arg("--so").arg(&self.object);
        command.args(["--entry", &self.entry, "-d", &self.domain.to_string(), "--patience", "30", "-l"]).arg(&self.log);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Launch::pipe(command).timeout(Some(Duration::from_secs(60))).handshake_timeout(None).start().unwrap()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Sends damaged requests, and checks that each request has one answer. Returns how often the agent was not ready.
fn attack(hosted: &Hosted, count: u64, seed: u64) -> u64 {
    let mut rng = Rng(seed.max(1));
    let requests = requests(hosted.domain);
    let mut agent = hosted.start();
    let mut crashes = 0;
    for n in 0..count {
        let mut pdu = requests[rng.below(requests.len())].clone();
        if rng.below(6) > 0 {
            damage(&mut rng, &mut pdu);
        }
        let header = Header::parse(&pdu).unwrap().unwrap();
        agent.send_bytes(&pdu).unwrap();
        if !header.pdu.is_request() {
            continue;
        }
        let why =
            |e: &dyn std::fmt::Display| format!("PDU {n} of seed {seed}, {header:?} {pdu:02x?}: {e}\n{}", hosted.log());
        let (answer, bytes) = agent.receive_bytes().unwrap_or_else(|e| panic!("{}", why(&e)));
        let decoded = Pdu::decode(answer, bytes).unwrap_or_else(|e| panic!("{}", why(&e)));
        if let Pdu::Error(e) = decoded {
            assert_ne!(e.status(), Err(Error::TIMEOUT), "{}", why(&"PM_ERR_TIMEOUT"));
            if e.status() == Err(Error::PMDANOTREADY) {
                println!("{}", why(&"the agent was not ready"));
                crashes += 1;
                let (ready, _) = agent.receive_bytes().unwrap();
                assert_eq!(ready.pdu, PduType::ERROR);
            }
        }
    }
    agent.close_within(Duration::from_secs(60));
    broken_streams(hosted, &mut rng);
    crashes
}

/// Streams that are not PDUs end the program, with a line in the log.
fn broken_streams(hosted: &Hosted, rng: &mut Rng) {
    let some: Vec<u8> = (0..40).map(|_| rng.next() as u8).collect();
    for (stream, line) in [
        (&[0, 0, 0, 11, 0, 0, 0x70, 3, 0, 0, 0, 0][..], "PDU length 11 is less than that of its header"),
        (&[0x7f, 0, 0, 0, 0, 0, 0x70, 3, 0, 0, 0, 0], "is over the limit"),
        (&[0, 0, 0, 16, 0x80, 0, 0x70, 3, 0, 0, 0, 0], "is negative"),
        (&[0, 0, 0, 32, 0, 0, 0x70, 3, 0, 0, 0, 0, 1], "end of file after 13 bytes of a PDU"),
        (&[&[0, 0, 0, 12, 0x8f], &some[..]].concat(), "is negative"),
    ] {
        let mut agent = hosted.start();
        agent.send_bytes(stream).unwrap();
        agent.close_within(Duration::from_secs(60));
        assert!(hosted.log().contains(line), "{line}: {}", hosted.log());
    }
}

/// The C agent reads the first value of each set, which would be the memory after the set.
#[test]
#[ignore = "needs PCP"]
fn stores_without_values_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = simple(dir.path()).start();
    let pmid = PmId::new(pmapi::Domain::new(253).unwrap(), pmapi::Item::new(0, 0));
    // Until the agent has started.
    let starts = |_: &u32| matches!(agent.value(pmid), Err(pcp_collector::Error::Agent(Error::AGAIN)));
    (0..600).take_while(starts).for_each(|_| std::thread::sleep(Duration::from_millis(100)));
    for end in [Ok(()), Err(Error::AGAIN)] {
        let mut sets = ResultWriter::new();
        sets.begin();
        sets.begin_set(Some(pmid));
        sets.end_set(end);
        let (head, rest) = sets.seal(1, Changes::default()).unwrap();
        agent.send_bytes(&[head, rest].concat()).unwrap();
        let (header, bytes) = agent.receive_bytes().unwrap();
        let Ok(Pdu::Error(answer)) = Pdu::decode(header, bytes) else { panic!("{header:?} {bytes:02x?}") };
        assert_eq!(answer.status(), Err(Error::VALUE));
    }
    agent.store(pmid, None, Atom::U32(41)).unwrap();
    assert_eq!(agent.value(pmid).unwrap(), Atom::U32(42));
}

fn simple(dir: &Path) -> Hosted {
    let simple = Pcp::required().c_agent("simple");
    Hosted {
        object: simple.shared_object(),
        entry: "simple_init".to_owned(),
        domain: 253,
        environment: vec![("PCP_PMDAS_DIR", simple.pmdas_dir().into())],
        log: log_in(dir),
    }
}

fn log_in(dir: &Path) -> PathBuf {
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    dir.join("host.log")
}

#[test]
#[ignore = "needs PCP"]
fn simple_survives() {
    let dir = tempfile::tempdir().unwrap();
    let hosted = simple(dir.path());
    assert_eq!(attack(&hosted, number("PDUS", 20_000), number("SEED", 1)), 0, "{}", hosted.log());
}

#[test]
#[ignore = "needs PCP"]
fn jbd2_survives() {
    if !Pcp::required().has_all_agents() {
        return;
    }
    let object = Pcp::required().path("PCP_PMDAS_DIR").join("jbd2/pmda_jbd2.so");
    assert!(object.exists(), "{} is missing", object.display());
    let dir = tempfile::tempdir().unwrap();
    let hosted =
        Hosted { object, entry: "jbd2_init".to_owned(), domain: 122, environment: Vec::new(), log: log_in(dir.path()) };
    assert_eq!(attack(&hosted, number("PDUS", 20_000), number("SEED", 2)), 0, "{}", hosted.log());
}
