//! From a tree to the bytes of a document.
//!
//! The tree is cut into sections from the leaves upwards: whatever is large enough becomes a section of its own, so that
//! what two objects have in common is found although they differ elsewhere. Of each section the skeleton is looked up and
//! the leaves are written down, those that differ from the template's.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, LazyLock};

use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use hashbrown::HashTable;
use memchr::memmem;
use std::hash::BuildHasher;

use super::code::{Raw, Register, Squeezed, Style, Write, shape_head, used_by_section, used_by_values};
use super::pool::seen_before;
use super::shape::{Fixed, Nested, Part, SHAPES, Shape, Step, WORDS, pack, release};
use super::squeeze::squeeze;
use super::tree::Node;
use super::typed::{self, Typed};

/// Steps that are worth a section.
const SECTION_FROM: usize = 24;
/// Steps that are in hand at once in most documents.
const STEPS_LEN: usize = 256;
/// Shorter texts take as much room as a word's number.
const WORD_FROM: usize = 3;
/// Texts that may be made of registers.
const PARTS_LEN: std::ops::Range<usize> = 4..300;
/// A register shorter than this is found everywhere by chance.
const REGISTER_LEN_MIN: usize = 5;
/// Values worth a place among the locals.
const LOCAL_FROM: usize = 10;
/// So many locals are looked through one by one. Most documents have no more.
const LOCALS_FEW: usize = 32;
/// Texts worth compressing.
const SQUEEZE_FROM: usize = 128;
/// Shorter JSON in a string is text like any other.
const JSON_FROM: usize = 32;
/// JSON in a string in JSON in a string is kept as text from this depth on.
const JSON_DEPTH_MAX: u32 = 2;

static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

#[derive(Clone, Copy)]
enum Leaf<'a> {
    Scalar(Node<'a>),
    /// The bytes of a section, which use what they refer to.
    Section(&'a [u8]),
}

struct Encoder<'a> {
    bump: &'a Bump,
    registers: [&'a str; Register::ALL.len()],
    base: i64,
    depth: u32,
    steps: Vec<Step<'a>>,
    leaves: Vec<Leaf<'a>>,
    locals: RefCell<Locals<'a>>,
}

/// Texts that are a document's own.
struct Locals<'a> {
    known: Vec<(u64, &'a str)>,
    /// Places in `known` by hash, once there are many.
    index: HashTable<u32>,
    bytes: BumpVec<'a, u8>,
}

impl<'a> Locals<'a> {
    fn find(&self, hash: u64, text: &str) -> Option<usize> {
        if self.known.len() <= LOCALS_FEW {
            return self.known.iter().position(|known| *known == (hash, text));
        }
        let found = self
            .index
            .find(hash, |at| self.known[*at as usize] == (hash, text));
        found.map(|at| *at as usize)
    }

    fn add(&mut self, hash: u64, text: &'a str, value: &[u8]) -> usize {
        self.known.push((hash, text));
        self.bytes.raw(value);
        let len = self.known.len();
        if len > LOCALS_FEW {
            let from = if len == LOCALS_FEW + 1 { 0 } else { len - 1 };
            for at in from..len {
                let hash_of = |at: &u32| self.known[*at as usize].0;
                self.index.insert_unique(self.known[at].0, at as u32, hash_of);
            }
        }
        len - 1
    }
}

/// The bytes of the document; they use what they refer to.
pub(super) fn encode(node: Node<'_>, bump: &Bump) -> Box<[u8]> {
    let text = |path: &[&str]| node.text_at(path).unwrap_or_default();
    let (name, namespace) = (text(&["metadata", "name"]), text(&["metadata", "namespace"]));
    let (uid, version) = (text(&["metadata", "uid"]), text(&["metadata", "resourceVersion"]));
    let base = match typed::read(text(&["metadata", "creationTimestamp"])) {
        Some(Typed::Time(seconds)) => seconds,
        _ => 0,
    };
    let mut encoder = Encoder {
        bump,
        registers: registers(name, namespace, uid, version),
        base,
        depth: 0,
        steps: Vec::with_capacity(STEPS_LEN),
        leaves: Vec::with_capacity(STEPS_LEN / 2),
        locals: RefCell::new(Locals {
            known: Vec::new(),
            index: HashTable::new(),
            bytes: BumpVec::new_in(bump),
        }),
    };
    let mut out = BumpVec::with_capacity_in(512, bump);
    out.signed(base);
    out.value(&Raw::Text(name.as_bytes()));
    for text in [namespace, uid, version] {
        encoder.plain(text, None, &mut out);
    }
    encoder.split(node, true);
    let section = encoder.section(0, 0);
    out.block(&encoder.locals.borrow().bytes);
    out.raw(section);
    out.as_slice().into()
}

/// The strings that registers stand for.
pub(super) fn registers<'a>(
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    version: &'a str,
) -> [&'a str; Register::ALL.len()] {
    let (stem, last) = name.rsplit_once('-').unwrap_or_default();
    let (short, second) = stem.rsplit_once('-').unwrap_or_default();
    [name, stem, short, namespace, uid, version, last, second]
}

