//! The bytes of a document.
//!
//! ```text
//! document  base name namespace uid version locals-length local… section
//!                                                            base: creation in seconds since 1970, zigzag; the rest values
//! section   0 ops-length ops key-count key… value…           a skeleton of its own, keys are values
//!         | id·2 value…                                      a shared shape
//!         | id·2+1 bits-length bits value…                   … with its template: values only where the bit is set
//! ```
//! Numbers are little-endian base 128. A value begins with a byte that says what it is ([`Raw`]); values end by themselves,
//! so whoever looks for one passes over the others without knowing the shape. A section inside a section is a value.

use super::pool::Id;

const NULL: u8 = 0x00;
const FALSE: u8 = 0x01;
const TRUE: u8 = 0x02;
const UNSIGNED: u8 = 0x03;
const SIGNED: u8 = 0x04;
const FLOAT: u8 = 0x05;
const TEXT: u8 = 0x06;
const WORD: u8 = 0x07;
const UUID: u8 = 0x08;
const TIME: u8 = 0x09;
const DIGITS: u8 = 0x0a;
const IPV4: u8 = 0x0b;
const HEX: u8 = 0x0c;
const BASE64: u8 = 0x0d;
const SQUEEZED: u8 = 0x0e;
const SQUEEZED_LIKE: u8 = 0x0f;
const PARTS: u8 = 0x10;
const SECTION: u8 = 0x11;
const LOCAL: u8 = 0x12;
/// Nothing begins so.
const FREE: u8 = 0x13;
/// Four kinds, by the two low bits.
const JSON: u8 = 0x14;
const REGISTER: u8 = 0x18;
const SHORT_TEXT: u8 = 0x20;
const SMALL_NUMBER: u8 = 0x40;
const WORD_14: u8 = 0x80;
const WORD_22: u8 = 0xc0;

/// Strings that a document says of itself and then again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    Name,
    /// The name without what follows its last dash: of a Pod the name of its ReplicaSet.
    Stem,
    /// Without what follows the last but one: of a Pod the name of its Deployment.
    ShortStem,
    Namespace,
    Uid,
    Version,
    /// What follows the last dash of the name.
    Last,
    /// Between the last dash and the one before.
    SecondLast,
}

impl Register {
    pub(super) const ALL: [Register; 8] = [
        Register::Name,
        Register::Stem,
        Register::ShortStem,
        Register::Namespace,
        Register::Uid,
        Register::Version,
        Register::Last,
        Register::SecondLast,
    ];
}

/// How JSON inside a string was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    /// `<`, `>` and `&` as `\u003c`, as Go writes them.
    pub(super) escaped: bool,
    /// A line break at the end, as kubectl leaves it.
    pub(super) line: bool,
}

