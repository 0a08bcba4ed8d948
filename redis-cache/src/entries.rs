//! What Argo CD keeps in Redis of Applications and clusters: keys, values and channels as in its `util/cache`. Argo CD's
//! controller and ours write them, Argo CD's API server and ours read them.
//!
//! Values are JSON, gzipped unless told otherwise, which the end of the key tells. There is an empty message on the channel
//! of an Application's managed resources once there is something new. Large trees may lie there in pieces.
//!
//! Redis vouches for nothing: who may write there may have the API server show what they like.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use argosy_api::v1alpha1::{ApplicationTree, ClusterInfo, ResourceDiff};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt as _};
use redis::aio::ConnectionManager;
use redis::{AsyncCommands as _, RedisError};
use serde::de::DeserializeOwned;

use crate::{Address, Error};

/// The version of Argo CD's entries, at the end of each key.
const VERSION: &str = "1.8.3";
/// How long a cluster's state stands without being told anew. Argo CD's `clusterInfoCacheExpiration`.
const CLUSTER_EXPIRATION: Duration = Duration::from_secs(600);
/// A call that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The caller tries again; a call that hangs on to a broken connection holds up the others.
const RETRIES: usize = 1;
/// Largest entry that is read, unpacked: as large as a message of the API may be.
const UNPACKED_MAX: u64 = 200 << 20;
/// Into so many pieces a tree may be cut: one a resource of the largest Applications.
const PIECES_MAX: i64 = 100_000;

/// Flags of the Redis that Argo CD's entries are in.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "redis-entries")]
pub struct Flags {
    /// Where it is.
    #[command(flatten)]
    pub connection: crate::Flags,
    /// How values are compressed: gzip or none.
    #[arg(long, env = "REDIS_COMPRESSION", value_enum, default_value_t = Compress::Gzip)]
    pub redis_compress: Compress,
    /// What stands before every key.
    #[arg(long, env = "REDIS_KEY_PREFIX", default_value = "")]
    pub redis_key_prefix: String,
}

/// `--redis-compress`
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Compress {
    /// Argo CD's default.
    Gzip,
    /// As it is.
    None,
}

/// Argo CD's entries in one Redis. Applications go by their instance name: `name`, or `namespace_name` outside of the
/// control plane's namespace.
pub struct Entries {
    client: redis::Client,
    connection: ConnectionManager,
    address: Address,
    prefix: String,
    compress: Compress,
}

impl Entries {
    /// Connects at the first use, and again whenever the connection breaks. `None` where the flags name no Redis.
    ///
    /// # Errors
    /// When certificates cannot be read.
    pub fn new(flags: &Flags) -> Result<Option<Self>, Error> {
        let (Some(client), Some(connection)) = (
            flags.connection.client()?,
            flags.connection.connect(PATIENCE, RETRIES)?,
        ) else {
            return Ok(None);
        };
        Ok(Some(Entries {
            client,
            connection,
            address: flags.connection.redis.clone(),
            prefix: match flags.redis_key_prefix.as_str() {
                "" => String::new(),
                prefix => format!("{prefix}|"),
            },
            compress: flags.redis_compress,
        }))
    }

    /// Writes an Application's tree and managed resources, both as JSON, and tells who listens.
    ///
    /// # Errors
    /// When Redis does not take them.
    pub async fn write_application(
        &self,
        instance: &str,
        tree: &[u8],
        managed: &[u8],
        lasts: Duration,
    ) -> Result<(), Error> {
        let seconds = lasts.as_secs().max(1);
        let (tree_key, managed_key) = (resources_tree(instance), managed_resources(instance));
        let written = redis::pipe()
            .atomic()
            .set_ex(self.key(&managed_key), self.pack(managed), seconds)
            .ignore()
            .set_ex(self.key(&tree_key), self.pack(tree), seconds)
            .ignore()
            .publish(self.name(&managed_key), "")
            .ignore()
            .query_async::<()>(&mut self.connection.clone())
            .await;
        written.map_err(|source| self.failed(format!("write the tree of {instance}"), source))
    }

    /// Removes what was written of an Application.
    ///
    /// # Errors
    /// When Redis does not do it.
    pub async fn remove_application(&self, instance: &str) -> Result<(), Error> {
        let (tree_key, managed_key) = (resources_tree(instance), managed_resources(instance));
        let removed = redis::pipe()
            .del(self.key(&managed_key))
            .ignore()
            .del(self.key(&tree_key))
            .ignore()
            .publish(self.name(&managed_key), "")
            .ignore()
            .query_async::<()>(&mut self.connection.clone())
            .await;
        removed.map_err(|source| self.failed(format!("remove the tree of {instance}"), source))
    }

    /// Writes how a cluster is, as JSON.
    ///
    /// # Errors
    /// When Redis does not take it.
    pub async fn write_cluster(&self, server: &str, info: &[u8]) -> Result<(), Error> {
        let (key, value) = (self.key(&cluster_info(server)), self.pack(info));
        let mut connection = self.connection.clone();
        let written = connection.set_ex(key, value, CLUSTER_EXPIRATION.as_secs());
        let written: Result<(), _> = written.await;
        written.map_err(|source| self.failed(format!("write the state of cluster {server}"), source))
    }

