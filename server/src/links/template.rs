//! URLs of deep links: what people use of Go's text templates there. Pure.
//!
//! Fields (`{{ .app.metadata.name }}`), pipes, `if`/`else if`/`else`/`end`, `with`, trimmed spaces (`{{-`, `-}}`), remarks, and the
//! functions in [`super::functions`]. What is not there is written `<no value>`, as Go writes it.

use serde_json::Value;

use super::expression::quoted;
use super::functions::called;

/// Blocks inside blocks and brackets inside brackets, at most.
const DEPTH_MAX: usize = 32;
/// The longest URL.
const LEN_MAX: usize = 64 << 10;

/// A template with the fields of `object` put in.
pub(super) fn render(text: &str, object: &Value) -> Result<String, String> {
    let pieces = pieces(text)?;
    let mut rest = &pieces[..];
    let mut out = String::new();
    let mut run = Run { out: &mut out };
    match run.block(&mut rest, object, true, 0)? {
        None => Ok(out),
        Some(word) => Err(format!("{word} is not expected")),
    }
}

enum Piece<'a> {
    Text(&'a str),
    Action(&'a str),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let (mut pieces, mut rest, mut trimmed) = (Vec::new(), text, false);
    loop {
        let (before, after) = match rest.split_once("{{") {
            Some((before, after)) => (before, Some(after)),
            None => (rest, None),
        };
        let before = if trimmed { before.trim_start() } else { before };
        let Some(after) = after else {
            pieces.push(Piece::Text(before));
            return Ok(pieces);
        };
        let (action, following) = action(after)?;
        let left = action.strip_prefix("- ");
        pieces.push(Piece::Text(if left.is_some() {
            before.trim_end()
        } else {
            before
        }));
        let action = left.unwrap_or(action);
        let right = action.strip_suffix(" -");
        trimmed = right.is_some();
        let action = right.unwrap_or(action).trim();
        if !action.starts_with("/*") {
            pieces.push(Piece::Action(action));
        }
        rest = following;
    }
}

/// What stands before `}}` outside of quotes, and what follows it.
fn action(text: &str) -> Result<(&str, &str), String> {
    let mut rest = text;
    loop {
        let at = rest.find(['"', '`', '}']).ok_or("an action is not closed")?;
        let found = &rest[at..];
        if let Some(following) = found.strip_prefix("}}") {
            return Ok((&text[..text.len() - found.len()], following));
        }
        rest = match found.chars().next() {
            Some(quote) if quote != '}' => quoted(found, quote)?.1,
            _ => &found[1..],
        };
    }
}

struct Run<'a> {
    out: &'a mut String,
}

impl Run<'_> {
    /// Writes a block up to its end, or passes it over; the word that ended it.
    fn block<'t>(
        &mut self,
        pieces: &mut &[Piece<'t>],
        dot: &Value,
        is_on: bool,
        depth: usize,
    ) -> Result<Option<&'t str>, String> {
        if depth > DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        while let Some((piece, rest)) = pieces.split_first() {
            *pieces = rest;
            match piece {
                Piece::Text(text) if is_on => self.out.push_str(text),
                Piece::Text(_) => {}
                Piece::Action(action) => match action.split_whitespace().next().unwrap_or_default() {
                    "end" | "else" => return Ok(Some(*action)),
                    word @ ("if" | "with") => {
                        self.choice(word, &action[word.len()..], pieces, dot, is_on, depth)?
                    }
                    "range" | "define" | "template" | "block" | "break" | "continue" => {
                        return Err(format!("{action}: links have no such action"));
                    }
                    _ if is_on => {
                        let value = pipeline(action, dot)?;
                        self.out.push_str(&shown(&value));
                    }
                    _ => {}
                },
            }
            if self.out.len() > LEN_MAX {
                return Err("it becomes too long".to_owned());
            }
        }
        match depth {
            0 => Ok(None),
            _ => Err("an end is missing".to_owned()),
        }
    }

    fn choice(
        &mut self,
        word: &str,
        condition: &str,
        pieces: &mut &[Piece<'_>],
        dot: &Value,
        is_on: bool,
        depth: usize,
    ) -> Result<(), String> {
        let (mut condition, mut is_done) = (condition.to_owned(), !is_on);
        loop {
            let value = if is_done {
                Value::Null
            } else {
                pipeline(&condition, dot)?
            };
            let is_this = !is_done && is_true(&value);
            is_done |= is_this;
            let dot = if word == "with" && is_this { &value } else { dot };
            match self.block(pieces, dot, is_this, depth + 1)? {
                Some("end") => return Ok(()),
                Some(ended) => {
                    let next = ended["else".len()..].trim();
                    condition = match next.strip_prefix(word) {
                        Some(condition) => condition.to_owned(),
                        None => "true".to_owned(),
                    };
                }
                None => return Err("an end is missing".to_owned()),
            }
        }
    }
}

