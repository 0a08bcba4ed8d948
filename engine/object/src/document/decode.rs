//! From the bytes of a document back to what was put in: all of it, or one field.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::Arc;

use super::code::{OURS, Raw, Reader, Register, shape_id};
use super::encode::{registers, write_json};
use super::shape::{Fixed, Part, SHAPES, Shape, Step, WORDS, unpack};
use super::{squeeze, typed};
use crate::{Map, Name, Value};

/// A document being read.
pub(super) struct Decoder<'a> {
    base: i64,
    name: &'a str,
    namespace: Raw<'a>,
    uid: Raw<'a>,
    version: Raw<'a>,
    locals: Reader<'a>,
    section: &'a [u8],
    /// Namespace, uid and version as text, made when the first register is asked for.
    texts: OnceCell<[String; 3]>,
    /// Where each of the locals begins, made when the first one far behind is asked for.
    local_starts: OnceCell<Vec<usize>>,
}

/// So many locals are passed over to get to one.
const LOCALS_FEW: usize = 16;

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut reader = Reader(bytes);
        let base = reader.signed();
        let Raw::Text(name) = reader.value() else {
            unreachable!("the name of a document is written as text")
        };
        let name = std::str::from_utf8(name).expect(OURS);
        Decoder {
            base,
            name,
            namespace: reader.value(),
            uid: reader.value(),
            version: reader.value(),
            locals: Reader(reader.block()),
            section: reader.0,
            texts: OnceCell::new(),
            local_starts: OnceCell::new(),
        }
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    pub(super) fn namespace(&self) -> Cow<'_, str> {
        self.text(self.namespace)
    }

    pub(super) fn uid(&self) -> Cow<'_, str> {
        self.text(self.uid)
    }

    pub(super) fn version(&self) -> Cow<'_, str> {
        self.text(self.version)
    }

    fn register(&self, register: Register) -> &str {
        let [namespace, uid, version] = self
            .texts
            .get_or_init(|| [self.namespace, self.uid, self.version].map(|raw| self.text(raw).into_owned()));
        registers(self.name, namespace, uid, version)[register as usize]
    }

    pub(super) fn value(&self) -> Value {
        self.section_value(self.section)
    }

    /// The part of the document at a path of names.
    pub(super) fn value_at(&self, path: &[&str]) -> Option<Value> {
        self.at(self.section, path)
    }

    fn section_value(&self, section: &[u8]) -> Value {
        Section::new(self, &Head::read(self, section)).value()
    }

    /// Goes down a path. What lies beside it is passed over without being understood.
    fn at(&self, section: &[u8], path: &[&str]) -> Option<Value> {
        let head = Head::read(self, section);
        let mut at = Section::new(self, &head);
        for (depth, name) in path.iter().enumerate() {
            match at.step() {
                Step::Map(len) => {
                    let mut left = 0..len;
                    left.find(|_| {
                        let found = at.key() == *name;
                        if !found {
                            at.skip();
                        }
                        found
                    })?;
                }
                Step::Leaf => {
                    let raw = match at.leaf() {
                        Leaf::Here(raw) => raw,
                        Leaf::Fixed(Fixed::Nested(nested)) => Reader(nested.bytes()).value(),
                        Leaf::Fixed(_) => return None,
                    };
                    let Raw::Section(section) = raw else { return None };
                    return self.at(section, &path[depth..]);
                }
                _ => return None,
            }
        }
        Some(at.value())
    }

    fn raw_value(&self, raw: Raw<'_>) -> Value {
        match raw {
            Raw::Null => Value::Null,
            Raw::Bool(value) => Value::Bool(value),
            Raw::Unsigned(number) => Value::from(number),
            Raw::Signed(number) => Value::from(number),
            Raw::Float(number) => Value::from(number),
            Raw::Section(section) => self.section_value(section),
            Raw::Json(style, section) => {
                let mut text = Vec::new();
                write_json(&self.section_value(section), style.escaped, &mut text)
                    .expect("a value always has a JSON text");
                if style.line {
                    text.push(b'\n');
                }
                Value::String(String::from_utf8(text).expect("JSON is text"))
            }
            text => Value::String(self.text(text).into_owned()),
        }
    }

    fn fixed_value(&self, fixed: &Fixed) -> Value {
        match fixed {
            Fixed::Never => unreachable!("such a leaf is always written down"),
            Fixed::Null => Value::Null,
            Fixed::Bool(value) => Value::Bool(*value),
            Fixed::Unsigned(number) => Value::from(*number),
            Fixed::Signed(number) => Value::from(*number),
            Fixed::Float(number) => Value::from(*number),
            Fixed::Nested(nested) => self.raw_value(Reader(nested.bytes()).value()),
            text => Value::String(self.fixed_text(text)),
        }
    }

    fn fixed_text(&self, fixed: &Fixed) -> String {
        match fixed {
            Fixed::Text(text) => text.to_string(),
            Fixed::Time(after) => typed::time_text(self.base + after),
            Fixed::Parts(parts) => parts
                .iter()
                .map(|part| match part {
                    Part::Register(register) => self.register(*register),
                    Part::Text(text) => text,
                })
                .collect(),
            _ => unreachable!("only strings are read as strings"),
        }
    }

    fn local(&self, number: usize) -> Raw<'a> {
        let mut locals = self.locals;
        if number < LOCALS_FEW {
            for _ in 0..number {
                locals.value();
            }
            return locals.value();
        }
        let starts = || {
            let mut starts = Vec::new();
            while !locals.is_empty() {
                starts.push(self.locals.0.len() - locals.0.len());
                locals.value();
            }
            starts
        };
        let start = self.local_starts.get_or_init(starts)[number];
        Reader(&self.locals.0[start..]).value()
    }

    /// The string that a value is.
    fn text(&self, raw: Raw<'_>) -> Cow<'_, str> {
        match raw {
            Raw::Text(bytes) => Cow::Owned(std::str::from_utf8(bytes).expect(OURS).to_owned()),
            Raw::Word(id) => Cow::Owned(WORDS.with(id, |word| word.to_string())),
            Raw::Uuid(bytes) => Cow::Owned(typed::uuid_text(bytes)),
            Raw::Time(after) => Cow::Owned(typed::time_text(self.base + after)),
            Raw::Digits(number) => Cow::Owned(number.to_string()),
            Raw::Ipv4(bytes) => Cow::Owned(typed::ipv4_text(bytes)),
            Raw::Hex(prefix, bytes) => {
                let mut text = self.text(Reader(prefix).value()).into_owned();
                text.push_str(&typed::hex_text(bytes));
                Cow::Owned(text)
            }
            Raw::Base64(bytes) => Cow::Owned(typed::base64_text(bytes)),
            Raw::Squeezed(text) => Cow::Owned(squeeze::text(&text)),
            Raw::Parts(parts) => {
                let (mut reader, mut text) = (Reader(parts), String::new());
                while !reader.is_empty() {
                    text.push_str(&self.text(reader.value()));
                }
                Cow::Owned(text)
            }
            Raw::Register(register) => Cow::Borrowed(self.register(register)),
            Raw::Local(number) => self.text(self.local(number)),
            _ => unreachable!("only strings are read as strings"),
        }
    }
}