impl<'a> Encoder<'a> {
    /// Takes a node apart into steps and leaves, and cuts what is large. Tells how many steps it took.
    fn split(&mut self, node: Node<'a>, whole: bool) -> usize {
        let (steps, leaves) = (self.steps.len(), self.leaves.len());
        match node {
            Node::Map(entries) => {
                self.steps.push(Step::Map(entries.len() as u32));
                for (key, value) in entries {
                    if is_value_key(key) {
                        self.steps.push(Step::ValueKey);
                        self.leaves.push(Leaf::Scalar(Node::Text(key)));
                    } else {
                        self.steps.push(Step::Key(key));
                    }
                    self.split(*value, false);
                }
            }
            Node::List(items) => {
                self.steps.push(Step::List(items.len() as u32));
                for item in items {
                    self.split(*item, false);
                }
            }
            scalar => {
                self.steps.push(Step::Leaf);
                self.leaves.push(Leaf::Scalar(scalar));
            }
        }
        let taken = self.steps.len() - steps;
        if taken < SECTION_FROM || whole {
            return taken;
        }
        let section = self.section(steps, leaves);
        self.steps.truncate(steps);
        self.leaves.truncate(leaves);
        self.steps.push(Step::Leaf);
        self.leaves.push(Leaf::Section(section));
        1
    }

