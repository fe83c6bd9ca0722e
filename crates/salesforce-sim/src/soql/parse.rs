//! Parses tokens to a query.

use super::token::{SoqlToken, malformed, tokens};
use crate::row_error::RowError;

#[derive(Debug, PartialEq)]
pub(super) struct SoqlQuery {
    pub(super) select: Select,
    pub(super) object: String,
    pub(super) condition: Option<Condition>,
    /// Fields and their sort order.
    pub(super) order: Vec<(String, SortOrder)>,
    pub(super) limit: Option<usize>,
    pub(super) offset: usize,
}

#[derive(Debug, PartialEq)]
pub(super) enum Select {
    Count,
    Fields(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortOrder {
    Up,
    Down,
}

#[derive(Debug, PartialEq)]
pub(super) enum Condition {
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Compare { field: String, sign: Sign, value: Literal },
    In { field: String, values: Vec<Literal> },
    Like { field: String, pattern: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// A literal. Numbers, dates and times are compared by the type of their field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Text(String),
    Plain(String),
}

/// Maximum depth of nested conditions.
const DEPTH_MAX: usize = 50;

pub(super) fn parse(text: &str) -> Result<SoqlQuery, RowError> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let query = parser.query()?;
    match parser.next() {
        None => Ok(query),
        Some(token) => Err(unexpected(Some(&token))),
    }
}

struct Parser {
    tokens: Vec<SoqlToken>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn query(&mut self) -> Result<SoqlQuery, RowError> {
        self.expect("SELECT")?;
        let select = self.select()?;
        self.expect("FROM")?;
        let object = self.name()?;
        let condition = if self.take("WHERE") { Some(self.condition()?) } else { None };
        let mut order = Vec::new();
        if self.take("ORDER") {
            self.expect("BY")?;
            order.push(self.order()?);
            while self.take_sign(",") {
                order.push(self.order()?);
            }
        }
        let limit = if self.take("LIMIT") { Some(self.number()?) } else { None };
        let offset = if self.take("OFFSET") { self.number()? } else { 0 };
        Ok(SoqlQuery { select, object, condition, order, limit, offset })
    }

    fn select(&mut self) -> Result<Select, RowError> {
        let first = self.name()?;
        if first.eq_ignore_ascii_case("COUNT") && self.take_sign("(") {
            self.expect_sign(")")?;
            return Ok(Select::Count);
        }
        let mut fields = vec![first];
        while self.take_sign(",") {
            fields.push(self.name()?);
        }
        // `FIELDS(ALL)` is one name with an argument.
        if fields[0].eq_ignore_ascii_case("FIELDS") && self.take_sign("(") {
            fields[0] = format!("FIELDS({})", self.name()?.to_ascii_uppercase());
            self.expect_sign(")")?;
        }
        Ok(Select::Fields(fields))
    }

    fn order(&mut self) -> Result<(String, SortOrder), RowError> {
        let field = self.name()?;
        let order = if self.take("DESC") { SortOrder::Down } else { SortOrder::Up };
        let _ = order == SortOrder::Up && self.take("ASC");
        if self.take("NULLS") && !self.take("FIRST") {
            self.expect("LAST")?;
        }
        Ok((field, order))
    }

    fn condition(&mut self) -> Result<Condition, RowError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(malformed("conditions are too deep"));
        }
        let mut left = self.single()?;
        loop {
            if self.take("AND") {
                left = Condition::And(Box::new(left), Box::new(self.single()?));
            } else if self.take("OR") {
                left = Condition::Or(Box::new(left), Box::new(self.single()?));
            } else {
                self.depth -= 1;
                return Ok(left);
            }
        }
    }

    fn single(&mut self) -> Result<Condition, RowError> {
        if self.take_sign("(") {
            let inner = self.condition()?;
            self.expect_sign(")")?;
            return Ok(inner);
        }
        if self.take("NOT") {
            self.depth += 1;
            if self.depth > DEPTH_MAX {
                return Err(malformed("conditions are too deep"));
            }
            let inner = Condition::Not(Box::new(self.single()?));
            self.depth -= 1;
            return Ok(inner);
        }
        let field = self.name()?;
        if self.take("LIKE") {
            let Some(SoqlToken::Text(pattern)) = self.next() else { return Err(unexpected(None)) };
            return Ok(Condition::Like { field, pattern });
        }
        let negated = self.take("NOT");
        if negated || self.peek_is("IN") {
            self.expect("IN")?;
            let values = Condition::In { field, values: self.list()? };
            return Ok(if negated { Condition::Not(Box::new(values)) } else { values });
        }
        let sign = self.sign()?;
        Ok(Condition::Compare { field, sign, value: self.literal()? })
    }

