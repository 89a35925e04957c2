//! Configuration files (pmLoadDerivedConfig(3)).

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::control::Severity;
use super::definitions::is_name;
use super::lexer::is_space;
use super::{Controls, Definitions, Setter, SyntaxError};
use pcp_base::file;
use pcp_pdu::metadata::TextKind;

/// Result of loading a configuration.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Loaded {
    /// Number of definitions added.
    pub count: usize,
    /// Line of each added definition in its file, from 1.
    pub lines: Vec<usize>,
    /// Errors and warnings, in the order of the lines.
    pub messages: Vec<Message>,
}

/// Error or warning about a line of a configuration. `Display` prints it as libpcp does, without the newline at its
/// end.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Message {
    /// Name of the configuration file.
    pub file: String,
    /// Line in the file, from 1; for a continued line, the first.
    pub line: usize,
    /// Severity of the message.
    pub severity: Severity,
    /// Metric that the line is about, as far as it could be parsed.
    pub metric: Option<String>,
    /// Text of the message.
    pub text: String,
    /// Further lines: the line itself, or the expression with a caret below it and the reason.
    pub detail: Vec<String>,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}:{}] {}: {}", self.file, self.line, self.severity, self.text)?;
        self.detail.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

impl Definitions {
    /// Loads definitions from configuration files (pmLoadDerivedConfig(3)).
    ///
    /// `paths` lists files and directories, separated by colons. A directory is loaded with everything below it, in the
    /// order of the file names; in libpcp the order is undefined. `#control` lines set `controls`.
    ///
    /// # Errors
    /// The first error of a file or directory that cannot be read ([`read_files`]). Definitions loaded before it stay.
    pub fn load(&mut self, paths: &str, controls: &mut Controls) -> io::Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut unread = None;
        read_files(paths, &mut |path, text| match text {
            Ok(text) if unread.is_none() => {
                let more = self.load_text(&path.display().to_string(), &String::from_utf8_lossy(&text), controls);
                loaded.count += more.count;
                loaded.lines.extend(more.lines);
                loaded.messages.extend(more.messages);
            }
            Ok(_) => {}
            Err(e) => _ = unread.get_or_insert(e),
        });
        unread.map_or(Ok(loaded), Err)
    }

    /// Loads definitions from the text of a configuration; `file` is its name in messages.
    pub fn load_text(&mut self, file: &str, text: &str, controls: &mut Controls) -> Loaded {
        let reader = Reader { rest: text, line: 1, next_line: 1 };
        let mut loader = Loader { definitions: self, controls, file, reader, loaded: Loaded::default() };
        while let Some(line) = loader.reader.line() {
            loader.line(&line);
        }
        loader.loaded
    }
}

/// Reads configuration files and directories in the order of [`Definitions::load`].
///
/// Calls `found` with the bytes of each file, or with the error of a file or directory that cannot be read. Skips
/// anything that is neither, such as sockets, in a directory. Reads a directory once, even if several paths or symbolic links lead to
/// it.
///
/// These are errors too: more than 10,000 files and directories, more than 100 nested directories, and a file of more
/// than 16 MiB.
pub fn read_files(paths: &str, found: &mut dyn FnMut(&Path, io::Result<Vec<u8>>)) {
    let mut walk = Walk { found, read: HashSet::new(), count: 0 };
    paths.split(':').filter(|path| !path.is_empty()).for_each(|path| walk.read_below(Path::new(path), 0));
}

/// Largest number of files and directories that are read.
const MOST: usize = 10_000;
/// Largest number of nested directories.
const DEEPEST: usize = 100;
/// Largest size of a file, in bytes.
const LONGEST: u64 = 1 << 24;

struct Walk<'a> {
    found: &'a mut dyn FnMut(&Path, io::Result<Vec<u8>>),
    /// Device and inode of each directory that has been read.
    read: HashSet<(u64, u64)>,
    count: usize,
}

