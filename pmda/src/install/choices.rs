//! What the options of Install select, and the checks of addresses, domains and words.

use std::ffi::OsString;
use std::path::PathBuf;

use super::outcome::{Outcome, Stop};
use super::pmcd_conf::Transport;
use super::task::Task;
use crate::transport::inet_port;

/// Options of Install and Remove.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    /// Directory of the agent that is installed; `None` if the program writes it.
    pub(crate) from: Option<PathBuf>,
    /// Name of the agent in PCP.
    pub(crate) name: Option<String>,
    pub(crate) transport: Option<Transport>,
    /// Whether the transport of the last Install is kept. The first one uses a pipe.
    pub(crate) keep: bool,
    /// Name and version of the agent in a package of several agents, whose installed directories have no configuration.
    pub(crate) package: Option<String>,
    pub(crate) domain: Option<u16>,
    pub(crate) replace: bool,
    /// Whether only the name space is changed.
    pub(crate) names_only: bool,
    pub(crate) namespace: Option<PathBuf>,
    pub(crate) echo: bool,
    pub(crate) no_check: bool,
    pub(crate) no_start: bool,
    pub(crate) verbose: bool,
    /// Options of the agent itself, after `--`; `None` without `--`.
    pub(crate) own: Option<Vec<String>>,
}

/// Options of Install that have a value.
const WITH_VALUE: &str = "i6udnR";

/// Long options, and the letters that they stand for.
const LONG: [(&str, char); 7] = [
    ("replace", 'r'),
    ("domain", 'd'),
    ("name", NAME),
    ("from", FROM),
    ("package", PACKAGE),
    ("dso", 'D'),
    ("pipe", 'p'),
];
const NAME: char = '\u{1}';
const FROM: char = '\u{2}';
const PACKAGE: char = '\u{3}';

impl Choices {
    /// Parses the words after `--install` or `--remove`.
    ///
    /// # Errors
    /// The reason, with the exit code 2 and the usage for an unknown option.
    pub(crate) fn parse(task: Task, words: Vec<OsString>) -> Outcome<Choices> {
        let mut choices = Choices::default();
        let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned()).peekable();
        while let Some(word) = words.peek() {
            let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else { break };
            let option = option.to_owned();
            words.next();
            if option == "-" {
                choices.own = Some(words.by_ref().collect());
                break;
            }
            if let Some(long) = option.strip_prefix('-') {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let letters = LONG.iter().filter(|(_, letter)| task == Task::Install || [NAME, FROM].contains(letter));
                let letter = letters.filter(|(known, _)| *known == name).map(|(_, letter)| *letter).next();
                let Some(letter) = letter else { return Err(unknown(format!("unknown option --{long}."))) };
                let value =
                    if "rDp".contains(letter) { None } else { value.map(str::to_owned).or_else(|| words.next()) };
                choices.set(task, letter, value)?;
                continue;
            }
            let mut letters = option.chars();
            while let Some(letter) = letters.next() {
                let known = if task == Task::Install { "pDi6udkrNeQsVnR" } else { "NeQVn" };
                if !known.contains(letter) {
                    return Err(unknown(format!("unknown option -{letter}.")));
                }
                let mut value = None;
                if WITH_VALUE.contains(letter) {
                    let rest = letters.as_str().to_owned();
                    value = if rest.is_empty() { words.next() } else { Some(rest) };
                    if value.is_none() {
                        return Err(unknown(format!("-{letter} needs a value.")));
                    }
                    letters = "".chars();
                }
                choices.set(task, letter, value)?;
            }
        }
        if let Some(word) = words.next() {
            return Err(Stop::new(format!("unexpected word '{word}'; options of the agent itself follow --.")));
        }
        choices.own.iter().flatten().try_for_each(|word| fit(word))?;
        Ok(choices)
    }

    fn set(&mut self, task: Task, letter: char, value: Option<String>) -> Outcome<()> {
        let value = value.unwrap_or_default();
        match letter {
            'p' => self.choose("-p", Transport::Pipe)?,
            'D' => self.choose("-D", Transport::Dso)?,
            'i' => {
                self.choose("-i", Transport::Inet(value.clone()))?;
                port("-i ", &value)?;
            }
            '6' => {
                self.choose("-6", Transport::Ipv6(value.clone()))?;
                port("-6 ", &value)?;
            }
            'u' => {
                self.choose("-u", Transport::Unix(value.clone()))?;
                path(&value)?;
            }
            'k' => self.keep = true,
            'd' => self.domain = Some(domain(&value)?),
            'r' => self.replace = true,
            'N' => self.names_only = true,
            'n' => self.namespace = Some(value.into()),
            'e' => self.echo = true,
            'Q' => self.no_check = true,
            's' => self.no_start = true,
            'V' => self.verbose = true,
            NAME => self.name = Some(name(&value)?),
            FROM => self.from = Some(value.into()),
            PACKAGE => self.package = Some(value),
            // PCP's scripts have -R, for another root directory. It has no effect here, as nothing is compiled.
            _ => debug_assert!(letter == 'R' && task == Task::Install),
        }
        Ok(())
    }

    /// Selects how pmcd talks to the agent, once.
    fn choose(&mut self, option: &str, transport: Transport) -> Outcome<()> {
        match &self.transport {
            None => {
                self.transport = Some(transport);
                Ok(())
            }
            Some(earlier) => Err(Stop::new(format!(
                "{option}: another option has already said how pmcd talks to the agent ({}).",
                earlier.describe()
            ))),
        }
    }
}

