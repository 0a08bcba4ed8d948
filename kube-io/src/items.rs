//! Splits a list answer into its items while the bytes arrive.
//!
//! A page of 500 objects may be hundreds of megabytes. Only the item that is being received is held, and what stands
//! outside `items` (kind, metadata), which is small.

use argosy_runtime::bounds::{self, Limit};
use bytes::Bytes;

/// One item may be as large as the API server's own limit for an object in etcd allows, several times over.
const ITEM_LEN_MAX: usize = 32 << 20;
/// What stands around the items. `metadata` of a list is a few hundred bytes.
const FRAME_LEN_MAX: usize = 1 << 20;

/// The scanner's memory between two pieces of the body.
#[derive(Default)]
pub(crate) struct Splitter {
    /// The document with the items left out.
    frame: Vec<u8>,
    /// The item being received.
    item: Vec<u8>,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last string at depth 1 of the frame, which may be the key before `[`.
    key: Vec<u8>,
    in_items: bool,
}

/// The answer is not a list, or is one of absurd size.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Splitter {
    /// Takes a piece of the body and hands each item that is complete to `item`.
    pub(crate) fn push(&mut self, piece: &[u8], mut item: impl FnMut(Bytes)) -> Result<(), Malformed> {
        let mut rest = piece;
        while let Some(&byte) = rest.first() {
            if self.in_string {
                // Strings are most of the bytes: look for their end in one go.
                let end = if self.escaped {
                    1
                } else {
                    memchr::memchr2(b'"', b'\\', rest).map_or(rest.len(), |at| at + 1)
                };
                let (taken, left) = rest.split_at(end);
                self.keep(taken)?;
                let last = taken[taken.len() - 1];
                if self.depth == 1 && !self.in_items {
                    let ends = last == b'"' && !self.escaped;
                    self.key
                        .extend_from_slice(if ends { &taken[..taken.len() - 1] } else { taken });
                }
                if self.escaped {
                    self.escaped = false;
                } else if last == b'\\' {
                    self.escaped = true;
                } else if last == b'"' {
                    self.in_string = false;
                }
                rest = left;
                continue;
            }
            rest = &rest[1..];
            match byte {
                b'"' => {
                    self.in_string = true;
                    if self.depth == 1 && !self.in_items {
                        self.key.clear();
                    }
                    self.keep(&[byte])?;
                }
                b'{' | b'[' => {
                    let opens_items =
                        byte == b'[' && self.depth == 1 && !self.in_items && self.key == b"items";
                    self.depth += 1;
                    self.keep(&[byte])?;
                    if opens_items {
                        self.in_items = true;
                    }
                }
                b'}' | b']' => {
                    self.depth = self
                        .depth
                        .checked_sub(1)
                        .ok_or(Malformed("brackets do not match"))?;
                    if self.in_items && self.depth == 1 {
                        self.in_items = false;
                        self.keep(&[byte])?;
                    } else {
                        self.keep(&[byte])?;
                        if self.in_items && self.depth == 2 {
                            item(Bytes::from(std::mem::take(&mut self.item)));
                        }
                    }
                }
                b',' if self.in_items && self.depth == 2 => {}
                b' ' | b'\n' | b'\r' | b'\t' => {}
                _ => self.keep(&[byte])?,
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.in_items {
            self.item.extend_from_slice(bytes);
            if self.item.len() > ITEM_LEN_MAX {
                bounds::exceeded(Limit::ApiAnswer);
                return Err(Malformed("one item is larger than 32 MiB"));
            }
            return Ok(());
        }
        self.frame.extend_from_slice(bytes);
        if self.frame.len() > FRAME_LEN_MAX {
            bounds::exceeded(Limit::ApiAnswer);
            return Err(Malformed("there is more than 1 MiB besides the items"));
        }
        Ok(())
    }

    /// At the end of the body: the document without its items.
    pub(crate) fn finish(self) -> Result<Vec<u8>, Malformed> {
        if self.depth != 0 || self.in_string || self.frame.is_empty() {
            return Err(Malformed("it ends in the middle"));
        }
        Ok(self.frame)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn split(text: &str, piece: usize) -> (Vec<String>, String) {
        let mut splitter = Splitter::default();
        let mut items = Vec::new();
        for part in text.as_bytes().chunks(piece) {
            splitter
                .push(part, |item| items.push(String::from_utf8(item.to_vec()).unwrap()))
                .unwrap();
        }
        (items, String::from_utf8(splitter.finish().unwrap()).unwrap())
    }

    #[test]
    fn items_come_out_whole_however_the_bytes_arrive() {
        let text = r#"{"kind":"List","metadata":{"resourceVersion":"7","continue":"x\"]}","items":["no"]},
            "items": [ {"a":"}{\"]["} , {"b":[{"items":[1,2]}],"c":{}} ] , "x":"items" }"#;
        for piece in 1..text.len() {
            let (items, frame) = split(text, piece);
            assert_eq!(
                items,
                [r#"{"a":"}{\"]["}"#, r#"{"b":[{"items":[1,2]}],"c":{}}"#],
                "pieces of {piece}"
            );
            let frame: serde_json::Value = serde_json::from_str(&frame).unwrap();
            assert_eq!(frame["metadata"]["resourceVersion"], "7");
            assert_eq!(frame["items"], serde_json::json!([]));
            assert_eq!(frame["x"], "items");
        }
    }

    #[test]
    fn spaces_inside_strings_stay() {
        assert_eq!(split(r#"{"items":[{"a":" b  c "}]}"#, 3).0, [r#"{"a":" b  c "}"#]);
    }

    #[test]
    fn a_list_without_items_is_empty() {
        assert!(split(r#"{"kind":"List","items":[]}"#, 4).0.is_empty());
        assert!(split(r#"{"kind":"List","items":null}"#, 4).0.is_empty());
    }

    #[test]
    fn a_body_that_breaks_off_is_an_error() {
        let mut splitter = Splitter::default();
        splitter.push(br#"{"items":[{"a":1},{"b""#, |_| {}).unwrap();
        assert!(splitter.finish().is_err());
    }
}
