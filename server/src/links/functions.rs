//! Functions in the templates of deep links.

use serde_json::Value;

use super::template::{is_true, shown};

/// Functions of Go's templates and of sprig. Arguments are in sprig's order: the piped one last.
pub(super) fn called(name: &str, arguments: &[Value]) -> Result<Value, String> {
    let wrong = || format!("{name}: these arguments do not fit");
    let texts: Vec<String> = arguments.iter().map(shown).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let compare = |so: fn(std::cmp::Ordering) -> bool| match arguments {
        [Value::String(left), Value::String(right)] => Ok(so(left.cmp(right)).into()),
        [left, right] => {
            let (left, right) = (
                left.as_f64().ok_or_else(wrong)?,
                right.as_f64().ok_or_else(wrong)?,
            );
            Ok(so(left.total_cmp(&right)).into())
        }
        _ => Err(wrong()),
    };
    Ok(match (name, &texts[..]) {
        ("index", [_, keys @ ..]) => {
            let mut value = arguments[0].clone();
            for (key, argument) in keys.iter().zip(&arguments[1..]) {
                let at = argument.as_u64().and_then(|at| usize::try_from(at).ok());
                let found = match at {
                    Some(at) => value.get(at),
                    None => value.get(*key),
                };
                value = found.cloned().unwrap_or_default();
            }
            value
        }
        ("eq", [_, _, ..]) => arguments[1..].iter().any(|other| *other == arguments[0]).into(),
        ("ne", [_, _]) => (arguments[0] != arguments[1]).into(),
        ("lt", _) => compare(std::cmp::Ordering::is_lt)?,
        ("le", _) => compare(std::cmp::Ordering::is_le)?,
        ("gt", _) => compare(std::cmp::Ordering::is_gt)?,
        ("ge", _) => compare(std::cmp::Ordering::is_ge)?,
        ("not", [_]) => (!is_true(&arguments[0])).into(),
        ("and", [_, ..]) => arguments
            .iter()
            .find(|value| !is_true(value))
            .unwrap_or(&arguments[arguments.len() - 1])
            .clone(),
        ("or", [_, ..]) => arguments
            .iter()
            .find(|value| is_true(value))
            .unwrap_or(&arguments[arguments.len() - 1])
            .clone(),
        ("len", [_]) => match &arguments[0] {
            Value::String(text) => text.len().into(),
            Value::Array(list) => list.len().into(),
            Value::Object(map) => map.len().into(),
            _ => return Err(wrong()),
        },
        ("default", [_, _]) => arguments[usize::from(is_true(&arguments[1]))].clone(),
        ("ternary", [_, _, _]) => arguments[usize::from(!is_true(&arguments[2]))].clone(),
        ("print" | "toString", _) => texts.concat().into(),
        ("printf", [format, rest @ ..]) => formatted(format, rest).into(),
        ("lower", [text]) => text.to_lowercase().into(),
        ("upper", [text]) => text.to_uppercase().into(),
        ("trim", [text]) => text.trim().into(),
        ("trimAll", [what, text]) => text.trim_matches(|c| what.contains(c)).into(),
        ("trimPrefix", [what, text]) => text.strip_prefix(what).unwrap_or(text).into(),
        ("trimSuffix", [what, text]) => text.strip_suffix(what).unwrap_or(text).into(),
        ("replace", [from, to, text]) => text.replace(from, to).into(),
        ("contains", [what, text]) => text.contains(what).into(),
        ("hasPrefix", [what, text]) => text.starts_with(what).into(),
        ("hasSuffix", [what, text]) => text.ends_with(what).into(),
        ("quote", _) => texts
            .iter()
            .map(|text| format!("{text:?}"))
            .collect::<Vec<_>>()
            .join(" ")
            .into(),
        ("urlquery", _) => url::form_urlencoded::byte_serialize(texts.concat().as_bytes())
            .collect::<String>()
            .into(),
        ("splitList", [separator, text]) => text.split(separator).map(Value::from).collect(),
        ("first", [_]) => arguments[0].get(0).cloned().unwrap_or_default(),
        ("last", [_]) => arguments[0]
            .as_array()
            .and_then(|list| list.last())
            .cloned()
            .unwrap_or_default(),
        ("join", [separator, _]) => {
            let list = arguments[1].as_array().ok_or_else(wrong)?;
            list.iter().map(shown).collect::<Vec<_>>().join(separator).into()
        }
        ("trunc", [len, text]) => {
            let len: usize = len.parse().map_err(|_| wrong())?;
            text.chars().take(len).collect::<String>().into()
        }
        ("hasKey", [_, key]) => arguments[0].get(*key).is_some().into(),
        ("get", [_, key]) => arguments[0].get(*key).cloned().unwrap_or_else(|| "".into()),
        _ => {
            return Err(format!(
                "{name}: links have no such function, or it wants other arguments"
            ));
        }
    })
}

/// `%s`, `%v`, `%d`, `%q` and `%%`.
fn formatted(format: &str, arguments: &[&str]) -> String {
    let (mut out, mut arguments) = (String::new(), arguments.iter());
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        match (character, character == '%') {
            (_, true) => match characters.next() {
                Some('q') => out += &format!("{:?}", arguments.next().unwrap_or(&"")),
                Some('%') => out.push('%'),
                _ => out += arguments.next().unwrap_or(&""),
            },
            (character, false) => out.push(character),
        }
    }
    out
}
