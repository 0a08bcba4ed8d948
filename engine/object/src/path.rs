//! Where something is in a document, said the way a person would: `spec.template.spec.containers[name=main].image`.

use std::fmt::{self, Write as _};

use crate::{Value, pointer};

/// A place in a document.
///
/// A path is a step that points at the path of its parent, so a walk over a document makes one on the stack at each
/// level and pays nothing for it; text is only made for the few places that are reported.
///
/// ```
/// # use argosy_object::Path;
/// let root = Path::root();
/// let spec = root.field("spec");
/// let ports = spec.field("ports");
/// assert_eq!(ports.index(0).to_string(), "spec.ports[0]");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Item {
        keys: &'a [&'a str],
        item: &'a Value,
        index: usize,
    },
    Member {
        member: &'a Value,
        index: usize,
    },
}

impl<'a> Path<'a> {
    /// The document itself.
    pub const fn root() -> Path<'static> {
        Path {
            parent: None,
            step: Step::Root,
        }
    }

    /// A field of an object.
    pub const fn field(&'a self, name: &'a str) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Field(name),
        }
    }

    /// An item of a list, by position.
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Index(index),
        }
    }

    /// An item of a list that is keyed by some of its fields: shown as `[name=main]` or `[port=80,protocol=TCP]`.
    /// `index` is where the item stands in its list.
    pub const fn item(&'a self, keys: &'a [&'a str], item: &'a Value, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Item { keys, item, index },
        }
    }

    /// A member of a set of scalars: shown as `[="x"]`. `index` is where it stands in its list.
    pub const fn member(&'a self, member: &'a Value, index: usize) -> Path<'a> {
        Path {
            parent: Some(self),
            step: Step::Member { member, index },
        }
    }

    /// The path of what holds this; none for the document itself.
    pub const fn parent(&self) -> Option<&'a Path<'a>> {
        self.parent
    }

    /// Steps below the document itself.
    pub fn depth(&self) -> usize {
        std::iter::successors(self.parent, |path| path.parent).count()
    }

    /// The name of the last step, if that is a field.
    pub const fn name(&self) -> Option<&'a str> {
        match self.step {
            Step::Field(name) => Some(name),
            _ => None,
        }
    }

    /// The value of the last step, if that is an item of a keyed list or a member of a set.
    pub const fn value(&self) -> Option<&'a Value> {
        match self.step {
            Step::Item { item, .. } | Step::Member { member: item, .. } => Some(item),
            _ => None,
        }
    }

    /// The same place as a JSON pointer (RFC 6901).
    pub fn to_pointer(&self) -> String {
        let mut text = self.parent.map(Path::to_pointer).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) => {
                text.push('/');
                text.push_str(&pointer::escape(name));
            }
            Step::Index(index) | Step::Item { index, .. } | Step::Member { index, .. } => {
                text.push('/');
                text.push_str(&index.to_string());
            }
        }
        text
    }
}

impl fmt::Display for Path<'_> {
    /// Field names that would not read as one word are quoted: `metadata.annotations["example.com/a"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if is_word(name) => {
                if self
                    .parent
                    .is_some_and(|parent| !matches!(parent.step, Step::Root))
                {
                    f.write_char('.')?;
                }
                f.write_str(name)
            }
            Step::Field(name) => write!(f, "[{}]", Value::from(name)),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Member { member, .. } => write!(f, "[={member}]"),
            Step::Item { keys, item, index } => {
                f.write_char('[')?;
                let mut shown = 0;
                for key in keys {
                    let Some(value) = item.get(*key) else { continue };
                    if shown > 0 {
                        f.write_char(',')?;
                    }
                    shown += 1;
                    match value.as_str() {
                        Some(text) => write!(f, "{key}={text}")?,
                        None => write!(f, "{key}={value}")?,
                    }
                }
                // An item without any of its keys can only be told by position.
                if shown == 0 {
                    write!(f, "{index}")?;
                }
                f.write_char(']')
            }
        }
    }
}

fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'$'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keyed_items_show_their_keys() {
        let main = json!({"name": "main", "image": "x"});
        let (root, keys) = (Path::root(), ["name"]);
        let spec = root.field("spec");
        let containers = spec.field("containers");
        let item = containers.item(&keys, &main, 2);
        let image = item.field("image");
        assert_eq!(image.to_string(), "spec.containers[name=main].image");
        assert_eq!(image.to_pointer(), "/spec/containers/2/image");
        assert_eq!(image.depth(), 4);
    }

    #[test]
    fn several_keys_stand_side_by_side_and_absent_ones_are_left_out() {
        let (root, keys) = (Path::root(), ["port", "protocol"]);
        let ports = root.field("ports");
        assert_eq!(
            ports
                .item(&keys, &json!({"port": 80, "protocol": "TCP"}), 0)
                .to_string(),
            "ports[port=80,protocol=TCP]"
        );
        assert_eq!(
            ports.item(&keys, &json!({"port": 80}), 0).to_string(),
            "ports[port=80]"
        );
        assert_eq!(ports.item(&keys, &json!({}), 3).to_string(), "ports[3]");
        assert_eq!(ports.member(&json!("a"), 1).to_string(), "ports[=\"a\"]");
    }

    #[test]
    fn names_that_are_no_words_are_quoted() {
        let root = Path::root();
        let annotations = root.field("annotations");
        let one = annotations.field("example.com/a~b");
        assert_eq!(one.to_string(), "annotations[\"example.com/a~b\"]");
        assert_eq!(one.to_pointer(), "/annotations/example.com~1a~0b");
        assert_eq!(root.to_string(), "");
        assert_eq!(root.to_pointer(), "");
    }
}
