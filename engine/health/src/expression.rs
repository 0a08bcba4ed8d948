//! The little language of the data files under `rules/`: where a value is, what must hold, what is said.
//!
//! | written | means |
//! |---|---|
//! | `.spec.a."x/y"` | a field; `[]` behind a name stands for every item of a list or every value of a map, `[-1]` for the last item |
//! | `#.status.active` | how many items (or characters) it has, 0 if it is absent |
//! | `+.spec.sets[].count` | their sum |
//! | `.status.ready/0` | of a text such as `2/3` the first piece |
//! | `.spec.replicas?1` | the same with a value for the case that it is absent |
//! | `.a = x\|'y z'` | one of these texts; `*` in a bare text stands for anything; also `!=`, `<`, `<=`, `>`, `>=`. What is absent differs from everything, but nothing differs from a field that is absent |
//! | `.a < .b - .c` | numbers are compared as numbers, other texts as texts; between the two there is no order |
//! | `.a` | it is there |
//! | `@Ready = False [.reason = A\|B]` | there is a condition of this type, with this status, whose fields satisfy the brackets (`!` in front: do not) |
//! | `@listener/Ready` | the same in another list of conditions, which the rule set names |
//! | `! test` | the opposite |
//! | `test & test` | both |
//!
//! Texts hold `{…}` with choices separated by `|`, of which the first that is not empty counts: `.path`, `message` (a field of the
//! condition that the test found), `@Ready.message`, `^.name` (a field of what contains that condition), `$param`, `now %Y-%m-%d`, `'as is'`.

mod parse;
mod path;
mod test;
mod text;
mod time;

pub(crate) use parse::Invalid;
pub(crate) use path::Path;
pub(crate) use test::{Conditions, Found, Number, Tests};
pub(crate) use text::{Scene, Text};

use argosy_object::Value;

/// A scalar as text; `None` for null, lists and maps.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
