//! From a text to a tree, whose height is bounded, because a run recurses over it.

use std::sync::Arc;

use super::library::LIBRARY;
use super::token::{Token, tokens};
use super::value::Value;
use super::{NotUnderstood, Script};

/// Blocks in blocks.
const BLOCKS_MAX: usize = 16;
/// Operators, calls, indexes, tables and parentheses of one expression, and so the height of its
/// tree. A chain like `a + b + c` counts too: its first operand ends up deepest.
const NODES_MAX: usize = 64;
/// Locals of a script, with KEYS and ARGV. The parser looks for each name among all of them.
const LOCALS_MAX: usize = 64;

const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

/// The operators of two operands, and how strongly they bind to the left and to the right.
const BINARY: [(&str, Binary, u8, u8); 14] = [
    ("or", Binary::Or, 1, 2),
    ("and", Binary::And, 3, 4),
    ("<", Binary::Less, 5, 6),
    (">", Binary::Greater, 5, 6),
    ("<=", Binary::LessOrEqual, 5, 6),
    (">=", Binary::GreaterOrEqual, 5, 6),
    ("~=", Binary::NotEqual, 5, 6),
    ("==", Binary::Equal, 5, 6),
    ("..", Binary::Concat, 8, 7),
    ("+", Binary::Add, 9, 10),
    ("-", Binary::Subtract, 9, 10),
    ("*", Binary::Multiply, 11, 12),
    ("/", Binary::Divide, 11, 12),
    ("%", Binary::Modulo, 11, 12),
];
/// How strongly the operators of one operand bind.
const UNARY_STRENGTH: u8 = 13;

pub(super) type Block = Vec<Statement>;

#[derive(Debug)]
pub(super) struct Statement {
    /// Counted from 1.
    pub(super) line: u32,
    pub(super) kind: StatementKind,
}

#[derive(Debug)]
pub(super) enum StatementKind {
    /// Also `local`. The targets are locals and indexes.
    Assign(Vec<Expr>, Vec<Expr>),
    Call(Expr),
    /// The condition of `else` is true.
    If(Vec<(Expr, Block)>),
    /// From, to and step.
    Count {
        local: usize,
        limits: [Expr; 3],
        body: Block,
    },
    /// `pairs` and `ipairs`.
    Each {
        locals: Vec<usize>,
        table: Expr,
        in_order: bool,
        body: Block,
    },
    Break,
    Return(Expr),
}

#[derive(Debug)]
pub(super) enum Expr {
    Literal(Value),
    /// The place among the locals.
    Local(usize),
    Index(Box<[Expr; 2]>),
    /// A function and its arguments.
    Call(Box<Expr>, Vec<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<[Expr; 2]>),
    /// Items, and values of names.
    Table(Vec<Expr>, Vec<(Arc<[u8]>, Expr)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    Length,
    /// Parentheses, which leave one value of a call.
    Single,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Or,
    And,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    NotEqual,
    Equal,
    Concat,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

pub(super) fn parse(text: &[u8]) -> Result<Script, NotUnderstood> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        scope: vec![("KEYS", 0), ("ARGV", 1)],
        locals: 2,
        blocks: 0,
        nodes: 0,
        pattern: None,
    };
    let block = parser.block()?;
    if parser.at < parser.tokens.len() {
        return Err(parser.unexpected());
    }
    Ok(Script { block, locals: parser.locals, pattern: parser.pattern })
}

