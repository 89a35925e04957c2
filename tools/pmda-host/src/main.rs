//! `pmda-host`: serves an agent that is a shared object to pmcd, from a separate process.
//!
//! Two processes run this program. The proxy starts the other one, which loads the agent, and passes pmcd's requests to
//! it and its answers to pmcd. When the agent hangs or crashes, the proxy answers that the agent is not ready.

mod agent;
mod child;
mod clients;
mod link;
mod options;
mod proxy;

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use pcp_base::escape;
use pmapi::Config;
use pmda::BoxError;
use pmda::host::Program;
use tracing::{error, warn};

use options::Options;
use proxy::Proxy;

fn main() -> ExitCode {
    if let Some(code) = pmda::install::host(std::env::args_os()) {
        return code;
    }
    let mut options = match Options::try_parse() {
        Ok(options) => options,
        Err(e) => return pmda::host::print_clap_error(e, 1),
    };
    options.so = find(&options.so);
    let program =
        Program::new("pmda-host").debug(options.debug()).user(options.username.clone()).address(options.address());
    let done = match options.serve {
        Some(parent) => {
            program.subscribe();
            agent::run(&options, &program, parent)
        }
        None if !options.so.is_file() => {
            escape::eprint(format_args!("pmda-host: {}: there is no such file\n", options.so.display()));
            return ExitCode::FAILURE;
        }
        None if options.address().is_none() && (stdin().is_terminal() || stdout().is_terminal()) => {
            escape::eprint(
                "pmda-host: pmcd(1) starts this program to talk to it over standard input and output; for a terminal there \
                 are the options -i, -6 and -u\n",
            );
            return ExitCode::FAILURE;
        }
        None => {
            program.close_inherited();
            let log = options.log.clone().unwrap_or_else(|| format!("{}.log", options.name()).into());
            program.open_log(&log);
            program.subscribe();
            serve(&options, &program)
        }
    };
    if let Err(e) = &done {
        error!(critical = true, "{}: {e}", options.name());
    }
    if options.serve.is_none() {
        program.close_log();
    }
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Default of pmcd's option `-t`: time after which pmcd drops an agent that has not answered.
const PMCD: Duration = Duration::from_secs(5);

fn serve(options: &Options, program: &Program) -> Result<(), BoxError> {
    if options.patience >= PMCD {
        warn!(
            "--patience {}: pmcd drops an agent that has not answered within {PMCD:?}, or the limit of pmcd's option -t",
            options.patience.as_secs_f64()
        );
    }
    let (input, output) = program.connect()?;
    Proxy::new(options, program, input, output)?.run()
}

/// Returns the path of a shared object. A name without a directory is that of a file in the directory of PCP's agent.
/// pmcd's working directory is that of its logs, where other users may put a file of this name.
fn find(file: &Path) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let found = if file.parent() == Some(Path::new("")) {
        let name = stem.strip_prefix("pmda_").unwrap_or(&stem);
        Config::load().pmdas_dir().join(name).join(file)
    } else {
        file.to_owned()
    };
    found.canonicalize().unwrap_or(found)
}
