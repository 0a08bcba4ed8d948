//! The fast way from JSON text to a tree: what API servers send, which is valid, has hardly an escape in it, and whose numbers are
//! small. It takes nothing that the thorough way would refuse; whatever it is not sure of is left to that one.

use bumpalo::Bump;
use bumpalo::collections::{String as BumpString, Vec as BumpVec};

use super::tree::{LIST_LEN, MAP_LEN, Node, map_of};

/// What is nested deeper is left to the thorough way, which has a limit of its own.
const DEPTH_MAX: usize = 100;
/// Whole numbers of so many digits fit into 64 bits.
const DIGITS_MAX: usize = 18;

/// Reads a text; none if it is not sure.
pub(super) fn read<'a>(text: &'a str, bump: &'a Bump) -> Option<Node<'a>> {
    let mut parser = Parser { text, at: 0, bump };
    let node = parser.value(0)?;
    parser.blanks();
    (parser.at == text.len()).then_some(node)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    bump: &'a Bump,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no blank, passed over.
    fn next(&mut self) -> Option<u8> {
        self.blanks();
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn value(&mut self, depth: usize) -> Option<Node<'a>> {
        match self.next()? {
            b'"' => self.string().map(Node::Text),
            b'{' if depth < DEPTH_MAX => self.map(depth + 1),
            b'[' if depth < DEPTH_MAX => self.list(depth + 1),
            b't' => self.word("rue", Node::Bool(true)),
            b'f' => self.word("alse", Node::Bool(false)),
            b'n' => self.word("ull", Node::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn word(&mut self, rest: &str, node: Node<'a>) -> Option<Node<'a>> {
        let found = self.text.as_bytes()[self.at..].starts_with(rest.as_bytes());
        self.at += rest.len();
        found.then_some(node)
    }

    /// Behind the first quotation mark.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let len = plain_len(&self.text.as_bytes()[start..])?;
        self.at = start + len + 1;
        match self.text.as_bytes()[start + len] {
            b'"' => Some(&self.text[start..start + len]),
            b'\\' => self.escaped(start),
            _ => None,
        }
    }

    /// A string that has escapes in it, the first of them just passed.
    fn escaped(&mut self, start: usize) -> Option<&'a str> {
        let mut out = BumpString::from_str_in(&self.text[start..self.at - 1], self.bump);
        loop {
            out.push(self.escape()?);
            let (piece, len) = (self.at, plain_len(&self.text.as_bytes()[self.at..])?);
            out.push_str(&self.text[piece..piece + len]);
            self.at = piece + len + 1;
            match self.text.as_bytes()[piece + len] {
                b'"' => return Some(out.into_bump_str()),
                b'\\' => {}
                _ => return None,
            }
        }
    }

    /// What an escape stands for (RFC 8259, 7), behind its backslash.
    fn escape(&mut self) -> Option<char> {
        let byte = self.peek()?;
        self.at += 1;
        Some(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.unit()?;
                // Half of a pair; the other half has to follow.
                let low = if matches!(unit, 0xd800..0xdc00) {
                    let is_escape = self.text.as_bytes()[self.at..].starts_with(b"\\u");
                    self.at += 2;
                    is_escape.then(|| self.unit()).flatten()
                } else {
                    None
                };
                char::decode_utf16(std::iter::once(unit).chain(low))
                    .next()?
                    .ok()?
            }
            _ => return None,
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u16> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            Some(unit << 4 | digit as u16)
        })
    }

    /// Behind its first byte.
    fn number(&mut self) -> Option<Node<'a>> {
        let start = self.at - 1;
        let bytes = &self.text.as_bytes()[start..];
        let in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
        let len = bytes
            .iter()
            .position(|byte| !in_number(byte))
            .unwrap_or(bytes.len());
        self.at = start + len;
        let digits = &bytes[..len];
        let small =
            len <= DIGITS_MAX && digits.iter().all(u8::is_ascii_digit) && (digits[0] != b'0' || len == 1);
        if small {
            let add = |number: u64, digit: &u8| number * 10 + u64::from(digit - b'0');
            return Some(Node::Unsigned(digits.iter().fold(0, add)));
        }
        Node::read_thoroughly(digits, self.bump).ok()
    }

    fn list(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut items = BumpVec::with_capacity_in(LIST_LEN, self.bump);
        self.blanks();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(Node::List(items.into_bump_slice()));
        }
        loop {
            items.push(self.value(depth)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(Node::List(items.into_bump_slice())),
                _ => return None,
            }
        }
    }

    fn map(&mut self, depth: usize) -> Option<Node<'a>> {
        let mut entries = BumpVec::with_capacity_in(MAP_LEN, self.bump);
        self.blanks();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(map_of(entries));
        }
        loop {
            if self.next()? != b'"' {
                return None;
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return None;
            }
            entries.push((name, self.value(depth)?));
            match self.next()? {
                b',' => {}
                b'}' => return Some(map_of(entries)),
                _ => return None,
            }
        }
    }
}

