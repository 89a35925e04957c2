//! The parser: turns lines of text into blocks, and blocks into the tree.

mod assemble;
mod token;

use crate::Tree;
use crate::cpp::{Line, Preprocessor};
use crate::error::{Error, Place};
use pmapi::PmId;
use std::sync::Arc;
use token::{Token, Tokens};

/// The blocks of a text, `path { name pmid … }`.
#[derive(Default)]
struct Blocks {
    /// All paths and names, concatenated.
    names: String,
    blocks: Vec<Block>,
    entries: Vec<Entry>,
    files: Vec<Arc<str>>,
}

struct Block {
    path: Name,
    /// Index of its first entry. The entries end where those of the next block begin.
    entries: usize,
    /// Position of its `}`; line 0 while the block is open.
    end: At,
}

struct Entry {
    name: Name,
    pmid: Option<PmId>,
}

/// A range of [`Blocks::names`], and the position of the name in a file.
#[derive(Clone, Copy)]
struct Name {
    start: usize,
    end: usize,
    at: At,
}

/// A [`Place`] with an index in the place of the file's name.
#[derive(Clone, Copy, Default)]
struct At {
    /// Index in [`Blocks::files`].
    file: u32,
    line: u32,
    column: u32,
}

/// The tokens that the parser accepts next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A path, or the end of the text.
    Outside,
    /// `{`
    Head,
    /// A name or `}`.
    Inside,
    /// The PMID of the last name, another name, or `}`.
    AfterName,
}

pub(crate) fn parse(mut cpp: Preprocessor<'_>, unique: bool) -> Result<Tree, Error> {
    let mut blocks = Blocks { files: vec![cpp.file()], ..Blocks::default() };
    match blocks.read(&mut cpp).and_then(|()| blocks.assemble(unique)) {
        Ok(tree) => Ok(tree),
        // libpcp reports a duplicate name at the end of its block, before any later problem.
        Err(error) => Err(blocks.duplicate_name().map_or(error, Error::from)),
    }
}

impl Blocks {
    fn read(&mut self, cpp: &mut Preprocessor<'_>) -> Result<(), Error> {
        let mut line = Line::new();
        let mut state = State::Outside;
        while cpp.next_line(&mut line)? {
            if token::is_line_control(&line) {
                let (number, name) = token::line_control(&line)?;
                cpp.set_position(&name, number);
                continue;
            }
            let mut tokens = Tokens::new(&line);
            while let Some((at, token)) = tokens.next() {
                state = self.token(state, &line, at, token)?;
            }
        }
        match (state, self.blocks.last()) {
            (State::Head, Some(block)) => Err(self.problem(Some(block.path), "{ expected".into())),
            (State::Outside, _) | (_, None) => Ok(()),
            (State::Inside | State::AfterName, Some(_)) => {
                // The end of the text also ends the last block, as in libpcp: pmnsadd(1) and one of PCP's agents rely
                // on it.
                self.end_block(&line.place(0));
                Ok(())
            }
        }
    }

    fn end_block(&mut self, place: &Place) {
        let end = self.at(place);
        if let Some(block) = self.blocks.last_mut() {
            block.end = end;
        }
    }

    fn token(&mut self, state: State, line: &Line, at: usize, token: Token<'_>) -> Result<State, Error> {
        Ok(match (state, token) {
            (State::Outside, Token::Name(path) | Token::Path(path)) => {
                let path = self.push_name(line, at, path);
                self.blocks.push(Block { path, entries: self.entries.len(), end: At::default() });
                State::Head
            }
            (State::Head, Token::Open) => State::Inside,
            (State::Inside | State::AfterName, Token::Name(name)) => {
                let name = self.push_name(line, at, name);
                self.entries.push(Entry { name, pmid: None });
                State::AfterName
            }
            (State::AfterName, Token::Pmid(pmid)) => {
                if let Some(entry) = self.entries.last_mut() {
                    entry.pmid = Some(pmid);
                }
                State::Inside
            }
            (State::Inside | State::AfterName, Token::Close) => {
                self.end_block(&line.place(at));
                State::Outside
            }
            (state, token) => {
                let expected = match state {
                    State::Outside => "Expected NAME or PATH",
                    State::Head => "{ expected",
                    State::Inside => "Expected NAME or }",
                    State::AfterName => "Expected NAME, PMID or }",
                };
                let bogus = match token {
                    Token::Bogus(reason) => reason,
                    _ => None,
                };
                let reasons = bogus.into_iter().chain([expected]);
                return Err(Error::Problems(reasons.map(|reason| line.parse_problem(at, reason)).collect()));
            }
        })
    }

    fn push_name(&mut self, line: &Line, at: usize, name: &str) -> Name {
        let start = self.names.len();
        self.names.push_str(name);
        Name { start, end: self.names.len(), at: self.at(&line.place(at)) }
    }

    fn at(&mut self, place: &Place) -> At {
        if self.files.last().is_none_or(|file| !Arc::ptr_eq(file, &place.file)) {
            self.files.push(place.file.clone());
        }
        let file = u32::try_from(self.files.len() - 1).unwrap_or(u32::MAX);
        At { file, line: place.line, column: place.column }
    }

    fn place(&self, at: At) -> Place {
        let file = self.files.get(at.file as usize).cloned().unwrap_or_else(|| "".into());
        Place { file, line: at.line, column: at.column }
    }

    fn name(&self, name: Name) -> &str {
        self.names.get(name.start..name.end).unwrap_or_default()
    }

    fn entries(&self, block: usize) -> &[Entry] {
        let start = self.blocks.get(block).map_or(0, |block| block.entries);
        let end = self.blocks.get(block + 1).map_or(self.entries.len(), |next| next.entries);
        self.entries.get(start..end).unwrap_or_default()
    }
}