impl Walk<'_> {
    fn read_below(&mut self, path: &Path, depth: usize) {
        self.count += 1;
        if self.count > MOST + 1 {
            return;
        }
        if self.count > MOST || depth > DEEPEST {
            return (self.found)(path, Err(io::Error::other("too many files or directories in a configuration")));
        }
        let entries = match fs::metadata(path) {
            Ok(data) if data.is_dir() && !self.read.insert((data.dev(), data.ino())) => return,
            Ok(data) if data.is_dir() => fs::read_dir(path).and_then(|dir| dir.take(MOST).collect()),
            // In a directory, other files are left out.
            Ok(data) if data.is_file() || depth == 0 => return (self.found)(path, file::read(path, LONGEST)),
            Ok(_) => return,
            Err(e) => Err(e),
        };
        match entries {
            Ok(entries) => {
                let mut entries: Vec<fs::DirEntry> = entries;
                entries.sort_by_key(fs::DirEntry::file_name);
                entries.iter().for_each(|entry| self.read_below(&entry.path(), depth + 1));
            }
            Err(e) => (self.found)(path, Err(e)),
        }
    }
}

/// Reader of lines and characters that counts lines.
struct Reader<'a> {
    rest: &'a str,
    /// Number of the line that was read last; for a continued line, of its first.
    line: usize,
    next_line: usize,
}

impl Reader<'_> {
    /// Returns the next line, joined with the lines that follow a backslash at its end.
    fn line(&mut self) -> Option<String> {
        self.line = self.next_line;
        let mut line = String::new();
        loop {
            if self.rest.is_empty() {
                return Some(line).filter(|line| !line.is_empty());
            }
            let (part, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
            self.rest = rest;
            self.next_line += 1;
            match part.strip_suffix('\\') {
                Some(part) => line.push_str(part),
                None => {
                    line.push_str(part);
                    return Some(line);
                }
            }
        }
    }

    fn char(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.next_line += usize::from(c == '\n');
        Some(c)
    }
}

struct Loader<'a> {
    definitions: &'a mut Definitions,
    controls: &'a mut Controls,
    file: &'a str,
    reader: Reader<'a>,
    loaded: Loaded,
}

