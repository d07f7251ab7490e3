//! The parser's expressions.

use std::sync::Arc;

use super::Unrecognised;
use super::parse::{Local, Parser};
use super::syntax::{Binary, Call, Command, Expr, Function, UNARY_STRENGTH, Unary};
use super::token::Kind;

/// Operators, calls, indexes and parentheses on a path through an expression. It bounds the height
/// of the tree that the parser builds, also for a chain like `a + b + c`, whose first operand ends
/// up deepest.
const OPERATORS_MAX: usize = 64;

/// Names that hold functions.
const LIBRARIES: [&str; 4] = ["redis", "math", "string", "table"];

impl Parser<'_> {
    /// A whole expression of a statement.
    pub(super) fn expression(&mut self) -> Result<Expr, Unrecognised> {
        self.operators = 0;
        self.binary(0)
    }

    fn deeper(&mut self) -> Result<(), Unrecognised> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(self.error(format!("an expression has over {OPERATORS_MAX} operators")));
        }
        Ok(())
    }

    /// An expression whose operators bind at least as strongly as `strength`.
    fn binary(&mut self, strength: u8) -> Result<Expr, Unrecognised> {
        let mut left = self.unary()?;
        loop {
            let operator = match self.kind() {
                Some(Kind::Mark(mark)) => Binary::from_token(mark),
                Some(Kind::Word(word)) => Binary::from_token(word),
                _ => None,
            };
            let Some(operator) = operator else { return Ok(left) };
            let (to_left, to_right) = operator.strengths();
            if to_left < strength {
                return Ok(left);
            }
            self.advance();
            self.deeper()?;
            let right = self.binary(to_right)?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn unary(&mut self) -> Result<Expr, Unrecognised> {
        let operator = match self.kind() {
            Some(Kind::Word(word)) if word == "not" => Unary::Not,
            Some(Kind::Mark("-")) => Unary::Minus,
            Some(Kind::Mark("#")) => Unary::Length,
            _ => return self.simple(),
        };
        self.advance();
        self.deeper()?;
        let operand = self.binary(UNARY_STRENGTH)?;
        Ok(Expr::Unary(operator, Box::new(operand)))
    }

    fn simple(&mut self) -> Result<Expr, Unrecognised> {
        let literal = match self.kind() {
            Some(Kind::Number(number)) => Expr::Number(*number),
            Some(Kind::Text(text)) => Expr::Text(Arc::from(text.as_slice())),
            Some(Kind::Word(word)) => match word.as_str() {
                "nil" => Expr::Nil,
                "true" => Expr::Bool(true),
                "false" => Expr::Bool(false),
                _ => return self.suffixed(),
            },
            Some(Kind::Mark("{")) => return self.table(),
            _ => return self.suffixed(),
        };
        self.advance();
        Ok(literal)
    }

    /// A name, a call or an expression in parentheses, with the indexes behind it.
    pub(super) fn suffixed(&mut self) -> Result<Expr, Unrecognised> {
        let mut found = if self.accept("(") {
            self.deeper()?;
            let inner = self.binary(0)?;
            self.expect(")")?;
            Expr::Single(Box::new(inner))
        } else {
            self.named()?
        };
        loop {
            let key = if self.accept("[") {
                self.deeper()?;
                let key = self.binary(0)?;
                self.expect("]")?;
                key
            } else if self.accept(".") {
                self.deeper()?;
                Expr::Text(Arc::from(self.name()?.as_bytes()))
            } else {
                return Ok(found);
            };
            found = Expr::Index(Box::new(found), Box::new(key));
        }
    }

    fn named(&mut self) -> Result<Expr, Unrecognised> {
        let line = self.line();
        let name = self.name()?;
        match (self.local_named(name), name) {
            (Some(Local::Slot(slot)), _) => return Ok(Expr::Local(slot)),
            (Some(Local::Call { protected }), _) => return self.redis_call(protected, line),
            (None, "KEYS") => return Ok(Expr::Keys),
            (None, "ARGV") => return Ok(Expr::Argv),
            (None, _) => {}
        }
        let mut library = "";
        let mut function = name;
        if LIBRARIES.contains(&name) {
            self.expect(".")?;
            library = name;
            function = self.name()?;
        }
        if library == "redis" && (function == "call" || function == "pcall") {
            return self.redis_call(function == "pcall", line);
        }
        let Some(known) = Function::named(library, function) else {
            let dot = if library.is_empty() { "" } else { "." };
            let reason = format!("`{library}{dot}{function}` is not known in a lock script");
            return Err(Unrecognised::new(line, reason));
        };
        self.deeper()?;
        Ok(Expr::Library(known, self.arguments()?))
    }

    fn redis_call(&mut self, protected: bool, line: u32) -> Result<Expr, Unrecognised> {
        self.deeper()?;
        let mut args = self.arguments()?;
        let Some(Expr::Text(name)) = args.first() else {
            return Err(Unrecognised::new(line, "the name of a command must be a literal"));
        };
        let Some(command) = Command::named(name) else {
            let name = name.escape_ascii();
            let reason = format!("the command `{name}` is not known in a lock script");
            return Err(Unrecognised::new(line, reason));
        };
        args.remove(0);
        Ok(Expr::Redis(Call { command, args, protected, line }))
    }

    /// Arguments of a call. Each may be as deep as the next: they do not add up.
    fn arguments(&mut self) -> Result<Vec<Expr>, Unrecognised> {
        self.expect("(")?;
        let base = self.operators;
        let mut deepest = base;
        let mut found = Vec::new();
        while !self.is(")") {
            if !found.is_empty() {
                self.expect(",")?;
            }
            self.operators = base;
            found.push(self.binary(0)?);
            deepest = deepest.max(self.operators);
        }
        self.expect(")")?;
        self.operators = deepest;
        Ok(found)
    }

    fn table(&mut self) -> Result<Expr, Unrecognised> {
        self.expect("{")?;
        self.deeper()?;
        let base = self.operators;
        let mut deepest = base;
        let mut fields = Vec::new();
        while !self.is("}") {
            self.operators = base;
            fields.push(self.field()?);
            deepest = deepest.max(self.operators);
            if !self.accept(",") && !self.accept(";") {
                break;
            }
        }
        self.expect("}")?;
        self.operators = deepest;
        Ok(Expr::Table(fields))
    }

    fn field(&mut self) -> Result<(Option<Expr>, Expr), Unrecognised> {
        if self.accept("[") {
            let key = self.binary(0)?;
            self.expect("]")?;
            self.expect("=")?;
            return Ok((Some(key), self.binary(0)?));
        }
        if self.is_second("=") {
            let key = Expr::Text(Arc::from(self.name()?.as_bytes()));
            self.expect("=")?;
            return Ok((Some(key), self.binary(0)?));
        }
        Ok((None, self.binary(0)?))
    }
}