    fn list(&mut self) -> Result<Vec<Literal>, RowError> {
        self.expect_sign("(")?;
        let mut values = vec![self.literal()?];
        while self.take_sign(",") {
            values.push(self.literal()?);
        }
        self.expect_sign(")")?;
        Ok(values)
    }

    fn sign(&mut self) -> Result<Sign, RowError> {
        match self.next() {
            Some(SoqlToken::Sign("=")) => Ok(Sign::Equal),
            Some(SoqlToken::Sign("!=" | "<>")) => Ok(Sign::NotEqual),
            Some(SoqlToken::Sign("<")) => Ok(Sign::Less),
            Some(SoqlToken::Sign("<=")) => Ok(Sign::LessOrEqual),
            Some(SoqlToken::Sign(">")) => Ok(Sign::More),
            Some(SoqlToken::Sign(">=")) => Ok(Sign::MoreOrEqual),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn literal(&mut self) -> Result<Literal, RowError> {
        match self.next() {
            Some(SoqlToken::Text(text)) => Ok(Literal::Text(text)),
            Some(SoqlToken::Literal(text)) => Ok(Literal::Plain(text)),
            Some(SoqlToken::Word(word)) => match word.to_ascii_lowercase().as_str() {
                "null" => Ok(Literal::Null),
                "true" => Ok(Literal::Bool(true)),
                "false" => Ok(Literal::Bool(false)),
                _ => Err(unexpected(Some(&SoqlToken::Word(word)))),
            },
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn number(&mut self) -> Result<usize, RowError> {
        match self.next() {
            Some(SoqlToken::Literal(text)) => {
                text.parse().map_err(|_| malformed(format!("unexpected token: '{text}'")))
            }
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn name(&mut self) -> Result<String, RowError> {
        match self.next() {
            Some(SoqlToken::Word(word)) => Ok(word),
            other => Err(unexpected(other.as_ref())),
        }
    }

    fn next(&mut self) -> Option<SoqlToken> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn peek_is(&self, keyword: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(SoqlToken::Word(w)) if w.eq_ignore_ascii_case(keyword))
    }

    fn take(&mut self, keyword: &str) -> bool {
        let is = self.peek_is(keyword);
        self.at += usize::from(is);
        is
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is = matches!(self.tokens.get(self.at), Some(SoqlToken::Sign(found)) if *found == sign);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, keyword: &str) -> Result<(), RowError> {
        if self.take(keyword) { Ok(()) } else { Err(unexpected(self.tokens.get(self.at))) }
    }

    fn expect_sign(&mut self, sign: &str) -> Result<(), RowError> {
        if self.take_sign(sign) { Ok(()) } else { Err(unexpected(self.tokens.get(self.at))) }
    }
}

fn unexpected(token: Option<&SoqlToken>) -> RowError {
    let shown = match token {
        None => "<EOF>".to_owned(),
        Some(SoqlToken::Word(text) | SoqlToken::Text(text) | SoqlToken::Literal(text)) => {
            format!("'{text}'")
        }
        Some(SoqlToken::Sign(sign)) => format!("'{sign}'"),
    };
    malformed(format!("unexpected token: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_by_external_ids_is_understood() {
        let query = parse(
            "select Id, Account.Name from Contact where ExternalId__c IN ('a', 'it\\'s') \
             and Family__c != null order by Id desc limit 5 offset 2",
        )
        .unwrap();
        assert_eq!(query.object, "Contact");
        assert_eq!((query.limit, query.offset), (Some(5), 2));
        assert_eq!(query.order, [("Id".to_owned(), SortOrder::Down)]);
        let Some(Condition::And(left, _)) = query.condition else { panic!("and") };
        let values = vec![Literal::Text("a".to_owned()), Literal::Text("it's".to_owned())];
        assert_eq!(*left, Condition::In { field: "ExternalId__c".to_owned(), values });
    }

    #[test]
    fn an_invalid_query_is_malformed() {
        let deep = format!("SELECT Id FROM A WHERE {}", "(".repeat(1_000));
        let nots = format!("SELECT Id FROM A WHERE {}a = 1", "NOT ".repeat(10_000));
        for text in [
            "",
            "SELECT",
            "SELECT FROM A",
            "SELECT Id FROM",
            "SELECT Id FROM A WHERE",
            "SELECT Id FROM A WHERE x = y",
            "SELECT Id FROM A WHERE x = 'open",
            "SELECT Id FROM A LIMIT x",
            "SELECT Id FROM A; DROP",
            "SELECT Id FROM A WHERE x IN ()",
            &deep,
            &nots,
        ] {
            assert_eq!(parse(text).unwrap_err().code, "MALFORMED_QUERY", "{text}");
        }
    }
}