/// The beginning of a section.
struct Head<'s> {
    shape: Option<Arc<Shape>>,
    templated: bool,
    /// Of a skeleton of its own.
    ops: &'s [u8],
    keys: Vec<String>,
    /// Which leaves are written down, if there is a template.
    bits: &'s [u8],
    values: Reader<'s>,
}

impl<'s> Head<'s> {
    fn read(decoder: &Decoder<'_>, section: &'s [u8]) -> Self {
        let mut reader = Reader(section);
        let number = reader.number();
        let mut head = Head {
            shape: None,
            templated: number & 1 == 1,
            ops: &[],
            keys: Vec::new(),
            bits: &[],
            values: reader,
        };
        if number == 0 {
            head.ops = reader.block();
            let keys = reader.len();
            head.keys = (0..keys)
                .map(|_| decoder.text(reader.value()).into_owned())
                .collect();
        } else {
            head.shape = Some(SHAPES.with(shape_id(number), Arc::clone));
            if head.templated {
                head.bits = reader.block();
            }
        }
        head.values = reader;
        head
    }
}

/// A section being read: a place in its skeleton and the place in its values that belongs to it.
struct Section<'h> {
    decoder: &'h Decoder<'h>,
    ops: Reader<'h>,
    keys: Keys<'h>,
    template: Option<&'h [Fixed]>,
    bits: &'h [u8],
    place: usize,
    values: Reader<'h>,
}