/// A value as it stands in the bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raw<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// The bytes of a text. Most are passed over, so nobody looks at them before they are wanted.
    Text(&'a [u8]),
    Word(Id),
    Uuid(&'a [u8]),
    /// Seconds after the document's base.
    Time(i64),
    Digits(u64),
    Ipv4(&'a [u8]),
    /// A value, then bytes in hexadecimal.
    Hex(&'a [u8], &'a [u8]),
    Base64(&'a [u8]),
    Squeezed(Squeezed<'a>),
    /// Values that make up one string.
    Parts(&'a [u8]),
    Register(Register),
    /// So many values on among the document's locals: texts of its own, each written once.
    Local(usize),
    Section(&'a [u8]),
    Json(Style, &'a [u8]),
}

/// A compressed text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Squeezed<'a> {
    /// Length of the text.
    pub(super) len: usize,
    /// The word that is the text before it.
    pub(super) like: Option<Id>,
    pub(super) bytes: &'a [u8],
}

/// Bytes being read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

pub(super) const OURS: &str = "a document reads what it wrote itself";

impl<'a> Reader<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().expect(OURS);
        self.0 = rest;
        *byte
    }

    pub(super) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    pub(super) fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    pub(super) fn len(&mut self) -> usize {
        usize::try_from(self.number()).expect(OURS)
    }

    pub(super) fn signed(&mut self) -> i64 {
        let number = self.number();
        (number >> 1).cast_signed() ^ -((number & 1).cast_signed())
    }

    pub(super) fn block(&mut self) -> &'a [u8] {
        let len = self.len();
        self.bytes(len)
    }

    pub(super) fn id(&mut self) -> Id {
        Id::try_from(self.number()).expect(OURS)
    }

    pub(super) fn value(&mut self) -> Raw<'a> {
        match self.byte() {
            NULL => Raw::Null,
            FALSE => Raw::Bool(false),
            TRUE => Raw::Bool(true),
            UNSIGNED => Raw::Unsigned(self.number()),
            SIGNED => Raw::Signed(self.signed()),
            FLOAT => Raw::Float(f64::from_le_bytes(self.bytes(8).try_into().expect(OURS))),
            TEXT => Raw::Text(self.block()),
            WORD => Raw::Word(self.id()),
            UUID => Raw::Uuid(self.bytes(16)),
            TIME => Raw::Time(self.signed()),
            DIGITS => Raw::Digits(self.number()),
            IPV4 => Raw::Ipv4(self.bytes(4)),
            HEX => {
                let before = self.0;
                self.value();
                let prefix = &before[..before.len() - self.0.len()];
                Raw::Hex(prefix, self.block())
            }
            BASE64 => Raw::Base64(self.block()),
            kind @ (SQUEEZED | SQUEEZED_LIKE) => Raw::Squeezed(Squeezed {
                len: self.len(),
                like: (kind == SQUEEZED_LIKE).then(|| self.id()),
                bytes: self.block(),
            }),
            FREE => unreachable!("{OURS}"),
            LOCAL => Raw::Local(self.len()),
            PARTS => Raw::Parts(self.block()),
            SECTION => Raw::Section(self.block()),
            kind @ JSON..REGISTER => {
                let style = Style {
                    escaped: kind & 1 != 0,
                    line: kind & 2 != 0,
                };
                Raw::Json(style, self.block())
            }
            kind @ REGISTER..SHORT_TEXT => Raw::Register(Register::ALL[usize::from(kind - REGISTER)]),
            kind @ SHORT_TEXT..SMALL_NUMBER => Raw::Text(self.bytes(usize::from(kind - SHORT_TEXT))),
            kind @ SMALL_NUMBER..WORD_14 => Raw::Unsigned(u64::from(kind - SMALL_NUMBER)),
            kind @ WORD_14..WORD_22 => Raw::Word(Id::from(kind - WORD_14) << 8 | Id::from(self.byte())),
            kind @ WORD_22.. => {
                let (middle, low) = (self.byte(), self.byte());
                Raw::Word(Id::from(kind - WORD_22) << 16 | Id::from(middle) << 8 | Id::from(low))
            }
        }
    }
}

/// Bytes being written.
pub(super) trait Write: Extend<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend(bytes.iter().copied());
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.raw(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.raw(&[number as u8]);
    }

    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)).cast_unsigned());
    }

    fn block(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    fn text(&mut self, bytes: &[u8]) {
        if bytes.len() < usize::from(SMALL_NUMBER - SHORT_TEXT) {
            self.raw(&[SHORT_TEXT + bytes.len() as u8]);
            self.raw(bytes);
        } else {
            self.raw(&[TEXT]);
            self.block(bytes);
        }
    }

    /// Everything but texts in hexadecimal, whose first part is a value that comes between.
    fn value(&mut self, value: &Raw<'_>) {
        match *value {
            Raw::Null => self.raw(&[NULL]),
            Raw::Bool(value) => self.raw(&[if value { TRUE } else { FALSE }]),
            Raw::Unsigned(number) if number < u64::from(WORD_14 - SMALL_NUMBER) => {
                self.raw(&[SMALL_NUMBER + number as u8]);
            }
            Raw::Unsigned(number) => {
                self.raw(&[UNSIGNED]);
                self.number(number);
            }
            Raw::Signed(number) => {
                self.raw(&[SIGNED]);
                self.signed(number);
            }
            Raw::Float(number) => {
                self.raw(&[FLOAT]);
                self.raw(&number.to_le_bytes());
            }
            Raw::Text(bytes) => self.text(bytes),
            Raw::Word(id) if id < 1 << 14 => self.raw(&[WORD_14 | (id >> 8) as u8, id as u8]),
            Raw::Word(id) if id < 1 << 22 => {
                self.raw(&[WORD_22 | (id >> 16) as u8, (id >> 8) as u8, id as u8])
            }
            Raw::Word(id) => {
                self.raw(&[WORD]);
                self.number(u64::from(id));
            }
            Raw::Uuid(bytes) => {
                self.raw(&[UUID]);
                self.raw(bytes);
            }
            Raw::Time(seconds) => {
                self.raw(&[TIME]);
                self.signed(seconds);
            }
            Raw::Digits(number) => {
                self.raw(&[DIGITS]);
                self.number(number);
            }
            Raw::Ipv4(bytes) => {
                self.raw(&[IPV4]);
                self.raw(bytes);
            }
            Raw::Hex(prefix, bytes) => {
                self.raw(&[HEX]);
                self.raw(prefix);
                self.block(bytes);
            }
            Raw::Base64(bytes) => {
                self.raw(&[BASE64]);
                self.block(bytes);
            }
            Raw::Squeezed(text) => {
                self.raw(&[if text.like.is_some() {
                    SQUEEZED_LIKE
                } else {
                    SQUEEZED
                }]);
                self.number(text.len as u64);
                text.like
                    .into_iter()
                    .for_each(|like| self.number(u64::from(like)));
                self.block(text.bytes);
            }
            Raw::Parts(bytes) => {
                self.raw(&[PARTS]);
                self.block(bytes);
            }
            Raw::Register(register) => self.raw(&[REGISTER + register as u8]),
            Raw::Local(number) => {
                self.raw(&[LOCAL]);
                self.number(number as u64);
            }
            Raw::Section(bytes) => {
                self.raw(&[SECTION]);
                self.block(bytes);
            }
            Raw::Json(style, bytes) => {
                self.raw(&[JSON + u8::from(style.escaped) + 2 * u8::from(style.line)]);
                self.block(bytes);
            }
        }
    }
}

