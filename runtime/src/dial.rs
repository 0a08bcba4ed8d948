//! How connections are made where it is not by TCP: a simulation keeps its network in memory.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// What bytes go over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connect = dyn Fn(&str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync;

/// Makes connections. Clones make them in the same way.
#[derive(Clone)]
pub struct Dial(Arc<Connect>);

impl Dial {
    /// `connect` is given `host:port`.
    pub fn new(
        connect: impl Fn(&str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync + 'static,
    ) -> Self {
        Dial(Arc::new(connect))
    }

    /// A connection to `host:port`.
    pub fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        (self.0)(address)
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}
