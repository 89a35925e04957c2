//! Options of Install and Remove, and the checks of addresses, domains and words.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, Parser};

use super::pmcd_conf::Transport;
use super::report::{part, say};
use crate::command_line::{TransportOptions, name};
use crate::transport::Address;

/// Options of Install.
#[derive(Parser, Debug)]
#[command(override_help = include_str!("install.txt"), disable_help_flag = true, args_override_self = true)]
pub(crate) struct Install {
    #[command(flatten)]
    pub(crate) here: Here,
    #[command(flatten)]
    address: TransportOptions,
    #[arg(short = 'D', long, conflicts_with = "TransportOptions")]
    dso: bool,
    /// Whether the transport of the last Install is kept. The first one uses a pipe.
    #[arg(short)]
    pub(crate) keep: bool,
    /// Name and version of the agent in a package of several agents, whose installed directories have no configuration.
    #[arg(long)]
    pub(crate) package: Option<String>,
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=510))]
    pub(crate) domain: Option<u16>,
    #[arg(short, long)]
    pub(crate) replace: bool,
    #[arg(short = 's')]
    pub(crate) no_start: bool,
    /// Root directory of PCP's scripts; without effect, as nothing is compiled.
    #[arg(short = 'R')]
    root: Option<OsString>,
    /// Options of the agent itself, after `--`; `None` without `--`.
    #[arg(skip)]
    pub(crate) own: Option<Vec<String>>,
}

/// Options of Remove.
#[derive(Parser, Debug)]
#[command(override_help = include_str!("remove.txt"), disable_help_flag = true, args_override_self = true)]
pub(crate) struct Remove {
    #[command(flatten)]
    pub(crate) here: Here,
}

/// Options of both.
#[derive(Args, Debug)]
pub(crate) struct Here {
    /// Directory of the agent; `None` if the program writes it.
    #[arg(long)]
    pub(crate) from: Option<PathBuf>,
    /// Name of the agent in PCP.
    #[arg(long, value_parser = name)]
    pub(crate) name: Option<String>,
    /// Whether only the name space is changed.
    #[arg(short = 'N')]
    pub(crate) names_only: bool,
    #[arg(short)]
    pub(crate) namespace: Option<PathBuf>,
    #[arg(short = 'e')]
    pub(crate) echo: bool,
    #[arg(short = 'Q')]
    pub(crate) no_check: bool,
    #[arg(short = 'V')]
    pub(crate) verbose: bool,
    #[arg(short = '?', long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Install {
    /// Parses the words after `--install`.
    ///
    /// # Errors
    /// As those of [`parse`].
    pub(crate) fn of(words: Vec<OsString>) -> Result<Install, ExitCode> {
        parse(words).map(|(options, own)| Install { own, ..options })
    }

    /// Returns how pmcd is to talk to the agent.
    pub(crate) fn transport(&self) -> Option<Transport> {
        let (dso, pipe) = (self.dso.then_some(Transport::Dso), self.address.pipe.then_some(Transport::Pipe));
        self.address.address().map(Transport::Socket).or(dso).or(pipe)
    }
}

/// Parses the words after `--install` or `--remove`. Returns the options, and the words after `--` if it is there.
///
/// # Errors
/// The exit code, after the help or a line that says what is wrong.
pub(crate) fn parse<T: Parser>(mut words: Vec<OsString>) -> Result<(T, Option<Vec<String>>), ExitCode> {
    let own = words.iter().position(|word| word == "--").map(|at| words.split_off(at));
    let own: Option<Vec<_>> = own.map(|own| own[1..].iter().map(|word| word.to_string_lossy().into_owned()).collect());
    let parsed = T::try_parse_from(std::iter::once("Install".into()).chain(words));
    let parsed = parsed.map_err(|e| {
        if e.kind() == ErrorKind::DisplayHelp {
            part(&e.to_string());
            return ExitCode::SUCCESS;
        }
        let text = e.to_string();
        let reason = text.split("\n\n").next().unwrap_or_default();
        let reason = reason.strip_prefix("error: ").unwrap_or(reason);
        let about_own =
            if e.kind() == ErrorKind::UnknownArgument { "; options of the agent itself follow --" } else { "" };
        say(format!("{}{about_own}.", reason.trim_end_matches('.')));
        ExitCode::from(2)
    })?;
    own.iter().flatten().try_for_each(|word| fit(word)).map_err(|why| {
        say(why);
        ExitCode::FAILURE
    })?;
    Ok((parsed, own))
}

