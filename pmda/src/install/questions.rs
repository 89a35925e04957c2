//! Questions on the terminal, and the agent's own options as words of pmcd's configuration.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use super::about::Question;
use super::options::fit;
use super::report::{self, Outcome, Stop, part, said, show, tell};

/// Length of an answer in bytes.
const LIMIT: u64 = 65_536;

/// Returns whether a person answers.
pub(crate) fn is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Prints a question, and returns the answer, by default `default`. The answer `?` prints `about`. Without a terminal,
/// nothing is printed when there is no answer. `echo` prints the answer.
fn reply(echo: bool, prompt: &str, default: &str, about: &str) -> Outcome<String> {
    let shown = if default.is_empty() { String::new() } else { format!(" [{}]", show(default)) };
    let prompt = format!("{prompt}{shown} ");
    loop {
        if is_terminal() {
            part(&prompt);
        }
        let mut line = Vec::new();
        let read = io::stdin().lock().take(LIMIT).read_until(b'\n', &mut line);
        if line.len() as u64 == LIMIT {
            return Err(Stop::new(format!("an answer of more than {LIMIT} bytes; nothing is changed.")));
        }
        let ended = read.is_err() || line.last() != Some(&b'\n');
        if ended && is_terminal() {
            part("\n");
            return Err(Stop::new("no answer; nothing is changed."));
        } else if ended && line.is_empty() {
            return Ok(default.to_owned());
        } else if !is_terminal() {
            part(&prompt);
        }
        let answer = String::from_utf8_lossy(&line).trim().to_owned();
        if echo {
            tell(&answer);
        }
        match &*answer {
            "?" => part(&format!("{about}\n")),
            "" => return Ok(default.to_owned()),
            _ => return Ok(answer),
        }
    }
}

/// Asks until `check` accepts the answer. Without a terminal, the next line answers another question, so that a wrong
/// answer is an error.
pub(crate) fn ask<T>(
    echo: bool,
    prompt: &str,
    default: &str,
    about: &str,
    mut check: impl FnMut(&str) -> Result<T, String>,
) -> Outcome<T> {
    loop {
        match check(&reply(echo, prompt, default, about)?) {
            Err(why) => Stop(why).print(),
            Ok(answer) => return Ok(answer),
        }
        if !is_terminal() {
            return Err(Stop::new("nothing is changed."));
        }
        report::check()?;
    }
}

/// Asks for one of some words, of which the first is the default. Upper or lower case does not matter.
pub(crate) fn ask_word<'w>(echo: bool, prompt: &str, words: &[&'w str], about: &str) -> Outcome<&'w str> {
    ask(echo, prompt, words.first().unwrap_or(&""), about, |answer| {
        let given = if answer.eq_ignore_ascii_case("inet") { "internet" } else { answer };
        let found = words.iter().find(|word| word.eq_ignore_ascii_case(given));
        found.copied().ok_or_else(|| format!("'{answer}' is none of the answers {}.", words.join(", ")))
    })
}

/// An option in the words of the agent: its value, how often it is there, and the other words.
struct Taken {
    value: String,
    count: usize,
    rest: Vec<String>,
}

/// Takes an option out of the words.
fn take(option: &str, words: &[String]) -> Taken {
    let mut taken = Taken { value: String::new(), count: 0, rest: Vec::new() };
    let is_letter = !option.starts_with("--");
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = match word.strip_prefix(option) {
            Some("") => Some(words.next().map_or("", String::as_str)),
            Some(value) if value.starts_with('=') => Some(&value[1..]),
            // A value may follow an option of one letter in the same word.
            Some(value) if is_letter => Some(value),
            _ => None,
        };
        match value {
            Some(value) => {
                taken.value = value.to_owned();
                taken.count += 1;
            }
            None => taken.rest.push(word.clone()),
        }
    }
    taken
}

/// Returns the agent's arguments with the answer to a question as the value of its option, or without the option if the answer is
/// the default.
fn with_option(question: &Question, rest: &[String], value: &str) -> Vec<String> {
    let mut words = rest.to_vec();
    let option = &question.option;
    if value == question.default {
    } else if option.starts_with("--") {
        words.push(format!("{option}={value}"));
    } else {
        words.extend([option.clone(), value.to_owned()]);
    }
    words
}

/// Asks for the value of an option of the agent. Returns the words with the answer. An option that is there more than once
/// stays as it is.
///
/// The agent is asked, too, by `try_words`. If it does not accept the words without this answer either, another answer may
/// be the reason, and the last check decides.
pub(crate) fn question(
    echo: bool,
    question: &Question,
    own: Vec<String>,
    try_words: impl Fn(&[String]) -> Result<(), Vec<u8>>,
) -> Outcome<Vec<String>> {
    let Question { option, prompt, default, help } = question;
    let taken = take(option, &own);
    if taken.count > 1 {
        return Ok(own);
    }
    let prompt = if prompt.is_empty() { option } else { prompt };
    let about = if help.is_empty() { format!("There is no help for {option}.") } else { help.clone() };
    let shown = if taken.value.is_empty() { default } else { &taken.value };
    ask(echo, &format!("{prompt} ({option})?"), shown, &about, |answer| {
        let words = with_option(question, &taken.rest, answer);
        if answer == default || words == own {
            return Ok(words);
        }
        fit(answer)?;
        let is_number = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        if answer.strip_prefix('-').is_some_and(|rest| !rest.is_empty() && !is_number(rest)) {
            return Err(format!("argument '{answer}': the value of {option} cannot begin with -."));
        }
        match try_words(&words) {
            Err(refused) if try_words(&own).is_ok() => {
                // The reason comes first, and then the agent's usage.
                let lines = String::from_utf8_lossy(&refused).into_owned();
                let reason: Vec<_> = lines.lines().take_while(|line| !line.starts_with("Usage:")).collect();
                said(reason.join("\n").as_bytes());
                Err(String::new())
            }
            _ => Ok(words),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_option_is_found_in_all_forms() {
        for (option, line, value, count, rest) in [
            ("-N", "-a x -N 5 -v", "5", 1, "-a x -v"),
            ("-N", "-N5", "5", 1, ""),
            ("-N", "-N=5 -N", "", 2, ""),
            ("--host", "--host=h --hosts=x", "h", 1, "--hosts=x"),
            ("--host", "--host h", "h", 1, ""),
            ("--host", "-h x", "", 0, "-h x"),
        ] {
            let taken = take(option, &words(line));
            assert_eq!((&*taken.value, taken.count, taken.rest), (value, count, words(rest)), "{option} {line}");
        }
    }

    #[test]
    fn a_default_is_left_out() {
        let question = |option: &str| Question {
            option: option.into(),
            prompt: String::new(),
            default: "10".into(),
            help: String::new(),
        };
        assert_eq!(with_option(&question("-N"), &words("-v"), "10"), words("-v"));
        assert_eq!(with_option(&question("-N"), &words("-v"), "5"), words("-v -N 5"));
        assert_eq!(with_option(&question("--number"), &[], "5"), words("--number=5"));
    }
}