struct Parser<'a> {
    tokens: Vec<(u32, Token<'a>)>,
    at: usize,
    /// The locals in scope, innermost last.
    scope: Vec<(&'a str, usize)>,
    locals: usize,
    /// Blocks that are open.
    blocks: usize,
    /// Nodes of this expression so far.
    nodes: usize,
    /// The pattern of calls of `keys`.
    pattern: Option<Vec<u8>>,
}

impl<'a> Parser<'a> {
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line)
    }

    fn error(&self, reason: impl Into<String>) -> NotUnderstood {
        NotUnderstood { line: self.line(), reason: reason.into() }
    }

    fn unexpected(&self) -> NotUnderstood {
        match self.tokens.get(self.at) {
            None => self.error("the script ends too early"),
            Some((_, Token::Word(word))) => self.error(format!("`{word}` is not understood here")),
            Some((_, Token::Number(_))) => self.error("this number is not understood here"),
            Some((_, Token::Text(_))) => self.error("this string is not understood here"),
        }
    }

    /// The word that is `ahead` tokens from here, or the empty string.
    fn word(&self, ahead: usize) -> &'a str {
        match self.tokens.get(self.at + ahead) {
            Some((_, Token::Word(word))) => word,
            _ => "",
        }
    }

    fn accept(&mut self, wanted: &str) -> bool {
        let is_wanted = self.word(0) == wanted;
        self.at += usize::from(is_wanted);
        is_wanted
    }

    fn expect(&mut self, wanted: &str) -> Result<(), NotUnderstood> {
        if self.accept(wanted) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn name(&mut self) -> Result<&'a str, NotUnderstood> {
        let word = self.word(0);
        let is_name = word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if !is_name || KEYWORDS.contains(&word) {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(word)
    }

    fn declare(&mut self, name: &'a str) -> Result<usize, NotUnderstood> {
        if self.locals == LOCALS_MAX {
            return Err(self.error(format!("there are more than {LOCALS_MAX} locals")));
        }
        self.scope.push((name, self.locals));
        self.locals += 1;
        Ok(self.locals - 1)
    }

    /// Statements up to a word that ends a block, which is left.
    fn block(&mut self) -> Result<Block, NotUnderstood> {
        if self.blocks == BLOCKS_MAX {
            return Err(self.error(format!("blocks are nested deeper than {BLOCKS_MAX}")));
        }
        self.blocks += 1;
        let outer = self.scope.len();
        let mut block = Vec::new();
        while !self.ends_block() {
            let line = self.line();
            let kind = self.statement()?;
            let is_last = matches!(kind, StatementKind::Return(_) | StatementKind::Break);
            block.push(Statement { line, kind });
            while self.accept(";") {}
            if is_last && !self.ends_block() {
                return Err(self.unexpected());
            }
        }
        self.scope.truncate(outer);
        self.blocks -= 1;
        Ok(block)
    }

    fn ends_block(&self) -> bool {
        self.at == self.tokens.len() || matches!(self.word(0), "end" | "else" | "elseif")
    }

    fn statement(&mut self) -> Result<StatementKind, NotUnderstood> {
        if self.accept("local") {
            return self.local();
        }
        if self.accept("if") {
            return self.branches();
        }
        if self.accept("for") {
            return self.iteration();
        }
        if self.accept("break") {
            return Ok(StatementKind::Break);
        }
        if self.accept("return") {
            let is_bare = self.ends_block() || self.word(0) == ";";
            let value = if is_bare { Expr::Literal(Value::Nil) } else { self.expression()? };
            return Ok(StatementKind::Return(value));
        }
        let mut targets = Vec::new();
        loop {
            self.nodes = 0;
            let target = self.suffixed()?;
            match target {
                Expr::Call(..) if targets.is_empty() => return Ok(StatementKind::Call(target)),
                Expr::Local(_) | Expr::Index(_) => targets.push(target),
                _ => return Err(self.unexpected()),
            }
            if !self.accept(",") {
                break;
            }
        }
        self.expect("=")?;
        Ok(StatementKind::Assign(targets, self.expressions()?))
    }

    fn local(&mut self) -> Result<StatementKind, NotUnderstood> {
        let names = self.names()?;
        // The values do not see the new names.
        let values = if self.accept("=") { self.expressions()? } else { Vec::new() };
        let targets = names.into_iter().map(|name| self.declare(name).map(Expr::Local));
        Ok(StatementKind::Assign(targets.collect::<Result<_, _>>()?, values))
    }

    fn branches(&mut self) -> Result<StatementKind, NotUnderstood> {
        let mut arms = Vec::new();
        loop {
            let condition = self.expression()?;
            self.expect("then")?;
            arms.push((condition, self.block()?));
            if !self.accept("elseif") {
                break;
            }
        }
        if self.accept("else") {
            arms.push((Expr::Literal(Value::Bool(true)), self.block()?));
        }
        self.expect("end")?;
        Ok(StatementKind::If(arms))
    }

    fn iteration(&mut self) -> Result<StatementKind, NotUnderstood> {
        let names = self.names()?;
        let outer = self.scope.len();
        if names.len() == 1 && self.accept("=") {
            let from = self.expression()?;
            self.expect(",")?;
            let to = self.expression()?;
            let one = Expr::Literal(Value::Number(1.0));
            let step = if self.accept(",") { self.expression()? } else { one };
            let local = self.declare(names[0])?;
            let body = self.body(outer)?;
            return Ok(StatementKind::Count { local, limits: [from, to, step], body });
        }
        self.expect("in")?;
        let in_order = self.word(0) == "ipairs";
        if names.len() > 2 || !in_order && self.word(0) != "pairs" {
            return Err(self.error("`for` runs only over `pairs(..)` and `ipairs(..)`"));
        }
        self.at += 1;
        self.expect("(")?;
        let table = self.expression()?;
        self.expect(")")?;
        let locals = names.into_iter().map(|name| self.declare(name)).collect::<Result<_, _>>()?;
        let body = self.body(outer)?;
        Ok(StatementKind::Each { locals, table, in_order, body })
    }

    /// The body of a loop, whose own names go out of scope behind it.
    fn body(&mut self, outer: usize) -> Result<Block, NotUnderstood> {
        self.expect("do")?;
        let body = self.block()?;
        self.expect("end")?;
        self.scope.truncate(outer);
        Ok(body)
    }

    fn names(&mut self) -> Result<Vec<&'a str>, NotUnderstood> {
        let mut names = vec![self.name()?];
        while self.accept(",") {
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn expressions(&mut self) -> Result<Vec<Expr>, NotUnderstood> {
        let mut found = vec![self.expression()?];
        while self.accept(",") {
            found.push(self.expression()?);
        }
        Ok(found)
    }

    /// A whole expression of a statement.
    fn expression(&mut self) -> Result<Expr, NotUnderstood> {
        self.nodes = 0;
        self.binary(0)
    }

    fn count_node(&mut self) -> Result<(), NotUnderstood> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.error(format!("an expression has over {NODES_MAX} operators")));
        }
        Ok(())
    }

    /// An expression whose operators bind at least as strongly as `strength`.
    fn binary(&mut self, strength: u8) -> Result<Expr, NotUnderstood> {
        let mut left = self.unary()?;
        loop {
            let operator = BINARY.iter().find(|(word, ..)| *word == self.word(0));
            let Some((_, operator, to_left, to_right)) = operator else { return Ok(left) };
            if *to_left < strength {
                return Ok(left);
            }
            self.at += 1;
            self.count_node()?;
            left = Expr::Binary(*operator, Box::new([left, self.binary(*to_right)?]));
        }
    }

    fn unary(&mut self) -> Result<Expr, NotUnderstood> {
        let operator = match self.word(0) {
            "not" => Unary::Not,
            "-" => Unary::Minus,
            "#" => Unary::Length,
            _ => return self.simple(),
        };
        self.at += 1;
        self.count_node()?;
        Ok(Expr::Unary(operator, Box::new(self.binary(UNARY_STRENGTH)?)))
    }

    fn simple(&mut self) -> Result<Expr, NotUnderstood> {
        let literal = match self.tokens.get(self.at) {
            Some((_, Token::Number(number))) => Value::Number(*number),
            Some((_, Token::Text(text))) => Value::from(text.as_str()),
            Some((_, Token::Word("nil"))) => Value::Nil,
            Some((_, Token::Word("true"))) => Value::Bool(true),
            Some((_, Token::Word("false"))) => Value::Bool(false),
            Some((_, Token::Word("{"))) => return self.table(),
            _ => return self.suffixed(),
        };
        self.at += 1;
        Ok(Expr::Literal(literal))
    }

    /// A name or an expression in parentheses, with the indexes and arguments behind it.
    fn suffixed(&mut self) -> Result<Expr, NotUnderstood> {
        let mut found = if self.accept("(") {
            self.count_node()?;
            let inner = self.binary(0)?;
            self.expect(")")?;
            Expr::Unary(Unary::Single, Box::new(inner))
        } else {
            self.named()?
        };
        loop {
            if self.accept("[") {
                let key = self.binary(0)?;
                self.expect("]")?;
                found = Expr::Index(Box::new([found, key]));
            } else if self.accept(".") {
                let key = Expr::Literal(Value::from(self.name()?));
                found = Expr::Index(Box::new([found, key]));
            } else if self.accept("(") {
                let args = self.arguments()?;
                self.note_pattern(&args)?;
                found = Expr::Call(Box::new(found), args);
            } else {
                return Ok(found);
            }
            self.count_node()?;
        }
    }

    /// A local or a function of the library.
    fn named(&mut self) -> Result<Expr, NotUnderstood> {
        let mut name = self.name()?.to_owned();
        if let Some((_, local)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            return Ok(Expr::Local(*local));
        }
        if self.accept(".") {
            name = format!("{name}.{}", self.name()?);
        }
        match LIBRARY.iter().position(|(known, _)| *known == name) {
            Some(place) => Ok(Expr::Literal(Value::Function(place))),
            None => Err(self.error(format!("`{name}` is neither a local nor a known function"))),
        }
    }

    /// Keys are listed before the run, so all calls of `keys` must have the same literal pattern.
    fn note_pattern(&mut self, args: &[Expr]) -> Result<(), NotUnderstood> {
        let [Expr::Literal(Value::Text(command)), Expr::Literal(Value::Text(pattern))] = args
        else {
            return Ok(());
        };
        if !command.eq_ignore_ascii_case(b"keys") {
            return Ok(());
        }
        if self.pattern.as_ref().is_some_and(|known| **known != **pattern) {
            return Err(self.error("a script lists keys by one pattern only"));
        }
        self.pattern = Some(pattern.to_vec());
        Ok(())
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, NotUnderstood> {
        let mut found = Vec::new();
        while !self.accept(")") {
            if !found.is_empty() {
                self.expect(",")?;
            }
            found.push(self.binary(0)?);
        }
        Ok(found)
    }

    fn table(&mut self) -> Result<Expr, NotUnderstood> {
        self.at += 1;
        self.count_node()?;
        let mut items = Vec::new();
        let mut fields = Vec::new();
        while !self.accept("}") {
            if self.word(1) == "=" {
                let name = Arc::from(self.name()?.as_bytes());
                self.at += 1;
                fields.push((name, self.binary(0)?));
            } else {
                items.push(self.binary(0)?);
            }
            if !self.accept(",") && self.word(0) != "}" {
                return Err(self.unexpected());
            }
        }
        Ok(Expr::Table(items, fields))
    }
}
