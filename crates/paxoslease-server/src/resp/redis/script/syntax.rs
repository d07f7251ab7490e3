//! A script as the parser understands it. All names are resolved: a local is a slot, a function of
//! the library or a command of Redis is a value of an enum. So nothing unknown is left to run.

use std::sync::Arc;

pub(super) type Block = Vec<Statement>;

#[derive(Debug)]
pub(super) struct Statement {
    /// Counted from 1.
    pub(super) line: u32,
    pub(super) kind: StatementKind,
}

#[derive(Debug)]
pub(super) enum StatementKind {
    /// Also `local`: the slots are fresh then.
    Assign(Vec<Target>, Vec<Expr>),
    Call(Expr),
    /// The arms with a condition in order, then `else`.
    If(Vec<(Expr, Block)>, Block),
    Do(Block),
    Count {
        slot: usize,
        from: Expr,
        to: Expr,
        step: Option<Expr>,
        body: Block,
    },
    /// `pairs` and `ipairs`.
    Each {
        key: usize,
        value: Option<usize>,
        table: Expr,
        /// Ends at the first nil, as `ipairs` does.
        in_order: bool,
        body: Block,
    },
    Break,
    Return(Option<Expr>),
}

#[derive(Debug)]
pub(super) enum Target {
    Slot(usize),
    Field(Expr, Expr),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    Nil,
    Bool(bool),
    Number(f64),
    Text(Arc<[u8]>),
    Keys,
    Argv,
    Local(usize),
    Index(Box<Expr>, Box<Expr>),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// An expression in parentheses, which has one value.
    Single(Box<Expr>),
    /// Fields with their key, if it is written.
    Table(Vec<(Option<Expr>, Expr)>),
    Library(Function, Vec<Expr>),
    Redis(Call),
}

/// `redis.call` or `redis.pcall`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) command: Command,
    /// Without the name of the command.
    pub(super) args: Vec<Expr>,
    /// `pcall`: an error is a value.
    pub(super) protected: bool,
    pub(super) line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    Length,
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

impl Binary {
    pub(super) fn from_token(token: &str) -> Option<Self> {
        Some(match token {
            "or" => Self::Or,
            "and" => Self::And,
            "<" => Self::Less,
            ">" => Self::Greater,
            "<=" => Self::LessOrEqual,
            ">=" => Self::GreaterOrEqual,
            "~=" => Self::NotEqual,
            "==" => Self::Equal,
            ".." => Self::Concat,
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Modulo,
            _ => return None,
        })
    }

    /// How strongly the operator binds to its left and to its right side.
    pub(super) fn strengths(self) -> (u8, u8) {
        match self {
            Self::Or => (1, 2),
            Self::And => (3, 4),
            Self::Less
            | Self::Greater
            | Self::LessOrEqual
            | Self::GreaterOrEqual
            | Self::NotEqual
            | Self::Equal => (5, 6),
            // From the right.
            Self::Concat => (8, 7),
            Self::Add | Self::Subtract => (9, 10),
            Self::Multiply | Self::Divide | Self::Modulo => (11, 12),
        }
    }
}

/// How strongly `not`, `-` and `#` bind.
pub(super) const UNARY_STRENGTH: u8 = 13;

/// A function of Lua's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    ToNumber,
    ToString,
    Type,
    Unpack,
    Floor,
    Ceil,
    Min,
    Max,
    Abs,
    Sub,
    Len,
    Lower,
    Upper,
    Format,
    Insert,
    Join,
    StatusReply,
    ErrorReply,
    /// `redis.replicate_commands` has no effect since Redis 7.
    Nothing,
}

impl Function {
    /// Of a library's name (empty for a global function) and a function's.
    pub(super) fn named(library: &str, name: &str) -> Option<Self> {
        Some(match (library, name) {
            ("", "tonumber") => Self::ToNumber,
            ("", "tostring") => Self::ToString,
            ("", "type") => Self::Type,
            ("" | "table", "unpack") => Self::Unpack,
            ("math", "floor") => Self::Floor,
            ("math", "ceil") => Self::Ceil,
            ("math", "min") => Self::Min,
            ("math", "max") => Self::Max,
            ("math", "abs") => Self::Abs,
            ("string", "sub") => Self::Sub,
            ("string", "len") => Self::Len,
            ("string", "lower") => Self::Lower,
            ("string", "upper") => Self::Upper,
            ("string", "format") => Self::Format,
            ("table", "insert") => Self::Insert,
            ("table", "concat") => Self::Join,
            ("redis", "status_reply") => Self::StatusReply,
            ("redis", "error_reply") => Self::ErrorReply,
            ("redis", "replicate_commands") => Self::Nothing,
            _ => return None,
        })
    }
}

/// A command that a lock script may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Get,
    Mget,
    Exists,
    Ttl,
    Pttl,
    Set,
    Setnx,
    Setex,
    Psetex,
    Del,
    Unlink,
    Expire,
    Pexpire,
    Persist,
    Publish,
    Lpush,
    Rpush,
    Ltrim,
    /// Chooses a database. It has no key.
    Select,
}

impl Command {
    const ALL: [Self; 19] = [
        Self::Get,
        Self::Mget,
        Self::Exists,
        Self::Ttl,
        Self::Pttl,
        Self::Set,
        Self::Setnx,
        Self::Setex,
        Self::Psetex,
        Self::Del,
        Self::Unlink,
        Self::Expire,
        Self::Pexpire,
        Self::Persist,
        Self::Publish,
        Self::Lpush,
        Self::Rpush,
        Self::Ltrim,
        Self::Select,
    ];

    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|known| name.eq_ignore_ascii_case(known.name().as_bytes()))
    }

    /// In lower case.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Mget => "mget",
            Self::Exists => "exists",
            Self::Ttl => "ttl",
            Self::Pttl => "pttl",
            Self::Set => "set",
            Self::Setnx => "setnx",
            Self::Setex => "setex",
            Self::Psetex => "psetex",
            Self::Del => "del",
            Self::Unlink => "unlink",
            Self::Expire => "expire",
            Self::Pexpire => "pexpire",
            Self::Persist => "persist",
            Self::Publish => "publish",
            Self::Lpush => "lpush",
            Self::Rpush => "rpush",
            Self::Ltrim => "ltrim",
            Self::Select => "select",
        }
    }

    /// Commands on lists and channels, which only wake waiters.
    pub(super) fn is_signal(self) -> bool {
        matches!(self, Self::Publish | Self::Lpush | Self::Rpush | Self::Ltrim)
    }

    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Mget | Self::Exists | Self::Ttl | Self::Pttl)
    }
}

impl Expr {
    /// The number of expressions in the tree, if it is at most `max`, and otherwise a larger one.
    pub(super) fn nodes(&self, max: usize) -> usize {
        let mut nodes = 1;
        for part in self.parts() {
            if nodes > max {
                break;
            }
            nodes += part.nodes(max - nodes);
        }
        nodes
    }

    /// The expressions of which this one is made.
    pub(super) fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::Nil
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Text(_)
            | Self::Keys
            | Self::Argv
            | Self::Local(_) => Vec::new(),
            Self::Unary(_, inner) | Self::Single(inner) => vec![inner],
            Self::Index(left, right) | Self::Binary(_, left, right) => vec![left, right],
            Self::Table(fields) => {
                fields.iter().flat_map(|(key, value)| key.iter().chain([value])).collect()
            }
            Self::Library(_, args) | Self::Redis(Call { args, .. }) => args.iter().collect(),
        }
    }
}
