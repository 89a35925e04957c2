//! Stage `applications`: instrumented applications among strangers. They must not hang, end or lose values.

mod labels;
mod start;

use crate::Outcome;
use crate::job::Job;

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    match what {
        "labels" => labels::run(job),
        "start" => start::run(job),
        _ => Err(format!("no stage applications:{what}").into()),
    }
}
