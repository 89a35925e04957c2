//! Escaping of foreign text for logs and terminals.
//!
//! Names of files, metrics, instances and users may contain line ends, which forge lines of a log, and control
//! sequences of terminals. This module escapes such characters as in a Rust string: `\n`, `\u{1b}`.
//!
//! ```
//! use pcp_base::escape::Escaped;
//!
//! assert_eq!(Escaped("a\nb\x1b[2J\u{202e}é").to_string(), r"a\nb\u{1b}[2J\u{202e}é");
//! ```

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io;

/// Returns whether a character is displayed as itself and has no other effect.
///
/// Control characters (C0, DEL, C1), line and paragraph separators, and invisible and directional format characters are
/// not plain. Spaces other than U+0020 and unassigned code points are not plain either.
pub fn is_plain(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{9f}' => false,
        _ if is_control(c) => false,
        _ => {
            // `escape_debug` escapes a combining character at the beginning of a text, but not one after another
            // character.
            let mut text = [b'a'; 5];
            let len = c.encode_utf8(&mut text[1..]).len();
            std::str::from_utf8(&text[..=len]).is_ok_and(|text| text.escape_debug().nth(1) == Some(c))
        }
    }
}

/// Returns whether a character acts on a terminal: control characters, separators of lines and paragraphs, and
/// characters that change the direction of text or cannot be seen, such as joiners, fillers and tags: all that Unicode calls
/// default ignorable, but for the variation selectors U+FE00 to U+FE0F. Other characters
/// that are not [plain](is_plain), such as unusual spaces, are allowed in exported names. So are combining characters
/// and these variation selectors, which change the character before them.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns a name for export, as of an instance. U+FFFD replaces bytes that are not UTF-8. In a name with characters
/// that act on a terminal, every character is escaped that is not [plain](is_plain): PCP's tools print names as they
/// are.
pub fn exported_name(name: &[u8]) -> Cow<'_, str> {
    let name = String::from_utf8_lossy(name);
    // Most names are ASCII, of which all bytes are compared at once.
    let is_plain = name.bytes().fold(true, |all, byte| all & (b' '..=b'~').contains(&byte));
    if !is_plain && name.chars().any(is_control) { Escaped(name).to_string().into() } else { name }
}

/// Displays the inner value with every character escaped that is not [plain](is_plain).
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: fmt::Display> fmt::Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// Escapes characters that act on a terminal, with JSON's escapes: PCP's tools print labels as they are. The value of
/// the JSON text does not change. JSON permits such characters only in strings, except for ASCII white space between
/// tokens, which stays.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let acts = |c: char| is_control(c) && !matches!(c, '\t' | '\n' | '\r');
    if !json.chars().any(acts) {
        return json.into();
    }
    let mut text = String::with_capacity(2 * json.len());
    for c in json.chars() {
        if acts(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(text, "\\u{unit:04x}"));
        } else {
            text.push(c);
        }
    }
    text.into()
}

/// Writer that passes text on with every character escaped that is not [plain](is_plain).
#[derive(Debug)]
pub struct Escaping<W>(pub W);

impl<W: fmt::Write> fmt::Write for Escaping<W> {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
        while let Some((at, c)) = text.char_indices().find(|(_, c)| !is_plain(*c)) {
            self.0.write_str(&text[..at])?;
            write!(self.0, "{}", c.escape_debug())?;
            text = &text[at + c.len_utf8()..];
        }
        self.0.write_str(text)
    }
}

/// Writer of lines to a terminal. It escapes everything but line ends and tabs as [`Escaped`] does, and bytes that are
/// not UTF-8 as `\xNN`.
#[derive(Debug)]
pub struct TerminalWriter<W> {
    to: W,
    /// Incomplete UTF-8 character at the end of the last write.
    begun: Vec<u8>,
    line: String,
}

impl<W: io::Write> TerminalWriter<W> {
    /// Creates a writer to `to`.
    pub fn new(to: W) -> Self {
        TerminalWriter { to, begun: Vec::new(), line: String::new() }
    }
}

