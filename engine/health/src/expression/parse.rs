//! Reading the language.

use super::path::{Path, Step};
use super::test::{Comparison, Number, Operand, Operator, Pattern, Reading, Test, Tests, What};
use super::text::{Choice, Part, Text};

/// An expression that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{expected} is expected at {rest:?} in {text:?}")]
pub(crate) struct Invalid {
    text: String,
    rest: String,
    expected: &'static str,
}

/// What is left to read of a text.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Path {
    pub(crate) fn parse(text: &str) -> Result<Path, Invalid> {
        let mut reader = Reader::new(text);
        let path = reader.path()?;
        reader.end()?;
        Ok(path)
    }
}

impl Number {
    pub(crate) fn parse(text: &str) -> Result<Number, Invalid> {
        let mut reader = Reader::new(text);
        let number = reader.sum()?;
        reader.end()?;
        Ok(Number(number))
    }
}

impl Tests {
    pub(crate) fn parse(text: &str) -> Result<Tests, Invalid> {
        let mut reader = Reader::new(text);
        let mut tests = Vec::new();
        reader.space();
        while !reader.rest.is_empty() {
            tests.push(reader.test()?);
            reader.space();
            if !reader.eat("&") {
                break;
            }
            reader.space();
        }
        reader.end()?;
        Ok(Tests(tests))
    }
}

