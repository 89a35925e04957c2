//! Option `--check`: prints descriptors and values of the definitions, or the reasons why there are none.

use std::process::ExitCode;
use std::time::Duration;

use pcp_archive::Archive;
use pcp_derived::{Evaluator, Plan};
use pmapi::Error;
use pmda_derived::config::{Config, GroupConfig};
use pmda_derived::report::{Report, Sampling};

use crate::options::Options;
use crate::recorded::{Descs, Recorded, Step, Wanted};

/// Prints the definitions, and returns the exit code: 1 if there are problems other than warnings.
pub(crate) fn check(mut config: Config, options: &Options, archive: &Archive) -> ExitCode {
    let mut report = Report::new(&mut config);
    let sampling = Sampling { count: options.samples, interval: Duration::ZERO };
    for group in config.groups.iter().filter(|group| !group.definitions.is_empty()) {
        add(&mut report, group, sampling, archive);
    }
    if report.print(options.tsv) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Evaluates a group over the first records of an archive that have any of its operands.
fn add(report: &mut Report, group: &GroupConfig, sampling: Sampling, archive: &Archive) {
    let evaluator = Evaluator::bind(&group.definitions, &mut Descs(archive), group.unknown_names());
    let mut wanted = Wanted::default();
    wanted.add(&evaluator, &evaluator.plan(evaluator.ids()));
    let take = |evaluator: &mut Evaluator, plan: &Plan, recorded: &mut Recorded<'_>| loop {
        match recorded.next(&wanted)? {
            Step::Values => return Ok(recorded.elapsed()),
            Step::Mark => evaluator.forget(plan),
            Step::End => return Err(Error::EOL),
        }
    };
    report.definitions(group, evaluator, sampling, &mut Recorded::new(archive), take, Recorded::go_back);
}
