//! pmgenmap(1): names of metrics and their indexes as a C source, from a specification.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use pcp_base::escape::{Escaped, Output};
use pcp_base::file;
use pcp_tools::{Program, genmap, usage};
use pmapi::zone::Zone;

fn main() -> ExitCode {
    let program = Program::new(usage::PMGENMAP, 1);
    let mut out = Output::to(std::io::stdout().lock());
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let (name, specification) = match &arguments[..] {
        [version] if version == "--version" => {
            program.print_version();
            return ExitCode::SUCCESS;
        }
        [] => (None, pcp_tools::input(None)),
        [name] if name != "-?" && name != "--help" => {
            (Some(name.as_str()), file::read(name.as_ref(), file::TEXT_LIMIT))
        }
        _ => {
            // As by PCP's command, messages are on standard output.
            _ = out.write_all(usage::PMGENMAP.as_bytes());
            return program.failure();
        }
    };
    let Ok(specification) = specification else {
        let name = name.unwrap_or("<stdin>");
        _ = writeln!(out, "{}: cannot open \"{}\"", program.name(), Escaped(name));
        return program.failure();
    };
    let built = std::env::var("PACKAGE_BUILD_DATE").ok().filter(|date| !date.is_empty());
    let built = built.unwrap_or_else(now);
    let map = genmap::map(program.name(), name, &built, &specification);
    match out.write_all(&map.text).and_then(|()| out.flush()) {
        Ok(()) if map.is_valid => ExitCode::SUCCESS,
        _ => program.failure(),
    }
}

/// Returns the local time as date(1) prints it, without a locale.
fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let zone = Zone::system();
    let local = zone.local(seconds);
    format!("{} {} {}", local.of_log(), zone.abbreviation(seconds), local.year)
}
