//! `pmlogderive`: evaluates the definitions of agent derived over an archive.

mod check;
mod options;
mod recorded;
mod write;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser as _;
use pcp_archive::Archive;
use pcp_base::escape;
use pcp_client::HostSpec;
use pmapi::Domain;
use pmda_derived::config::{Config, NameSpace};

use options::Options;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        // A shell may have made the arguments of names in a directory of strangers.
        Err(e) if e.use_stderr() => {
            escape::eprint(e);
            return ExitCode::FAILURE;
        }
        Err(e) => {
            // If the help cannot be printed, nothing is left to do.
            _ = e.print();
            return ExitCode::SUCCESS;
        }
    };
    match run(&options) {
        Ok(code) => code,
        Err(e) => {
            escape::eprint(format_args!("pmlogderive: {e}\n"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let domain = u16::try_from(options.domain).ok().and_then(Domain::new);
    let domain = domain.ok_or_else(|| format!("{} is no domain: the largest one is 510", options.domain))?;
    let default = || pmapi::Config::load().sysconf_dir().join("pmdaderived").to_string_lossy().into_owned();
    let path = options.config.clone().unwrap_or_else(default);
    let archive = Archive::open(&options.input)?;
    warn_skipped(&archive);
    // All operands come from the archive, whatever hosts and agents the configuration names.
    let config = Config::load(&path, &"local:".parse::<HostSpec>()?, &NameSpace::installed(domain));
    let outcome = match &options.output {
        Some(output) => write::write(config, domain, &archive, output),
        None => Ok(check::check(config, options, &archive)),
    };
    warn_skipped(&archive);
    outcome
}

/// Warns of archives, and parts of them, that are left out because of damage.
fn warn_skipped(archive: &Archive) {
    for skipped in archive.take_skipped() {
        escape::eprint(format_args!("pmlogderive: warning: {skipped}\n"));
    }
}
