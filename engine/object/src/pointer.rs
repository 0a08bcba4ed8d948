//! JSON pointers (RFC 6901), as ignore rules write them: `/spec/template/spec/containers/0/image`.
//!
//! A pointer that leads nowhere is no error: rules are written once for many objects.

use std::borrow::Cow;

use crate::Value;

/// What the pointer leads to. The empty pointer is the document itself.
pub fn get<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    tokens(pointer)?.try_fold(value, |at, token| match at {
        Value::Object(map) => map.get(token.as_ref()),
        Value::Array(list) => list.get(index(&token)?),
        _ => None,
    })
}

/// What the pointer leads to, to change it.
pub fn get_mut<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    tokens(pointer)?.try_fold(value, |at, token| match at {
        Value::Object(map) => map.get_mut(token.as_ref()),
        Value::Array(list) => list.get_mut(index(&token)?),
        _ => None,
    })
}

/// Takes out what the pointer leads to and returns it; items after it in a list move up. A path that is missing, and
/// the empty pointer, leave the document alone.
pub fn remove(value: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, last) = pointer.rsplit_once('/')?;
    let last = unescape(last);
    match get_mut(value, parent)? {
        Value::Object(map) => map.remove(last.as_ref()),
        Value::Array(list) => {
            let at = index(&last)?;
            (at < list.len()).then(|| list.remove(at))
        }
        _ => None,
    }
}

/// One name as it is written inside a pointer: `~` as `~0`, `/` as `~1`.
pub fn escape(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        Cow::Owned(name.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(name)
    }
}

fn tokens(pointer: &str) -> Option<impl Iterator<Item = Cow<'_, str>>> {
    let mut parts = pointer.split('/');
    // What stands before the first slash must be empty: a pointer starts with a slash or is empty.
    parts.next().filter(|first| first.is_empty())?;
    Some(parts.map(unescape))
}

fn unescape(token: &str) -> Cow<'_, str> {
    if token.contains('~') {
        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(token)
    }
}

fn index(token: &str) -> Option<usize> {
    let canonical = token == "0" || !token.starts_with(['0', '+']);
    if canonical { token.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pointers_of_the_rfc_resolve() {
        let doc = json!({
            "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8
        });
        assert_eq!(get(&doc, ""), Some(&doc));
        assert_eq!(get(&doc, "/foo"), Some(&json!(["bar", "baz"])));
        assert_eq!(get(&doc, "/foo/0"), Some(&json!("bar")));
        for (pointer, want) in [
            ("/", 0),
            ("/a~1b", 1),
            ("/c%d", 2),
            ("/e^f", 3),
            ("/g|h", 4),
            ("/i\\j", 5),
            ("/k\"l", 6),
            ("/ ", 7),
            ("/m~0n", 8),
        ] {
            assert_eq!(get(&doc, pointer), Some(&json!(want)), "{pointer}");
        }
    }

    #[test]
    fn removing_what_is_missing_changes_nothing() {
        let doc = json!({"spec": {"list": [1, 2]}});
        for pointer in [
            "",
            "/spec/other",
            "/spec/list/2",
            "/spec/list/01",
            "/spec/list/-",
            "spec",
            "/none/deep",
            "/spec/list/0/x",
        ] {
            let mut copy = doc.clone();
            assert_eq!(remove(&mut copy, pointer), None, "{pointer}");
            assert_eq!(copy, doc, "{pointer}");
        }
    }

    #[test]
    fn removing_takes_fields_and_items() {
        let mut doc = json!({"metadata": {"annotations": {"a/b": "1"}}, "list": [1, 2, 3]});
        assert_eq!(remove(&mut doc, "/metadata/annotations/a~1b"), Some(json!("1")));
        assert_eq!(remove(&mut doc, "/list/1"), Some(json!(2)));
        assert_eq!(doc, json!({"metadata": {"annotations": {}}, "list": [1, 3]}));
    }
}
