//! Directories that are the most expensive for agent mmv: very many names, many owners, users with their full quota of
//! metrics below one name, and files that change at each request. The job measures the agent's processor time, on which
//! other jobs of the campaign have no effect.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mmv::{Counter, Family, Registry};
use nix::unistd::{Gid, Uid, chown};
use pcp_pdu::names::{Child, Statuses, Traverse};

use super::values::{put32, put64};
use crate::Outcome;
use crate::honest::Honest;
use crate::host::{Host, Kind, Scene};
use crate::job::{Job, Pace};
use crate::patience::scaled;
use crate::pdus;
use crate::probe::{Answer, CLIENT, Probe};
use crate::rng::Rng;
use crate::users::FIRST;

/// Longest processor time of a request, in addition to the time for the honest files and for the answer, which has up
/// to 360,000 names.
const MOST: Duration = Duration::from_millis(60);
/// Number of names in the directory that are not MMV files.
const NAMES: usize = 100_000;
/// Number of these names in a short run.
const FEW_NAMES: usize = 10_000;
/// Number of users who own these names, and small files that change.
const OWNERS: u32 = 40;
/// Number of metrics in a file: the most that an agent exports.
const METRICS: usize = 1000;
/// Number of files of a user with the full quota.
const FILES: usize = 110;
/// Number of changes before each request.
const CHANGES: usize = 20;

/// Files that are written repeatedly, each with its owner.
struct Kept {
    uid: u32,
    name: String,
    bytes: Vec<u8>,
}

pub(super) fn run(job: &mut Job) -> Outcome {
    let scene = Scene::new(job)?;
    let mut honest = Honest::new(&scene)?;
    let spec = crate::spec::Spec::of("mmv").ok_or("no agent mmv")?;
    let mut host = pdus::start(job, spec, Kind::Pipe, &scene, Some(&honest))?;
    honest.go_on()?;
    let probes = pdus::probes(spec, &mut *host)?;
    let dir = scene.mmv();
    let names = match job.order.pace {
        Pace::Time(time) if time < Duration::from_secs(30) => FEW_NAMES,
        _ => NAMES,
    };
    let others = fill(job, &dir, names)?;
    let mut longest: BTreeMap<&str, Duration> = BTreeMap::new();
    while let Some((_, mut rng)) = job.next_round() {
        for _ in 0..CHANGES {
            change(&mut rng, &dir, &others)?;
        }
        for (what, probe) in requests(&mut rng, &probes)? {
            let (wall, time) = timed(&mut *host, &probe)?;
            job.took(wall);
            let known = longest.entry(what).or_default();
            *known = time.max(*known);
            if time > scaled(MOST) {
                job.fail(format_args!("{what} takes {time:?} of processor time"));
            }
        }
        let outcome = honest.check(spec, &mut *host);
        job.expect("round", outcome);
        job.tried(CHANGES as u64);
    }
    println!("longest processor time of a request: {longest:?}, {names} names");
    job.check_memory(host.pid(), spec.memory);
    job.check_log(&scene.logs());
    Ok(())
}

/// Fills the directory, and returns the files that change.
fn fill(job: &Job, dir: &Path, names: usize) -> Outcome<Vec<Kept>> {
    for n in 0..names {
        let path = dir.join(format!("none{n}"));
        fs::write(&path, "MMV?")?;
        give(&path, FIRST + 10 + n as u32 % OWNERS)?;
    }
    let mut kept = Vec::new();
    let good = job.dir("good")?;
    // Full quotas of metrics below one name, of metrics below many names, and of instances.
    for (user, style) in (0..3).zip(["one", "many", "rows"]) {
        let files = if style == "rows" { 6 } else { FILES };
        for n in 0..files {
            let bytes = made(&good, style, n)?;
            kept.push(Kept { uid: FIRST + user, name: format!("{style}{n}"), bytes });
        }
    }
    let bytes = made(&good, "small", 0)?;
    for user in 0..OWNERS {
        for n in 0..20 {
            kept.push(Kept { uid: FIRST + 10 + user, name: format!("small{user}_{n}"), bytes: bytes.clone() });
        }
    }
    for (n, file) in kept.iter().enumerate() {
        put(dir, file, n as u64 + 1)?;
    }
    Ok(kept)
}