    /// Writes the section of the steps and leaves from these on.
    fn section(&mut self, steps: usize, leaves: usize) -> &'a [u8] {
        let leaves = leaves..self.leaves.len();
        let mut out = BumpVec::with_capacity_in(64, self.bump);
        let Some((id, shape)) = shape_of(&self.steps[steps..]) else {
            self.skeleton(steps, &mut out);
            for at in leaves {
                self.leaf(self.leaves[at], None, &mut out);
            }
            return out.into_bump_slice();
        };
        if shape.template().is_none() && shape.wants_template() {
            let template = leaves.clone().map(|at| self.fixed(self.leaves[at])).collect();
            shape.set_template(template);
        }
        let Some(template) = shape.template() else {
            out.number(shape_head(id, false));
            for at in leaves {
                self.leaf(self.leaves[at], None, &mut out);
            }
            return out.into_bump_slice();
        };
        out.number(shape_head(id, true));
        let bits_len = leaves.len().div_ceil(8);
        out.number(bits_len as u64);
        let bits = out.len();
        out.resize(bits + bits_len, 0);
        for ((place, at), fixed) in leaves.enumerate().zip(template) {
            let leaf = self.leaves[at];
            if self.is_fixed(leaf, fixed) {
                continue;
            }
            let start = out.len();
            self.leaf(leaf, Some(fixed), &mut out);
            if matches!(fixed, Fixed::Nested(nested) if *nested.bytes() == out[start..]) {
                used_by_values(&out[start..], &mut release);
                out.truncate(start);
                continue;
            }
            out[bits + place / 8] |= 1 << (place % 8);
        }
        out.into_bump_slice()
    }

    /// Writes a skeleton that is not shared.
    fn skeleton(&mut self, steps: usize, out: &mut BumpVec<'a, u8>) {
        out.number(0);
        out.block(&pack(&self.steps[steps..]));
        let is_key = |step: &&Step<'_>| matches!(step, Step::Key(_));
        out.number(self.steps[steps..].iter().filter(is_key).count() as u64);
        for at in steps..self.steps.len() {
            if let Step::Key(key) = self.steps[at] {
                self.plain(key, None, out);
            }
        }
    }

    fn leaf(&mut self, leaf: Leaf<'a>, fixed: Option<&Fixed>, out: &mut BumpVec<'a, u8>) {
        let node = match leaf {
            Leaf::Section(section) => return out.value(&Raw::Section(section)),
            Leaf::Scalar(node) => node,
        };
        let raw = match node {
            Node::Null => Raw::Null,
            Node::Bool(value) => Raw::Bool(value),
            Node::Unsigned(number) => Raw::Unsigned(number),
            Node::Signed(number) => Raw::Signed(number),
            Node::Float(number) => Raw::Float(number),
            Node::Text(text) => {
                if let Some((style, section)) = self.json(text) {
                    return out.value(&Raw::Json(style, section));
                }
                return self.text(text, fixed, out);
            }
            Node::List(_) | Node::Map(_) => unreachable!("lists and maps are taken apart into steps"),
        };
        out.value(&raw);
    }

    /// Reads JSON in a string, such as what client-side apply has recorded, if it can be written the same way again.
    fn json(&mut self, text: &'a str) -> Option<(Style, &'a [u8])> {
        if self.depth == JSON_DEPTH_MAX || text.len() < JSON_FROM || !text.starts_with('{') {
            return None;
        }
        let (body, line) = match text.strip_suffix('\n') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let style = Style {
            escaped: find(body, "\\u003").is_some() || find(body, "\\u0026").is_some(),
            line,
        };
        let node = Node::read(body.as_bytes(), self.bump).ok()?;
        let mut same = Same(body.as_bytes());
        write_json(&node, style.escaped, &mut same).ok()?;
        if !same.0.is_empty() {
            return None;
        }
        let (steps, leaves) = (self.steps.len(), self.leaves.len());
        self.depth += 1;
        self.split(node, true);
        let section = self.section(steps, leaves);
        self.depth -= 1;
        self.steps.truncate(steps);
        self.leaves.truncate(leaves);
        Some((style, section))
    }

    /// Writes a string in the shortest way there is for it: as a register, a word, or what it is; and what is long and the
    /// document's own among its locals, so that it stands there once. `fixed` is what the template says in its place.
    fn text(&self, text: &str, fixed: Option<&Fixed>, out: &mut BumpVec<'a, u8>) {
        if text.len() < WORD_FROM {
            return out.text(text.as_bytes());
        }
        if let Some(register) = self.register(text) {
            return out.value(&Raw::Register(register));
        }
        let typed = typed::read(text);
        if self.shared_text(typed.as_ref(), out) {
            return;
        }
        let hash = HASHER.hash_one(text);
        if let Some(number) = self.locals.borrow().find(hash, text) {
            return out.value(&Raw::Local(number));
        }
        let is_uuid = matches!(typed, Some(Typed::Uuid(_)));
        let quoted = quoted(text);
        let is_unique = is_uuid || quoted.is_some_and(|(_, inner, _)| typed::read(inner).is_some());
        if !is_unique && word(text, hash, out) {
            return;
        }
        let mut own = BumpVec::new_in(self.bump);
        if let Some((before, inner, after)) = quoted {
            let mut parts = BumpVec::new_in(self.bump);
            self.plain(before, None, &mut parts);
            self.text(inner, None, &mut parts);
            parts.text(after.as_bytes());
            own.value(&Raw::Parts(&parts));
        } else if let Some(found) = self.parts(text) {
            let mut parts = BumpVec::new_in(self.bump);
            for part in found {
                match part {
                    Ok(register) => parts.value(&Raw::Register(register)),
                    Err(text) => self.plain(text, None, &mut parts),
                }
            }
            own.value(&Raw::Parts(&parts));
        } else {
            self.own_text(text, typed, fixed, &mut own);
        }
        if own.len() < LOCAL_FROM {
            return out.raw(&own);
        }
        let number = self
            .locals
            .borrow_mut()
            .add(hash, self.bump.alloc_str(text), &own);
        out.value(&Raw::Local(number));
    }

    /// The same without registers and locals: what stands before they are known.
    fn plain(&self, text: &str, fixed: Option<&Fixed>, out: &mut BumpVec<'a, u8>) {
        let typed = typed::read(text);
        let taken = text.len() >= WORD_FROM
            && (self.shared_text(typed.as_ref(), out)
                || !matches!(typed, Some(Typed::Uuid(_))) && word(text, HASHER.hash_one(text), out));
        if !taken {
            self.own_text(text, typed, fixed, out);
        }
    }

    /// Writes what is short because of what it is.
    fn shared_text(&self, typed: Option<&Typed<'_>>, out: &mut BumpVec<'a, u8>) -> bool {
        match typed {
            Some(Typed::Time(seconds)) => out.value(&Raw::Time(seconds - self.base)),
            Some(Typed::Digits(number)) => out.value(&Raw::Digits(*number)),
            Some(Typed::Ipv4(bytes)) => out.value(&Raw::Ipv4(bytes)),
            _ => return false,
        }
        true
    }

    /// Writes a text that nothing else is known to have.
    fn own_text(
        &self,
        text: &str,
        typed: Option<Typed<'_>>,
        fixed: Option<&Fixed>,
        out: &mut BumpVec<'a, u8>,
    ) {
        match typed {
            Some(Typed::Uuid(bytes)) => return out.value(&Raw::Uuid(&bytes)),
            Some(Typed::Base64(bytes)) => return out.value(&Raw::Base64(&bytes)),
            Some(Typed::Hex(prefix, bytes)) => {
                let mut start = BumpVec::new_in(self.bump);
                self.plain(prefix, None, &mut start);
                return out.value(&Raw::Hex(&start, &bytes));
            }
            _ => {}
        }
        if text.len() >= SQUEEZE_FROM {
            let like = match fixed {
                Some(Fixed::Text(like)) if like.len() >= SQUEEZE_FROM => Some(like),
                _ => None,
            };
            let squeezed = squeeze(text, like.map(|like| &**like));
            if let Some(bytes) = squeezed.filter(|bytes| bytes.len() + 8 < text.len()) {
                let like = like.map(|like| {
                    WORDS.find_or_add(HASHER.hash_one(&**like), |word| word == like, || like.clone())
                });
                return out.value(&Raw::Squeezed(Squeezed {
                    len: text.len(),
                    like,
                    bytes: &bytes,
                }));
            }
        }
        out.text(text.as_bytes());
    }

    fn register(&self, text: &str) -> Option<Register> {
        Register::ALL
            .into_iter()
            .zip(self.registers)
            .find(|(_, known)| *known == text)
            .map(|(register, _)| register)
    }

    /// The registers in a text and what stands between them.
    fn parts<'t>(&self, text: &'t str) -> Option<Vec<Result<Register, &'t str>>> {
        if !PARTS_LEN.contains(&text.len()) {
            return None;
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        loop {
            let found = Register::ALL
                .into_iter()
                .zip(self.registers)
                .filter(|(_, known)| known.len() >= REGISTER_LEN_MIN)
                .filter_map(|(register, known)| Some((find(rest, known)?, known.len(), register)))
                // The first, and of those the longest.
                .min_by_key(|(at, len, _)| (*at, usize::MAX - len));
            let Some((at, len, register)) = found else { break };
            if at > 0 {
                parts.push(Err(&rest[..at]));
            }
            parts.push(Ok(register));
            rest = &rest[at + len..];
        }
        if parts.is_empty() {
            return None;
        }
        if !rest.is_empty() {
            parts.push(Err(rest));
        }
        Some(parts)
    }

    /// What a template says where a document says this.
    fn fixed(&mut self, leaf: Leaf<'a>) -> Fixed {
        let nested = |value: &[u8]| Nested::keep(value).map_or(Fixed::Never, Fixed::Nested);
        let node = match leaf {
            Leaf::Section(section) => {
                let mut value = BumpVec::new_in(self.bump);
                value.value(&Raw::Section(section));
                return nested(&value);
            }
            Leaf::Scalar(node) => node,
        };
        let text = match node {
            Node::Null => return Fixed::Null,
            Node::Bool(value) => return Fixed::Bool(value),
            Node::Unsigned(number) => return Fixed::Unsigned(number),
            Node::Signed(number) => return Fixed::Signed(number),
            Node::Float(number) => return Fixed::Float(number),
            Node::Text(text) => text,
            Node::List(_) | Node::Map(_) => unreachable!("lists and maps are taken apart into steps"),
        };
        if let Some((style, section)) = self.json(text) {
            let mut value = BumpVec::new_in(self.bump);
            value.value(&Raw::Json(style, section));
            let fixed = nested(&value);
            used_by_section(section, &mut release);
            return fixed;
        }
        if let Some(register) = self.register(text) {
            return Fixed::Parts(Box::from([Part::Register(register)]));
        }
        match typed::read(text) {
            Some(Typed::Time(seconds)) => return Fixed::Time(seconds - self.base),
            Some(Typed::Uuid(_) | Typed::Digits(_)) => return Fixed::Never,
            Some(Typed::Hex(..) | Typed::Base64(_)) if text.len() > SQUEEZE_FROM => return Fixed::Never,
            _ => {}
        }
        match self.parts(text) {
            Some(parts) => Fixed::Parts(
                parts
                    .into_iter()
                    .map(|part| match part {
                        Ok(register) => Part::Register(register),
                        Err(text) => Part::Text(text.into()),
                    })
                    .collect(),
            ),
            None => Fixed::Text(text.into()),
        }
    }

    fn is_fixed(&self, leaf: Leaf<'a>, fixed: &Fixed) -> bool {
        let Leaf::Scalar(node) = leaf else { return false };
        match (node, fixed) {
            (Node::Null, Fixed::Null) => true,
            (Node::Bool(value), Fixed::Bool(known)) => value == *known,
            (Node::Unsigned(number), Fixed::Unsigned(known)) => number == *known,
            (Node::Signed(number), Fixed::Signed(known)) => number == *known,
            (Node::Float(number), Fixed::Float(known)) => number.to_bits() == known.to_bits(),
            (Node::Text(text), Fixed::Text(known)) => *text == **known,
            (Node::Text(text), Fixed::Time(after)) => {
                typed::read(text) == Some(Typed::Time(self.base + after))
            }
            (Node::Text(text), Fixed::Parts(parts)) => parts
                .iter()
                .try_fold(text, |rest, part| match part {
                    Part::Register(register) => rest.strip_prefix(self.registers[*register as usize]),
                    Part::Text(text) => rest.strip_prefix(&**text),
                })
                .is_some_and(str::is_empty),
            _ => false,
        }
    }
}

