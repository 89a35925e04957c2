//! Calls and fetches compared with libpcp, by a C program that prints libpcp's answers about an archive.
#![allow(clippy::unwrap_used)]

mod interpolate;
mod stamps;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pcp_archive::{Archive, Direction, InstanceNames, Metadata};
use pcp_pdu::event::Stamp;
use pcp_pdu::metadata::TextKind;
use pcp_pdu::profile::{Profile, ProfileState};
use pcp_pdu::result::RawValue;
use pmapi::{InDom, Inst, LabelLevel, OptionWord as _, PmId, Type};
use testkit::Pcp;

/// Total size of an archive's files up to which it is compared. With `ARCHIVES=all` the size is twenty times as large.
const SMALL: u64 = 120_000;

fn limit() -> u64 {
    if std::env::var_os("ARCHIVES").is_some_and(|what| what == "all") { 20 * SMALL } else { SMALL }
}

/// Returns the small archives of PCP's tests: at least 80 of all kinds, and several as one.
fn archives() -> Vec<PathBuf> {
    let dir = Pcp::required().testsuite().join("archives");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        let Some((base, _)) = entry.split_once(".meta") else { continue };
        let len = |suffix: &str| dir.join(format!("{base}{suffix}")).metadata().map_or(limit(), |file| file.len());
        let is_small = len(".meta") + len(".0") < limit() || len(".meta.xz") + len(".0.xz") < limit() / 8;
        if is_small && Archive::open(dir.join(base)).is_ok_and(|archive| archive.end().is_ok()) {
            found.push(dir.join(base));
        }
    }
    assert!(found.len() > 80, "only {} small archives are in {}", found.len(), dir.display());
    // Several archives as one: directories, and lists of bases.
    let lists: [&[&str]; 7] = [
        &["multi"],
        &["multi-xz"],
        &["multi-xz-1k"],
        &["multi/20150508.11.57", "multi/20150508.11.44"],
        &["multi/20150508.11.46", "multi/20150508.11.46", "multi/20150508.11.50"],
        &["mark_no_mark_0", "mark_no_mark_1"],
        &["diff1", "diff2"],
    ];
    for list in lists {
        let paths: Vec<String> = list.iter().map(|base| dir.join(base).display().to_string()).collect();
        found.push(PathBuf::from(paths.join(",")));
    }
    found.sort();
    found
}

fn oracle(dir: &Path) -> PathBuf {
    testkit::compile(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/support/oracle.c"), dir, &["-lpcp"])
}

fn libpcp(oracle: &Path, args: &[&str], archive: &Path) -> Vec<u8> {
    Command::new(oracle).args(args).arg(archive).output().unwrap().stdout
}

fn micro(time: Stamp) -> String {
    format!("{}.{:06}", time.seconds, time.nanoseconds / 1000)
}

/// Appends bytes, and between them a name as C prints it. libpcp's names may be in any encoding.
fn put(out: &mut Vec<u8>, head: &str, tail: &[u8]) {
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(tail);
    out.push(b'\n');
}

struct Ours<'a> {
    archive: &'a Archive,
    meta: &'a Metadata,
    pmids: Vec<PmId>,
    indoms: Vec<InDom>,
    out: Vec<u8>,
}