fn give(path: &Path, id: u32) -> Outcome {
    Ok(chown(path, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)))?)
}

/// Makes the content of a file.
fn made(dir: &Path, style: &str, n: usize) -> Outcome<Vec<u8>> {
    let registry = Registry::builder("made").directory(dir).cluster(300).persistent().no_prefix().build()?;
    match style {
        "rows" => {
            let rows = registry.indom("rows").register()?;
            let family: Family<Counter> = registry.counter("rows.count").over(&rows)?;
            (0..9_000).try_for_each(|row| family.instance(&format!("row {n} {row}")).map(|row| row.add(1)))?;
        }
        "small" => registry.counter("small.count").register()?.add(1),
        // Metrics of one node are not adjacent.
        "many" => (0..METRICS / 4).try_for_each(|i| registry.counter(&format!("h{n}_{i}.a")).register().map(drop))?,
        _ => (0..METRICS)
            .try_for_each(|i| registry.counter(&format!("one.n{}.f{n}.m{i}", i % 7)).register().map(drop))?,
    }
    registry.try_start()?;
    registry.flush();
    let bytes = fs::read(registry.path().ok_or("no path")?)?;
    registry.stop();
    Ok(bytes)
}

/// Writes another generation of a file.
fn put(dir: &Path, file: &Kept, generation: u64) -> Outcome {
    let mut bytes = file.bytes.clone();
    put64(&mut bytes, 8, generation);
    put64(&mut bytes, 16, generation);
    // Files of one user may share a cluster or have one each.
    put32(&mut bytes, 36, 0);
    let hidden = dir.join(".new");
    File::create(&hidden)?.write_all(&bytes)?;
    give(&hidden, file.uid)?;
    Ok(fs::rename(hidden, dir.join(&file.name))?)
}

fn change(rng: &mut Rng, dir: &Path, others: &[Kept]) -> Outcome {
    let Some(file) = others.get(rng.below(others.len())) else { return Ok(()) };
    if rng.one_in(4) {
        // The file may already be gone.
        let _ = fs::remove_file(dir.join(&file.name));
        return Ok(());
    }
    put(dir, file, 1 + rng.next() / 2)
}

fn requests(rng: &mut Rng, probes: &[Probe]) -> Outcome<Vec<(&'static str, Probe)>> {
    let any = |pdus| Probe { pdus, answers: vec![Answer::Any] };
    let mut all = Vec::new();
    for _ in 0..4 {
        all.extend(probes.get(rng.below(probes.len())).map(|probe| ("an honest request", probe.clone())));
    }
    let (mut below, mut children) = (Vec::new(), Vec::new());
    let name = rng.pick(&[&b"mmv.honest"[..], b"mmv.one", b"mmv.small"]);
    Traverse { name }.encode(&mut below, CLIENT)?;
    let name = rng.pick(&[&b"mmv.honest"[..], b"mmv.one", b"mmv"]);
    Child { statuses: Statuses::Included, name }.encode(&mut children, CLIENT)?;
    all.push(("a request for names", any(below)));
    all.push(("a request for children", any(children)));
    Ok(all)
}

/// Sends a request. Returns the duration until the answer, and the agent's processor time.
fn timed(host: &mut dyn Host, probe: &Probe) -> Outcome<(Duration, Duration)> {
    let before = processor_time(host.pid())?;
    let start = Instant::now();
    host.exchange(&probe.pdus, probe.answers.len(), &mut |_, _| Ok(()))?;
    let took = start.elapsed();
    // The kernel adds the time to the sum when the process waits for the next request.
    sleep(Duration::from_millis(1));
    Ok((took, processor_time(host.pid())?.saturating_sub(before)))
}

/// Returns the processor time of a process's first thread.
fn processor_time(pid: u32) -> Outcome<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse()?))
}