impl<W: io::Write> io::Write for TerminalWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let mut rest = self.begun.len();
        self.line.clear();
        for chunk in self.begun.utf8_chunks() {
            for part in chunk.valid().split_inclusive(['\n', '\t']) {
                let end = part.strip_suffix(['\n', '\t']).unwrap_or(part);
                let _ = write!(Escaping(&mut self.line), "{end}");
                self.line.push_str(&part[end.len()..]);
            }
            rest -= chunk.valid().len();
            // Only the last chunk can be continued by the next write.
            if rest == chunk.invalid().len()
                && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none())
            {
                break;
            }
            for byte in chunk.invalid() {
                let _ = write!(self.line, "\\x{byte:02x}");
            }
            rest -= chunk.invalid().len();
        }
        self.begun.drain(..self.begun.len() - rest);
        self.to.write_all(self.line.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Output of a command, escaped by a [`TerminalWriter`] only if it goes to a terminal.
#[derive(Debug)]
pub enum Output<W> {
    /// Output to a file or a pipe, unchanged.
    Plain(W),
    /// Output to a terminal, escaped.
    Terminal(TerminalWriter<W>),
}

impl<W: io::Write + io::IsTerminal> Output<W> {
    /// Creates an output to `to`, usually standard output or standard error.
    pub fn to(to: W) -> Self {
        if to.is_terminal() { Output::Terminal(TerminalWriter::new(to)) } else { Output::Plain(to) }
    }
}

impl<W: io::Write> io::Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Plain(to) => to.write(bytes),
            Output::Terminal(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Plain(to) => to.flush(),
            Output::Terminal(to) => to.flush(),
        }
    }
}

/// Prints to standard output, escaped if that is a terminal. Ignores errors of the output, at which `print!` panics.
pub fn print(text: impl fmt::Display) {
    put(Output::to(io::stdout().lock()), text);
}

/// Prints messages to standard error, escaped as by a [`TerminalWriter`]: that is a terminal, or a log, such as that of pmcd
/// for an agent. Ignores errors of the output, at which `eprint!` panics.
pub fn eprint(text: impl fmt::Display) {
    put(TerminalWriter::new(io::stderr().lock()), text);
}

fn put(mut out: impl io::Write, text: impl fmt::Display) {
    // In one piece, so that lines of several processes stay whole.
    let _ = out.write_all(text.to_string().as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_steers_a_terminal_or_cannot_be_seen_is_escaped() {
        for c in ('\0'..='\u{1f}').chain('\u{7f}'..='\u{9f}') {
            assert!(!is_plain(c), "{c:?}");
        }
        // Directional marks and overrides, joiners, separators, a byte order mark, a tag, unassigned code points.
        for c in "\u{61c}\u{200b}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{ad}\u{e0041}\u{fffb}\u{a0}\u{e000}\u{10ffff}".chars()
        {
            assert!(!is_plain(c), "{c:?}");
        }
        for c in "aZ~ é\"\\'ß漢字🦀\u{301}".chars() {
            assert!(is_plain(c) && !is_control(c), "{c:?}");
        }
        for c in "\0\x1b\n\u{9b}\u{200d}\u{2028}\u{202e}\u{2066}\u{feff}".chars() {
            assert!(is_control(c), "{c:?}");
        }
        // Format characters, and marks that join or select without being seen.
        for c in "\u{34f}\u{180b}\u{180f}\u{13430}\u{1bca0}\u{e0100}".chars() {
            assert!(is_control(c) && !is_plain(c), "{c:?}");
        }
        // Letters of all scripts, marks, and emoji with their selector.
        for c in "éßñ漢字かなカナ한글עבריתالعربيةहिन्दीไทยἄλφαΩ₂€→✓🦀👍🏽❤\u{fe0f}".chars()
        {
            assert!(is_plain(c) && !is_control(c), "{c:?}");
        }
        // An Arabic letter mark changes the direction of text. The others are invisible.
        for c in
            "\u{61c}\u{ad}\u{115f}\u{180e}\u{206a}\u{206f}\u{3164}\u{fff9}\u{1d173}\u{e0001}\u{e0041}\u{e01ef}".chars()
        {
            assert!(is_control(c) && !is_plain(c), "{c:?}");
        }
        assert!("\u{a0}\u{3000}\u{e000}\u{301}\u{fe0f}".chars().all(|c| !is_control(c)));
    }

    #[test]
    fn text_keeps_its_plain_part() {
        assert_eq!(Escaped("e\u{301} \"x\"\\").to_string(), "e\u{301} \"x\"\\");
        assert_eq!(Escaped("\0\r\n\t\x7f\u{9b}").to_string(), r"\0\r\n\t\u{7f}\u{9b}");
        assert_eq!(Escaped("").to_string(), "");
    }

    #[test]
    fn a_terminal_gets_lines_and_nothing_else() {
        let text = "a\tb\nc\x1b]0;x\x07é\u{202e}".as_bytes();
        let all = [text, b"\xff\xc3", b"(\xe2\x82"].concat();
        let plain = r"c\u{1b}]0;x\u{7}é\u{202e}\xff\xc3(";
        for cut in 0..=all.len() {
            let mut out = Vec::new();
            let mut writer = TerminalWriter::new(&mut out);
            writer.write_all(&all[..cut]).unwrap();
            writer.write_all(&all[cut..]).unwrap();
            // The last bytes are the beginning of a character, which this write completes.
            writer.write_all(b"\xac\n").unwrap();
            writer.flush().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("a\tb\n{plain}€\n"), "{cut}");
        }
    }
}
