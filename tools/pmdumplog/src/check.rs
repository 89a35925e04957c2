//! Check of an archive (pmlogcheck(1)).

use std::path::Path;
use std::process::ExitCode;

use pcp_archive::{Archive, Check, Weight};
use pcp_pdu::event::Stamp;
use pcp_tools::Program;

use crate::{Args, FOREVER, window, zone_of};

/// Times between which values are checked. `None` means no limit.
type Window = (Option<Stamp>, Option<Stamp>);

/// Prints the problems of the archives, one line each. Returns a failure if a reader of one of them would fail.
pub(crate) fn run(program: &Program, args: &Args, first: &Path) -> Result<(), ExitCode> {
    let all = std::iter::once(first).chain(args.names.iter().map(Path::new));
    // Each one is checked, also after a failure.
    let checked: Vec<_> = all.map(|path| check(program, args, path)).collect();
    checked.into_iter().collect()
}

fn check(program: &Program, args: &Args, path: &Path) -> Result<(), ExitCode> {
    let (start, finish) = times(args, path).map_err(|e| program.fail(e))?;
    let mut check = Check::new().window(start, finish);
    if args.metadata_only {
        check = check.metadata_only();
    }
    let worst = check.run(path, |finding| {
        if !(args.no_wrap && finding.weight == Weight::Wrap) {
            program.say(finding);
        }
    });
    if worst == Some(Weight::Fatal) { Err(program.failure()) } else { Ok(()) }
}

fn times(args: &Args, path: &Path) -> Result<Window, String> {
    if args.start.is_none() && args.finish.is_none() {
        return Ok((None, None));
    }
    let archive = Archive::open(path).map_err(|e| e.to_string())?;
    let label = archive.label();
    let zone = zone_of(args, label)?;
    let range = window(args, label.start, archive.end().unwrap_or(FOREVER), &zone).map_err(|e| e.to_string())?;
    Ok((args.start.as_ref().map(|_| range.start), args.finish.as_ref().map(|_| range.finish)))
}