/// As Go judges what is empty.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64().is_some_and(|number| number != 0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", shown(value)))
                .collect();
            format!("map[{}]", pairs.join(" "))
        }
        other => other.to_string(),
    }
}

#[derive(Debug)]
enum Word {
    Value(Value),
    Name(String),
}

/// Commands with pipes between them: each gets what the one before made as its last argument.
fn pipeline(text: &str, dot: &Value) -> Result<Value, String> {
    let mut rest = text.trim();
    let mut piped = None;
    loop {
        let mut words = Vec::new();
        let mut goes_on = false;
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('|') {
                (rest, goes_on) = (after.trim_start(), true);
                break;
            }
            let (word, after) = word(rest, dot, 0)?;
            words.push(word);
            rest = after.trim_start();
        }
        let value = command(words, piped.take())?;
        if !goes_on {
            return Ok(value);
        }
        piped = Some(value);
    }
}

fn command(words: Vec<Word>, piped: Option<Value>) -> Result<Value, String> {
    let mut words = words.into_iter();
    let first = words.next().ok_or("a command is missing")?;
    let arguments: Result<Vec<_>, _> = words
        .map(|word| match word {
            Word::Value(value) => Ok(value),
            Word::Name(name) => Err(format!("{name}: a function as an argument needs brackets")),
        })
        .collect();
    let mut arguments = arguments?;
    arguments.extend(piped);
    match first {
        Word::Name(name) => called(&name, &arguments),
        Word::Value(value) if arguments.is_empty() => Ok(value),
        Word::Value(value) => Err(format!("{value} is no function")),
    }
}

/// One word: a field, a literal, a name, or a pipeline in brackets with fields behind it.
fn word<'t>(text: &'t str, dot: &Value, depth: usize) -> Result<(Word, &'t str), String> {
    if depth > DEPTH_MAX {
        return Err("it is nested too deeply".to_owned());
    }
    let first = text.chars().next().ok_or("a word is missing")?;
    if first == '"' || first == '`' {
        let (literal, rest) = quoted(text, first)?;
        return Ok((Word::Value(literal.into()), rest));
    }
    if first == '(' {
        let (inside, rest) = bracketed(text)?;
        let (value, rest) = fields(pipeline(inside, dot)?, rest);
        return Ok((Word::Value(value), rest));
    }
    let len = text
        .find(|c: char| c.is_whitespace() || "|()\"`".contains(c))
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(len);
    let value = match word {
        "" => return Err(format!("{first:?} is not expected")),
        "true" => true.into(),
        "false" => false.into(),
        "nil" => Value::Null,
        _ if first == '.' || first == '$' => {
            let path = word.trim_start_matches('$');
            if !path.is_empty() && !path.starts_with('.') {
                return Err(format!("{word}: links have no variables"));
            }
            if path == "." || path.is_empty() {
                dot.clone()
            } else {
                fields(dot.clone(), path).0
            }
        }
        _ if first.is_ascii_digit() || first == '-' => {
            serde_json::from_str(word).map_err(|_| format!("{word} is no number"))?
        }
        _ => return Ok((Word::Name(word.to_owned()), rest)),
    };
    Ok((Word::Value(value), rest))
}

