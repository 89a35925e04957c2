//! Command lines of programs that write their own `--help`, in the form of `pmUsageMessage(3)`.

use clap::{Arg, ArgAction, Command, ValueHint};

/// Returns the command line that a usage message describes. Paragraphs other than options follow the options of the
/// man page.
pub(crate) fn command(usage: &str) -> Command {
    let (head, body) = usage.split_once("\n\n").unwrap_or((usage, ""));
    let head = head.strip_prefix("Usage: ").unwrap_or(head);
    let synopsis: Vec<&str> =
        head.lines().map(|line| line.trim().split_once(' ').map_or("", |(_, rest)| rest)).collect();
    let mut command = Command::new("").disable_help_flag(true).disable_version_flag(true);
    let mut paragraphs = Vec::new();
    let mut option: Option<(String, String)> = None;
    for line in body.lines().map(Some).chain([None]) {
        let text = line.unwrap_or_default();
        let begins = text.starts_with("  -");
        let ends = begins || !text.starts_with("   ");
        if let Some((option, help)) = option.take_if(|_| ends) {
            command = command.arg(argument(&option, &help));
        }
        if begins {
            let (names, help) = columns(text.trim());
            option = Some((names.to_owned(), help.trim().to_owned()));
        } else if let Some((_, help)) = &mut option {
            help.push_str(if help.is_empty() { "" } else { " " });
            help.push_str(text.trim());
        } else if !text.is_empty() && !text.ends_with(':') {
            paragraphs.push(text.to_owned());
        }
    }
    command = operands(command, synopsis.last().copied().unwrap_or_default());
    if paragraphs.is_empty() { command } else { command.after_help(paragraphs.join("\n")) }
}

/// Splits a line into the option and its help. A single short option that fills the left column has one space after it.
fn columns(line: &str) -> (&str, &str) {
    let second = line.match_indices(' ').nth(1).filter(|_| !line.starts_with("--") && !line.contains(", "));
    match line.find("  ").or(second.map(|(at, _)| at)) {
        Some(at) => line.split_at(at),
        None => (line, ""),
    }
}

/// Returns the option that the left column names, such as `-n FILE, --namespace=FILE`.
fn argument(names: &str, help: &str) -> Arg {
    let mut arg = Arg::new(names.to_owned()).help(help.to_owned()).action(ArgAction::SetTrue);
    for name in names.split(", ") {
        let (name, value) = name.split_once(['=', ' ']).map_or((name, None), |(name, value)| (name, Some(value)));
        arg = match name.strip_prefix("--") {
            Some(long) => arg.long(long.to_owned()),
            None => arg.short(name.chars().nth(1)),
        };
        if let Some(value) = value {
            arg = arg.value_name(value.to_owned()).action(ArgAction::Set);
        }
    }
    arg
}

/// Adds the parts of the synopsis that the body does not describe: further options, and the operands as one argument.
fn operands(mut command: Command, synopsis: &str) -> Command {
    let mut rest = Vec::new();
    let mut words = synopsis.split(' ').filter(|word| !word.is_empty() && *word != "[options]").peekable();
    while let Some(word) = words.next() {
        let name = word.trim_matches(['[', ']']);
        if name.starts_with('-') {
            let value = words.next_if(|_| !word.ends_with(']')).map(|value| format!(" {}", value.trim_matches(']')));
            command = command.arg(argument(&format!("{name}{}", value.unwrap_or_default()), ""));
        } else {
            rest.push(word);
        }
    }
    if rest.is_empty() {
        return command;
    }
    let name = rest.join(" ");
    command.arg(Arg::new("operands").value_name(name).num_args(0..).value_hint(ValueHint::FilePath))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usage_message_becomes_a_command_line() {
        let usage = "Usage: x [options] file [name ...]\n\nGeneral options:\n  -n FILE, --names=FILE\n                   the \
                     names\n                   of metrics\n  -V, --verbose    print more\n\nOther options:\n  -q N       the \
                     number\n  -M username the user\n\nA paragraph.\n";
        let command = command(usage);
        let shown = |arg: &Arg| {
            let values: Vec<String> =
                arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
            format!(
                "{:?} {:?} {} {}",
                arg.get_short(),
                arg.get_long(),
                values.join(","),
                arg.get_help().map_or(String::new(), ToString::to_string)
            )
        };
        let all: Vec<String> = command.get_arguments().map(shown).collect();
        assert_eq!(
            all,
            [
                "Some('n') Some(\"names\") FILE the names of metrics",
                "Some('V') Some(\"verbose\")  print more",
                "Some('q') None N the number",
                "Some('M') None username the user",
                "None None file [name ...] ",
            ]
        );
        assert_eq!(command.get_after_help().map(ToString::to_string), Some("A paragraph.".to_owned()));
    }

    #[test]
    fn options_of_the_synopsis_count() {
        let command = command("Usage: pmnsadd [-d] [-n namespace] file\n");
        let options: Vec<_> =
            command.get_arguments().map(|arg| (arg.get_short(), arg.get_action().takes_values())).collect();
        assert_eq!(options, [(Some('d'), false), (Some('n'), true), (None, true)]);
    }
}
