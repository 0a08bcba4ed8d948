//! Redis: where it is and how it is spoken to ([`Flags`]), and what Argo CD keeps in it of Applications and clusters
//! ([`entries`]). What a component keeps there for itself is its own affair.

mod connection;
pub mod entries;

use std::path::PathBuf;

pub use connection::{Address, Flags};
pub use redis;

/// Why Redis was of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that a flag names cannot be read.
    #[error("read {} ({flag})", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// What it names.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Redis cannot be spoken to in the way that the flags say.
    #[error("prepare to speak to Redis at {address} (--redis)")]
    Prepare {
        /// Where it is.
        address: Address,
        /// Why not.
        source: redis::RedisError,
    },
    /// Redis gave no answer, or refused.
    #[error("{action} in Redis at {address} (--redis)")]
    Ask {
        /// What was to be done.
        action: String,
        /// Where it is.
        address: Address,
        /// Why it was not.
        source: redis::RedisError,
    },
    /// An entry is not what Argo CD writes.
    #[error(
        "read the entry {key} of Redis: {message}; the controller writes it anew when it is deleted and the application is refreshed"
    )]
    Entry {
        /// Its key.
        key: String,
        /// What is wrong with it.
        message: String,
    },
}