/// Refuses a word that pmcd's configuration, or a shell, would not take as it is, and one that was not UTF-8 before.
pub(crate) fn fit(word: &str) -> Result<(), String> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "\"'#$`\\;&|<>()\u{fffd}".contains(c);
    if !word.is_empty() && !word.chars().any(is_bad) {
        return Ok(());
    }
    Err(format!(
        "argument '{word}': a line of pmcd's configuration can have no empty words, spaces, quotes, $, # or bytes that are \
         not UTF-8."
    ))
}

/// Checks that the agent can wait for pmcd at an address, and that pmcd finds it there.
pub(crate) fn address(address: &Address) -> Result<(), String> {
    let Address::Unix(path) = address else {
        let is_none = matches!(address, Address::Inet(0) | Address::Ipv6(0));
        return if is_none { Err("port 0: there is no such port.".to_owned()) } else { Ok(()) };
    };
    let shown = path.display();
    fit(&path.to_string_lossy())?;
    match path.parent() {
        // pmcd's start makes its own directory.
        Some(dir) if path.is_absolute() && (dir.is_dir() || dir == pmapi::Config::load().run_dir()) => Ok(()),
        Some(dir) if path.is_absolute() => {
            Err(format!("{shown}: there is no directory {}, in which the agent could make the socket.", dir.display()))
        }
        _ => Err(format!("{shown}: the path of a socket begins with /.")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn parsed<T: Parser>(line: &str) -> Result<(T, Option<Vec<String>>), ExitCode> {
        parse(line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect())
    }

    #[test]
    fn options_are_those_of_pcps_scripts() {
        let (options, own) = parsed::<Install>("-rQd 300 --name=other -u/run/s -- -D x").unwrap();
        assert!(options.replace && options.here.no_check && !options.keep);
        assert_eq!((options.domain, options.here.name.as_deref()), (Some(300), Some("other")));
        assert_eq!(options.transport(), Some(Transport::Socket(Address::Unix("/run/s".into()))));
        assert_eq!(own, Some(vec!["-D".to_owned(), "x".to_owned()]));
        let (options, own) = parsed::<Install>("-k --domain 7 --name a --name b -R /").unwrap();
        assert_eq!((options.here.name.as_deref(), options.transport(), own), (Some("b"), None, None));
        assert_eq!(parsed::<Install>("--").unwrap().1, Some(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let lines = [
            "-x",
            "--nonsense",
            "-i",
            "-p stray",
            "-p -D",
            "-p -u /run/s",
            "-i x",
            "--domain",
            "-d 511",
            "-d 0",
            "--name 1st",
        ];
        for line in lines {
            assert!(parsed::<Install>(line).is_err(), "{line}");
        }
        assert!(parsed::<Remove>("-d 3").is_err() && parsed::<Remove>("-NQV").is_ok());
        for word in ["", "a b", "it's", "$x", "a;b", "a\u{7f}"] {
            assert!(fit(word).is_err() && parse::<Install>(vec!["--".into(), word.into()]).is_err(), "{word}");
        }
        let no_text = OsString::from_vec(b"\xff".to_vec());
        assert!(parse::<Install>(vec!["--".into(), no_text]).is_err());
        for path in ["s", "/nonexistent/s", "/run/a b", "/"] {
            assert!(address(&Address::Unix(path.into())).is_err(), "{path}");
        }
        assert!(address(&Address::Unix("/tmp/s".into())).is_ok() && address(&Address::Inet(0)).is_err());
    }
}
