//! Many comparisons at once, over all cores, with scratch memory that is reused.

use std::borrow::Cow;

use argosy_object::Value;
use bumpalo::Bump;
use rayon::prelude::*;

use crate::compare::{Comparison, Context, compare_in};

/// Two sides of one object. Nothing is copied of those that are given away.
#[derive(Debug, Clone)]
pub struct Pair<'a> {
    /// What Git wants.
    pub desired: Option<Cow<'a, Value>>,
    /// What the cluster has.
    pub live: Option<Cow<'a, Value>>,
}

/// So few pairs are compared faster on the caller's thread than handed around (a comparison takes some 20 to 100 µs).
const PARALLEL_MIN: usize = 16;

/// [`crate::compare`] for each pair, in the order of `pairs`.
///
/// Matching keyed lists needs short tables; they live in one arena a task, emptied after each object and not returned to the allocator.
#[must_use]
pub fn compare_all(pairs: Vec<Pair<'_>>, ctx: &Context<'_>) -> Vec<Comparison> {
    let one = |arena: &mut Bump, pair: Pair<'_>| {
        let comparison = compare_in(pair.desired, pair.live, ctx, arena);
        arena.reset();
        comparison
    };
    if pairs.len() < PARALLEL_MIN {
        let mut arena = Bump::new();
        return pairs.into_iter().map(|pair| one(&mut arena, pair)).collect();
    }
    pairs.into_par_iter().map_init(Bump::new, one).collect()
}
