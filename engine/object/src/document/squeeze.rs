//! Long texts that are a document's own, made small by DEFLATE: what repeats in them, or in a text like them, is left out, and the
//! rest is written with fewer bits for the letters that are more frequent.
//!
//! A text that is like another goes on where that one ends: the other is compressed before it and thrown away. Whoever reads
//! it puts the other text there as it is, which costs a copy.

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::code::{OURS, Squeezed};
use super::shape::WORDS;

/// DEFLATE looks no farther back.
const WINDOW: usize = 32 << 10;
/// What may come out for what goes in, if nothing can be left out.
const OVERHEAD: usize = 128;

thread_local! {
    // Both are large and made for many texts.
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(LEVEL), false));
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}
/// Higher ones take twice the time for a hundredth of the room.
const LEVEL: u32 = 4;

/// Squeezes a text; `like` is a text to refer to. None if it does not become smaller.
pub(super) fn squeeze(text: &str, like: Option<&str>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let done = DEFLATE.with_borrow_mut(|deflate| {
        deflate.reset();
        if let Some(like) = like {
            let like = window(like);
            let mut thrown_away = Vec::with_capacity(like.len() + OVERHEAD);
            deflate.compress_vec(like, &mut thrown_away, FlushCompress::Sync)?;
        }
        // What does not fit into the room of the text is not worth it.
        deflate.compress_vec(text.as_bytes(), &mut bytes, FlushCompress::Finish)
    });
    matches!(done, Ok(flate2::Status::StreamEnd)).then_some(bytes)
}

/// The text again.
pub(super) fn text(squeezed: &Squeezed<'_>) -> String {
    let mut text = Vec::with_capacity(squeezed.len);
    let done = INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        if let Some(like) = squeezed.like {
            WORDS.with(like, |like| go_on_from(inflate, window(like)))?;
        }
        inflate.decompress_vec(squeezed.bytes, &mut text, FlushDecompress::Finish)
    });
    done.expect(OURS);
    String::from_utf8(text).expect(OURS)
}

/// What of a text can be referred to.
fn window(text: &str) -> &[u8] {
    &text.as_bytes()[text.len().saturating_sub(WINDOW)..]
}

/// Has a text come out, as the content of a block that is not compressed.
fn go_on_from(inflate: &mut Decompress, text: &[u8]) -> Result<(), flate2::DecompressError> {
    let len = u16::try_from(text.len()).expect("a window is shorter than a block may be");
    let mut block = vec![0];
    block.extend_from_slice(&len.to_le_bytes());
    block.extend_from_slice(&(!len).to_le_bytes());
    block.extend_from_slice(text);
    let mut out = Vec::with_capacity(text.len() + 1);
    inflate
        .decompress_vec(&block, &mut out, FlushDecompress::None)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::shape::WORDS;
    use super::*;

    fn comes_back(text: &str, like: Option<&str>) -> usize {
        let bytes = squeeze(text, like).expect("it becomes smaller");
        let word =
            like.map(|like| WORDS.find_or_add(like.len() as u64, |word| **word == *like, || like.into()));
        let squeezed = Squeezed {
            len: text.len(),
            like: word,
            bytes: &bytes,
        };
        assert_eq!(self::text(&squeezed), text);
        word.into_iter().for_each(|word| WORDS.release(word));
        bytes.len()
    }

    #[test]
    fn a_text_comes_back_alone_and_beside_one_like_it() {
        let lines = |value: usize| {
            (0..60)
                .map(|at| format!("{:x}.{:x} = {}\n", at * 7919 * 31, at * 104_729, at * value))
                .collect::<String>()
        };
        let (one, two) = (lines(7), lines(9));
        let alone = comes_back(&one, None);
        assert!(alone < one.len());
        assert!(
            comes_back(&two, Some(&one)) < alone * 2 / 3,
            "what is the same is left out"
        );
        assert!(comes_back(&one, Some(&one)) < 40);
        // Longer than what can be referred to.
        let long = one.repeat(100);
        assert!(long.len() > 2 * WINDOW);
        comes_back(&long, Some(&two.repeat(100)));
        comes_back(&two, Some(&long));
        comes_back(&two, Some(""));
    }

    #[test]
    fn what_does_not_become_smaller_is_left_alone() {
        assert_eq!(squeeze("a short text", None), None);
    }
}
