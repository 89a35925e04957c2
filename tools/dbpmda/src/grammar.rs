//! Parser: turns tokens into commands.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use pcp_collector::Address;
use pmapi::{InDom, OrNull, PmId};

use crate::command::{Change, Command, Form, Labels, Subject, Which};
use crate::scanner::Scanner;
use crate::source::Source;
use crate::token::{Token, Word};
use crate::{attribute, help};

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
            Token::Eol => return Ok(Command::Nothing),
            Token::Word(word) if word == Word::Help || help::is_command(word) => word,
            // An unterminated last line does not count.
            _ if self.source.has_ended() => return Ok(Command::Nothing),
            _ => return Err(self.error("Unrecognized command")),
        };
        let first = self.token();
        match (word, first) {
            (Word::Help, Token::Eol) => Ok(Command::Help(None, Form::Full)),
            (Word::Help, Token::Word(word)) if help::is_command(word) => {
                self.end(Command::Help(Some(word), Form::Full))
            }
            (Word::Close, Token::Eol) => Ok(Command::Close),
            (Word::Quit, Token::Eol) => Ok(Command::Quit),
            (Word::Status, Token::Eol) => Ok(Command::Status),
            (Word::NameSpace, token) => self.path_of(token, Command::NameSpace),
            (Word::Close | Word::Help | Word::Quit | Word::Status, _) => Err(self.syntax()),
            (word, Token::Eol) => Ok(Command::Help(Some(word), Form::Usage)),
            (Word::Attr, token) => self.attr(token),
            (Word::Children, Token::Name(name)) => self.end(Command::Children(name)),
            (Word::Debug, token) => self.debug(token),
            (Word::Desc, token) => {
                let pmid = self.metric(token)?;
                self.end(Command::Desc(pmid))
            }
            (Word::Fetch, token) => self.fetch(token),
            (Word::GetDesc, Token::Word(Word::On)) => self.end(Command::GetDesc(true)),
            (Word::GetDesc, Token::Word(Word::Off)) => self.end(Command::GetDesc(false)),
            (Word::GetIname, Token::Word(Word::On)) => self.end(Command::GetIname(true)),
            (Word::GetIname, Token::Word(Word::Off)) => self.end(Command::GetIname(false)),
            (Word::Instance, token) => self.instance(token),
            (Word::Label, token) => self.label(token),
            (Word::Name, Token::Number3(parts)) => self.end(Command::Names(pmid(parts))),
            (Word::Open, token) => self.open(token),
            (Word::PmId, Token::Name(name)) => self.end(Command::PmId(name)),
            (Word::Profile, token) => self.profile(token),
            (Word::Store, token) => self.store(token),
            (Word::Text, token) => self.text(token),
            (Word::Timer, Token::Word(Word::On)) => self.end(Command::Timer(true)),
            (Word::Timer, Token::Word(Word::Off)) => self.end(Command::Timer(false)),
            (Word::Traverse, Token::Name(name)) => self.end(Command::Traverse(name)),
            (Word::Wait, Token::Number(seconds)) => self.end(Command::Wait(seconds as u32)),
            (Word::Watch, token) => self.path_of(token, Command::Watch),
            _ => Err(self.syntax()),
        }
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

    /// Parses the end of the line after a command.
    fn end(&mut self, command: Command) -> Parsed<Command> {
        match self.token() {
            Token::Eol => Ok(command),
            _ => Err(self.syntax()),
        }
    }

    fn open(&mut self, kind: Token) -> Parsed<Command> {
        let Token::Word(kind @ (Word::Dso | Word::Pipe | Word::Socket)) = kind else { return Err(self.syntax()) };
        let first = self.token();
        match (kind, first) {
            (Word::Dso, token) => {
                let path = self.path(token)?;
                let Token::Name(init) = self.token() else { return Err(self.syntax()) };
                match self.token() {
                    Token::Eol => Ok(Command::OpenDso { path, init, domain: 0 }),
                    Token::Number(domain) => self.end(Command::OpenDso { path, init, domain }),
                    _ => Err(self.syntax()),
                }
            }
            (Word::Pipe, token) => {
                let program = self.path(token)?;
                Ok(Command::OpenPipe { program, arguments: self.arguments() })
            }
            (_, Token::Word(Word::Inet)) => self.port("inet", Address::Inet),
            (_, Token::Word(Word::Ipv6)) => self.port("ipv6", Address::Ipv6),
            (_, Token::Word(Word::Unix)) => {
                let token = self.token();
                self.unix(token)
            }
            (_, token) => self.unix(token),
        }
    }

    fn unix(&mut self, token: Token) -> Parsed<Command> {
        let path = self.path(token)?;
        // A socket address has room for 107 bytes; as in C, the rest does not count.
        let socket = OsStr::from_bytes(path.get(..107).unwrap_or(&path)).into();
        Ok(Command::OpenSocket(Address::Unix(socket), path))
    }

    fn port(&mut self, kind: &str, address: fn(u16) -> Address) -> Parsed<Command> {
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
        Ok(Command::OpenSocket(address(port as u16), format!("{kind} port {port}").into_bytes()))
    }

    /// Parses the rest of a command whose only argument is a path.
    fn path_of(&mut self, token: Token, command: fn(Vec<u8>) -> Command) -> Parsed<Command> {
        let path = self.path(token)?;
        self.end(command(path))
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
    fn arguments(&mut self) -> Vec<Vec<u8>> {
        let mut arguments = Vec::new();
        if self.source.is_line_read() {
            return arguments;
        }
        let (mut word, mut quote) = (Vec::new(), None);
        loop {
            match (self.source.next(), quote) {
                (Some(c), Some(end)) if c == end => quote = None,
                (Some(c), Some(_)) => word.push(c),
                (Some(c @ (b'"' | b'\'')), None) => quote = Some(c),
                (end @ (None | Some(b' ' | b'\t' | b'\n')), _) => {
                    if !word.is_empty() {
                        arguments.push(std::mem::take(&mut word));
                    }
                    if matches!(end, None | Some(b'\n')) {
                        return arguments;
                    }
                }
                (Some(c), None) => word.push(c),
            }
        }
    }

    fn fetch(&mut self, first: Token) -> Parsed<Command> {
        let mut pmids = vec![self.metric(first)?];
        loop {
            let token = match self.token() {
                Token::Eol => return Ok(Command::Fetch(pmids)),
                Token::Comma => self.token(),
                token => token,
            };
            pmids.push(self.metric(token)?);
        }
    }

    fn store(&mut self, metric: Token) -> Parsed<Command> {
        let pmid = self.metric(metric)?;
        match self.token() {
            Token::Quoted(value) => self.end(Command::Store(pmid, value)),
            _ => Err(self.syntax()),
        }
    }

    fn text(&mut self, subject: Token) -> Parsed<Command> {
        let subject = match subject {
            Token::Word(Word::InDom) => Subject::InDom(self.indom()?),
            token => Subject::Metric(self.metric(token)?),
        };
        self.end(Command::Text(subject))
    }

    fn instance(&mut self, indom: Token) -> Parsed<Command> {
        let indom = self.indom_of(indom)?;
        let which = match self.token() {
            Token::Eol => return Ok(Command::Instance(indom, Which::All)),
            Token::Number(number) => Which::Number(number),
            Token::Quoted(name) => Which::Name(name),
            Token::Name(name) => Which::Name(name.into_bytes()),
            _ => return Err(self.syntax()),
        };
        self.end(Command::Instance(indom, which))
    }

    fn profile(&mut self, indom: Token) -> Parsed<Command> {
        let indom = self.indom_of(indom)?;
        let change: fn(i32) -> Change = match self.token() {
            Token::Word(Word::All) => return self.end(Command::Profile(indom, Change::All)),
            Token::Word(Word::None) => return self.end(Command::Profile(indom, Change::None)),
            Token::Word(Word::Add) => Change::Add,
            Token::Word(Word::Delete) => Change::Delete,
            _ => return Err(self.syntax()),
        };
        match self.token() {
            Token::Number(inst) => self.end(Command::Profile(indom, change(inst))),
            _ => Err(self.syntax()),
        }
    }

    fn label(&mut self, subject: Token) -> Parsed<Command> {
        let labels = match subject {
            Token::Word(Word::Context) => Labels::Context,
            Token::Word(Word::Domain) => Labels::Domain,
            Token::Word(Word::InDom) => Labels::InDom(self.indom()?),
            Token::Word(Word::Instances) => Labels::Instances(self.indom()?),
            Token::Word(Word::Cluster) => match self.token() {
                Token::Number(word) => Labels::Cluster(PmId::from_word(word as u32)),
                Token::Number2([domain, cluster]) => Labels::Cluster(pmid([domain, cluster, 0])),
                _ => return Err(self.syntax()),
            },
            Token::Word(Word::Item) => {
                let token = self.token();
                Labels::Item(self.metric(token)?)
            }
            _ => return Err(self.syntax()),
        };
        self.end(Command::Label(labels))
    }

    fn attr(&mut self, name: Token) -> Parsed<Command> {
        let (key, text) = match name {
            Token::Number(key) => (attribute::name(key).map(|_| key), key.to_string()),
            Token::Quoted(name) => (attribute::key(&name), String::from_utf8_lossy(&name).into_owned()),
            _ => return Err(self.syntax()),
        };
        let Some(key) = key else {
            return Err(self.error(&clip(format!("Attribute ({text}) is not recognised"))));
        };
        match self.token() {
            Token::Eol => Ok(Command::Attribute(key, None)),
            Token::Quoted(value) => self.end(Command::Attribute(key, Some(value))),
            _ => Err(self.syntax()),
        }
    }

    fn debug(&mut self, mut token: Token) -> Parsed<Command> {
        if let Token::Word(all @ (Word::All | Word::None)) = token {
            self.end(Command::Nothing)?;
            self.meaning.debug(if all == Word::All { "all" } else { "-all" });
            return Ok(Command::Nothing);
        }
        loop {
            let option = match token {
                Token::Number(bits) => bits.to_string(),
                Token::Name(name) | Token::MinusName(name) => name,
                Token::Word(Word::Fetch) => "fetch".to_owned(),
                Token::Word(Word::Profile) => "profile".to_owned(),
                Token::Word(Word::Context) => "context".to_owned(),
                Token::Word(Word::InDom) => "indom".to_owned(),
                Token::Word(Word::Attr) => "attr".to_owned(),
                _ => return Err(self.syntax()),
            };
            if !self.meaning.debug(&option) {
                return Err(self.error(&clip(format!("Bad debug flag ({option})"))));
            }
            token = match self.token() {
                Token::Eol => return Ok(Command::Nothing),
                Token::Comma => self.token(),
                token => token,
            };
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

    fn indom(&mut self) -> Parsed<Option<InDom>> {
        let token = self.token();
        self.indom_of(token)
    }

    fn indom_of(&mut self, token: Token) -> Parsed<Option<InDom>> {
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
