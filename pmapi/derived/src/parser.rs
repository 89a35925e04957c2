//! Parser: turns a text into an [`Expr`].
//!
//! libpcp has an operator grammar for bison with productions for errors. The message for an invalid text depends on the
//! states on bison's stack when no token fits: the innermost state with an error production gives the message. This
//! parser keeps the same stack of incomplete constructs and asks them in the same order.

use super::SyntaxError;
use super::expr::{BinaryOp, Expr, Function, Kind, NodeId};
use super::filter::Filter;
use super::lexer::{Lexer, Token};
use pmapi::{Type, Units};

/// Incomplete construct. An operand stands before a binary operator and before `?`.
enum Entry {
    Binary(BinaryOp),
    Neg,
    Not,
    Paren,
    Quest { left: Option<NodeId> },
    Colon { left: NodeId },
    Function(Function),
    Rescale,
    MatchInst(Filter),
}

/// Largest depth of the stack, as in bison.
const MAX_DEPTH: usize = 10_000;

/// Largest length of a message in bytes, as in libpcp.
const MAX_REASON: usize = 255;

pub(crate) type Result<T = ()> = std::result::Result<T, SyntaxError>;

pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(super) token: Token<'a>,
    /// Offset of the token in the text.
    offset: usize,
    pub(super) expr: Expr,
    stack: Vec<Entry>,
    /// Operands of the constructs on the stack.
    operands: Vec<NodeId>,
}

pub(crate) fn parse(text: &str) -> Result<Expr> {
    let mut lexer = Lexer::new(text);
    let (offset, token) = lexer.next();
    let expr = Expr::default();
    Parser { lexer, token, offset, expr, stack: Vec::new(), operands: Vec::new() }.run()
}

impl<'a> Parser<'a> {
    fn run(mut self) -> Result<Expr> {
        self.initial()?;
        loop {
            while !self.operand()? {
                self.check_depth()?;
            }
            if self.operators()? {
                return Ok(self.expr);
            }
            self.check_depth()?;
        }
    }

    fn check_depth(&self) -> Result {
        if self.stack.len() > MAX_DEPTH {
            return Err(self.error("Expression nested too deeply".to_owned()));
        }
        Ok(())
    }

    pub(super) fn advance(&mut self) {
        (self.offset, self.token) = self.lexer.next();
    }

    /// Consumes the current token if it is the wanted one.
    pub(super) fn take(&mut self, wanted: &Token<'_>) -> bool {
        let found = self.token == *wanted;
        if found {
            self.advance();
        }
        found
    }

    /// Refuses an operator at the beginning. The offset of the error is that of the token after it, as in libpcp.
    fn initial(&mut self) -> Result {
        let text = match self.token {
            Token::Binary(BinaryOp::Minus) => return Ok(()),
            Token::Binary(op) => op.symbol(),
            Token::CloseParen => ")",
            Token::Quest => "?",
            Token::Colon => ":",
            _ => return Ok(()),
        };
        self.advance();
        Err(self.error(format!("Unexpected initial '{text}'")))
    }

    /// Consumes tokens that begin an operand. Returns whether the operand is complete.
    fn operand(&mut self) -> Result<bool> {
        let token = std::mem::replace(&mut self.token, Token::End);
        match token {
            Token::Name(name) => self.name(name)?,
            Token::Integer(text) => self.constant(text, false),
            Token::Double(text) => self.constant(text, true),
            Token::MkConst => self.mkconst()?,
            Token::Anon => self.anon()?,
            Token::Function(function) if function.takes_name() => self.function_of_name(function)?,
            Token::Function(function) => return self.begin(Entry::Function(function), true),
            Token::Rescale => return self.begin(Entry::Rescale, true),
            Token::MatchInst => return self.matchinst(),
            Token::OpenParen => return self.begin(Entry::Paren, false),
            Token::Not => return self.begin(Entry::Not, false),
            Token::Binary(BinaryOp::Minus) => return self.begin(Entry::Neg, false),
            Token::NoValue => return self.novalue_arm(),
            token => {
                self.token = token;
                return Err(self.unexpected());
            }
        }
        Ok(true)
    }

    fn begin(&mut self, entry: Entry, parenthesis: bool) -> Result<bool> {
        self.stack.push(entry);
        self.advance();
        if parenthesis {
            self.advance();
        }
        Ok(false)
    }

    pub(super) fn push(&mut self, kind: Kind, first: Option<NodeId>) {
        let id = self.expr.push(kind, first);
        self.operands.push(id);
    }

    fn constant(&mut self, text: &str, float: bool) {
        self.advance();
        self.push(Kind::Constant { text: text.into(), float, spec: Default::default(), meta: None }, None);
    }

    /// Parses a name. Any token that may follow a name somewhere in the grammar is accepted here and may be refused
    /// later.
    fn name(&mut self, name: &str) -> Result {
        self.advance();
        match &mut self.token {
            Token::Instance(instance) => {
                let filter = Filter::instance(std::mem::take(instance));
                let name = self.expr.push(Kind::Name(name.into()), None);
                self.push(Kind::Filter(filter, name), Some(name));
                self.advance();
            }
            Token::End
            | Token::Binary(_)
            | Token::OpenParen
            | Token::CloseParen
            | Token::Quest
            | Token::Colon
            | Token::Comma => self.push(Kind::Name(name.into()), None),
            _ => return Err(self.expected(OPERATOR, "NAME")),
        }
        Ok(())
    }