enum Keys<'h> {
    Shared(std::slice::Iter<'h, Name>),
    Own(std::slice::Iter<'h, String>),
}

enum Leaf<'h> {
    /// A value that is written down.
    Here(Raw<'h>),
    Fixed(&'h Fixed),
}

impl<'h> Section<'h> {
    fn new(decoder: &'h Decoder<'_>, head: &'h Head<'_>) -> Self {
        let (ops, keys, template) = match &head.shape {
            Some(shape) => (&*shape.ops, Keys::Shared(shape.keys.iter()), shape.template()),
            None => (head.ops, Keys::Own(head.keys.iter()), None),
        };
        Section {
            decoder,
            ops: Reader(ops),
            keys,
            // It may have got one after the document was written.
            template: template.filter(|_| head.templated),
            bits: head.bits,
            place: 0,
            values: head.values,
        }
    }

    fn step(&mut self) -> Step<'static> {
        unpack(&mut self.ops)
    }

    fn key(&mut self) -> Cow<'h, str> {
        if self.step() == Step::ValueKey {
            return match self.leaf() {
                Leaf::Here(raw) => self.decoder.text(raw),
                Leaf::Fixed(fixed) => Cow::Owned(self.decoder.fixed_text(fixed)),
            };
        }
        let key = match &mut self.keys {
            Keys::Shared(keys) => keys.next().map(Name::as_str),
            Keys::Own(keys) => keys.next().map(String::as_str),
        };
        Cow::Borrowed(key.expect("a skeleton has as many keys as it says"))
    }

    fn leaf(&mut self) -> Leaf<'h> {
        let place = self.place;
        self.place += 1;
        match self.template {
            Some(template) if self.bits[place / 8] >> (place % 8) & 1 == 0 => Leaf::Fixed(&template[place]),
            _ => Leaf::Here(self.values.value()),
        }
    }

    fn value(&mut self) -> Value {
        match self.step() {
            Step::Map(len) => Value::Object(
                (0..len)
                    .map(|_| (self.key().into_owned(), self.value()))
                    .collect::<Map>(),
            ),
            Step::List(len) => Value::Array((0..len).map(|_| self.value()).collect()),
            _ => match self.leaf() {
                Leaf::Here(raw) => self.decoder.raw_value(raw),
                Leaf::Fixed(fixed) => self.decoder.fixed_value(fixed),
            },
        }
    }

    /// Passes over what comes next.
    fn skip(&mut self) {
        match self.step() {
            Step::Map(len) => {
                for _ in 0..len {
                    if self.step() == Step::ValueKey {
                        self.leaf();
                    } else {
                        match &mut self.keys {
                            Keys::Shared(keys) => drop(keys.next()),
                            Keys::Own(keys) => drop(keys.next()),
                        }
                    }
                    self.skip();
                }
            }
            Step::List(len) => (0..len).for_each(|_| self.skip()),
            _ => drop(self.leaf()),
        }
    }
}
