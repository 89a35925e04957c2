//! Questions of Install that come before those of every agent: the names of agent `replay` are those of an archive, and
//! each recorded domain with its own names and numbers is an agent of its own.

use std::ffi::OsString;
use std::io::{IsTerminal as _, stdin};
use std::process::{Command, ExitCode, Stdio};

use pcp_archive::Archive;
use pcp_base::escape;
use pmda::Agent as _;
use pmda::clap::FromArgMatches as _;
use pmda::install::{ask, kept};

use crate::Replay;
use crate::options::Options;

/// The domain of pmcd itself, which is not replayed.
const PMCD: u16 = 2;

/// Runs the agent's program. On a terminal, an Install without options of the agent asks for the archive first.
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let is_install = args.get(1).is_some_and(|word| word == "--install");
    let has = |option: &str| args.iter().any(|word| word == option);
    let asks = is_install && stdin().is_terminal() && !has("--") && !has("--from") && !has("-k") && !has("-?");
    if asks && kept(name(&args).as_deref().unwrap_or(Replay::NAME)).is_empty() {
        return asked(args).unwrap_or(ExitCode::FAILURE);
    }
    pmda::host::run::<Replay>(args)
}

fn name(args: &[OsString]) -> Option<String> {
    let at = args.iter().position(|word| word == "--name")?;
    args.get(at + 1)?.to_str().map(str::to_owned)
}

/// Asks for the archive, the domains and the speed, and installs an agent for all domains or for each.
fn asked(mut args: Vec<OsString>) -> Option<ExitCode> {
    let about = "The files of an archive without their endings .meta, .index and .0, or a directory with archives.";
    let prompt = format!("Archive to replay, such as {}?", archives_dir());
    let (archive, found) = ask(&prompt, "", about, |answer| Ok((answer.to_owned(), domains(answer)?)))?;
    let list = found.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
    escape::print(format_args!("It has the domains {list}\n"));
    let about = "all: the names begin with replay. Numbers of domains: each of them becomes an agent of its own, with the \
                 names of the recorded host.";
    let prompt = "Domains to replay with their own names and numbers, or all of them below replay?";
    let chosen = ask(prompt, "all", about, |answer| chosen(answer, &found))?;
    let about = "1 is the speed of the recording; 60 shows an hour in a minute.";
    let speed = ask("Speed, in seconds of the recording per second?", "1", about, |answer| speed(&archive, answer))?;
    let own = ["--", "-a", &*archive, "--speed", &*speed].map(OsString::from);
    let Some(chosen) = chosen else {
        args.extend(own);
        return Some(pmda::host::run::<Replay>(args));
    };
    let is_for_one =
        |word: &OsString| ["-d", "--domain", "--name", "-i", "-6", "-u"].iter().any(|option| word == option);
    if args.iter().any(is_for_one) {
        escape::eprint("Install: --name, --domain and sockets are for one agent, not for several domains.\n");
        return None;
    }
    for domain in chosen {
        let mut command = Command::new(std::env::current_exe().ok()?);
        command.args(&args[1..]).args(["--name", &format!("replay{domain}"), "-d", &domain.to_string()]);
        let status = command.args(&own).arg("--original").stdin(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            escape::eprint(format_args!("Install: domain {domain} is not replayed.\n"));
            return None;
        }
    }
    Some(ExitCode::SUCCESS)
}

fn archives_dir() -> String {
    pmapi::Config::load().log_dir().join("pmlogger/HOST/20260101").display().to_string()
}

/// Returns the recorded domains of an archive.
fn domains(path: &str) -> Result<Vec<u16>, String> {
    let archive = Archive::open(std::path::Path::new(path)).map_err(|e| format!("{e}; nothing is changed."))?;
    let mut domains: Vec<u16> = archive.metadata().descs().map(|(pmid, _)| pmid.domain().get()).collect();
    domains.sort_unstable();
    domains.dedup();
    domains.retain(|domain| *domain != PMCD);
    if domains.is_empty() { Err("there is nothing to replay.".to_owned()) } else { Ok(domains) }
}

/// Returns the domains in an answer; `None` for all below one agent.
fn chosen(answer: &str, found: &[u16]) -> Result<Option<Vec<u16>>, String> {
    if answer == "all" {
        return Ok(None);
    }
    let words = answer.split([',', ' ']).filter(|word| !word.is_empty());
    let numbers: Result<Vec<u16>, _> = words.map(str::parse).collect();
    let numbers = numbers.ok().filter(|numbers| !numbers.is_empty());
    let numbers = numbers.ok_or_else(|| format!("'{answer}' are no numbers of domains."))?;
    match numbers.iter().find(|number| !found.contains(number)) {
        Some(number) => Err(format!("the archive does not have domain {number}.")),
        None => Ok(Some(numbers)),
    }
}

/// Checks a speed with the agent's own parser of options.
fn speed(archive: &str, answer: &str) -> Result<String, String> {
    let matches = pmda::host::command::<Replay>("pmdareplay").try_get_matches_from([
        "pmdareplay",
        "-a",
        archive,
        "--speed",
        answer,
    ]);
    let options = matches.and_then(|matches| Options::from_arg_matches(&matches));
    options.map(|_| answer.to_owned()).map_err(|e| {
        let text = e.to_string();
        format!("{}; {answer} is no speed.", text.lines().next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_numbers_of_the_archive() {
        assert_eq!(chosen("all", &[60]), Ok(None));
        assert_eq!(chosen("60, 122", &[60, 122]), Ok(Some(vec![60, 122])));
        assert!(chosen("six", &[60]).unwrap_err().contains("no numbers of domains"));
        assert!(chosen("", &[60]).is_err() && chosen("61", &[60]).unwrap_err().contains("does not have domain 61"));
        assert!(speed("/x", "2").is_ok() && speed("/x", "0").is_err());
    }
}
