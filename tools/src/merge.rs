//! Merging of files, for pmnsmerge and pmnsadd.

use crate::Program;
use pcp_base::{escape, file};
use pmns::{InsertError, Tree};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Macro whose definition `#define _DATESTAMP YYYYMMDD` determines the order of files.
const STAMP: &[u8] = b"_DATESTAMP";

/// The order in which files are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The order of the command line.
    Given,
    /// Files without a date stamp first, then the others by ascending stamp.
    Stamp,
}

impl Order {
    /// Sorts `files`. With a verbosity over 1, prints the order to stdout.
    ///
    /// # Errors
    ///
    /// The exit code of a failure when a file cannot be read, after a message on stderr. [`Order::Given`] reads none.
    pub fn apply(self, program: &Program, files: &mut Vec<PathBuf>, verbosity: u8) -> Result<(), ExitCode> {
        if self == Order::Given {
            return Ok(());
        }
        let mut stamped = Vec::with_capacity(files.len());
        for path in files.drain(..) {
            let Ok(text) = file::read(&path, file::TEXT_LIMIT) else {
                return Err(program.fail(format_args!("Error: cannot open input PMNS file \"{}\"", path.display())));
            };
            stamped.push((stamp(&text), path));
        }
        // The sort is stable, and `None` sorts before every stamp.
        stamped.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (at, (stamp, file)) in stamped.iter().enumerate().filter(|_| verbosity > 1) {
            let stamp = stamp.as_deref().unwrap_or("(null)");
            escape::print(format_args!("arg[{at}] {} _DATESTAMP={stamp}\n", file.display()));
        }
        files.extend(stamped.into_iter().map(|(_, file)| file));
        Ok(())
    }
}

fn stamp(text: &[u8]) -> Option<String> {
    text.split(|b| *b == b'\n').find_map(|line| {
        let line = line.strip_prefix(b"#define")?.trim_ascii_start().strip_prefix(STAMP)?.trim_ascii_start();
        let stamp = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        Some(String::from_utf8_lossy(stamp).into_owned())
    })
}

/// Merges the names of all files, each of which is read by `load`.
///
/// A name that is already present keeps its PMID. A warning on stderr reports each name that is left out.
///
/// # Errors
///
/// The first error of `load`.
pub fn merge(
    program: &Program,
    files: &[PathBuf],
    mut load: impl FnMut(&Path) -> Result<Tree, ExitCode>,
) -> Result<Tree, ExitCode> {
    let mut merged: Option<Tree> = None;
    for file in files {
        let tree = load(file)?;
        match &mut merged {
            None => merged = Some(tree),
            Some(merged) => merged.merge(&tree).iter().for_each(|left_out| warn(program, left_out)),
        }
    }
    Ok(merged.unwrap_or_default())
}

fn warn(program: &Program, left_out: &InsertError) {
    match left_out {
        InsertError::Pmid { name, present, new } => {
            let present = present.map_or_else(|| "PM_ID_NULL".into(), |pmid| pmid.to_string());
            program.say(format_args!(
                "Warning: performance metric \"{name}\" has multiple PMIDs.\n\
                 ... using PMID {present} and ignoring PMID {new}"
            ));
        }
        other => program.say(format_args!("Warning: {other}\n... ignoring it")),
    }
}
