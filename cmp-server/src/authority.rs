//! Callers that give the path of the socket as the authority of their requests, as Argo CD's repo-server does (gRPC for Go makes
//! `tmp%2Fplugin.sock` of it). It is no authority to our HTTP/2 library, which ends such requests unseen; and nobody needs it, for
//! there is one plugin behind the socket. So what stands there is made readable on its way in: every character that may not stand
//! in a host becomes a dash.
//!
//! Only the frames that begin requests are looked into. The text keeps its length, so that the compression of headers (HPACK, RFC
//! 7541), whose table counts lengths, goes on as its other end thinks it does.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// Bytes that begin a connection.
const PREFACE: usize = 24;
/// Bytes that begin a frame.
const HEAD: usize = 9;
/// The type of frames that begin requests.
const HEADERS: u8 = 1;
/// Its flag for padding, whose length stands first, and the one for a priority of five bytes.
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Largest frame that we allow callers to send: the library's default, which is the protocol's.
const MAX_FRAME: usize = 16 << 10;
/// Index of `:authority` in the static table.
const AUTHORITY: usize = 1;
/// Bytes read at once.
const CHUNK: usize = 16 << 10;

/// The codes of the characters that a text like this one has, in order: how many bits, and whose they are. Codes of one length
/// follow one another, and those of the next length follow them.
const CODES: [(u32, &[u8]); 10] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
];

/// A connection of a caller.
pub(crate) struct Tolerant {
    stream: UnixStream,
    frames: Frames,
    /// What has been looked through, and how much of it has been handed on.
    ready: Vec<u8>,
    taken: usize,
}

impl Tolerant {
    pub(crate) fn new(stream: UnixStream) -> Tolerant {
        Tolerant {
            stream,
            frames: Frames::default(),
            ready: Vec::new(),
            taken: 0,
        }
    }
}

impl AsyncRead for Tolerant {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        while this.taken == this.ready.len() {
            this.taken = 0;
            this.ready.clear();
            let mut chunk = [0; CHUNK];
            let mut read = ReadBuf::new(&mut chunk);
            match Pin::new(&mut this.stream).poll_read(context, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => this.frames.take(read.filled(), &mut this.ready),
                other => return other,
            }
        }
        let rest = &this.ready[this.taken..];
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tolerant {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Tolerant {
    type ConnectInfo = <UnixStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

/// What a caller sends, frame by frame.
struct Frames {
    /// What has come of a frame that is to be looked into, or of the beginning of one.
    held: Vec<u8>,
    /// Bytes that nobody looks into.
    passing: usize,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            held: Vec::new(),
            passing: PREFACE,
        }
    }
}

impl Frames {
    /// Takes bytes in, and gives out what may go on.
    fn take(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            if self.passing > 0 {
                let (pass, rest) = bytes.split_at(self.passing.min(bytes.len()));
                out.extend_from_slice(pass);
                self.passing -= pass.len();
                bytes = rest;
                continue;
            }
            let wanted = match self.frame() {
                Some((_, size)) => HEAD + size,
                None => HEAD,
            };
            let (more, rest) = bytes.split_at((wanted - self.held.len()).min(bytes.len()));
            self.held.extend_from_slice(more);
            bytes = rest;
            match self.frame() {
                Some((HEADERS, size)) if size <= MAX_FRAME && self.held.len() == HEAD + size => {
                    let held = std::mem::take(&mut self.held);
                    out.extend(readable(&held).unwrap_or(held));
                }
                Some((HEADERS, size)) if size <= MAX_FRAME => {}
                Some((_, size)) => {
                    self.passing = size;
                    out.append(&mut self.held);
                }
                None => {}
            }
        }
    }

    /// Type and size of the frame that is held, once its beginning is.
    fn frame(&self) -> Option<(u8, usize)> {
        let head = self.held.first_chunk::<HEAD>()?;
        let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        Some((head[3], size as usize))
    }
}

/// A frame with an authority that can be read; nothing where it is one already, or there is none.
fn readable(frame: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = frame.split_first_chunk::<HEAD>()?;
    let flags = head[4];
    let mut begin = 0;
    let mut end = payload.len();
    if flags & PADDED != 0 {
        begin += 1;
        end = end.checked_sub(usize::from(*payload.first()?))?;
    }
    if flags & PRIORITY != 0 {
        begin += 5;
    }
    let (place, text) = authority(payload.get(begin..end)?)?;
    let new: Vec<u8> = text.iter().map(|c| if fits(*c) { *c } else { b'-' }).collect();
    if new == text {
        return None;
    }
    let mut out = head.to_vec();
    out.extend_from_slice(&payload[..begin + place.start]);
    number(new.len(), &mut out);
    out.extend_from_slice(&new);
    out.extend_from_slice(&payload[begin + place.end..]);
    let size = out.len() - HEAD;
    if size > MAX_FRAME {
        return None;
    }
    out[..3].copy_from_slice(&u32::try_from(size).ok()?.to_be_bytes()[1..]);
    Some(out)
}

/// Whether a character may stand in an authority.
fn fits(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@[]".contains(&c)
}