    fn function_of_name(&mut self, function: Function) -> Result {
        let Some(name) = self.name_in_parentheses() else {
            return Err(match function {
                Function::Defined => self.unexpected(),
                _ => self.expected(METRIC, &format!("{}(", function.word())),
            });
        };
        let name = self.expr.push(Kind::Name(name.into()), None);
        self.push(Kind::Function(function, name), Some(name));
        Ok(())
    }

    fn name_in_parentheses(&mut self) -> Option<&'a str> {
        self.advance();
        self.advance();
        let Token::Name(name) = self.token else { return None };
        self.advance();
        self.take(&Token::CloseParen).then_some(name)
    }

    fn anon(&mut self) -> Result {
        let Some(name) = self.name_in_parentheses() else {
            return Err(self.expected(METRIC, "anon("));
        };
        let ty = name.strip_prefix("PM_TYPE_").and_then(|ty| ty.parse::<Type>().ok()).filter(|ty| ty.is_numeric());
        let Some(ty) = ty else {
            return Err(self.error(format!("type={name} not allowed for anon()")));
        };
        self.push(Kind::Anon(ty), None);
        Ok(())
    }

    fn matchinst(&mut self) -> Result<bool> {
        self.advance();
        self.advance();
        let invert = self.take(&Token::Not);
        let Token::Pattern(pattern) = &self.token else {
            return Err(self.expected("<filter>, <expr>)", "matchinst("));
        };
        let filter = match Filter::pattern(pattern, invert) {
            Ok(filter) => filter,
            Err(why) => return Err(self.error(format!("bad regular expression: '{why}'"))),
        };
        self.advance();
        if self.token != Token::Comma {
            return Err(self.expected(", <expr>)", "matchinst(<filter>"));
        }
        self.begin(Entry::MatchInst(filter), false)
    }

    /// Parses `novalue`, which must be an arm of a ternary.
    fn novalue_arm(&mut self) -> Result<bool> {
        match self.stack.last() {
            Some(Entry::Quest { .. }) => {
                let id = self.novalue()?;
                self.advance();
                if self.token != Token::Colon {
                    return Err(self.unexpected());
                }
                if let Some(Entry::Quest { left }) = self.stack.last_mut() {
                    *left = Some(id);
                }
                self.begin(Entry::Colon { left: id }, false)
            }
            Some(Entry::Colon { .. }) => {
                let id = self.novalue()?;
                self.advance();
                self.operands.push(id);
                self.reduce();
                Ok(true)
            }
            _ => {
                self.token = Token::NoValue;
                Err(self.unexpected())
            }
        }
    }

    /// Parses what follows an operand. Returns `true` at the end, `false` if another operand must follow.
    fn operators(&mut self) -> Result<bool> {
        loop {
            let binding = match &self.token {
                Token::Binary(op) => precedence(*op),
                Token::Quest | Token::Colon => TERNARY,
                _ => 0,
            };
            while self.stack.last().is_some_and(|entry| entry.precedence() >= binding.max(1)) {
                self.reduce();
            }
            match (&self.token, self.stack.last()) {
                (Token::Binary(op), _) => return self.begin(Entry::Binary(*op), false),
                (Token::Quest, _) => return self.begin(Entry::Quest { left: None }, false),
                (Token::Colon, Some(Entry::Quest { .. })) => {
                    let left = self.operands.last().copied().unwrap_or_default();
                    return self.begin(Entry::Colon { left }, false);
                }
                (Token::CloseParen, Some(Entry::Paren | Entry::Function(_) | Entry::MatchInst(_))) => self.close(),
                (Token::Comma, Some(Entry::Rescale)) => self.rescale()?,
                (Token::End, None) => return Ok(true),
                (Token::OpenParen | Token::CloseParen, None) => {
                    let text = if self.token == Token::OpenParen { '(' } else { ')' };
                    self.advance();
                    return Err(self.error(format!("Unexpected '{text}'")));
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// Completes the innermost construct at its closing parenthesis.
    fn close(&mut self) {
        let (Some(entry), Some(operand)) = (self.stack.pop(), self.operands.pop()) else { return };
        match entry {
            Entry::Function(function) => self.push(Kind::Function(function, operand), Some(operand)),
            Entry::MatchInst(filter) => {
                self.lexer.in_matchinst = false;
                self.push(Kind::Filter(filter, operand), Some(operand));
            }
            _ => return self.close_parenthesis(operand),
        }
        self.advance();
    }

    fn close_parenthesis(&mut self, operand: NodeId) {
        self.advance();
        if let Token::Instance(instance) = &mut self.token {
            let filter = Filter::instance(std::mem::take(instance));
            self.push(Kind::Filter(filter, operand), Some(operand));
            self.advance();
        } else {
            self.operands.push(operand);
        }
    }

    fn rescale(&mut self) -> Result {
        const AFTER: &str = "rescale(<expr>,";
        self.advance();
        let Token::String(text) = self.token else {
            return Err(self.expected("Units string", AFTER));
        };
        self.advance();
        if self.token != Token::CloseParen {
            return Err(self.expected("Units string", AFTER));
        }
        let units = self.units(text)?;
        self.advance();
        self.stack.pop();
        if let Some(operand) = self.operands.pop() {
            self.push(Kind::Rescale(operand, units), Some(operand));
        }
        Ok(())
    }

    pub(super) fn units(&self, text: &str) -> Result<Units> {
        Units::parse(text).map(|(units, _)| units).map_err(|why| self.error(format!("Illegal units: '{why}'")))
    }

    /// Completes the innermost operation, whose last operand is complete.
    fn reduce(&mut self) {
        let (Some(entry), Some(last)) = (self.stack.pop(), self.operands.pop()) else { return };
        match entry {
            Entry::Neg => self.push(Kind::Neg(last), Some(last)),
            Entry::Not => self.push(Kind::Not(last), Some(last)),
            Entry::Binary(op) => {
                let first = self.operands.pop().unwrap_or(last);
                self.push(Kind::Binary(op, first, last), Some(first));
            }
            Entry::Colon { left } => {
                // A `novalue` as left arm is not on the stack of operands.
                if !matches!(self.stack.pop(), Some(Entry::Quest { left: Some(_) })) {
                    self.operands.pop();
                }
                let guard = self.operands.pop().unwrap_or(left);
                self.push(Kind::Ternary { guard, left, right: last }, Some(guard));
            }
            _ => {}
        }
    }

    /// Returns the error for a token that does not fit.
    pub(super) fn unexpected(&self) -> SyntaxError {
        let mut entries = self.stack.iter().enumerate().rev();
        match entries.find_map(|(depth, entry)| entry.message(depth, self.stack.get(depth.wrapping_sub(1)))) {
            Some(message) => self.error(message),
            None => SyntaxError { offset: self.offset, reason: self.lexical() },
        }
    }

    pub(super) fn expected(&self, what: &str, after: &str) -> SyntaxError {
        self.error(follows(what, after))
    }

    /// Returns an error at the current token. An error of the lexer takes precedence over `reason`.
    pub(super) fn error(&self, mut reason: String) -> SyntaxError {
        while reason.len() > MAX_REASON {
            reason.pop();
        }
        SyntaxError { offset: self.offset, reason: Some(self.lexical().unwrap_or(reason)) }
    }

    fn lexical(&self) -> Option<String> {
        match self.token {
            Token::Error(reason) => Some(reason.to_owned()),
            _ => None,
        }
    }
}

const METRIC: &str = "Metric name";
const OPERATOR: &str = "Arithmetic or relational or boolean operator";
const ARITHMETIC: &str = "Arithmetic expression";
const BOOLEAN: &str = "Boolean expression";

const TERNARY: u8 = 1;
const LOGIC: u8 = 2;
const NOT: u8 = 3;
const RELATION: u8 = 4;
const SUM: u8 = 5;
const PRODUCT: u8 = 6;

fn precedence(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::And | BinaryOp::Or => LOGIC,
        BinaryOp::Plus | BinaryOp::Minus => SUM,
        BinaryOp::Star | BinaryOp::Slash => PRODUCT,
        _ => RELATION,
    }
}

fn follows(what: &str, after: &str) -> String {
    format!("{what} expected to follow {after}")
}

impl Entry {
    /// Returns the precedence over the operand that follows; 0 for a construct that ends with a closing token.
    fn precedence(&self) -> u8 {
        match self {
            Entry::Binary(op) => precedence(*op),
            Entry::Neg => SUM,
            Entry::Not => NOT,
            Entry::Colon { .. } => TERNARY,
            _ => 0,
        }
    }

    /// Returns the message for a token that does not fit after the construct; `None` if an outer construct decides.
    fn message(&self, depth: usize, below: Option<&Entry>) -> Option<String> {
        Some(match self {
            Entry::Binary(op) if op.is_logical() => follows(BOOLEAN, op.name()),
            Entry::Binary(op) => follows(ARITHMETIC, op.name()),
            Entry::Neg => follows(ARITHMETIC, "NEG"),
            Entry::Not => follows(BOOLEAN, "NOT"),
            Entry::Paren if depth == 0 => "Unexpected initial '('".to_owned(),
            Entry::Paren => return None,
            Entry::Quest { .. } => follows(ARITHMETIC, "QUEST"),
            Entry::Colon { .. } if matches!(below, Some(Entry::Quest { left: Some(_) })) => return None,
            Entry::Colon { .. } => follows(ARITHMETIC, "COLON"),
            Entry::Function(Function::Instant) => follows(METRIC, "instant("),
            Entry::Function(function) => follows("<expr>", &format!("{}(", function.word())),
            Entry::Rescale => follows(OPERATOR, "rescale("),
            Entry::MatchInst(_) => follows("<expr>)", "matchinst(<filter>,"),
        })
    }
}
