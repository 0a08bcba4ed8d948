//! Rendered manifests in a Redis that several repo-servers share, so that one that is new need not render what another has.
//!
//! Redis is not trusted: each value is encrypted and authenticated, together with the key that it stands under, by a secret
//! that only the repo-servers have. What is missing, late, cut off, of somebody else or of another place is a miss, and never
//! an error.

use crate::error::{Error, Result};
use crate::manifest_cache::{Read, Rendered};
use crate::path::TreePath;
use crate::source::Notes;
use crate::source::detect::SourceType;
use argosy_redis::redis::aio::ConnectionManager;
use argosy_redis::redis::{self, AsyncCommands as _};
use aws_lc_rs::aead;
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The form of values; another one is a miss.
const FORM: u8 = 1;
/// What the key of the cipher is derived for.
const PURPOSE: &str = "argosy repo-server 2026-12 shared manifests";
/// An answer that takes longer is none: rendering may be as fast.
const PATIENCE: Duration = Duration::from_millis(250);
/// After a failure Redis is left alone for so long.
const REST: Duration = Duration::from_secs(5);
/// Largest value that is written, packed.
const MAX_PACKED: usize = 16 << 20;
/// Largest value that is read, unpacked.
const MAX_UNPACKED: u64 = 256 << 20;

/// Flags of the Redis that repo-servers share.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "shared-manifests")]
pub struct Flags {
    /// Where it is. Without a key nothing is shared there.
    #[command(flatten)]
    pub connection: argosy_redis::Flags,
    /// A secret that the repo-servers have in common, by which they know each other's entries.
    #[arg(
        long,
        env = "ARGOSY_REPO_SERVER_SHARED_CACHE_KEY",
        default_value = "",
        hide_env_values = true
    )]
    pub shared_cache_key: String,
}

/// The entries in one Redis.
pub(crate) struct SharedCache {
    connection: ConnectionManager,
    key: [u8; 32],
    expiration: Duration,
    /// Until when Redis is left alone.
    resting: Arc<Mutex<Option<Instant>>>,
}

/// What is shared of a render: the manifests, and what they were made from where that says it all.
pub(crate) struct Entry {
    pub(crate) rendered: Arc<Rendered>,
    pub(crate) reads: Option<Arc<Vec<Read>>>,
}

#[derive(Serialize, Deserialize)]
struct Body {
    source_type: String,
    manifests: Vec<String>,
    commands: Vec<String>,
    notes: Notes,
    /// Name of the tree, path, id.
    reads: Option<Vec<(Option<String>, String, String)>>,
}

impl SharedCache {
    /// Connects at the first use, and again whenever the connection breaks. `None` where the flags name no Redis or no key.
    ///
    /// # Errors
    /// [`Error::Source`] for certificates that cannot be used.
    pub(crate) fn new(flags: &Flags, expiration: Duration) -> Result<Option<SharedCache>> {
        if flags.shared_cache_key.is_empty() {
            return Ok(None);
        }
        let connection = flags.connection.connect(PATIENCE, 0);
        let connection = connection.map_err(|error| Error::Source(argosy_runtime::log::chain(&error)))?;
        let Some(connection) = connection else {
            return Ok(None);
        };
        Ok(Some(SharedCache {
            connection,
            key: blake3::derive_key(PURPOSE, flags.shared_cache_key.as_bytes()),
            expiration,
            resting: Arc::default(),
        }))
    }

    /// What another repo-server made under a key.
    pub(crate) async fn get(&self, key: &[u8; 32]) -> Option<Entry> {
        let mut connection = self.rested()?;
        let asked = connection.get::<_, Option<Vec<u8>>>(name(key));
        let value = self.outcome(tokio::time::timeout(PATIENCE, asked).await)??;
        let (secret, key) = (self.key, *key);
        let opened = tokio::task::spawn_blocking(move || open(&secret, &key, &value)).await;
        let entry = opened.ok().flatten();
        if entry.is_none() {
            tracing::warn!("Redis holds what no repo-server with our key has written; it is not used");
        }
        entry
    }

    /// Shares what was made under a key, by and by.
    pub(crate) fn put(&self, key: &[u8; 32], entry: Entry) {
        let Some(mut connection) = self.rested() else {
            return;
        };
        let (secret, key, resting) = (self.key, *key, self.resting.clone());
        let seconds = self.expiration.as_secs().max(1);
        tokio::spawn(async move {
            let sealed = tokio::task::spawn_blocking(move || seal(&secret, &key, &entry)).await;
            let Some(value) = sealed.ok().flatten() else {
                return;
            };
            let written = connection.set_ex::<_, _, ()>(name(&key), value, seconds);
            settle(&resting, tokio::time::timeout(PATIENCE, written).await);
        });
    }

    /// The connection, unless Redis is left alone now.
    fn rested(&self) -> Option<ConnectionManager> {
        let until = *self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        until
            .is_none_or(|until| until <= Instant::now())
            .then(|| self.connection.clone())
    }

    fn outcome<T>(&self, outcome: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>) -> Option<T> {
        settle(&self.resting, outcome)
    }
}

/// Notes a failure, so that not every render waits for a Redis that is away.
fn settle<T>(
    resting: &Mutex<Option<Instant>>,
    outcome: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>,
) -> Option<T> {
    let error = match outcome {
        Ok(Ok(value)) => {
            *resting.lock().unwrap_or_else(PoisonError::into_inner) = None;
            return Some(value);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} ms", PATIENCE.as_millis()),
    };
    let until = Instant::now() + REST;
    let before = resting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .replace(until);
    if before.is_none() {
        tracing::warn!(error, "manifests are not shared: Redis does not answer");
    }
    None
}