impl Loader<'_> {
    fn message(&mut self, severity: Severity, metric: Option<&str>, text: String, detail: Vec<String>) {
        let (file, line, metric) = (self.file.to_owned(), self.reader.line, metric.map(str::to_owned));
        self.loaded.messages.push(Message { file, line, severity, metric, text, detail });
    }

    /// Adds an error with libpcp's usual prefix, and the line if given.
    fn error(&mut self, metric: Option<&str>, text: &str, line: Option<&str>) {
        let detail = line.map(str::to_owned).into_iter().collect();
        self.message(Severity::Error, metric, format!("pmLoadDerivedConfig: {text}"), detail);
    }

    fn line(&mut self, line: &str) {
        if line.is_empty() || line.starts_with('#') {
            return self.comment(line);
        }
        let Some((left, right)) = line.split_once('=') else {
            return self.error(None, "missing ``='' after derived metric name", Some(line));
        };
        let (open, close) = (left.find('('), left.find(')'));
        let name = trim(&left[..open.unwrap_or(left.len())]);
        if name.is_empty() {
            return self.error(None, "derived metric name missing", Some(line));
        }
        if !is_name(name) {
            return self.error(None, &format!("illegal derived metric name ({name})"), None);
        }
        match (open, close) {
            (None, None) => self.definition(name, right, line),
            (Some(_), None) => self.error(Some(name), "missing ')' after attribute", Some(line)),
            (None, Some(_)) => self.error(Some(name), "missing '(' before attribute", Some(line)),
            (Some(open), Some(close)) => {
                let attribute = left.get(open + 1..close).unwrap_or_default();
                self.attribute(name, trim(attribute), right, line);
            }
        }
    }

    fn comment(&mut self, line: &str) {
        let Some(word) = line.get(..8) else { return };
        if !word.eq_ignore_ascii_case("#control") {
            return;
        }
        for error in self.controls.set_from_text(Setter::Program, line.get(9..).unwrap_or_default()) {
            self.message(error.severity(), None, error.to_string(), Vec::new());
        }
        self.controls.apply(self.definitions);
    }

    fn definition(&mut self, name: &str, right: &str, line: &str) {
        let expr = right.trim_start_matches(space);
        if expr.is_empty() {
            return self.error(Some(name), "expression missing", Some(line));
        }
        let error = match self.definitions.register(name, expr) {
            Ok(_) => {
                self.loaded.count += 1;
                self.loaded.lines.push(self.reader.line);
                return;
            }
            Err(error) => SyntaxError::from(error),
        };
        let shifted = SyntaxError { offset: error.offset + right.len() - expr.len(), ..error };
        let text = format!("pmRegisterDerived({name}, ...) syntax error");
        self.message(Severity::Error, Some(name), text, shifted.detail(right));
    }

    fn attribute(&mut self, name: &str, attribute: &str, right: &str, line: &str) {
        if attribute.is_empty() {
            return self.error(Some(name), "attribute name missing", Some(line));
        }
        let value = right.trim_start_matches(space);
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let value = quote.map_or(value, |_| &value[1..]);
        if value.is_empty() {
            return self.error(Some(name), "attribute value missing", Some(line));
        }
        let value = match quote {
            None => value.to_owned(),
            Some(quote) => match self.quoted(name, value, quote) {
                Some(value) => value,
                None => {
                    return self.error(Some(name), &format!("missing termination ({quote}) for value"), None);
                }
            },
        };
        let text = match attribute {
            "oneline" => Ok(TextKind::OneLine),
            "helptext" => Ok(TextKind::Help),
            _ => Err(format!("attribute ({attribute}) is unknown for metric ({name})")),
        };
        let wrong = match (self.definitions.get_mut(name), text) {
            (None, _) => format!("cannot set attribute, derived metric ({name}) not defined"),
            (_, Err(wrong)) => wrong,
            (Some(definition), Ok(text)) => match definition.set_text(text, &value) {
                Ok(()) => return,
                Err(_) => format!("duplicate value for attribute ({attribute}) of metric ({name})"),
            },
        };
        self.error(Some(name), &wrong, Some(line));
    }

    /// Reads a value in quotes, which may continue in the following lines. Returns `None` without a closing quote.
    fn quoted(&mut self, name: &str, first_line: &str, quote: char) -> Option<String> {
        let mut value = String::new();
        let mut chars = first_line.chars().chain(std::iter::once('\n'));
        let mut in_first;
        loop {
            let mut next = || {
                let c = chars.next();
                (c.or_else(|| self.reader.char()), c.is_some())
            };
            let (c, first) = next();
            in_first = first;
            match c? {
                c if c == quote => break,
                '\\' => value.extend(next().0.filter(|c| *c != '\n')),
                c => value.push(c),
            }
        }
        let extra = if in_first {
            chars.collect::<String>()
        } else {
            let (line, rest) = self.reader.rest.split_once('\n').unwrap_or((self.reader.rest, ""));
            self.reader.rest = rest;
            self.reader.next_line += 1;
            line.to_owned()
        };
        let extra = extra.trim_start_matches(space).trim_end_matches('\n');
        if !extra.is_empty() {
            let text = format!("pmLoadDerivedConfig: extra text ({extra}) after attribute value will be ignored");
            self.message(Severity::Warning, Some(name), text, Vec::new());
        }
        Some(value)
    }
}

fn space(c: char) -> bool {
    u8::try_from(c).is_ok_and(is_space)
}

fn trim(text: &str) -> &str {
    text.trim_matches(space)
}
