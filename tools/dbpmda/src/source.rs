//! Sources of commands: `.dbpmdarc`, standard input, a terminal.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::unistd::geteuid;
use pcp_base::file::check_writers_of;

use crate::console::{Console, err, out};
use crate::terminal::Terminal;

const RC: &str = ".dbpmdarc";

/// Source of commands. Shows prompts and marks the positions of errors.
pub struct Source {
    console: Console,
    current: Reading,
    /// Input that follows `.dbpmdarc`, while that file is read.
    after: Option<Reading>,
    /// Characters of the line that have been read.
    line: Vec<u8>,
    number: u32,
    /// Last character that was read; 0 after the end of the input.
    last: u8,
}

/// Input of characters.
pub enum Input {
    /// Stream that is not a terminal.
    Stream(BufReader<Box<dyn Read>>),
    /// Terminal with line editing.
    Terminal(Box<Terminal>),
}

/// Input, and how it is read.
struct Reading {
    input: Input,
    prompt: &'static str,
    /// Whether characters are echoed when they are read.
    echo: bool,
    /// Whether each line has a prompt.
    interactive: bool,
}

impl Input {
    /// Returns an input that reads from a stream.
    pub fn stream(input: impl Read + 'static) -> Self {
        Input::Stream(BufReader::new(Box::new(input)))
    }
}

/// Opens a file, without waiting for the writer of a FIFO. A link is followed only if it belongs to this user or root:
/// that of another user could lead to a file of root whose text this user has chosen, such as a log.
fn open_rc(path: &Path) -> io::Result<File> {
    let open = |path: &Path, flags: OFlag| {
        File::options().read(true).custom_flags((flags | OFlag::O_NONBLOCK).bits()).open(path)
    };
    match open(path, OFlag::O_NOFOLLOW) {
        Err(e) if e.raw_os_error() == Some(Errno::ELOOP as i32) => {
            let link = open(path, OFlag::O_NOFOLLOW | OFlag::O_PATH)?;
            check_owner(&link.metadata()?).map_err(io::Error::other)?;
            // The target of this link, even if another one has replaced it.
            let target = readlinkat(&link, "")?;
            open(&path.parent().unwrap_or(Path::new("")).join(target), OFlag::empty())
        }
        opened => opened,
    }
}

fn check_owner(file: &Metadata) -> Result<(), String> {
    let uid = file.uid();
    if uid == 0 || uid == geteuid().as_raw() { Ok(()) } else { Err(format!("it belongs to user {uid}")) }
}

/// Checks whether only this user and root can have written a file.
fn check_rc(file: &File) -> Result<(), String> {
    check_owner(&file.metadata().map_err(|e| e.to_string())?)?;
    check_writers_of(file)
}

impl Source {
    /// Returns a source of commands from `input`, without prompts and echo.
    pub fn new(console: Console, input: Input) -> Self {
        let current = Reading { input, prompt: "dbpmda", echo: false, interactive: false };
        Source { console, current, after: None, line: Vec::new(), number: 0, last: b'\n' }
    }

    /// Shows the characters of a stream when they are read.
    pub fn with_echo(mut self) -> Self {
        self.current.echo = true;
        self
    }

    /// Shows a prompt before each line.
    pub fn with_prompts(mut self) -> Self {
        self.current.interactive = true;
        self
    }

    /// Makes the source read `.dbpmdarc` in the working directory first, if it exists, with prompts and echo. A file
    /// that another user has put there, for instance into /tmp, is not read, because its commands could start programs.
    pub fn with_rc(mut self) -> Self {
        let opened = open_rc(Path::new(RC));
        let checked = match &opened {
            Ok(file) => check_rc(file),
            Err(e) if e.kind() == io::ErrorKind::Other => Err(e.to_string()),
            Err(_) => Ok(()),
        };
        if let Err(reason) = checked {
            err!(self.console, "Warning: {RC} is not read: {reason}\n");
        } else if let Ok(file) = opened {
            let rc = Reading { input: Input::stream(file), prompt: RC, echo: true, interactive: true };
            self.after = Some(std::mem::replace(&mut self.current, rc));
        }
        self
    }