/// The fields that a text of the form `.a.b` goes down, and what follows it.
fn fields(mut value: Value, text: &str) -> (Value, &str) {
    let mut rest = text;
    while let Some(after) = rest.strip_prefix('.') {
        let len = after
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(after.len());
        value = value.get(&after[..len]).cloned().unwrap_or_default();
        rest = &after[len..];
    }
    (value, rest)
}

/// What stands in brackets, and what follows them.
fn bracketed(text: &str) -> Result<(&str, &str), String> {
    let (mut rest, mut depth) = (text, 0_usize);
    while let Some(at) = rest.find(['(', ')', '"', '`']) {
        let found = &rest[at..];
        rest = match found.as_bytes()[0] {
            b'(' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err("it is nested too deeply".to_owned());
                }
                &found[1..]
            }
            b')' if depth == 1 => return Ok((&text[1..text.len() - found.len()], &found[1..])),
            b')' => {
                depth -= 1;
                &found[1..]
            }
            quote => quoted(found, char::from(quote))?.1,
        };
    }
    Err("a bracket is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_are_what_go_makes_of_them() {
        let object = json!({"app": {"metadata": {"name": "web", "annotations": {"x/y": "Z"}}, "spec": {"project": "shop"}},
            "resource": {"spec": {"replicas": 3, "tags": ["a", "b"]}}});
        for (text, expected) in [
            (
                "https://x/{{ .app.metadata.name }}?p={{.app.spec.project}}",
                "https://x/web?p=shop",
            ),
            ("{{ .app.none.below }}", "<no value>"),
            (r#"{{ index .app.metadata.annotations "x/y" | lower }}"#, "z"),
            (
                r#"{{ (index .app.metadata.annotations "x/y") }}-{{ "a}}b" }}"#,
                "Z-a}}b",
            ),
            (
                r#"{{ if eq .app.spec.project "shop" }}yes{{ else }}no{{ end }}"#,
                "yes",
            ),
            (
                r#"{{ if eq .app.spec.project "x" }}1{{ else if .app.none }}2{{ else }}3{{ end }}!"#,
                "3!",
            ),
            (
                r#"{{ if false }}{{ if true }}a{{ else }}b{{ end }}{{ end }}c"#,
                "c",
            ),
            ("a {{- .resource.spec.replicas -}} b", "a3b"),
            ("{{/* a remark */}}x", "x"),
            (r#"{{ with .app.metadata }}{{ .name }}{{ end }}"#, "web"),
            (r#"{{ .app.none | default "none" }}"#, "none"),
            (
                r#"{{ printf "%s/%d" .app.spec.project .resource.spec.replicas }}"#,
                "shop/3",
            ),
            (
                r#"{{ .app.metadata.name | replace "e" "%20" | urlquery }}"#,
                "w%2520b",
            ),
            (
                r#"{{ join "," .resource.spec.tags }}{{ .resource.spec.tags }}"#,
                "a,b[a b]",
            ),
            (r#"{{ (splitList "-" "a-b" | last) }}"#, "b"),
            (r#"{{ ternary "y" "n" (gt .resource.spec.replicas 2) }}"#, "y"),
        ] {
            assert_eq!(render(text, &object).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for text in [
            "{{",
            "{{ .a",
            "{{ if true }}",
            "{{ end }}",
            "{{ nothing 1 }}",
            "{{ env \"HOME\" }}",
            "{{ (.a }}",
            "{{ \"a }}",
            "{{ }}",
            "{{ range .a }}{{ end }}",
        ] {
            assert!(render(text, &json!({})).is_err(), "{text}");
        }
        assert!(render(&"{{ if true }}".repeat(1000), &json!({})).is_err());
        assert!(render(&format!("{{{{ {}1 }}}}", "(".repeat(1000)), &json!({})).is_err());
    }
}