impl<'a> Ours<'a> {
    fn new(archive: &'a Archive) -> Ours<'a> {
        let meta = archive.metadata();
        let mut out = Vec::new();
        let label = archive.label();
        put(
            &mut out,
            &format!("label {} {} ", label.pid, micro(label.start)),
            &[&label.host[..], b" ", &label.timezone].concat(),
        );
        put(&mut out, &format!("end {}", micro(archive.end().unwrap())), b"");
        let mut pmids: Vec<PmId> = Vec::new();
        for (name, pmid) in meta.names().below(b"").unwrap() {
            put(&mut out, "name ", &[&name[..], format!(" {}", pmid.word()).as_bytes()].concat());
            pmids.push(pmid);
        }
        pmids.sort_by_key(|pmid| pmid.word());
        pmids.dedup();
        let mut indoms: Vec<InDom> = pmids.iter().filter_map(|pmid| meta.raw_desc(*pmid).ok()?.indom).collect();
        indoms.sort_by_key(|indom| indom.word());
        indoms.dedup();
        Ours { archive, meta, pmids, indoms, out }
    }

    fn calls(mut self) -> Vec<u8> {
        for pmid in &self.pmids {
            for (what, level) in [("oneline", TextKind::OneLine), ("help", TextKind::Help)] {
                match self.meta.text(*pmid, level) {
                    Ok(text) => put(&mut self.out, &format!("{what} {} ", pmid.word()), text),
                    Err(e) => put(&mut self.out, &format!("{what} {} error {}", pmid.word(), e.code()), b""),
                }
            }
        }
        for indom in self.indoms.clone() {
            self.ever(indom);
        }
        let (start, end) = (self.archive.label().start, self.archive.end().unwrap());
        let start = Stamp { nanoseconds: start.nanoseconds / 1000 * 1000, ..start };
        let mut names = self.meta.instance_names();
        for quarter in 0..=4 {
            let seconds = start.seconds + (end.seconds - start.seconds) * quarter / 4;
            self.at(&mut names, Stamp { seconds, ..start }, quarter);
        }
        self.out
    }

    fn ever(&mut self, indom: InDom) {
        let code = match self.meta.instances_ever(indom) {
            Err(e) => e.code(),
            Ok(all) => {
                for instance in &all {
                    let same = self.meta.name_ever(indom, instance.inst).unwrap() == instance.name;
                    let found = self.meta.lookup_ever(indom, instance.name).unwrap();
                    put(&mut self.out, &format!("named {} {}", i32::from(!same), found as i32), b"");
                }
                all.len() as i32
            }
        };
        put(&mut self.out, &format!("ever {} {code}", indom.word()), b"");
        let mut all = self.meta.instances_ever(indom).unwrap_or_default();
        all.sort_by_key(|instance| instance.inst);
        all.iter().for_each(|i| put(&mut self.out, &format!("  {} ", i.inst), i.name));
    }

    fn at(&mut self, names: &mut InstanceNames<'_>, time: Stamp, quarter: i64) {
        put(&mut self.out, &format!("at {quarter}"), b"");
        for indom in self.indoms.clone() {
            let found = names.instances(indom, time);
            let count = found.as_ref().map_or_else(|e| e.code(), |all| all.len() as i32);
            put(&mut self.out, &format!("now {} {count}", indom.word()), b"");
            found.unwrap_or_default().iter().for_each(|i| put(&mut self.out, &format!("  {} ", i.inst), i.name));
            self.labels("indom", LabelLevel::InDom, indom.word(), time);
        }
        for pmid in self.pmids.clone() {
            self.labels("item", LabelLevel::Item, pmid.word(), time);
        }
    }

    fn labels(&mut self, what: &str, level: LabelLevel, ident: u32, time: Stamp) {
        let Ok(Some(record)) = self.meta.labels(level, ident, time) else { return };
        for set in record.sets() {
            let head = format!("labels {what} {ident} {} {} ", set.inst as i32, set.labels().len());
            put(&mut self.out, &head, set.json);
        }
    }

    fn wanted(&self, step: usize) -> Vec<PmId> {
        self.pmids.iter().copied().step_by(step).collect()
    }

    fn profile(&self, profile: &str) -> Profile {
        let mut chosen = Profile::new(if profile == "all" { ProfileState::Include } else { ProfileState::Exclude });
        for indom in self.indoms.iter().filter(|_| profile == "even") {
            let even = self.meta.instances_ever(*indom).unwrap_or_default();
            let even: Vec<Inst> = even.iter().filter(|i| i.inst % 2 == 0).map(|i| Inst::new(i.inst)).collect();
            if !even.is_empty() {
                chosen.add(*indom, &even);
            }
        }
        chosen
    }

    fn fetch(mut self, direction: Direction, step: usize, profile: &str) -> Vec<u8> {
        let (wanted, chosen) = (self.wanted(step), self.profile(profile));
        let mut cursor = self.archive.cursor();
        let label = self.archive.label().start;
        let mut end = self.archive.end().unwrap();
        end.nanoseconds = end.nanoseconds / 1000 * 1000 + 1000;
        let start = Stamp { nanoseconds: label.nanoseconds / 1000 * 1000, ..label };
        cursor.seek(if direction == Direction::Forward { start } else { end });
        let code = loop {
            let fetched = match cursor.fetch(direction, &wanted, &chosen) {
                Ok(Some(fetched)) => fetched,
                Ok(None) => break pmapi::Error::EOL,
                Err(e) => break e.code(),
            };
            put(&mut self.out, &format!("fetch {} {}", micro(fetched.time), wanted.len()), b"");
            for set in fetched.sets() {
                let values: Vec<_> = set.values().collect();
                let count = set.error().map_or(values.len() as i32, pmapi::Error::code);
                put(&mut self.out, &format!(" {} {count}", set.pmid().word()), b"");
                values.iter().for_each(|(inst, value)| put(&mut self.out, &shown(*inst, *value), b""));
            }
        };
        put(&mut self.out, &format!("end {}", code.code()), b"");
        self.out
    }
}

fn shown(inst: Option<Inst>, value: RawValue<'_>) -> String {
    let mut text = format!("  {} ", inst.word() as i32);
    match value {
        RawValue::InSitu(word) => write!(text, "{word:08x}").unwrap(),
        RawValue::Block(code, payload) => {
            let sum: u32 = payload.iter().map(|b| u32::from(*b)).sum();
            // libpcp swaps the bytes of event records. Their sum stays the same.
            assert!(Type::from_code(code.into()).is_ok());
            write!(text, "{code}:{}:{sum}", payload.len()).unwrap();
        }
    }
    text
}

/// Fails with the first lines that differ.
fn same(ours: &[u8], libpcp: &[u8], what: &str) {
    for (nth, (a, b)) in ours.split(|b| *b == b'\n').zip(libpcp.split(|b| *b == b'\n')).enumerate() {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(a), text(b), "{what}: line {}", nth + 1);
    }
    assert_eq!(ours.len(), libpcp.len(), "{what}");
}

#[test]
#[ignore = "needs PCP"]
// Slow: all archives of the test suite.
fn calls_as_in_libpcp_of_the_testsuite() {
    let dir = tempfile::tempdir().unwrap();
    let oracle = oracle(dir.path());
    for path in archives() {
        let archive = Archive::open(&path).unwrap();
        same(&Ours::new(&archive).calls(), &libpcp(&oracle, &["calls"], &path), &path.display().to_string());
    }
}

#[test]
#[ignore = "needs PCP"]
// Slow: all archives of the test suite.
fn fetches_as_in_libpcp_of_the_testsuite() {
    let dir = tempfile::tempdir().unwrap();
    let oracle = oracle(dir.path());
    for path in archives() {
        let archive = Archive::open(&path).unwrap();
        for (word, direction) in [("forw", Direction::Forward), ("back", Direction::Backward)] {
            for (step, profile) in [(1, "all"), (7, "even"), (1, "none"), (400, "all")] {
                let theirs = libpcp(&oracle, &[word, &step.to_string(), profile], &path);
                let what = format!("{} {word} {step} {profile}", path.display());
                same(&Ours::new(&archive).fetch(direction, step, profile), &theirs, &what);
            }
        }
    }
}