fn name(key: &[u8; 32]) -> String {
    format!("argosy|manifests|{}", crate::chart::hex(key))
}

/// A value for a key: form, nonce, packed content encrypted with its mark. Nothing for what is too large.
fn seal(secret: &[u8; 32], key: &[u8; 32], entry: &Entry) -> Option<Vec<u8>> {
    let reads = entry.reads.as_ref().map(|reads| {
        let plain = reads
            .iter()
            .map(|read| (read.tree.clone(), read.path.to_string(), read.id.clone()));
        plain.collect()
    });
    let body = Body {
        source_type: entry.rendered.source_type.as_str().to_owned(),
        manifests: entry.rendered.manifests.clone(),
        commands: entry.rendered.commands.clone(),
        notes: entry.rendered.notes.clone(),
        reads,
    };
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&serde_json::to_vec(&body).ok()?).ok()?;
    let packed = encoder.finish().ok()?;
    if packed.len() > MAX_PACKED {
        return None;
    }
    let mut nonce = [0; aead::NONCE_LEN];
    aws_lc_rs::rand::fill(&mut nonce).ok()?;
    let mut value = packed;
    cipher(secret)?
        .seal_in_place_append_tag(aead::Nonce::assume_unique_for_key(nonce), place(key), &mut value)
        .ok()?;
    value.splice(0..0, [FORM].into_iter().chain(nonce));
    Some(value)
}

/// The content of a value that was sealed with our secret for this key; nothing for any other.
fn open(secret: &[u8; 32], key: &[u8; 32], value: &[u8]) -> Option<Entry> {
    let (form, rest) = value.split_first()?;
    let (nonce, sealed) = rest.split_first_chunk::<{ aead::NONCE_LEN }>()?;
    if *form != FORM {
        return None;
    }
    let mut sealed = sealed.to_vec();
    let nonce = aead::Nonce::assume_unique_for_key(*nonce);
    let packed: &[u8] = cipher(secret)?
        .open_in_place(nonce, place(key), &mut sealed)
        .ok()?;
    let mut json = Vec::new();
    let unpacked = flate2::read::GzDecoder::new(packed)
        .take(MAX_UNPACKED)
        .read_to_end(&mut json);
    unpacked.ok()?;
    let body: Body = serde_json::from_slice(&json).ok()?;
    let reads = match body.reads {
        None => None,
        Some(reads) => {
            let read = |(tree, path, id): (Option<String>, String, String)| {
                let path = TreePath::parse(&path).ok()?;
                Some(Read { tree, path, id })
            };
            Some(Arc::new(reads.into_iter().map(read).collect::<Option<Vec<_>>>()?))
        }
    };
    let source_type = SourceType::parse(&body.source_type)?;
    let rendered = Rendered::new(body.manifests, source_type, body.commands, body.notes);
    Some(Entry {
        rendered: Arc::new(rendered),
        reads,
    })
}

fn cipher(secret: &[u8; 32]) -> Option<aead::LessSafeKey> {
    let key = aead::UnboundKey::new(&aead::AES_256_GCM, secret).ok()?;
    Some(aead::LessSafeKey::new(key))
}

/// What a value is bound to: its form and the key that it stands under.
fn place(key: &[u8; 32]) -> aead::Aad<[u8; 33]> {
    let mut place = [FORM; 33];
    place[1..].copy_from_slice(key);
    aead::Aad::from(place)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn entry() -> Entry {
        let manifests = vec!["{\"a\":1}".to_owned(), "{}".to_owned()];
        Entry {
            rendered: Arc::new(Rendered::new(
                manifests,
                SourceType::Helm,
                vec!["helm template".into()],
                Notes {
                    warnings: vec!["a.yaml:3: the key b is there twice".into()],
                    ..Notes::default()
                },
            )),
            reads: Some(Arc::new(vec![Read {
                tree: Some("$values".into()),
                path: TreePath::parse("a/b").unwrap(),
                id: "1234".into(),
            }])),
        }
    }

    #[test]
    fn sec_cache_only_what_was_sealed_for_a_key_with_our_secret_is_opened() {
        let (secret, key) = ([1; 32], [2; 32]);
        let value = seal(&secret, &key, &entry()).unwrap();
        let opened = open(&secret, &key, &value).unwrap();
        assert_eq!(opened.rendered.digest, entry().rendered.digest);
        assert_eq!(opened.rendered.commands, ["helm template"]);
        assert_eq!(opened.rendered.notes, entry().rendered.notes);
        let reads = opened.reads.unwrap();
        assert_eq!(
            (reads[0].tree.as_deref(), reads[0].id.as_str()),
            (Some("$values"), "1234")
        );
        assert!(open(&[3; 32], &key, &value).is_none(), "another secret");
        assert!(open(&secret, &[3; 32], &value).is_none(), "another key");
        for at in 0..value.len() {
            let mut flipped = value.clone();
            flipped[at] ^= 1;
            assert!(open(&secret, &key, &flipped).is_none(), "byte {at}");
            assert!(open(&secret, &key, &value[..at]).is_none(), "cut at {at}");
        }
    }
}