/// The shared shape of these steps with one more user; none if nobody else has been seen with it.
fn shape_of(steps: &[Step<'_>]) -> Option<(super::pool::Id, Arc<Shape>)> {
    let hash = HASHER.hash_one(steps);
    let is = |shape: &Arc<Shape>| shape.is(steps);
    let id = match SHAPES.find(hash, is) {
        Some(id) => id,
        None if seen_before(hash) => SHAPES.find_or_add(hash, is, || Arc::new(Shape::new(steps))),
        None => return None,
    };
    Some((id, SHAPES.with(id, Arc::clone)))
}

/// Writes the number of a word, if the text is one or becomes one now.
fn word(text: &str, hash: u64, out: &mut impl Write) -> bool {
    // The table keeps boxed texts and hands out references to them.
    #[allow(clippy::borrowed_box)]
    let is = |word: &Box<str>| **word == *text;
    let id = match WORDS.find(hash, is) {
        Some(id) => id,
        None if seen_before(hash) => WORDS.find_or_add(hash, is, || text.into()),
        None => return false,
    };
    out.value(&Raw::Word(id));
    true
}

/// Where a text stands in another. Both are short and searched for once, which the standard library's way of searching prepares too
/// much for.
fn find(text: &str, part: &str) -> Option<usize> {
    memmem::find(text.as_bytes(), part.as_bytes())
}

/// The text of a key like `k:{"uid":"…"}`, with what stands around it.
fn quoted(key: &str) -> Option<(&str, &str, &str)> {
    let end = key.strip_prefix("k:{")?.strip_suffix("\"}")?;
    let start = 3 + end.find("\":\"")? + 3;
    let after = key.len() - 2;
    (start < after).then(|| (&key[..start], &key[start..after], &key[after..]))
}

/// Keys of managedFields that quote an item of a list.
fn is_value_key(key: &str) -> bool {
    key.starts_with("k:{") || key.starts_with("v:")
}

/// Writes JSON text as this process does, or as Go does.
pub(super) fn write_json(
    value: &impl serde::Serialize,
    escaped: bool,
    out: impl io::Write,
) -> io::Result<()> {
    let written = if escaped {
        value.serialize(&mut serde_json::Serializer::new(Escaping(out)))
    } else {
        value.serialize(&mut serde_json::Serializer::new(out))
    };
    written.map_err(io::Error::from)
}

/// Writes what Go writes for characters that mean something in HTML.
struct Escaping<W>(W);

impl<W: io::Write> io::Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'<' | b'>' | b'&')) {
            let (escape, rest) = match piece.last() {
                Some(b'<') => ("\\u003c", &piece[..piece.len() - 1]),
                Some(b'>') => ("\\u003e", &piece[..piece.len() - 1]),
                Some(b'&') => ("\\u0026", &piece[..piece.len() - 1]),
                _ => ("", piece),
            };
            self.0.write_all(rest)?;
            self.0.write_all(escape.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Takes only what is expected.
struct Same<'a>(&'a [u8]);

impl io::Write for Same<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .strip_prefix(bytes)
            .ok_or_else(|| io::Error::other("the text differs"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
