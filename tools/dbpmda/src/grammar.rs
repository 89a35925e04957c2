//! Grammar: turns tokens into commands.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use pcp_collector::Address;
use pmapi::{InDom, OrNull, PmId};

use crate::scanner::Scanner;
use crate::source::Source;
use crate::token::{Token, Word};
use crate::{attribute, help};

/// Complete command: a keyword and its arguments. An empty line has neither.
pub(crate) type Command = Option<(Word, Vec<Arg>)>;

/// Argument of a command. Identifiers are as typed: `None` for `PM_ID_NULL` and `PM_INDOM_NULL`, possibly of another
/// domain than the agent's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Arg {
    Word(Word),
    Metric(Option<PmId>),
    InDom(Option<InDom>),
    /// Number of an instance, an attribute, a domain, or of seconds.
    Number(i32),
    /// Name, path or text in quotes.
    Text(Vec<u8>),
    /// Address, and its name in messages.
    Socket(Address, Vec<u8>),
}

impl Arg {
    /// Returns the PMID of a metric.
    pub(crate) fn metric(&self) -> Option<Option<PmId>> {
        if let Arg::Metric(pmid) = self { Some(*pmid) } else { None }
    }

    /// Parses an optional number. Returns 0 if it is missing.
    pub(crate) fn number(&self) -> i32 {
        if let Arg::Number(number) = self { *number } else { 0 }
    }

    /// Returns a text.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        if let Arg::Text(text) = self { Some(text) } else { None }
    }
}

/// Context of the parser. Names and debug options take effect when they are read, so that an error is marked at the
/// right word.
pub(crate) trait Meaning {
    /// Returns the PMID of a name, `None` for `PM_ID_NULL`. The error is a message.
    fn lookup(&mut self, name: &str) -> Result<Option<PmId>, String>;
    /// Returns whether a metric has a name.
    fn is_named(&self, pmid: Option<PmId>) -> bool;
    /// Sets or clears debug options. Returns `false` for an unknown one.
    fn debug(&mut self, option: &str) -> bool;
}

/// Error that has been shown.
#[derive(Debug)]
pub(crate) struct Reported;

type Parsed<T> = Result<T, Reported>;

/// Parser of a single command.
///
/// It reads a token only where needed. So the commands that open an agent end with their last argument, and the rest of
/// the line is the next command.
pub(crate) struct Parser<'a, M> {
    pub(crate) source: &'a mut Source,
    pub(crate) scanner: &'a mut Scanner,
    pub(crate) meaning: &'a mut M,
}

