//! Conditions of deep links: the expressions that people write there, in the language of expr. Pure.
//!
//! Operators: `?:`, `??`, `or ||`, `and &&`, comparisons, `in`, `not in`, `contains`, `startsWith`, `endsWith`, `matches`,
//! `+ - * / %`, `not !`, members (`a.b`, `a?.b`, `a["b"]`), and the function `len`. A member of nothing is nothing.

use serde_json::{Number, Value, json};

/// What an expression is of the names in `object`.
pub(super) fn evaluate(text: &str, object: &Value) -> Result<Value, String> {
    let tokens = tokens(text)?;
    let mut reader = Reader {
        tokens: &tokens,
        object,
        depth: 0,
    };
    let value = reader.choice()?;
    match reader.tokens.first() {
        None => Ok(value),
        Some(token) => Err(format!("{token:?} is not expected")),
    }
}

/// Expressions inside expressions, at most.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Literal(Value),
    Sign(&'static str),
}

/// Longer ones first.
const SIGNS: &[&str] = &[
    "?.", "??", "||", "&&", "==", "!=", "<=", ">=", "?", ":", "<", ">", "+", "-", "*", "/", "%", "!", ".",
    "[", "]", "(", ")", ",",
];

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '"' || first == '\'' || first == '`' {
            let (literal, after) = quoted(rest, first)?;
            tokens.push(Token::Literal(literal.into()));
            rest = after;
        } else if first.is_ascii_digit() {
            let len = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(rest.len());
            let number: Number = rest[..len]
                .parse()
                .map_err(|_| format!("{} is no number", &rest[..len]))?;
            tokens.push(Token::Literal(Value::Number(number)));
            rest = &rest[len..];
        } else if first.is_alphabetic() || first == '_' || first == '$' {
            let len = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$')
                .unwrap_or(rest.len());
            tokens.push(match &rest[..len] {
                "true" => Token::Literal(true.into()),
                "false" => Token::Literal(false.into()),
                "nil" => Token::Literal(Value::Null),
                word => Token::Word(word.to_owned()),
            });
            rest = &rest[len..];
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("{first:?} is not expected"))?;
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// A text between quotes, and what follows it.
pub(super) fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut literal = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if quote != '`' => match characters.next() {
                Some((_, 'n')) => literal.push('\n'),
                Some((_, 't')) => literal.push('\t'),
                Some((_, escaped)) => literal.push(escaped),
                None => break,
            },
            _ if character == quote => return Ok((literal, &text[at + character.len_utf8()..])),
            _ => literal.push(character),
        }
    }
    Err("a quote is not closed".to_owned())
}

struct Reader<'a> {
    tokens: &'a [Token],
    object: &'a Value,
    depth: usize,
}

