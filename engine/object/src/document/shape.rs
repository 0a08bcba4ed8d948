//! Skeletons: the keys and lists of a section without its leaves. Shared by all sections that have the same, and with a
//! template of what their leaves usually say.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use super::code::{Reader, Register, Used, Write, used_by_values};
use super::pool::Pool;
use crate::{Name, intern};

/// Strings by number.
pub(super) static WORDS: LazyLock<Pool<Box<str>>> = LazyLock::new(Pool::new);
/// Shapes by number.
pub(super) static SHAPES: LazyLock<Pool<Arc<Shape>>> = LazyLock::new(Pool::new);

/// A template takes some KB and pays with each use; before so many uses it would not.
const TEMPLATE_FROM: u32 = 6;

/// A step of a skeleton, in the order of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step<'a> {
    /// A scalar or a section: one value.
    Leaf,
    /// So many entries follow, each a key and what it holds.
    Map(u32),
    /// So many items follow.
    List(u32),
    Key(&'a str),
    /// The key is a value itself, because it is hardly ever the same.
    ValueKey,
}

const LEAF: u8 = 0;
const KEY: u8 = 1;
const VALUE_KEY: u8 = 2;
const MAP: u8 = 3;
const LIST: u8 = 4;

/// Steps as bytes; the keys are kept beside them.
pub(super) fn pack(steps: &[Step<'_>]) -> Vec<u8> {
    let mut ops = Vec::with_capacity(steps.len() * 2);
    for step in steps {
        match step {
            Step::Leaf => ops.push(LEAF),
            Step::Key(_) => ops.push(KEY),
            Step::ValueKey => ops.push(VALUE_KEY),
            Step::Map(len) => {
                ops.push(MAP);
                ops.number(u64::from(*len));
            }
            Step::List(len) => {
                ops.push(LIST);
                ops.number(u64::from(*len));
            }
        }
    }
    ops
}

/// The next step; a key is the next of those beside it.
pub(super) fn unpack(ops: &mut Reader<'_>) -> Step<'static> {
    match ops.byte() {
        KEY => Step::Key(""),
        VALUE_KEY => Step::ValueKey,
        MAP => Step::Map(ops.id()),
        LIST => Step::List(ops.id()),
        _ => Step::Leaf,
    }
}

#[derive(Debug)]
pub(super) struct Shape {
    pub(super) ops: Box<[u8]>,
    pub(super) keys: Box<[Name]>,
    uses: AtomicU32,
    template: OnceLock<Box<[Fixed]>>,
}

/// What a leaf usually says. Nothing here depends on one document but through its registers and its base time.
#[derive(Debug)]
pub(super) enum Fixed {
    /// Never the same twice.
    Never,
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(Box<str>),
    Time(i64),
    Parts(Box<[Part]>),
    /// A whole value with a section in it.
    Nested(Nested),
}

#[derive(Debug)]
pub(super) enum Part {
    Register(Register),
    Text(Box<str>),
}

/// The bytes of a value, which use what they refer to.
#[derive(Debug)]
pub(super) struct Nested(Box<[u8]>);

impl Shape {
    pub(super) fn new(steps: &[Step<'_>]) -> Self {
        let keys = steps.iter().filter_map(|step| match step {
            Step::Key(key) => Some(intern(key)),
            _ => None,
        });
        Shape {
            ops: pack(steps).into_boxed_slice(),
            keys: keys.collect(),
            uses: AtomicU32::new(0),
            template: OnceLock::new(),
        }
    }

    /// Whether it is the shape of these steps.
    pub(super) fn is(&self, steps: &[Step<'_>]) -> bool {
        let (mut ops, mut keys) = (Reader(&self.ops), self.keys.iter());
        steps.iter().all(|step| {
            if ops.is_empty() {
                return false;
            }
            match (unpack(&mut ops), step) {
                (Step::Key(_), Step::Key(key)) => keys.next().is_some_and(|known| known.as_str() == *key),
                (known, step) => known == *step,
            }
        }) && ops.is_empty()
    }

    /// The usual leaves; none as long as it has hardly been used.
    pub(super) fn template(&self) -> Option<&[Fixed]> {
        self.template.get().map(|fixed| &**fixed)
    }

    /// Counts a use without template. True once it should have one.
    pub(super) fn wants_template(&self) -> bool {
        self.uses.fetch_add(1, Ordering::Relaxed) + 1 >= TEMPLATE_FROM
    }

    /// Sets the template, unless another thread was faster.
    pub(super) fn set_template(&self, template: Box<[Fixed]>) {
        let _ = self.template.set(template);
    }
}

impl Nested {
    /// Keeps a value. None if it is of one document only, or if a shape in it may still get a template: shapes would hold each other for ever if templates
    /// could refer to shapes that refer back, and as each refers only to older templates they cannot.
    pub(super) fn keep(value: &[u8]) -> Option<Self> {
        let mut settled = true;
        used_by_values(value, &mut |used| {
            settled &= match used {
                Used::Shape(id) => SHAPES.with(id, |shape| shape.template().is_some()),
                Used::Word(_) => true,
                Used::Local => false,
            }
        });
        settled.then(|| {
            used_by_values(value, &mut enter);
            Nested(value.into())
        })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        used_by_values(&self.0, &mut release);
    }
}

/// Adds a user.
pub(super) fn enter(used: Used) {
    match used {
        Used::Word(id) => WORDS.enter(id),
        Used::Shape(id) => SHAPES.enter(id),
        Used::Local => {}
    }
}

/// Takes a user away.
pub(super) fn release(used: Used) {
    match used {
        Used::Word(id) => WORDS.release(id),
        Used::Shape(id) => SHAPES.release(id),
        Used::Local => {}
    }
}
