//! Stage `applications`: instrumented applications among strangers. They must not hang, end or lose values.

mod forks;
mod labels;
mod start;
mod traces;

use crate::Outcome;
use crate::host::Scene;
use crate::job::Job;

pub(crate) use forks::{Forker, run_forker};
pub(crate) use traces::{Tracer, run_tracer};

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    match what {
        "forks" => forks::run(job),
        "labels" => labels::run(job),
        "start" => start::run(job),
        "traces" => traces::run(job),
        _ => Err(format!("no stage applications:{what}").into()),
    }
}

/// Ends a round: removes the MMV files of the application that has exited.
fn end_round(job: &mut Job, scene: &Scene) -> Outcome {
    job.tried(1);
    for file in std::fs::read_dir(scene.mmv())?.flatten() {
        let _ = std::fs::remove_file(file.path());
    }
    Ok(())
}
