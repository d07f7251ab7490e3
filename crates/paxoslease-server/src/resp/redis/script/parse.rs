//! From tokens to a script. The parser refuses what it does not know, and bounds the depth of
//! what it builds: the evaluation of a script recurses over it.

use super::Unrecognised;
use super::syntax::{Block, Expr, Statement, StatementKind, Target};
use super::token::{Kind, Token};

/// Blocks in blocks.
const BLOCKS_MAX: usize = 16;
/// Locals of a script. The parser looks for each name among all of them.
const LOCALS_MAX: usize = 64;

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

pub(super) struct Parsed {
    pub(super) block: Block,
    /// The count of slots for locals.
    pub(super) slots: usize,
}

pub(super) fn parse(tokens: &[Token]) -> Result<Parsed, Unrecognised> {
    let mut parser = Parser { tokens, at: 0, scope: Vec::new(), slots: 0, blocks: 0, operators: 0 };
    let block = parser.block()?;
    if parser.at < tokens.len() {
        return Err(parser.unexpected());
    }
    Ok(Parsed { block, slots: parser.slots })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Local {
    Slot(usize),
    /// Another name of `redis.call` or, if protected, of `redis.pcall`.
    Call {
        protected: bool,
    },
}

pub(super) struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    /// The locals in scope, innermost last.
    scope: Vec<(&'a str, Local)>,
    slots: usize,
    /// Blocks that are open.
    blocks: usize,
    /// Operators from the root of the expression to here, see `expression.rs`.
    pub(super) operators: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn kind(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    pub(super) fn line(&self) -> u32 {
        let token = self.tokens.get(self.at).or(self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> Unrecognised {
        Unrecognised::new(self.line(), reason)
    }

    pub(super) fn unexpected(&self) -> Unrecognised {
        match self.kind() {
            None => self.error("the script ends too early"),
            Some(Kind::Word(word)) => self.error(format!("`{word}` is not understood here")),
            Some(Kind::Mark(mark)) => self.error(format!("`{mark}` is not understood here")),
            Some(Kind::Number(_)) => self.error("this number is not understood here"),
            Some(Kind::Text(_)) => self.error("this string is not understood here"),
        }
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Whether the next token is this keyword or mark.
    pub(super) fn is(&self, wanted: &str) -> bool {
        match self.kind() {
            Some(Kind::Word(word)) => word == wanted,
            Some(Kind::Mark(mark)) => *mark == wanted,
            _ => false,
        }
    }

    pub(super) fn accept(&mut self, wanted: &str) -> bool {
        let found = self.is(wanted);
        if found {
            self.advance();
        }
        found
    }

    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), Unrecognised> {
        if self.accept(wanted) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// A name, which no keyword is.
    pub(super) fn name(&mut self) -> Result<&'a str, Unrecognised> {
        match self.kind() {
            Some(Kind::Word(word)) if !KEYWORDS.contains(&word.as_str()) => {
                self.advance();
                Ok(word)
            }
            _ => Err(self.unexpected()),
        }
    }

    /// Whether the token behind the next one is this mark.
    pub(super) fn is_second(&self, wanted: &str) -> bool {
        let second = self.tokens.get(self.at + 1);
        second.is_some_and(|token| matches!(token.kind, Kind::Mark(mark) if mark == wanted))
    }

    pub(super) fn local_named(&self, name: &str) -> Option<Local> {
        self.scope.iter().rev().find(|(known, _)| *known == name).map(|(_, local)| *local)
    }

    fn declare(&mut self, name: &'a str) -> Result<usize, Unrecognised> {
        let slot = self.slots;
        self.slots += 1;
        self.bring_into_scope(name, Local::Slot(slot))?;
        Ok(slot)
    }

    fn bring_into_scope(&mut self, name: &'a str, local: Local) -> Result<(), Unrecognised> {
        if self.scope.len() == LOCALS_MAX || self.slots > LOCALS_MAX {
            return Err(self.error(format!("there are more than {LOCALS_MAX} locals")));
        }
        self.scope.push((name, local));
        Ok(())
    }

    /// Statements up to a token that ends a block, which is left.
    fn block(&mut self) -> Result<Block, Unrecognised> {
        if self.blocks == BLOCKS_MAX {
            return Err(self.error(format!("blocks are nested deeper than {BLOCKS_MAX}")));
        }
        self.blocks += 1;
        let outer = self.scope.len();
        let mut block = Vec::new();
        loop {
            while self.accept(";") {}
            if self.ends_block() {
                break;
            }
            let line = self.line();
            let kind = self.statement()?;
            let is_last = matches!(kind, StatementKind::Return(_) | StatementKind::Break);
            block.push(Statement { line, kind });
            if is_last {
                while self.accept(";") {}
                if !self.ends_block() {
                    return Err(self.unexpected());
                }
                break;
            }
        }
        self.scope.truncate(outer);
        self.blocks -= 1;
        Ok(block)
    }

    fn ends_block(&self) -> bool {
        self.kind().is_none() || ["end", "else", "elseif"].iter().any(|word| self.is(word))
    }

    fn statement(&mut self) -> Result<StatementKind, Unrecognised> {
        if self.accept("local") {
            return self.local();
        }
        if self.accept("if") {
            return self.branches();
        }
        if self.accept("for") {
            return self.iteration();
        }
        if self.accept("do") {
            let block = self.block()?;
            self.expect("end")?;
            return Ok(StatementKind::Do(block));
        }
        if self.accept("break") {
            return Ok(StatementKind::Break);
        }
        if self.accept("return") {
            return self.result();
        }
        self.assignment_or_call()
    }

    fn local(&mut self) -> Result<StatementKind, Unrecognised> {
        let mut names = vec![self.name()?];
        while self.accept(",") {
            names.push(self.name()?);
        }
        if let ([name], Some(protected)) = (names.as_slice(), self.is_alias_of_call()) {
            for _ in ["=", "redis", ".", "call"] {
                self.advance();
            }
            self.bring_into_scope(name, Local::Call { protected })?;
            return Ok(StatementKind::Do(Vec::new()));
        }
        // The values do not see the new names.
        let values = if self.accept("=") { self.expressions()? } else { Vec::new() };
        let mut targets = Vec::new();
        for name in names {
            targets.push(Target::Slot(self.declare(name)?));
        }
        Ok(StatementKind::Assign(targets, values))
    }

    /// Whether `= redis.call` or `= redis.pcall` follows, without a call of it, and if so, which.
    fn is_alias_of_call(&self) -> Option<bool> {
        let word = |ahead: usize| match self.tokens.get(self.at + ahead).map(|token| &token.kind) {
            Some(Kind::Word(word)) => word.as_str(),
            Some(Kind::Mark(mark)) => mark,
            _ => "",
        };
        let is_function = word(0) == "=" && word(1) == "redis" && word(2) == ".";
        if !is_function || word(4) == "(" || self.local_named("redis").is_some() {
            return None;
        }
        match word(3) {
            "call" => Some(false),
            "pcall" => Some(true),
            _ => None,
        }
    }

    fn branches(&mut self) -> Result<StatementKind, Unrecognised> {
        let mut arms = Vec::new();
        loop {
            let condition = self.expression()?;
            self.expect("then")?;
            arms.push((condition, self.block()?));
            if !self.accept("elseif") {
                break;
            }
        }
        let otherwise = if self.accept("else") { self.block()? } else { Vec::new() };
        self.expect("end")?;
        Ok(StatementKind::If(arms, otherwise))
    }

    fn iteration(&mut self) -> Result<StatementKind, Unrecognised> {
        let first = self.name()?;
        if !self.accept("=") {
            return self.each(first);
        }
        let from = self.expression()?;
        self.expect(",")?;
        let to = self.expression()?;
        let step = if self.accept(",") { Some(self.expression()?) } else { None };
        let outer = self.scope.len();
        let slot = self.declare(first)?;
        let body = self.body(outer)?;
        Ok(StatementKind::Count { slot, from, to, step, body })
    }

    fn each(&mut self, key: &'a str) -> Result<StatementKind, Unrecognised> {
        let value = if self.accept(",") { Some(self.name()?) } else { None };
        self.expect("in")?;
        let in_order = self.is("ipairs");
        if !in_order && !self.is("pairs") {
            return Err(self.error("`for` runs only over `pairs(..)` and `ipairs(..)`"));
        }
        self.advance();
        self.expect("(")?;
        let table = self.expression()?;
        self.expect(")")?;
        let outer = self.scope.len();
        let key = self.declare(key)?;
        let value = value.map(|name| self.declare(name)).transpose()?;
        let body = self.body(outer)?;
        Ok(StatementKind::Each { key, value, table, in_order, body })
    }

    /// The body of a loop, whose own names go out of scope behind it.
    fn body(&mut self, outer: usize) -> Result<Block, Unrecognised> {
        self.expect("do")?;
        let body = self.block()?;
        self.expect("end")?;
        self.scope.truncate(outer);
        Ok(body)
    }

    /// Redis replies the first value only, but the others are evaluated.
    fn result(&mut self) -> Result<StatementKind, Unrecognised> {
        if self.ends_block() || self.is(";") {
            return Ok(StatementKind::Return(None));
        }
        let mut values = self.expressions()?;
        if values.len() > 1 {
            return Err(self.error("`return` of several values is not understood"));
        }
        Ok(StatementKind::Return(values.pop()))
    }

    fn assignment_or_call(&mut self) -> Result<StatementKind, Unrecognised> {
        if let Some(Kind::Word(word)) = self.kind()
            && self.local_named(word).is_none()
            && (self.is_second("=") || self.is_second(","))
        {
            return Err(self.error(format!("`{word}` is not a local: write `local {word}`")));
        }
        self.operators = 0;
        let first = self.suffixed()?;
        if !self.is("=") && !self.is(",") {
            return match first {
                Expr::Redis(_) | Expr::Library(..) => Ok(StatementKind::Call(first)),
                _ => Err(self.unexpected()),
            };
        }
        let mut targets = vec![self.target(first)?];
        while self.accept(",") {
            self.operators = 0;
            let next = self.suffixed()?;
            targets.push(self.target(next)?);
        }
        self.expect("=")?;
        Ok(StatementKind::Assign(targets, self.expressions()?))
    }

    fn target(&self, expr: Expr) -> Result<Target, Unrecognised> {
        match expr {
            Expr::Local(slot) => Ok(Target::Slot(slot)),
            Expr::Index(table, key) => Ok(Target::Field(*table, *key)),
            _ => Err(self.error("this cannot be assigned to")),
        }
    }

    /// One or more, with commas.
    fn expressions(&mut self) -> Result<Vec<Expr>, Unrecognised> {
        let mut found = vec![self.expression()?];
        while self.accept(",") {
            found.push(self.expression()?);
        }
        Ok(found)
    }
}