fn unknown(text: String) -> Stop {
    Stop { code: 2, usage: true, ..Stop::new(text) }
}

/// Checks the name of an agent.
pub(crate) fn name(name: &str) -> Outcome<String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if is_name {
        return Ok(name.to_owned());
    }
    Err(Stop::new(format!("{name} cannot be the name of an agent: letters, digits and _ only, a letter first.")))
}

/// Checks that there is such a port or service. `option` comes before it in the message.
pub(crate) fn port(option: &str, port: &str) -> Outcome<()> {
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_port = if is_number { port.parse::<u16>().is_ok_and(|port| port > 0) } else { inet_port(port).is_ok() };
    if is_port { Ok(()) } else { Err(Stop::new(format!("{option}{port}: there is no such port or service."))) }
}

/// Refuses a word that pmcd's configuration, or a shell, would not take as it is.
pub(crate) fn fit(word: &str) -> Outcome<()> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || "\"'#$`\\;&|<>()".contains(c);
    if word.is_empty() || word.chars().any(is_bad) {
        return Err(Stop::new(format!(
            "argument '{word}': a line of pmcd's configuration can have no empty words, spaces, quotes, $ or #."
        )));
    }
    Ok(())
}

/// Checks that pmcd can find a socket by this path, in whatever directory it runs.
pub(crate) fn path(path: &str) -> Outcome<()> {
    fit(path)?;
    if path.starts_with('/') { Ok(()) } else { Err(Stop::new(format!("{path}: the path of a socket begins with /."))) }
}

/// Checks that an agent may have a domain.
pub(crate) fn domain(text: &str) -> Outcome<u16> {
    let is_number = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|n| is_number && (1..=510).contains(n));
    number.ok_or_else(|| Stop::new(format!("domain {text}: a domain is a number from 1 to 510.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Choices, (String, u8)> {
        let words = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        Choices::parse(Task::Install, words).map_err(|stop| (stop.text, stop.code))
    }

    #[test]
    fn options_are_those_of_pcps_scripts() {
        let choices = parse("-rQd 300 --name=other -u/run/s -- -D x").unwrap();
        assert!(choices.replace && choices.no_check && !choices.keep);
        assert_eq!((choices.domain, choices.name.as_deref()), (Some(300), Some("other")));
        assert_eq!(choices.transport, Some(Transport::Unix("/run/s".into())));
        assert_eq!(choices.own, Some(vec!["-D".to_owned(), "x".to_owned()]));
        assert_eq!(parse("-k --domain 7").unwrap().own, None);
        assert_eq!(parse("--").unwrap().own, Some(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, text, code) in [
            ("-x", "unknown option -x.", 2),
            ("--nonsense", "unknown option --nonsense.", 2),
            ("-i", "-i needs a value.", 2),
            ("-p stray", "unexpected word 'stray'; options of the agent itself follow --.", 1),
            ("-p -D", "-D: another option has already said how pmcd talks to the agent (over a pipe).", 1),
            ("-i 0", "-i 0: there is no such port or service.", 1),
            ("-u s", "s: the path of a socket begins with /.", 1),
            ("--domain", "domain : a domain is a number from 1 to 510.", 1),
            ("-d 511", "domain 511: a domain is a number from 1 to 510.", 1),
            ("-d 0001", "domain 0001: a domain is a number from 1 to 510.", 1),
            ("--name 1st", "1st cannot be the name of an agent: letters, digits and _ only, a letter first.", 1),
        ] {
            assert_eq!(parse(line).unwrap_err(), (text.to_owned(), code), "{line}");
        }
        for word in ["", "a b", "it's", "$x", "a;b", "a\u{7f}"] {
            assert!(fit(word).is_err(), "{word}");
        }
        assert!(Choices::parse(Task::Remove, vec!["-d".into(), "3".into()]).is_err());
    }
}
