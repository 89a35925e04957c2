//! Stage `files`: files of applications that are damaged, sparse, renamed, and truncated and changed during reading.

mod crowd;
mod marks;
mod pools;
mod quota;
mod thousands;
mod values;

use std::time::{Duration, Instant};

use mmv::Registry;
use nix::unistd::{Uid, chown};

use crate::honest::Honest;
use crate::host::{self, Host, Kind, Scene};
use crate::job::Job;
use crate::patience::scaled;
use crate::pdus;
use crate::probe::{Answer, Probe};
use crate::rng::Rng;
use crate::spec::Spec;
use crate::users::FIRST;
use crate::{Outcome, procs};

use crowd::{Crowd, Flicker};
use pools::{Pool, Style};

/// Generator of files of one format.
pub(crate) trait Format {
    /// Replaces `out` by the content of a file, which is damaged in most cases. `user` is the owner, from 0. Returns
    /// the length of the file; if that exceeds the content, the file ends with a hole.
    fn make(&mut self, rng: &mut Rng, user: usize, out: &mut Vec<u8>) -> u64;

    /// Returns the content of the valid file with sums for which `make` makes event records.
    fn sums(&self) -> Option<&[u8]> {
        None
    }
}

/// Damages a file up to four times, and returns its length. `damage` may set the length of a file that ends with a
/// hole.
fn damaged(rng: &mut Rng, out: &mut Vec<u8>, damage: fn(&mut Rng, &mut Vec<u8>, &mut Option<u64>)) -> u64 {
    let mut len = None;
    for _ in 0..=rng.below(3) {
        damage(rng, out, &mut len);
    }
    len.unwrap_or_default().max(out.len() as u64)
}

/// User of the honest application, if it is not root.
const HONEST: u32 = FIRST - 1;
/// Number of requests about the files of strangers in each round.
const REQUESTS: usize = 12;
/// Longest duration of a request. The machine may delay a single one, but not three in a row.
const PROMPT: Duration = Duration::from_millis(100);

/// Runs a part of the stage: `mmv` or `trace` in a host, with files of a [`Style`], `thousands` of files, or files of
/// users who use their `quota`.
pub(crate) fn run(job: &mut Job, what: &str, how: &str) -> Outcome {
    match what {
        "thousands" => return thousands::run(job),
        "quota" => return quota::run(job),
        _ => {}
    }
    let spec = Spec::of(what).ok_or("no such agent")?;
    beside_strangers(job, spec, Kind::of(how).ok_or("no such host")?)
}

fn beside_strangers(job: &mut Job, spec: &'static Spec, kind: Kind) -> Outcome {
    let (scene, style) = (Scene::new(job)?, Style::of(job));
    let mut honest = Honest::new(&scene)?;
    if style == Style::Domains {
        // Root's files have precedence over all others. The file now belongs to a user, and has precedence because it
        // is the oldest.
        chown(&scene.mmv().join("honest"), Some(Uid::from_raw(HONEST)), None)?;
    }
    let mut host = pdus::start(job, spec, kind, &scene, Some(&honest))?;
    honest.go_on()?;
    let probes = pdus::probes(spec, &mut *host)?;
    let (mut format, dir): (Box<dyn Format>, _) = match spec.name {
        "mmv" if style == Style::Damaged => (Box::new(values::Values::new(job)?), scene.mmv()),
        "mmv" => (Box::new(Pool::new(job, style)?), scene.mmv()),
        _ => (Box::new(marks::Marks::new(job)?), scene.marks()?),
    };
    let mut crowd = Crowd::new(dir, spec.name == "trace", style);
    let flicker = Flicker::start(&crowd, job.order.seed);
    let mut valid = pdus::Valid::new(spec);
    let before = counts(spec, &mut *host)?;
    let descriptors = procs::descriptors(host.pid()).unwrap_or(0);
    while let Some((round, mut rng)) = job.next_round() {
        let files = crowd.come(&mut rng, &mut *format)?;
        let outcome =
            round_of(job, &mut rng, &mut *host, &mut valid, &probes).and_then(|()| honest.check(spec, &mut *host));
        let outcome = outcome.and_then(|()| match style {
            Style::Flux => a_new_file_is_seen(job, spec, &scene, &mut *host, round),
            _ => Ok(()),
        });
        let lost = outcome.is_err();
        job.tried(files);
        job.expect("round", outcome);
        if round % 16 == 0 {
            job.check_memory(host.pid(), spec.memory);
            job.check_log(&scene.logs());
        }
        if lost && Probe::ask(&probes_alive(&probes), &mut *host).is_err() {
            // The agent has ended, or its answers no longer match the requests.
            drop(host);
            host = host::start(spec, kind, job, &scene)?;
        }
    }
    drop(flicker);
    // Dropping the format ends the strangers' processes: the agent reads a file until its process has ended, even if
    // the file has been removed.
    drop(format);
    crowd.go()?;
    job.check_memory(host.pid(), spec.memory);
    let outcome = until_gone(spec, &mut *host, before, descriptors);
    job.expect("cleanup after strangers' files", outcome);
    if spec.name == "trace" && honest.missed() > 0 {
        job.fail(format_args!("{} honest points were missed", honest.missed()));
    }
    Ok(())
}

