//! Questions that `Install` asks, and the way in which pmcd runs the agent.

use super::mistake::Mistake;

/// An option of the agent that `Install` asks for.
///
/// The agent's own parser checks the answer: `Install` starts the agent with it before anything is changed.
///
/// ```
/// # use pmda::prelude::*;
/// # fn declare(setup: &mut Setup) {
/// let number = setup.argument("-N").prompt("Number of processes to show").default("10");
/// number.help("The processes with the highest CPU time are shown, from 1 to 1000.");
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArgumentDef {
    pub(crate) option: String,
    pub(crate) prompt: String,
    pub(crate) default: String,
    pub(crate) help: String,
}

impl ArgumentDef {
    pub(crate) fn new(option: impl Into<String>) -> ArgumentDef {
        ArgumentDef { option: option.into(), prompt: String::new(), default: String::new(), help: String::new() }
    }

    /// Sets the question, one line without a question mark. Without it, the option itself is the question.
    pub fn prompt(&mut self, prompt: impl Into<String>) -> &mut Self {
        self.prompt = prompt.into();
        self
    }

    /// Sets the value that the agent uses without the option. It is shown with the question. If this is the answer,
    /// `Install` writes no option.
    pub fn default(&mut self, value: impl Into<String>) -> &mut Self {
        self.default = value.into();
        self
    }

    /// Sets the text that the answer `?` shows.
    pub fn help(&mut self, text: impl Into<String>) -> &mut Self {
        self.help = text.into();
        self
    }

    /// Returns the option, such as `-N` or `--host`.
    pub fn option(&self) -> &str {
        &self.option
    }

    pub(super) fn check(&self) -> Result<(), Mistake> {
        let mistake = |reason| Err(Mistake::Argument { option: self.option.clone(), reason });
        let name = self.option.strip_prefix("--").filter(|name| name.len() > 1);
        let letter = self.option.strip_prefix('-').filter(|name| name.len() == 1);
        let is_option = name.or(letter).is_some_and(|name| {
            name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
        });
        if !is_option {
            return mistake("not an option such as -N or --number");
        }
        if self.prompt.chars().any(char::is_control) {
            return mistake("the prompt is more than one line");
        }
        if !is_word(&self.default) {
            return mistake("the default has characters that pmcd.conf cannot have");
        }
        if self.help.chars().any(|c| c.is_control() && c != '\n') {
            return mistake("the help has control characters");
        }
        Ok(())
    }
}

/// Returns whether a text can be a value in a line of pmcd's configuration, or is empty.
pub(super) fn is_word(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || "_-./:,=@%+*~^[]{}!".contains(c))
}

/// How pmcd runs the agent after Install.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Running {
    /// User that the agent changes to, instead of PCP's user.
    pub(crate) user: Option<String>,
    /// Install restarts pmcd instead of sending it a signal.
    pub(crate) restart: bool,
}

impl Running {
    pub(super) fn check(&self) -> Result<(), Mistake> {
        match &self.user {
            Some(user) if user.is_empty() || user.starts_with('-') || !is_word(user) => {
                Err(Mistake::User(user.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_their_texts() {
        let mut argument = ArgumentDef::new("--host");
        argument.prompt("Host's name").default("local:").help("It's a host.\n$(reboot)");
        assert_eq!(argument.help, "It's a host.\n$(reboot)");
        assert_eq!(argument.check(), Ok(()));
        for option in ["-N", "-6", "--agent-timeout"] {
            assert_eq!(ArgumentDef::new(option).check(), Ok(()), "{option}");
        }
        for option in ["", "-", "--", "N", "-NM", "--a b", "--x", "-$", "---x", "-- x", "--a\nb", "--a$(x)"] {
            assert!(ArgumentDef::new(option).check().is_err(), "{option:?}");
        }
        for default in ["a b", "$(x)", "\"", "'", "#", "a\nb", "`x`", ";", "\\"] {
            assert!(ArgumentDef::new("-N").default(default).check().is_err(), "{default:?}");
        }
        assert!(ArgumentDef::new("-N").prompt("a\nb").check().is_err());
        assert!(ArgumentDef::new("-N").help("\x1b[2J").check().is_err());
        for (user, is_ok) in [("root", true), ("", false), ("-x", false), ("a b", false), ("$(id)", false)] {
            assert_eq!(Running { user: Some(user.into()), restart: true }.check().is_ok(), is_ok, "{user:?}");
        }
    }
}