impl<M: Meaning> Parser<'_, M> {
    /// Parses a command.
    pub(crate) fn command(mut self) -> Parsed<Command> {
        let word = match self.token() {
            Token::Eol => return Ok(None),
            Token::Word(word) if word == Word::Help || help::is_command(word) => word,
            // An unterminated last line does not count.
            _ if self.source.has_ended() => return Ok(None),
            _ => return Err(self.error("Unrecognized command")),
        };
        let mut args = Vec::new();
        loop {
            let mut token = self.token();
            match (word, &*args) {
                _ if token == Token::Eol && is_complete(word, &args) => break,
                (Word::Fetch, [_, ..]) | (Word::Debug, [Arg::Text(_), ..]) if token == Token::Comma => {
                    token = self.token();
                }
                _ => {}
            }
            args.push(self.argument(word, &args, token)?);
            match &*args {
                [Arg::Word(Word::Pipe), _] => {
                    args.extend(self.words().into_iter().map(Arg::Text));
                    break;
                }
                [_, Arg::Socket(..)] => break,
                _ => {}
            }
        }
        Ok(Some((word, args)))
    }

    /// Parses the next argument of a command, whose kind depends on the arguments before it.
    fn argument(&mut self, word: Word, args: &[Arg], token: Token) -> Parsed<Arg> {
        use Word as W;
        Ok(match (word, args, token) {
            (W::Help, [], Token::Word(topic)) if help::is_command(topic) => Arg::Word(topic),
            (W::GetDesc | W::GetIname | W::Timer, [], Token::Word(word @ (W::On | W::Off)))
            | (W::Open, [], Token::Word(word @ (W::Dso | W::Pipe | W::Socket)))
            | (W::Profile, [_], Token::Word(word @ (W::All | W::None | W::Add | W::Delete)))
            | (W::Debug, [], Token::Word(word @ (W::All | W::None)))
            | (W::Label, [], Token::Word(word @ (W::Context | W::Domain | W::Cluster | W::Item | W::Instances)))
            | (W::Label | W::Text, [], Token::Word(word @ W::InDom)) => Arg::Word(word),
            (W::Debug, [] | [Arg::Text(_), ..], token) => self.debug(token)?,
            (W::Label, [Arg::Word(W::Cluster)], Token::Number(word)) => Arg::Metric(PmId::from_word(word as u32)),
            (W::Label, [Arg::Word(W::Cluster)], Token::Number2([domain, cluster])) => {
                Arg::Metric(pmid([domain, cluster, 0]))
            }
            (W::Name, [], Token::Number3(parts)) => Arg::Metric(pmid(parts)),
            (W::Desc | W::Store | W::Text, [], token)
            | (W::Fetch, _, token)
            | (W::Label, [Arg::Word(W::Item)], token) => Arg::Metric(self.metric(token)?),
            (W::Instance | W::Profile, [], token)
            | (W::Label | W::Text, [Arg::Word(W::InDom | W::Instances)], token) => Arg::InDom(self.indom(token)?),
            (W::Attr, [], token) => Arg::Number(self.attribute(token)?),
            (W::Wait, [], Token::Number(number))
            | (W::Instance, [_], Token::Number(number))
            | (W::Profile, [_, Arg::Word(W::Add | W::Delete)], Token::Number(number))
            | (W::Open, [Arg::Word(W::Dso), _, _], Token::Number(number)) => Arg::Number(number),
            (W::Attr | W::Instance | W::Store, [_], Token::Quoted(text)) => Arg::Text(text),
            (W::Children | W::PmId | W::Traverse, [], Token::Name(name))
            | (W::Instance, [_], Token::Name(name))
            | (W::Open, [Arg::Word(W::Dso), _], Token::Name(name)) => Arg::Text(name.into_bytes()),
            (W::NameSpace | W::Watch, [], token) | (W::Open, [Arg::Word(W::Dso | W::Pipe)], token) => {
                Arg::Text(self.path(token)?)
            }
            (W::Open, [Arg::Word(W::Socket)], token) => self.socket(token)?,
            _ => return Err(self.syntax()),
        })
    }

    fn token(&mut self) -> Token {
        self.scanner.token(self.source)
    }

    fn error(&mut self, message: &str) -> Reported {
        self.source.error(message);
        Reported
    }

    fn syntax(&mut self) -> Reported {
        self.error("syntax error")
    }

    fn socket(&mut self, token: Token) -> Parsed<Arg> {
        match token {
            Token::Word(Word::Inet) => self.port("inet", Address::Inet),
            Token::Word(Word::Ipv6) => self.port("ipv6", Address::Ipv6),
            token => {
                let token = if token == Token::Word(Word::Unix) { self.token() } else { token };
                let path = self.path(token)?;
                // A socket address has room for 107 bytes; as in C, the rest does not count.
                let socket = OsStr::from_bytes(path.get(..107).unwrap_or(&path)).into();
                Ok(Arg::Socket(Address::Unix(socket), path))
            }
        }
    }

    fn port(&mut self, kind: &str, address: fn(u16) -> Address) -> Parsed<Arg> {
        let port = match self.token() {
            Token::Number(port) => port,
            Token::Quoted(name) => {
                let name = String::from_utf8_lossy(&name).into_owned();
                let Some(port) = attribute::service(&name) else {
                    return Err(self.error(&clip(format!("Failed to map ({name}) to a port number"))));
                };
                self.source.warn(&clip(format!("Mapped {name} to port number {port}")));
                port
            }
            _ => return Err(self.syntax()),
        };
        // As in C, the lower 16 bits are the port.
        Ok(Arg::Socket(address(port as u16), format!("{kind} port {port}").into_bytes()))
    }

    /// Returns the path of a file, relative to the working directory if it has no directory.
    fn path(&mut self, token: Token) -> Parsed<Vec<u8>> {
        match token {
            Token::Path(path) => Ok(path),
            Token::Name(name) => {
                // A name does not begin with a slash, but may be a Windows path.
                let drive = name.len() > 4 && name.get(1..3) == Some(":/");
                Ok(if drive { name } else { format!("./{name}") }.into_bytes())
            }
            _ => Err(self.syntax()),
        }
    }

    /// Reads the rest of the line as words between blanks. Quotes keep blanks and line ends together.
    fn words(&mut self) -> Vec<Vec<u8>> {
        let (mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None);
        if self.source.is_line_read() {
            return words;
        }
        loop {
            match (self.source.next(), quote) {
                (Some(c), Some(end)) if c == end => quote = None,
                (Some(c @ (b'"' | b'\'')), None) => quote = Some(c),
                (end @ (None | Some(b' ' | b'\t' | b'\n')), None) | (end @ None, _) => {
                    words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                    if matches!(end, None | Some(b'\n')) {
                        return words;
                    }
                }
                (Some(c), _) => word.push(c),
            }
        }
    }

    fn attribute(&mut self, token: Token) -> Parsed<i32> {
        let (key, text) = match token {
            Token::Number(key) => (attribute::name(key).map(|_| key), key.to_string()),
            Token::Quoted(name) => (attribute::key(&name), String::from_utf8_lossy(&name).into_owned()),
            _ => return Err(self.syntax()),
        };
        key.ok_or_else(|| self.error(&clip(format!("Attribute ({text}) is not recognised"))))
    }

    fn debug(&mut self, token: Token) -> Parsed<Arg> {
        let option = match token {
            Token::Number(bits) => bits.to_string(),
            Token::Name(name) | Token::MinusName(name) => name,
            Token::Word(word @ (Word::Fetch | Word::Profile | Word::Context | Word::InDom | Word::Attr)) => {
                word.text().to_owned()
            }
            _ => return Err(self.syntax()),
        };
        if self.meaning.debug(&option) {
            Ok(Arg::Text(option.into_bytes()))
        } else {
            Err(self.error(&clip(format!("Bad debug flag ({option})"))))
        }
    }

    fn metric(&mut self, token: Token) -> Parsed<Option<PmId>> {
        let pmid = match token {
            Token::Number(word) => PmId::from_word(word as u32),
            Token::Number2([cluster, item]) => pmid([0, cluster, item]),
            Token::Number3(parts) => pmid(parts),
            Token::Name(name) => {
                return match self.meaning.lookup(&name) {
                    Ok(pmid) => Ok(pmid),
                    Err(message) => Err(self.error(&message)),
                };
            }
            _ => return Err(self.syntax()),
        };
        if !self.meaning.is_named(pmid) {
            self.source.warn(&format!("PMID ({}) is not defined in the PMNS", OrNull(pmid)));
        }
        Ok(pmid)
    }

    fn indom(&mut self, token: Token) -> Parsed<Option<InDom>> {
        match token {
            Token::Number(word) | Token::Negative(word) => Ok(InDom::from_word(word as u32)),
            Token::Number2([domain, serial]) => {
                let (domain, serial) = (domain as u32 & 0x1ff, serial as u32 & 0x3f_ffff);
                Ok(InDom::from_word(domain << 22 | serial))
            }
            _ => Err(self.syntax()),
        }
    }
}

/// Returns whether a command may end after its arguments. Most commands without arguments show their usage.
fn is_complete(word: Word, args: &[Arg]) -> bool {
    use Word as W;
    !matches!(
        (word, args),
        (W::NameSpace, [])
            | (W::Store | W::Profile, [_])
            | (W::Profile, [_, Arg::Word(W::Add | W::Delete)])
            | (W::Text, [Arg::Word(_)])
            | (W::Label, [Arg::Word(W::InDom | W::Cluster | W::Item | W::Instances)])
            | (W::Open, [_] | [_, _])
    )
}

/// Returns the PMID with the lower bits of each part that fit into its field.
fn pmid(parts: [i32; 3]) -> Option<PmId> {
    let [domain, cluster, item] = parts.map(|part| part as u32);
    PmId::from_word((domain & 0x1ff) << 22 | (cluster & 0xfff) << 10 | item & 0x3ff)
}

/// Cuts a message after 79 bytes, as PCP's dbpmda does.
fn clip(message: String) -> String {
    let end = message.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= 79).last();
    message.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}