/// Waits until the agent has no more files and descriptors than before. It notices removed files when it next checks
/// the directory.
fn until_gone(spec: &'static Spec, host: &mut dyn Host, before: u64, descriptors: usize) -> Outcome {
    let begin = Instant::now();
    loop {
        let now = counts(spec, host)?;
        let open = procs::descriptors(host.pid()).unwrap_or(0);
        if now == before && open <= descriptors + 4 {
            return Ok(());
        }
        if begin.elapsed() > Duration::from_secs(10) {
            return Err(format!("{now} files, {before} before; {open} descriptors, {descriptors} before").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Number of requests after which a new file of an application must be exported.
const SOON: usize = 100;
/// Cluster of the new file.
const NEW: u16 = 6;

/// Starts another honest application, which the agent must export soon, although other files change all the time.
fn a_new_file_is_seen(job: &mut Job, spec: &Spec, scene: &Scene, host: &mut dyn Host, value: u64) -> Outcome {
    let registry = Registry::builder("new").directory(scene.mmv()).cluster(NEW).build()?;
    registry.counter("value").item(1).register()?.add(value);
    registry.try_start()?;
    let probe = Probe::default().fetch(spec.pmid(NEW, 1), Answer::Number(pmapi::Type::U64, value as f64))?;
    let mut outcome = Ok(());
    for _ in 0..SOON {
        let start = Instant::now();
        outcome = probe.ask(host);
        job.took(start.elapsed());
        if outcome.is_ok() {
            break;
        }
    }
    registry.stop();
    outcome.map_err(|e| format!("a new file after {SOON} requests: {e}").into())
}

/// Returns a probe that only fails when the agent does not answer.
fn probes_alive(probes: &[Probe]) -> Probe {
    probes.last().cloned().unwrap_or_default()
}

/// Returns the number of files that the agent reads, from its control metric.
fn counts(spec: &Spec, host: &mut dyn Host) -> Outcome<u64> {
    let (pmid, ty) = match spec.name {
        "mmv" => (spec.pmid(0, 2), pmapi::Type::I32),
        _ => (spec.pmid(3, 0), pmapi::Type::U32),
    };
    let probe = Probe::default().fetch(pmid, Answer::Any)?;
    let mut count = 0;
    host.exchange(&probe.pdus, 1, &mut |header, bytes| {
        count = crate::probe::first_number(header, bytes, ty)? as u64;
        Ok(())
    })?;
    Ok(count)
}

/// Sends requests about strangers' files, and all probes.
fn round_of(job: &mut Job, rng: &mut Rng, host: &mut dyn Host, valid: &mut pdus::Valid, probes: &[Probe]) -> Outcome {
    // The first request after new files have appeared reads them.
    let Some(probe) = probes.get(rng.below(probes.len())) else { return Ok(()) };
    let took = timed(host, probe)?;
    job.took(took);
    if took > scaled(PROMPT) {
        let again = [timed(host, probe)?, timed(host, probe)?];
        if again.iter().all(|took| *took > scaled(PROMPT)) {
            job.fail(format_args!("an honest request takes {took:?}, and then {again:?}"));
        }
    }
    pdus::ask_valid(rng, host, valid, REQUESTS)?;
    probes.iter().try_for_each(|probe| probe.ask(host))
}

fn timed(host: &mut dyn Host, probe: &Probe) -> Outcome<Duration> {
    let start = Instant::now();
    probe.ask(host)?;
    Ok(start.elapsed())
}
