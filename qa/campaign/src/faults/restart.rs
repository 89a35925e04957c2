//! An agent that is killed while it answers, and restarted.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::honest::Honest;
use crate::host::Scene;
use crate::job::Job;
use crate::pdus::Valid;
use crate::spec::Spec;
use crate::{Outcome, procs};

use super::Bench;

pub(super) fn run(job: &mut Job, spec: &'static Spec) -> Outcome {
    let scene = Scene::new(job)?.with(spec, &job.order.bin)?;
    let honest = Honest::new(&scene)?;
    let mut valid = Valid::new(spec);
    let mut bench = Some(Bench::start(job, spec, &scene, Some(&honest))?);
    let mut requests = Vec::new();
    while let Some((round, mut rng)) = job.next_round() {
        let mut one = match bench.take() {
            Some(one) => one,
            None => match job.expect("start", Bench::start(job, spec, &scene, None)) {
                Some(one) => one,
                None => continue,
            },
        };
        let outcome = one.timed(job, &honest);
        job.expect("after a restart", outcome);
        requests.clear();
        for _ in 0..rng.below(50) {
            valid.append(&mut rng, &mut requests)?;
        }
        // Does not wait for the answers, so that the agent is killed while it works.
        let _ = one.host.exchange(&requests, 0, &mut |_, _| Ok(()));
        sleep(Duration::from_micros(rng.below(400) as u64));
        drop(one);
        job.tried(1);
        if round % 256 == 0 {
            job.check_log(&scene.logs());
        }
    }
    drop(bench);
    job.expect("children of a killed agent", gone(&scene.log("operand").display().to_string()));
    let left: Vec<String> = [scene.dir().join("var/config/pmda"), scene.mmv(), scene.dir().to_path_buf()]
        .iter()
        .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".new") || name.starts_with('.'))
        .collect();
    if left.len() > 1 {
        job.fail(format_args!("files that killed agents have left: {left:?}"));
    }
    Ok(())
}

/// Waits until no process with a certain argument runs.
pub(super) fn gone(argument: &str) -> Outcome {
    let begin = Instant::now();
    loop {
        let left = procs::with_argument(argument);
        if left.is_empty() {
            return Ok(());
        }
        if begin.elapsed() > Duration::from_secs(20) {
            return Err(format!("processes {left:?} with {argument} go on").into());
        }
        sleep(Duration::from_millis(20));
    }
}
