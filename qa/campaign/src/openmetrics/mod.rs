//! Stage `openmetrics`: damaged documents and configurations, tables, scripts and HTTP servers that are hostile.

mod damage;
mod scripts;
pub(crate) mod servers;
mod sources;
mod tables;

use std::time::{Duration, Instant};

use pmda_openmetrics::Trial;

use crate::Outcome;
use crate::job::Job;
use crate::patience::scaled;
use crate::rng::Rng;

/// Number of pairs of documents in a round.
const ROUND: u64 = 256;
/// Limit of the job's own memory, in KiB.
const MEMORY: u64 = 256 << 10;
/// Largest number of instances of a source.
const INSTANCES: usize = 500;
/// Longest time for a document with its configuration. It is far above the usual time, which is less than 1 ms.
const LONGEST: Duration = Duration::from_secs(5);
/// Value of the metric in the first lines of a document, which are never damaged.
const HONEST: f64 = 12_345.0;

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    match what {
        "documents" => documents(job),
        "sources" => sources::run(job),
        "tables" => tables::run(job),
        _ => Err(format!("no stage openmetrics:{what}").into()),
    }
}

/// Damages documents and configurations, and reads them in this process.
fn documents(job: &mut Job) -> Outcome {
    while let Some((_, mut rng)) = job.next_round() {
        for _ in 0..ROUND {
            let start = Instant::now();
            let outcome = document(&mut rng);
            let took = start.elapsed();
            job.took(took);
            if took > scaled(LONGEST) {
                job.fail(format_args!("{took:?} for a document"));
            }
            if let Err(e) = outcome {
                job.fail(e);
            }
        }
        job.tried(2 * ROUND);
        job.check_memory(std::process::id(), MEMORY);
    }
    Ok(())
}

/// Reads a damaged document twice, another one, and the first one again. The line before the damage must have its
/// value, and a document must give the same values as before.
fn document(rng: &mut Rng) -> Outcome {
    let damaged_file = rng.one_in(8);
    let file = if damaged_file { damage::url_file(rng) } else { "http://localhost".to_owned() };
    let mut trial = match Trial::new(&file, INSTANCES) {
        Ok(trial) => trial,
        Err((line, reason)) if line == 0 || reason.is_empty() => {
            return Err(format!("a file is refused in line {line}: {reason:?}").into());
        }
        Err(_) => return Ok(()),
    };
    let document = damage::document(rng);
    let first = trial.read(&document);
    if !damaged_file && trial.number("honest") != Some(HONEST) {
        return Err(format!("{:?} in place of {HONEST}", trial.number("honest")).into());
    }
    let second = trial.read(&document);
    if (first.values, first.hash, first.refused) != (second.values, second.hash, second.refused) {
        return Err(format!("{second:?} when it is read again, {first:?} before").into());
    }
    trial.read(&damage::document(rng));
    let third = trial.read(&document);
    // The values of a document with a refused line may depend on earlier documents.
    if first.refused.is_none() && (first.values, None) != (third.values, third.refused) {
        return Err(format!("{third:?} after another document, {first:?} before").into());
    }
    Ok(())
}
