//! Long texts that are a document's own, made small: what repeats in them or in a text like them is left out (LZ4), and what is
//! left is written with fewer bits for the letters that are more frequent (DEFLATE).

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

use super::code::{Lz, OURS};
use super::shape::WORDS;

/// What a text is squeezed to.
pub(super) struct Squeezed {
    pub(super) bytes: Vec<u8>,
    /// Length of the LZ4 block, if that was squeezed in turn.
    pub(super) block_len: Option<usize>,
}

/// The second step must save this much to be worth its undoing.
const SAVED_MIN: usize = 16;

thread_local! {
    // Both are large and made for many texts.
    static DEFLATE: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
    static INFLATE: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

impl Squeezed {
    /// Squeezes a text; `like` is a text to refer to.
    pub(super) fn of(text: &str, like: Option<&str>) -> Self {
        let block = match like {
            Some(like) => lz4_flex::block::compress_with_dict(text.as_bytes(), like.as_bytes()),
            None => lz4_flex::block::compress(text.as_bytes()),
        };
        let mut bytes = Vec::with_capacity(block.len());
        let done = DEFLATE.with_borrow_mut(|deflate| {
            deflate.reset();
            // What does not fit into the room of the block is not worth it.
            deflate.compress_vec(&block, &mut bytes, FlushCompress::Finish)
        });
        match done {
            Ok(flate2::Status::StreamEnd) if bytes.len() + SAVED_MIN <= block.len() => Squeezed {
                bytes,
                block_len: Some(block.len()),
            },
            _ => Squeezed {
                bytes: block,
                block_len: None,
            },
        }
    }
}

/// The text again.
pub(super) fn text(squeezed: &Lz<'_>) -> String {
    let block;
    let bytes = match squeezed.squeezed {
        Some(len) => {
            block = inflated(squeezed.bytes, len);
            &*block
        }
        None => squeezed.bytes,
    };
    let text = match squeezed.like {
        Some(like) => WORDS.with(like, |word| {
            lz4_flex::block::decompress_with_dict(bytes, squeezed.len, word.as_bytes())
        }),
        None => lz4_flex::block::decompress(bytes, squeezed.len),
    };
    String::from_utf8(text.expect(OURS)).expect(OURS)
}

fn inflated(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(len);
    let done = INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        inflate.decompress_vec(bytes, &mut block, FlushDecompress::Finish)
    });
    done.expect(OURS);
    block
}