/// How many bytes stand before the first that means something in a string: a quotation mark, a backslash, a control character.
fn plain_len(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let (quotes, slashes) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
        // The highest bit of the first byte that is 0, of the first that is below 0x20; behind it there may be others.
        let zero = |word: u64| word.wrapping_sub(ONES) & !word;
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let found = (zero(quotes) | zero(slashes) | control) & (ONES * 0x80);
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let found = rest
        .iter()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some(words.len() * 8 + found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    /// What both ways make of a text.
    fn both(text: &str) -> (Option<Value>, Option<Value>) {
        let bump = Bump::new();
        let fast = read(text, &bump).map(|node| node.value());
        let thorough = Node::read_thoroughly(text.as_bytes(), &bump).ok();
        (fast, thorough.map(|node| node.value()))
    }

    #[test]
    fn what_api_servers_send_is_read_the_fast_way() {
        for text in [
            r#"{"b":[1,20,{"x":null}],"a":{"s":"ü","t":true,"f":false},"":[]}"#,
            " { \"a\" : [ ] , \"b\":\r\n\t{} } ",
            r#"{"a":"line\nquote \" slash \\ \u00fc \ud83d\ude00","\n":1}"#,
            r#"["\"\\\/\b\f\n\r\t\u0041\u00FC\uD83D\uDE00", "\\", "ü\tü\n", "\u0000"]"#,
            r#"{"a":1,"b":2,"a":3}"#,
            "[0,-1,1.5,1e3,-0,-0.0,123456789012345678,18446744073709551615,18446744073709551616,1E-2]",
            "\"text\"",
            "[\"\u{80}\u{7f}\u{a0}\u{2022}\u{5c5c}\u{10ffff} and so on, long enough\"]",
            "7",
        ] {
            let (fast, thorough) = both(text);
            assert!(fast.is_some(), "{text}");
            assert_eq!(fast, thorough, "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_not_taken() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "{,}",
            "{\"a\":1 \"b\":2}",
            "{a:1}",
            "tru",
            "nul",
            "truex",
            "1 2",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "--1",
            "1-1",
            "\"a",
            "\"a\\\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\ud800",
            "\"\\ud800\\\"",
            "\"\\ud800\\u0041\"",
            "\"\\ud800x\\udc00\"",
            "\"\\udc00\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\u+123\"",
            "\"\\nü",
            "\"\\n\u{1}\"",
            "\"\\",
            "\"a\nb\"",
            "\"\u{1}\"",
            "{\"a\nb\":1}",
            "[\"\t\"]",
            "{\"a\":1}}",
            "]",
        ] {
            let (fast, thorough) = both(text);
            assert_eq!((fast, thorough), (None, None), "{text}");
        }
        let deep = "[".repeat(110) + &"]".repeat(110);
        let (fast, thorough) = both(&deep);
        assert!(fast.is_none() && thorough.is_some());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("JSON has none", |number| number.is_finite())
                .prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn both_ways_read_the_same(value in any_value(), pretty: bool, cut in prop::option::of(0..400_usize), put in "[\\[\\]{}\",:0-9ne\\\\ ]{0,2}") {
            let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            // Also what is broken somewhere.
            let at = cut.map(|at| text.char_indices().nth(at).map_or(text.len(), |(at, _)| at));
            let text = at.map_or(text.clone(), |at| format!("{}{put}{}", &text[..at], &text[at..]));
            let (fast, thorough) = both(&text);
            match fast {
                Some(fast) => prop_assert_eq!(Some(fast), thorough),
                None => prop_assert!(thorough.is_none(), "left alone without need: {}", text),
            }
        }
    }
}
