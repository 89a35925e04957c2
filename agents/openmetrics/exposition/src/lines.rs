//! The lines of a document.

/// Iterator over the lines of a document, with their numbers from 1 on.
///
/// A line ends with LF, CR LF or CR, or with another character that Python's `str.splitlines` takes for an end: VT, FF,
/// FS, GS, RS, NEL, and the line and paragraph separators of Unicode. Documents whose only separator is LF are split by
/// memchr.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    rest: &'a str,
    number: usize,
    /// Whether LF is the only control character besides tabs, and all characters are ASCII.
    plain: bool,
}

impl<'a> Lines<'a> {
    /// Splits a document.
    pub fn new(text: &'a str) -> Lines<'a> {
        // Without an early exit the loop becomes vector instructions.
        let odd = text.as_bytes().chunks(4096).any(|chunk| {
            chunk
                .iter()
                .fold(false, |odd, &byte| odd | ((byte < b' ') & (byte != b'\n') & (byte != b'\t')) | (byte >= 0x80))
        });
        Lines { rest: text, number: 0, plain: !odd }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a str);

    #[inline]
    fn next(&mut self) -> Option<(usize, &'a str)> {
        if self.rest.is_empty() {
            return None;
        }
        let (end, next) = if self.plain { plain_end(self.rest) } else { any_end(self.rest) };
        let (line, rest) = (self.rest.get(..end)?, self.rest.get(next..)?);
        self.rest = rest;
        self.number += 1;
        Some((self.number, line))
    }
}

/// Returns the end of the first line, and the beginning of the second.
#[inline]
fn plain_end(text: &str) -> (usize, usize) {
    memchr::memchr(b'\n', text.as_bytes()).map_or((text.len(), text.len()), |end| (end, end + 1))
}

/// Returns whether Python's `str.splitlines` takes a character for the end of a line.
fn is_end(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn any_end(text: &str) -> (usize, usize) {
    let Some(end) = text.find(is_end) else { return (text.len(), text.len()) };
    let rest = text.get(end..).unwrap_or_default();
    let len = if rest.starts_with("\r\n") { 2 } else { rest.chars().next().map_or(0, char::len_utf8) };
    (end, end + len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        Lines::new(text).map(|(_, line)| line).collect()
    }

    #[test]
    fn ends_of_lines() {
        assert_eq!(lines(""), [""; 0]);
        assert_eq!(lines("a\n\nb"), ["a", "", "b"]);
        assert_eq!(lines("a\r\nb\rc\n\rd\n"), ["a", "b", "c", "", "d"]);
        assert_eq!(lines("a\x0bb\x0cc\x1cd\u{85}e\u{2028}f\tg\x1fh"), ["a", "b", "c", "d", "e", "f\tg\x1fh"]);
        let numbers: Vec<usize> = Lines::new("a\nb\n").map(|(number, _)| number).collect();
        assert_eq!(numbers, [1, 2]);
    }
}
