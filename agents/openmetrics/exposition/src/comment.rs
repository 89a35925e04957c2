//! Comments, which carry the metadata of the samples that follow.

use crate::sample::value_end;
use crate::space;

/// A line that begins with `#`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comment<'a>(&'a str);

impl<'a> Comment<'a> {
    pub(crate) fn new(text: &'a str) -> Comment<'a> {
        Comment(text)
    }

    /// Returns the whole line, without white space around it.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// Returns the word after the one that begins with `#`: `TYPE`, `HELP`, `UNIT`, `EOF`, PCP's own `PCP` and `PCP5`,
    /// or any other.
    pub fn keyword(self) -> Option<&'a str> {
        self.words().next()
    }

    /// Iterates over the words after the one that begins with `#`.
    pub fn words(self) -> impl Iterator<Item = &'a str> + Clone {
        words(self.0).skip(1)
    }

    /// Returns the word after the keyword, without quotes: the name of a metric.
    pub fn name(self) -> Option<&'a str> {
        let (name, _) = split_name(self.after_keyword());
        (!name.is_empty()).then_some(name)
    }

    /// Iterates over the words after the name of the metric.
    pub fn description(self) -> impl Iterator<Item = &'a str> + Clone {
        words(split_name(self.after_keyword()).1)
    }

    fn after_keyword(self) -> &'a str {
        let (_, rest) = split_word(self.0);
        split_word(rest).1
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> + Clone {
    text.split(space::is_space).filter(|word| !word.is_empty())
}

/// Returns the first word, and the text from the second word on.
fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_at(text.find(space::is_space).unwrap_or(text.len()));
    (word, space::trim_start(rest))
}

/// Returns the first word, or a name in quotes without them, and the text after it.
pub(crate) fn split_name(text: &str) -> (&str, &str) {
    let quoted = text.strip_prefix('"').and_then(|text| text.split_at_checked(value_end(text, 0)?));
    match quoted.and_then(|(name, rest)| Some((name, rest.strip_prefix('"')?))) {
        Some(split) => split,
        None => split_word(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords() {
        let cases = [
            ("# TYPE a counter", Some("TYPE")),
            ("#\tHELP  a  b", Some("HELP")),
            ("#TYPE a counter", Some("a")),
            ("#", None),
            ("##", None),
            ("# EOF", Some("EOF")),
        ];
        for (text, keyword) in cases {
            assert_eq!(Comment::new(text).keyword(), keyword, "{text}");
        }
        assert_eq!(
            Comment::new("# HELP a  many   spaces").words().collect::<Vec<_>>(),
            ["HELP", "a", "many", "spaces"]
        );
    }

    #[test]
    fn names() {
        for (text, name, description) in [
            ("# HELP a  many   words", Some("a"), "many words"),
            ("# HELP \"a b\" x", Some("a b"), "x"),
            ("# HELP \"a \\\" b\" x y", Some("a \\\" b"), "x y"),
            ("# HELP \"a b", Some("\"a"), "b"),
            ("#\tTYPE\ta", Some("a"), ""),
            ("# HELP", None, ""),
            ("#", None, ""),
        ] {
            let comment = Comment::new(text);
            let words: Vec<&str> = comment.description().collect();
            assert_eq!((comment.name(), &*words.join(" ")), (name, description), "{text}");
        }
    }
}