    /// Returns the next character; `None` at the end of the input and at a NUL.
    pub(crate) fn next(&mut self) -> Option<u8> {
        if self.last == b'\n' {
            self.begin_line();
        }
        self.last = loop {
            match self.read() {
                0 if self.leave_rc() => {}
                c => break c,
            }
        };
        if self.last == 0 {
            return None;
        }
        self.line.push(self.last);
        Some(self.last)
    }

    fn begin_line(&mut self) {
        match &mut self.current.input {
            Input::Terminal(terminal) => terminal.remember(&self.line),
            Input::Stream(_) if self.current.interactive => self.show_prompt(),
            Input::Stream(_) => {}
        }
        self.number += 1;
        self.line.clear();
    }

    fn show_prompt(&self) {
        out!(self.console, "{}> ", self.current.prompt);
        self.console.flush();
    }

    /// Reads a character; 0 at the end of the input.
    fn read(&mut self) -> u8 {
        match &mut self.current.input {
            Input::Terminal(terminal) => terminal.next(self.current.prompt).unwrap_or(0),
            Input::Stream(stream) => {
                let read = stream.bytes().find(|c| !matches!(c, Ok(b'\r')));
                let Some(Ok(c)) = read else { return 0 };
                if self.current.echo {
                    self.console.out_bytes(&[c]);
                    self.console.flush();
                }
                c
            }
        }
    }

    /// Continues after `.dbpmdarc`; returns `false` if there is no further input.
    fn leave_rc(&mut self) -> bool {
        let Some(after) = self.after.take() else { return false };
        self.current = after;
        self.number = 1;
        if self.current.interactive {
            match self.current.input {
                Input::Terminal(_) => out!(self.console, "\n"),
                Input::Stream(_) => self.show_prompt(),
            }
            self.console.flush();
        }
        true
    }

    /// Returns whether the input has ended.
    pub fn has_ended(&self) -> bool {
        self.last == 0
    }

    /// Returns whether the line has been read completely.
    pub(crate) fn is_line_read(&self) -> bool {
        self.last == b'\n'
    }

    /// Returns whether each line has a prompt.
    pub fn is_interactive(&self) -> bool {
        self.current.interactive
    }

    /// Shows an error with a mark below the last character that was read, and skips the rest of the line.
    pub(crate) fn error(&mut self, message: &str) {
        let mark = self.line.len();
        while !matches!(self.last, 0 | b'\n') {
            self.next();
        }
        let before = self.line.iter().take(mark).take_while(|c| **c != b'\n');
        let blanks: String = before.map(|c| if *c == b'\t' { '\t' } else { ' ' }).collect();
        out!(self.console, "{:1$}{blanks}^ at or near here\n", "", self.current.prompt.len() + 1);
        let place = self.after.as_ref().map_or_else(String::new, |_| format!(" [{RC}, line {}]", self.number));
        err!(self.console, "Error{place}: {message}\nType 'help' for a list of commands.\n");
    }

    /// Shows a warning.
    pub(crate) fn warn(&self, message: &str) {
        match self.after {
            None => err!(self.console, "Warning: {message}\n"),
            Some(_) => err!(self.console, "Warning [{RC}, line {}]\n{message}\n", self.number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn commands_of_others_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(RC);
        std::fs::write(&path, "status\n").unwrap();
        let check = |mode| {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            check_rc(&open_rc(&path).unwrap())
        };
        assert_eq!(check(0o644), Ok(()));
        assert_eq!(check(0o646).unwrap_err(), "other users may write to it (mode 646)");
        // Root's group may have members, the group of a user with umask 002 has none.
        assert_eq!(check(0o664).is_ok(), !geteuid().is_root());
        check(0o644).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(2001), None).unwrap();
            assert_eq!(check(0o644).unwrap_err(), "it belongs to user 2001");
        }
        // Another user's link to a file of root.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(RC, &link).unwrap();
        set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(open_rc(&link).is_ok());
        if geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(2001), None).unwrap();
            assert_eq!(open_rc(&link).unwrap_err().to_string(), "it belongs to user 2001");
        }
        // A FIFO is not waited for.
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        open_rc(&fifo).unwrap();
    }
}