impl Text {
    pub(crate) fn parse(text: &str) -> Result<Text, Invalid> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            if open > 0 {
                parts.push(Part::Fixed(rest[..open].to_owned()));
            }
            let mut reader = Reader {
                text,
                rest: &rest[open + 1..],
            };
            let mut choices = vec![reader.choice()?];
            while reader.eat("|") {
                choices.push(reader.choice()?);
            }
            if !reader.eat("}") {
                return Err(reader.expected("`}`"));
            }
            parts.push(Part::Choices(choices));
            rest = reader.rest;
        }
        if !rest.is_empty() {
            parts.push(Part::Fixed(rest.to_owned()));
        }
        Ok(Text(parts))
    }
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Reader { text, rest: text }
    }

    fn expected(&self, expected: &'static str) -> Invalid {
        Invalid {
            text: self.text.to_owned(),
            rest: self.rest.to_owned(),
            expected,
        }
    }

    fn end(&mut self) -> Result<(), Invalid> {
        self.space();
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.expected("the end"))
        }
    }

    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn take(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let len = self.rest.find(|letter| !fits(letter)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// A text in quotes, if one is next.
    fn quoted(&mut self, quote: char) -> Result<Option<&'a str>, Invalid> {
        let Some(inside) = self.rest.strip_prefix(quote) else {
            return Ok(None);
        };
        let Some(len) = inside.find(quote) else {
            return Err(self.expected("a closing quote"));
        };
        self.rest = &inside[len + 1..];
        Ok(Some(&inside[..len]))
    }

    fn path(&mut self) -> Result<Path, Invalid> {
        let mut steps = Vec::new();
        loop {
            if self.eat("[]") {
                steps.push(Step::Each);
            } else if self.eat("[-1]") {
                steps.push(Step::Last);
            } else if self.rest.starts_with('.') {
                self.rest = &self.rest[1..];
                let name = match self.quoted('"')? {
                    Some(name) => name,
                    None => self.take(|letter| letter.is_alphanumeric() || "_-$".contains(letter)),
                };
                if name.is_empty() {
                    return Err(self.expected("the name of a field"));
                }
                steps.push(Step::Field(name.to_owned()));
            } else if steps.is_empty() {
                return Err(self.expected("a path"));
            } else {
                return Ok(Path(steps));
            }
        }
    }

    fn test(&mut self) -> Result<Test, Invalid> {
        let negated = self.eat("!");
        self.space();
        let what = if self.eat("@") {
            self.condition()?
        } else {
            What::Field(self.comparison()?)
        };
        Ok(Test { negated, what })
    }

    /// Behind the `@`: source and type.
    fn condition_name(&mut self) -> Result<(String, String), Invalid> {
        let simple = |letter: char| letter.is_alphanumeric() || "_-.*".contains(letter);
        let mut source = String::new();
        let mut name = match self.quoted('"')? {
            Some(name) => return Ok((source, name.to_owned())),
            None => self.take(simple),
        };
        if self.eat("/") {
            source = name.to_owned();
            name = self.take(simple);
        }
        if name.is_empty() {
            return Err(self.expected("the type of a condition"));
        }
        Ok((source, name.to_owned()))
    }

    fn condition(&mut self) -> Result<What, Invalid> {
        let (source, name) = self.condition_name()?;
        self.space();
        let status = self.right_side()?;
        let mut filters = Vec::new();
        self.space();
        while self.eat("[") {
            self.space();
            let negated = self.eat("!");
            self.space();
            filters.push((negated, self.comparison()?));
            self.space();
            if !self.eat("]") {
                return Err(self.expected("`]`"));
            }
            self.space();
        }
        Ok(What::Condition {
            source,
            kind: Pattern::new(&name),
            status,
            filters,
        })
    }

    fn comparison(&mut self) -> Result<Comparison, Invalid> {
        let left = self.sum()?;
        self.space();
        let right = self.right_side()?;
        Ok(Comparison { left, right })
    }

    fn right_side(&mut self) -> Result<Option<(Operator, Vec<Operand>)>, Invalid> {
        let operators = [
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("=", Operator::Equal),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let Some((_, operator)) = operators.into_iter().find(|(token, _)| self.eat(token)) else {
            return Ok(None);
        };
        self.space();
        let mut values = vec![self.sum()?];
        while self.eat("|") {
            values.push(self.sum()?);
        }
        Ok(Some((operator, values)))
    }

    fn sum(&mut self) -> Result<Operand, Invalid> {
        let first = self.operand()?;
        let mut terms = vec![(false, first)];
        loop {
            if self.eat(" - ") {
                terms.push((true, self.operand()?));
            } else if self.eat(" + ") {
                terms.push((false, self.operand()?));
            } else {
                break;
            }
        }
        Ok(match <[(bool, Operand); 1]>::try_from(terms) {
            Ok([(_, only)]) => only,
            Err(terms) => Operand::Terms(terms),
        })
    }

    fn operand(&mut self) -> Result<Operand, Invalid> {
        if let Some(text) = self.quoted('\'')? {
            return Ok(Operand::Text(Pattern::Exact(text.to_owned())));
        }
        if self.rest.starts_with(['#', '+', '.']) {
            let (reading, path) = self.reading()?;
            let default = if self.eat("?") {
                match self.quoted('\'')? {
                    Some(text) => Some(text.to_owned()),
                    None => Some(self.take(|letter| letter.is_alphanumeric()).to_owned()),
                }
            } else {
                None
            };
            return Ok(Operand::Path {
                reading,
                path,
                default,
            });
        }
        let text = self.take(|letter| !letter.is_whitespace() && !"|]&".contains(letter));
        if text.is_empty() {
            return Err(self.expected("a value"));
        }
        Ok(Operand::Text(Pattern::new(text)))
    }

    /// A path with what says how its values are read.
    fn reading(&mut self) -> Result<(Reading, Path), Invalid> {
        let reading = match (self.eat("#"), self.eat("+")) {
            (true, _) => Reading::Count,
            (_, true) => Reading::Sum,
            _ => Reading::Each,
        };
        let path = self.path()?;
        if self.eat("/") {
            let index = self.take(|letter| letter.is_ascii_digit());
            let index = index
                .parse()
                .map_err(|_| self.expected("the number of a piece"))?;
            return Ok((Reading::Piece(index), path));
        }
        Ok((reading, path))
    }

    fn choice(&mut self) -> Result<Choice, Invalid> {
        if let Some(text) = self.quoted('\'')? {
            return Ok(Choice::Fixed(text.to_owned()));
        }
        if self.rest.starts_with(['#', '+', '.']) {
            let (reading, path) = self.reading()?;
            return Ok(Choice::Path(reading, path));
        }
        if self.eat("^") {
            return Ok(Choice::Container(self.path()?));
        }
        if self.eat("$") {
            return Ok(Choice::Param(
                self.take(|letter| letter.is_alphanumeric() || letter == '-')
                    .to_owned(),
            ));
        }
        if self.eat("now ") {
            return Ok(Choice::Now(self.take(|letter| letter != '}').to_owned()));
        }
        if self.eat("@") {
            let (source, mut kind) = self.condition_name()?;
            // The field stands behind the last dot, or, after a quoted type, behind its own.
            let field = if self.eat(".") {
                self.take(char::is_alphanumeric).to_owned()
            } else {
                let Some((name, field)) = kind.rsplit_once('.') else {
                    return Err(self.expected("a field of the condition"));
                };
                let field = field.to_owned();
                kind = name.to_owned();
                field
            };
            return Ok(Choice::Condition { source, kind, field });
        }
        let name = self.take(char::is_alphanumeric);
        if name.is_empty() {
            return Err(self.expected("something to fill in"));
        }
        Ok(Choice::Matched(name.to_owned()))
    }
}