impl Reader<'_> {
    fn take(&mut self, wanted: &str) -> bool {
        let found = match self.tokens.first() {
            Some(Token::Sign(sign)) => *sign == wanted,
            Some(Token::Word(word)) => word == wanted,
            _ => false,
        };
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn expect(&mut self, wanted: &str) -> Result<(), String> {
        self.take(wanted)
            .then_some(())
            .ok_or_else(|| format!("{wanted} is missing"))
    }

    fn choice(&mut self) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        let mut value = self.either()?;
        while self.take("??") {
            let other = self.either()?;
            value = if value.is_null() { other } else { value };
        }
        if self.take("?") {
            let yes = self.choice()?;
            self.expect(":")?;
            let no = self.choice()?;
            value = if truth(&value)? { yes } else { no };
        }
        self.depth -= 1;
        Ok(value)
    }

    fn either(&mut self) -> Result<Value, String> {
        let mut value = self.both()?;
        while self.take("||") || self.take("or") {
            let other = self.both()?;
            value = (truth(&value)? || truth(&other)?).into();
        }
        Ok(value)
    }

    fn both(&mut self) -> Result<Value, String> {
        let mut value = self.comparison()?;
        while self.take("&&") || self.take("and") {
            let other = self.comparison()?;
            value = (truth(&value)? && truth(&other)?).into();
        }
        Ok(value)
    }

    fn comparison(&mut self) -> Result<Value, String> {
        let left = self.sum()?;
        let negated = matches!(self.tokens, [Token::Word(not), Token::Word(operator), ..] if not == "not" && operator == "in")
            && self.take("not");
        for operator in [
            "==",
            "!=",
            "<=",
            ">=",
            "<",
            ">",
            "in",
            "contains",
            "startsWith",
            "endsWith",
            "matches",
        ] {
            if self.take(operator) {
                let right = self.sum()?;
                return Ok((compared(operator, &left, &right)? != negated).into());
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Value, String> {
        let mut value = self.product()?;
        while let Some(operator) = ["+", "-"].into_iter().find(|operator| self.take(operator)) {
            let other = self.product()?;
            value = match (&value, &other) {
                (Value::String(left), Value::String(right)) if operator == "+" => {
                    format!("{left}{right}").into()
                }
                _ => calculated(operator, &value, &other)?,
            };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<Value, String> {
        let mut value = self.negation()?;
        while let Some(operator) = ["*", "/", "%"].into_iter().find(|operator| self.take(operator)) {
            let other = self.negation()?;
            value = calculated(operator, &value, &other)?;
        }
        Ok(value)
    }

    fn negation(&mut self) -> Result<Value, String> {
        let mut negated = false;
        let mut any = false;
        while self.take("!") || self.take("not") {
            (negated, any) = (!negated, true);
        }
        let value = self.member()?;
        match any {
            true => Ok((truth(&value)? != negated).into()),
            false => Ok(value),
        }
    }

    fn member(&mut self) -> Result<Value, String> {
        let mut value = self.atom()?;
        loop {
            if self.take(".") || self.take("?.") {
                let Some((Token::Word(name), rest)) = self.tokens.split_first() else {
                    return Err("a name is missing after the dot".to_owned());
                };
                self.tokens = rest;
                value = value.get(name).cloned().unwrap_or_default();
            } else if self.take("[") {
                let key = self.choice()?;
                self.expect("]")?;
                value = match &key {
                    Value::String(key) => value.get(key),
                    key => key.as_u64().and_then(|at| value.get(usize::try_from(at).ok()?)),
                }
                .cloned()
                .unwrap_or_default();
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Result<Value, String> {
        if self.take("(") {
            let value = self.choice()?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.take("[") {
            let mut list = Vec::new();
            while !self.take("]") {
                list.push(self.choice()?);
                if !self.take(",") {
                    self.expect("]")?;
                    break;
                }
            }
            return Ok(list.into());
        }
        let (token, rest) = self.tokens.split_first().ok_or("it ends too early")?;
        self.tokens = rest;
        match token {
            Token::Literal(value) => Ok(value.clone()),
            Token::Word(name) if name == "len" && self.take("(") => {
                let value = self.choice()?;
                self.expect(")")?;
                let len = match &value {
                    Value::String(text) => text.chars().count(),
                    Value::Array(list) => list.len(),
                    Value::Object(map) => map.len(),
                    _ => return Err("len is of texts, lists and maps".to_owned()),
                };
                Ok(json!(len))
            }
            Token::Word(name) => Ok(self.object.get(name).cloned().unwrap_or_default()),
            Token::Sign(sign) => Err(format!("{sign} is not expected")),
        }
    }
}

fn truth(value: &Value) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| format!("{value} is neither true nor false"))
}

fn calculated(operator: &str, left: &Value, right: &Value) -> Result<Value, String> {
    let (Some(a), Some(b)) = (left.as_f64(), right.as_f64()) else {
        return Err(format!("{left} {operator} {right} cannot be calculated"));
    };
    let result = match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a * b,
        "/" => a / b,
        _ => a % b,
    };
    Ok(json!(result))
}

fn compared(operator: &str, left: &Value, right: &Value) -> Result<bool, String> {
    let equal = |left: &Value, right: &Value| match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left.total_cmp(&right).is_eq(),
        _ => left == right,
    };
    let wrong = || format!("{left} {operator} {right} cannot be compared");
    match operator {
        "==" => return Ok(equal(left, right)),
        "!=" => return Ok(!equal(left, right)),
        "in" => {
            return match right {
                Value::Array(list) => Ok(list.iter().any(|item| equal(item, left))),
                Value::Object(map) => Ok(left.as_str().is_some_and(|key| map.contains_key(key))),
                Value::Null => Ok(false),
                _ => Err(wrong()),
            };
        }
        _ => {}
    }
    if let (Value::String(left), Value::String(right)) = (left, right) {
        return match operator {
            "contains" => Ok(left.contains(right.as_str())),
            "startsWith" => Ok(left.starts_with(right.as_str())),
            "endsWith" => Ok(left.ends_with(right.as_str())),
            "matches" => {
                let pattern = regex::Regex::new(right).map_err(|error| error.to_string())?;
                Ok(pattern.is_match(left))
            }
            _ => Ok(ordered(operator, left.cmp(right))),
        };
    }
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) if !operator.starts_with(char::is_alphabetic) => {
            Ok(ordered(operator, left.total_cmp(&right)))
        }
        _ => Err(wrong()),
    }
}

fn ordered(operator: &str, ordering: std::cmp::Ordering) -> bool {
    match operator {
        "<" => ordering.is_lt(),
        "<=" => ordering.is_le(),
        ">" => ordering.is_gt(),
        _ => ordering.is_ge(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_what_expr_makes_of_them() {
        let object = json!({
            "app": {"spec": {"project": "shop"}, "metadata": {"labels": {"team": "a"}, "annotations": {"x/y": "z"}}},
            "resource": {"kind": "Deployment", "spec": {"replicas": 3, "ports": [{"name": "http"}]}},
        });
        for (text, expected) in [
            (r#"app.spec.project == "shop""#, true),
            (r#"app.spec.project != 'shop'"#, false),
            (
                r#"resource.kind in ["Pod", "Deployment"] && resource.spec.replicas >= 3"#,
                true,
            ),
            (r#"resource.kind not in ["Pod"]"#, true),
            (
                r#"app.metadata.annotations["x/y"] == "z" and not (resource.kind == "Pod")"#,
                true,
            ),
            (r#"app.metadata.labels.none == nil"#, true),
            (r#"app?.nothing?.below == nil || false"#, true),
            (r#""team" in app.metadata.labels"#, true),
            (
                r#"resource.kind startsWith "Dep" and resource.kind endsWith "ment""#,
                true,
            ),
            (r#"resource.kind matches "^Dep.*t$""#, true),
            (r#"app.spec.project contains "ho""#, true),
            (
                r#"len(resource.spec.ports) == 1 && resource.spec.ports[0].name == "http""#,
                true,
            ),
            (r#"(app.metadata.labels.none ?? "a") == "a" ? true : false"#, true),
            ("resource.spec.replicas * 2 - 1 == 5", true),
            ("!true or !false", true),
        ] {
            assert_eq!(evaluate(text, &object), Ok(expected.into()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_or_compared_is_said() {
        let object = json!({"a": {"b": 1}});
        for text in [
            "",
            "a.",
            "a ==",
            "(a",
            "a b",
            "\"open",
            "a and true",
            "1 < \"x\"",
            "#",
            "len(1)",
        ] {
            assert!(evaluate(text, &object).is_err(), "{text}");
        }
        assert!(evaluate(&"(".repeat(10_000), &object).is_err());
        assert!(evaluate(&"!".repeat(10_000), &object).is_err());
    }
}
