//! Parser of `mkconst` and `novalue`, with the descriptor in their parentheses.

use super::SyntaxError;
use super::expr::{Kind, NodeId, Spec};
use super::lexer::{Keyword, Token};
use super::parser::{Parser, Result};
use pmapi::{InDom, Semantics, Serial, Type};

impl Parser<'_> {
    /// Parses `mkconst(` up to and including `)`.
    pub(super) fn mkconst(&mut self) -> Result {
        self.advance();
        self.advance();
        let (text, float) = match self.token {
            Token::Integer(text) => (text, false),
            Token::Double(text) => (text, true),
            _ => return Err(self.unexpected()),
        };
        let unexpected = |parser: &Self| {
            if float { parser.unexpected() } else { parser.expected("metadata keyword", "mkconst(type") }
        };
        self.advance();
        if !self.take(&Token::Comma) {
            return Err(unexpected(self));
        }
        let (spec, meta) = self.specs(unexpected)?;
        let ty = spec.ty.unwrap_or(if float { Type::Double } else { Type::U32 });
        if float && !matches!(ty, Type::Float | Type::Double) {
            return Err(self.error(format!("Incompatible floating point constant and type '{ty}'")));
        }
        self.advance();
        self.push(Kind::Constant { text: text.into(), float, spec, meta }, meta);
        Ok(())
    }

    /// Parses `novalue(` up to its `)`, which stays the current token.
    pub(super) fn novalue(&mut self) -> Result<NodeId> {
        self.advance();
        self.advance();
        let (spec, meta) = match self.token {
            Token::CloseParen => Default::default(),
            _ => self.specs(|parser| parser.expected("metadata keyword", "novalue("))?,
        };
        Ok(self.expr.push(Kind::NoValue { spec, meta }, meta))
    }

    /// Parses `keyword=value`, separated by commas, up to the closing parenthesis.
    fn specs(&mut self, unexpected: impl Fn(&Self) -> SyntaxError) -> Result<(Spec, Option<NodeId>)> {
        let mut spec = Spec::default();
        let mut meta = None;
        loop {
            let Token::Keyword(keyword) = self.token else { return Err(unexpected(self)) };
            self.advance();
            if !self.take(&Token::Assign) {
                return Err(unexpected(self));
            }
            let value = match self.token {
                Token::Name(value) => value,
                Token::String(value) | Token::Integer(value) | Token::Double(value) if keyword != Keyword::Meta => {
                    value
                }
                _ => return Err(unexpected(self)),
            };
            match keyword {
                Keyword::Type => spec.ty = Some(self.numeric_type(value)?),
                Keyword::Semantics => spec.semantics = Some(self.semantics(value)?),
                Keyword::Units => spec.units = Some(self.units(value)?),
                Keyword::InDom => spec.indom = Some(self.indom(value)?),
                // Only the last one counts. The others are not looked up.
                Keyword::Meta => {
                    if let Some(earlier) = meta {
                        self.expr.nodes.truncate(earlier as usize);
                    }
                    meta = Some(self.expr.push(Kind::Name(value.into()), None));
                }
            }
            self.advance();
            match self.token {
                Token::CloseParen => return Ok((spec, meta)),
                Token::Comma => self.advance(),
                _ => return Err(unexpected(self)),
            }
        }
    }

    fn numeric_type(&self, text: &str) -> Result<Type> {
        let ty = text.parse::<Type>().ok().filter(|ty| ty.is_numeric());
        ty.ok_or_else(|| self.error(format!("Unrecognized value for type '{text}'")))
    }

    fn semantics(&self, text: &str) -> Result<Semantics> {
        text.parse().map_err(|_| self.error(format!("Unrecognized value for semantics '{text}'")))
    }

    fn indom(&self, text: &str) -> Result<Option<InDom>> {
        if text.eq_ignore_ascii_case("null") {
            return Ok(None);
        }
        let indom = text.split_once('.').and_then(|(domain, serial)| {
            let domain = number(domain).filter(|domain| *domain < 511)?;
            let serial = number(serial).filter(|serial| *serial <= Serial::MAX)?;
            InDom::from_word(domain << 22 | serial)
        });
        indom.map(Some).ok_or_else(|| self.error(format!("Illegal indom: '{text}'")))
    }
}

/// Parses a number as sscanf(3) does for `%u`.
fn number(text: &str) -> Option<u32> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    text.parse().ok()
}