    /// Everything an Application owns; nothing where no controller has told it lately.
    ///
    /// # Errors
    /// When Redis does not answer or an entry is not what Argo CD writes.
    pub async fn tree(&self, instance: &str) -> Result<Option<ApplicationTree>, Error> {
        let name = resources_tree(instance);
        let Some(mut tree) = self.read::<ApplicationTree>(&name).await? else {
            return Ok(None);
        };
        if tree.shards_count > PIECES_MAX {
            return Err(Error::Entry {
                key: self.key(&name),
                message: format!("it says that it has {} pieces", tree.shards_count),
            });
        }
        for number in 1..tree.shards_count {
            // A piece that is gone makes the whole unknown, as in Argo CD.
            let Some(piece) = self.read::<ApplicationTree>(&format!("{name}|{number}")).await? else {
                return Ok(None);
            };
            tree.nodes.extend(piece.nodes);
            tree.orphaned_nodes.extend(piece.orphaned_nodes);
            tree.hosts.extend(piece.hosts);
        }
        tree.shards_count = 0;
        Ok(Some(tree))
    }

    /// Desired and live state of what an Application manages; nothing where no controller has told it lately.
    ///
    /// # Errors
    /// When Redis does not answer or the entry is not what Argo CD writes.
    pub async fn managed_resources(&self, instance: &str) -> Result<Option<Vec<ResourceDiff>>, Error> {
        let name = managed_resources(instance);
        let list: Option<Option<Vec<ResourceDiff>>> = self.read(&name).await?;
        // An empty list is `null` as Go writes it.
        Ok(list.map(Option::unwrap_or_default))
    }

    /// How clusters are, by server, as far as a controller has told it lately. An entry that cannot be read is passed over
    /// for the others' sake: that cluster is as one that nobody tells of.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn clusters(&self, servers: &[String]) -> Result<HashMap<String, ClusterInfo>, Error> {
        if servers.is_empty() {
            return Ok(HashMap::new());
        }
        let keys: Vec<_> = servers
            .iter()
            .map(|server| self.key(&cluster_info(server)))
            .collect();
        let values: Result<Vec<Option<Vec<u8>>>, _> = self.connection.clone().mget(&keys).await;
        let values = values.map_err(|source| self.failed("read the state of clusters".into(), source))?;
        let told = servers.iter().zip(keys.iter().zip(values));
        let told = told.filter_map(|(server, (key, value))| {
            let info = self.unpack(key, &value?).ok()?;
            Some((server.clone(), info))
        });
        Ok(told.collect())
    }

    /// Says each time that there is something new of an Application, until the connection breaks.
    ///
    /// # Errors
    /// When Redis does not let us listen.
    pub async fn changes(&self, instance: &str) -> Result<impl Stream<Item = ()> + Send + use<>, Error> {
        let channel = self.name(&managed_resources(instance));
        let listening = async {
            let mut listening = self.client.get_async_pubsub().await?;
            listening.subscribe(channel).await?;
            Ok(listening)
        };
        let listening = tokio::time::timeout(PATIENCE, listening)
            .await
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        let listening =
            listening.map_err(|source| self.failed(format!("listen for changes of {instance}"), source))?;
        Ok(listening.into_on_message().map(|_| ()))
    }

    async fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let key = self.key(name);
        let value: Result<Option<Vec<u8>>, _> = self.connection.clone().get(&key).await;
        let value = value.map_err(|source| self.failed(format!("read {key}"), source))?;
        value.map(|value| self.unpack(&key, &value)).transpose()
    }

    /// A name with prefix and version: channels are called so.
    fn name(&self, name: &str) -> String {
        format!("{}{name}|{VERSION}", self.prefix)
    }

    fn key(&self, name: &str) -> String {
        let name = self.name(name);
        match self.compress {
            Compress::Gzip => format!("{name}.gz"),
            Compress::None => name,
        }
    }

    fn pack(&self, json: &[u8]) -> Vec<u8> {
        match self.compress {
            Compress::None => json.to_vec(),
            Compress::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                let packed = encoder.write_all(json).and_then(|()| encoder.finish());
                packed.expect("a Vec takes what is written to it")
            }
        }
    }

    fn unpack<T: DeserializeOwned>(&self, key: &str, value: &[u8]) -> Result<T, Error> {
        let bad = |message: String| Error::Entry {
            key: key.to_owned(),
            message,
        };
        let read = match self.compress {
            Compress::None => serde_json::from_slice(value),
            Compress::Gzip => {
                let mut json = Vec::new();
                let unpacked = GzDecoder::new(value)
                    .take(UNPACKED_MAX + 1)
                    .read_to_end(&mut json);
                unpacked.map_err(|error| bad(format!("it is not gzip: {error}")))?;
                if json.len() as u64 > UNPACKED_MAX {
                    return Err(bad(format!("it is larger than {} MB", UNPACKED_MAX >> 20)));
                }
                serde_json::from_slice(&json)
            }
        };
        read.map_err(|error| bad(format!("it is not the JSON that Argo CD writes: {error}")))
    }

    fn failed(&self, action: String, source: RedisError) -> Error {
        Error::Ask {
            action,
            address: self.address.clone(),
            source,
        }
    }
}

fn managed_resources(instance: &str) -> String {
    format!("app|managed-resources|{instance}")
}

fn resources_tree(instance: &str) -> String {
    format!("app|resources-tree|{instance}")
}

fn cluster_info(server: &str) -> String {
    format!("cluster|info|{server}")
}
