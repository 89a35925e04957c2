//! Messages of Install and Remove.

use std::io::{self, Write as _};

use super::task::Task;

/// Returns a text in one line of printable ASCII: other bytes, which could control a terminal or hide what is there, become
/// `\ooo`.
pub(crate) fn show(text: impl AsRef<[u8]>) -> String {
    let mut shown = String::new();
    for byte in text.as_ref() {
        match byte {
            b'\n' => shown.push(' '),
            b'\\' => shown.push_str("\\\\"),
            b'\t' => shown.push_str("\\t"),
            b' '..=b'~' => shown.push(char::from(*byte)),
            _ => shown.push_str(&format!("\\{byte:03o}")),
        }
    }
    shown
}

/// Prints a message to stderr, after the name of the script. A closed stderr does not end the program.
pub(crate) fn say(task: Task, text: impl AsRef<[u8]>) {
    let _ = writeln!(io::stderr(), "{}: {}", task.script(), show(text));
}

/// Prints a line to stdout. A closed stdout does not end the program.
pub(crate) fn tell(text: impl AsRef<[u8]>) {
    part(&format!("{}\n", show(text)));
}

/// Prints a part of a line to stdout, as it is.
pub(crate) fn part(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints what a program has said, each line with its control characters as `\ooo`.
pub(crate) fn said(text: &[u8]) {
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let _ = writeln!(io::stderr(), "{}", show(line));
    }
}

#[cfg(test)]
mod tests {
    use super::show;

    #[test]
    fn a_text_is_one_line_of_ascii() {
        assert_eq!(show("a\nb\\c\x1b[31m\u{202e}"), "a b\\\\c\\033[31m\\342\\200\\256");
    }
}