/// Where a block of headers writes the authority out, and what it is.
fn authority(block: &[u8]) -> Option<(Range<usize>, Vec<u8>)> {
    let mut at = 0;
    while let Some(first) = block.get(at) {
        let bits = match first {
            0x80.. => 7,
            0x40.. => 6,
            0x20.. => 5,
            _ => 4,
        };
        let name = integer(block, &mut at, bits)?;
        // A header of a table, or a size for the table.
        if matches!(bits, 7 | 5) {
            continue;
        }
        if name == 0 {
            string(block, &mut at)?;
        }
        let begin = at;
        let (packed, value) = string(block, &mut at)?;
        if name == AUTHORITY {
            let text = match packed {
                true => unpacked(value)?,
                false => value.to_vec(),
            };
            return Some((begin..at, text));
        }
    }
    None
}

/// An integer whose first bits stand in the last ones of a byte.
fn integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(*block.get(*at)?);
        *at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A text, and whether it is packed.
fn string<'a>(block: &'a [u8], at: &mut usize) -> Option<(bool, &'a [u8])> {
    let packed = block.get(*at)? & 0x80 != 0;
    let size = integer(block, at, 7)?;
    let text = block.get(*at..at.checked_add(size)?)?;
    *at += size;
    Some((packed, text))
}

/// Writes the length of a text that is not packed.
fn number(mut value: usize, out: &mut Vec<u8>) {
    if value < 0x7f {
        out.push(value as u8);
        return;
    }
    out.push(0x7f);
    value -= 0x7f;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A packed text; nothing where it has characters of other texts.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let (mut code, mut length) = (0_usize, 0);
    for bit in packed
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
    {
        code = code << 1 | usize::from(bit);
        length += 1;
        if let Some(character) = character(code, length) {
            text.push(character);
            (code, length) = (0, 0);
        }
    }
    // The last byte is filled up with ones.
    (length < 8 && code == (1 << length) - 1).then_some(text)
}

fn character(code: usize, length: u32) -> Option<u8> {
    let (mut first, mut before) = (0, 0);
    for (bits, characters) in CODES {
        first <<= bits - before;
        before = bits;
        if bits == length {
            return characters.get(code.checked_sub(first)?).copied();
        }
        first += characters.len();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The headers of a call, as Go's `golang.org/x/net/http2/hpack` writes them, and those of the next call over the connection:
    /// `:method`, `:scheme`, `:path`, `:authority`, `te`.
    const FIRST: &str = "838645ad62ba2d98d52f78f54a69b40ea1cc5a4b5275d16cc6ab716cee62158bd3949d75d16cc6aaf1ea94d35b60d263d541a69cf49551611d931c922a2c24a6b5905b3b96c54586ba2d98d521516125a55bb85702e8393aff40027465864d833505b11f";
    const SECOND: &str = "8386c0bfbe";

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        pairs
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    /// What comes out when bytes come in, so many at a time.
    fn through(bytes: &[u8], at_once: usize) -> Vec<u8> {
        let (mut frames, mut out) = (Frames::default(), Vec::new());
        for some in bytes.chunks(at_once) {
            frames.take(some, &mut out);
        }
        out
    }

    #[test]
    fn the_path_of_a_socket_becomes_a_host_and_nothing_else_changes() {
        let (place, text) = authority(&bytes(FIRST)).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "home%2Fargocd%2Fcmp-server%2Fplugins%2Fcue-v1.0.sock"
        );
        let block = bytes(FIRST);
        let mut expected = block[..place.start].to_vec();
        expected.push(52);
        expected.extend_from_slice(b"home-2Fargocd-2Fcmp-server-2Fplugins-2Fcue-v1.0.sock");
        expected.extend_from_slice(&block[place.end..]);
        let settings = frame(4, 0, &[0; 12]);
        let data = frame(0, 1, &[7; 300]);
        let connection = |block: &[u8]| {
            let parts = [&[b'P'; PREFACE][..], &settings, &frame(1, 4, block), &data];
            let parts = [parts.concat(), frame(1, 4, &bytes(SECOND))];
            parts.concat()
        };
        for at_once in [1, 7, 1000] {
            assert!(
                through(&connection(&block), at_once) == connection(&expected),
                "{at_once}"
            );
        }
        // Padding and priority stay where they are.
        let around = |block: &[u8]| frame(1, 0x2c, &[&[2, 0, 0, 0, 0, 9][..], block, &[0, 0]].concat());
        assert_eq!(readable(&around(&block)).unwrap(), around(&expected));
    }

    #[test]
    fn hosts_stay_as_they_are_and_nonsense_is_for_others_to_refuse() {
        let host = [&[0x83, 0x41, 9][..], b"localhost", &[0x86]].concat();
        assert_eq!(authority(&host).unwrap().1, b"localhost");
        assert_eq!(readable(&frame(1, 4, &host)), None);
        for nonsense in [
            &[0x41][..],
            &[0x41, 0xff],
            &[0x41, 0x83, 0, 0],
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(authority(nonsense), None);
            assert_eq!(readable(&frame(1, 4, nonsense)), None);
        }
        assert_eq!(readable(&frame(1, PADDED, &[200, 0x83])), None);
    }

    #[test]
    fn lengths_are_written_as_they_are_read() {
        for value in [0, 1, 126, 127, 128, 254, 255, 300, 16_000] {
            let mut written = Vec::new();
            number(value, &mut written);
            let mut at = 0;
            assert_eq!(integer(&written, &mut at, 7), Some(value));
            assert_eq!(at, written.len());
        }
    }
}