impl Write for Vec<u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Write for bumpalo::collections::Vec<'_, u8> {
    fn raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice_copy(bytes);
    }
}

/// What the bytes of a value or section refer to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Used {
    Word(Id),
    Shape(Id),
    /// Something that only the document itself has.
    Local,
}

/// Tells everything that a document refers to.
pub(super) fn used_by_document(document: &[u8], tell: &mut impl FnMut(Used)) {
    let mut reader = Reader(document);
    reader.signed();
    let start = reader.0;
    for _ in 0..4 {
        reader.value();
    }
    used_by_values(&start[..start.len() - reader.0.len()], tell);
    used_by_values(reader.block(), tell);
    used_by_section(reader.0, tell);
}

/// Tells everything that some values refer to.
pub(super) fn used_by_values(values: &[u8], tell: &mut impl FnMut(Used)) {
    let mut reader = Reader(values);
    while !reader.is_empty() {
        match reader.value() {
            Raw::Word(id) | Raw::Squeezed(Squeezed { like: Some(id), .. }) => tell(Used::Word(id)),
            Raw::Local(_) => tell(Used::Local),
            Raw::Hex(prefix, _) => used_by_values(prefix, tell),
            Raw::Parts(parts) => used_by_values(parts, tell),
            Raw::Section(section) | Raw::Json(_, section) => used_by_section(section, tell),
            _ => {}
        }
    }
}

/// Tells everything that a section refers to.
pub(super) fn used_by_section(section: &[u8], tell: &mut impl FnMut(Used)) {
    let mut reader = Reader(section);
    match reader.number() {
        0 => {
            reader.block();
            reader.number();
        }
        head => {
            tell(Used::Shape(shape_id(head)));
            if head & 1 == 1 {
                reader.block();
            }
        }
    }
    used_by_values(reader.0, tell);
}

/// The number of the shape in the head of a section, which is not 0.
pub(super) fn shape_id(head: u64) -> Id {
    Id::try_from((head >> 1) - 1).expect(OURS)
}

/// The head of a section with this shape.
pub(super) fn shape_head(id: Id, templated: bool) -> u64 {
    (u64::from(id) + 1) << 1 | u64::from(templated)
}
