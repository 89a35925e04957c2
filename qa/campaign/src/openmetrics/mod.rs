//! Stage `openmetrics`: damaged documents, configurations and tables, and scripts and HTTP servers that are hostile.

mod damage;
mod scripts;
pub(crate) mod servers;
mod sources;
mod tables;

use crate::Outcome;
use crate::job::Job;

/// Runs a part of the stage.
pub(crate) fn run(job: &mut Job, what: &str) -> Outcome {
    match what {
        "sources" => sources::run(job),
        "tables" => tables::run(job),
        _ => Err(format!("no stage openmetrics:{what}").into()),
    }
}
