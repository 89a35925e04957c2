//! Comments, which carry the metadata of the samples that follow.

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
        self.0.split(space::is_space).filter(|word| !word.is_empty()).skip(1)
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
}
