//! A watch as lines, and what a line says.

use std::time::Duration;

use argosy_runtime::bounds::{self, Limit};
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::client::{BodyStream, Call, Client, WatchSlot};
use crate::error::{Error, Status};

/// A line of a watch holds one object.
const LINE_LEN_MAX: usize = 32 << 20;

/// A watch that is open.
pub(super) struct Stream {
    body: BodyStream,
    lines: Lines,
    _slot: WatchSlot,
    pub(super) started: Instant,
}

/// Opens it.
pub(super) async fn open(client: Client, call: Call) -> Result<Stream, Error> {
    let slot = client.watch_slot()?;
    let (_, body) = client.stream(&call, Some(&slot)).await?;
    Ok(Stream {
        body,
        lines: Lines::default(),
        _slot: slot,
        started: Instant::now(),
    })
}

impl Stream {
    /// The next line; `None` at the orderly end. May be dropped and called again.
    pub(super) async fn line(&mut self, what: &str, silence_max: Duration) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(line) = self.lines.next() {
                return Ok(Some(line));
            }
            let piece = tokio::time::timeout(silence_max, self.body.next())
                .await
                .map_err(|_| Error::Timeout {
                    call: what.to_owned(),
                    after: silence_max,
                })?;
            match piece {
                Some(piece) => self.lines.push(&piece?).map_err(|message| Error::Answer {
                    call: what.to_owned(),
                    message: message.to_owned(),
                })?,
                // Bytes after the last line break belong to an event that never came whole.
                None => return Ok(None),
            }
        }
    }
}

/// Cuts a body into lines.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    /// No line break before this.
    searched: usize,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) -> Result<(), &'static str> {
        if self.buffer.len() + piece.len() > LINE_LEN_MAX && !piece.contains(&b'\n') {
            bounds::exceeded(Limit::ApiAnswer);
            return Err("one event is larger than 32 MiB");
        }
        self.buffer.extend_from_slice(piece);
        Ok(())
    }

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(self.searched + found + 1);
            self.searched = 0;
            let line = line.freeze();
            let line = line.slice(..line.len() - 1);
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(line);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Applied,
    Deleted,
    Bookmark,
    Error,
}

/// One line of a watch.
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) object: Bytes,
    /// metadata.resourceVersion; empty for errors and if it was not looked for.
    pub(super) version: String,
    /// The bookmark that ends a streamed list.
    pub(super) initial_end: bool,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Code {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(borrow)]
    metadata: PeekMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PeekMeta<'a> {
    #[serde(borrow, default)]
    resource_version: &'a str,
    #[serde(default)]
    annotations: Option<PeekAnnotations>,
}

#[derive(Deserialize)]
struct PeekAnnotations {
    #[serde(rename = "k8s.io/initial-events-end", default)]
    initial_end: Option<String>,
}

/// How API servers write what happens most.
const USUAL: [(&[u8], Kind); 3] = [
    (br#"{"type":"MODIFIED","object":"#, Kind::Applied),
    (br#"{"type":"ADDED","object":"#, Kind::Applied),
    (br#"{"type":"DELETED","object":"#, Kind::Deleted),
];

impl Change {
    /// Reads a line. Versions of single objects are looked for only if `versions` (it costs another pass over the object).
    pub(super) fn read(what: &str, line: &Bytes, versions: bool) -> Result<Change, Error> {
        match versions.then(|| Self::usual(line)).flatten() {
            Some(change) => Ok(change),
            None => Self::any(what, line, versions),
        }
    }

    /// Reads a line that looks as usual in one pass over its object instead of two.
    fn usual(line: &Bytes) -> Option<Change> {
        let begins = |(start, kind)| Some((line.strip_prefix(start)?, kind));
        let (rest, kind) = USUAL.into_iter().find_map(begins)?;
        let object = line.slice_ref(rest.strip_suffix(b"}")?);
        let peek: Peek<'_> = serde_json::from_slice(&object).ok()?;
        Some(Change {
            kind,
            version: peek.metadata.resource_version.to_owned(),
            initial_end: false,
            object,
        })
    }

    fn any(what: &str, line: &Bytes, versions: bool) -> Result<Change, Error> {
        let fail = |error: serde_json::Error| Error::Answer {
            call: what.to_owned(),
            message: error.to_string(),
        };
        let parsed: Line<'_> = serde_json::from_slice(line).map_err(fail)?;
        let kind = match parsed.kind {
            "ADDED" | "MODIFIED" => Kind::Applied,
            "DELETED" => Kind::Deleted,
            "BOOKMARK" => Kind::Bookmark,
            "ERROR" => Kind::Error,
            other => {
                return Err(Error::Answer {
                    call: what.to_owned(),
                    message: format!("unknown event type {other:?}"),
                });
            }
        };
        let object = line.slice_ref(parsed.object.get().as_bytes());
        if kind == Kind::Error || (!versions && kind != Kind::Bookmark) {
            return Ok(Change {
                kind,
                object,
                version: String::new(),
                initial_end: false,
            });
        }
        let peek: Peek<'_> = serde_json::from_slice(&object).map_err(fail)?;
        Ok(Change {
            kind,
            version: peek.metadata.resource_version.to_owned(),
            initial_end: kind == Kind::Bookmark
                && peek
                    .metadata
                    .annotations
                    .is_some_and(|known| known.initial_end.as_deref() == Some("true")),
            object,
        })
    }
}

/// The error that an `ERROR` line of a watch is.
pub(super) fn refused(call: String, object: &[u8]) -> Error {
    let code = serde_json::from_slice::<Code>(object).map_or(500, |code| code.code);
    Error::Api {
        call,
        status: Box::new(Status::read(code, None, object)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(line: &'static str) -> Change {
        Change::read("watch", &Bytes::from_static(line.as_bytes()), true).unwrap()
    }

    #[test]
    fn a_line_gives_the_objects_own_bytes() {
        let change =
            read(r#"{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"12","name":"a"},"x":1.0}}"#);
        assert_eq!(change.kind, Kind::Applied);
        assert_eq!(change.version, "12");
        assert_eq!(
            &change.object[..],
            br#"{"metadata":{"resourceVersion":"12","name":"a"},"x":1.0}"#
        );
    }

    #[test]
    fn only_the_marked_bookmark_ends_a_streamed_list() {
        assert!(!read(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3"}}}"#).initial_end);
        assert!(
            read(r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}"#)
                .initial_end
        );
        // An object that carries the annotation is just an object.
        assert!(
            !read(r#"{"type":"ADDED","object":{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}}"#)
                .initial_end
        );
    }

    #[test]
    fn lines_come_out_whole_however_the_bytes_arrive() {
        let text = b"{\"a\":1}\n\n  \n{\"b\":2}\n{\"c\"";
        for piece in 1..text.len() {
            let mut lines = Lines::default();
            let mut out = Vec::new();
            for part in text.chunks(piece) {
                lines.push(part).unwrap();
                while let Some(line) = lines.next() {
                    out.push(line);
                }
            }
            assert_eq!(out, [&b"{\"a\":1}"[..], b"{\"b\":2}"]);
        }
    }
}
