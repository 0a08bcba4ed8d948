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
/// All pieces of a tree together are read within so much time.
const TREE_PATIENCE: Duration = Duration::from_secs(30);
/// Of an Application so much is read, packed and unpacked, all pieces of its tree together: as much as a message of the API
/// may have. The structures that it becomes may take a gigabyte, which is a tree of more than 100,000 pods.
const APPLICATION: Budget = Budget {
    bytes: 200 << 20,
    memory: 1 << 30,
};
/// And so much of how one cluster is: the kinds that it serves are most of it.
const CLUSTER: Budget = Budget {
    bytes: 4 << 20,
    memory: 32 << 20,
};
/// What an object or a list of JSON may take in memory beside its texts: a resource of a tree is the largest.
const STRUCTURE: u64 = 512;
/// What one more value may take.
const VALUE: u64 = 64;
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

/// What may still be read. A small entry may unpack to a large one, and `{}` in JSON is a large structure in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Budget {
    /// Of JSON.
    bytes: u64,
    /// Of what the JSON becomes, texts left out.
    memory: u64,
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

    /// Has what was written of an Application stand for so long from now. Whether all of it is still there.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn keep_application(&self, instance: &str, lasts: Duration) -> Result<bool, Error> {
        let seconds = i64::try_from(lasts.as_secs().max(1)).unwrap_or(i64::MAX);
        let kept = redis::pipe()
            .expire(self.key(&managed_resources(instance)), seconds)
            .expire(self.key(&resources_tree(instance)), seconds)
            .query_async::<(bool, bool)>(&mut self.connection.clone())
            .await;
        let (managed, tree) =
            kept.map_err(|source| self.failed(format!("keep the tree of {instance}"), source))?;
        Ok(managed && tree)
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
        let in_time = tokio::time::timeout(TREE_PATIENCE, self.pieces(&name)).await;
        in_time.unwrap_or_else(|_| {
            let source = io::Error::from(io::ErrorKind::TimedOut).into();
            Err(self.failed(format!("read {} and its pieces", self.key(&name)), source))
        })
    }

    async fn pieces(&self, name: &str) -> Result<Option<ApplicationTree>, Error> {
        let mut budget = APPLICATION;
        let Some(mut tree) = self.read::<ApplicationTree>(name, &mut budget).await? else {
            return Ok(None);
        };
        if tree.shards_count > PIECES_MAX {
            return Err(Error::Entry {
                key: self.key(name),
                message: format!("it says that it has {} pieces", tree.shards_count),
            });
        }
        for number in 1..tree.shards_count {
            let piece = format!("{name}|{number}");
            // A piece that is gone makes the whole unknown, as in Argo CD.
            let Some(piece) = self.read::<ApplicationTree>(&piece, &mut budget).await? else {
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
        let mut budget = APPLICATION;
        let list: Option<Option<Vec<ResourceDiff>>> = self.read(&name, &mut budget).await?;
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
        let (compress, servers) = (self.compress, servers.to_vec());
        let told = move || {
            let told = servers.into_iter().zip(keys.iter().zip(values));
            let told = told.filter_map(|(server, (key, value))| {
                let mut budget = CLUSTER;
                let info = unpack(compress, key, &value?, &mut budget).ok()?;
                Some((server, info))
            });
            told.collect()
        };
        Ok(aside(told).await)
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

    async fn read<T>(&self, name: &str, budget: &mut Budget) -> Result<Option<T>, Error>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let key = self.key(name);
        // One byte more than may be, so that it is seen that there is more. What is not there is empty.
        let end = isize::try_from(budget.bytes).unwrap_or(isize::MAX);
        let value: Result<Vec<u8>, _> = self.connection.clone().getrange(&key, 0, end).await;
        let value = value.map_err(|source| self.failed(format!("read {key}"), source))?;
        if value.is_empty() {
            return Ok(None);
        }
        let (compress, mut left) = (self.compress, *budget);
        let unpacked = move || unpack(compress, &key, &value, &mut left).map(|read| (read, left));
        let (read, left) = aside(unpacked).await?;
        *budget = left;
        Ok(Some(read))
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

    fn failed(&self, action: String, source: RedisError) -> Error {
        Error::Ask {
            action,
            address: self.address.clone(),
            source,
        }
    }
}

/// Work that takes a while is not for the threads that serve everybody.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Reads an entry and takes it off the budget.
fn unpack<T: DeserializeOwned>(
    compress: Compress,
    key: &str,
    value: &[u8],
    budget: &mut Budget,
) -> Result<T, Error> {
    let bad = |message: String| Error::Entry {
        key: key.to_owned(),
        message,
    };
    let mut unpacked = Vec::new();
    let json = match compress {
        Compress::None => value,
        Compress::Gzip => {
            let read = GzDecoder::new(value)
                .take(budget.bytes + 1)
                .read_to_end(&mut unpacked);
            read.map_err(|error| bad(format!("it is not gzip: {error}")))?;
            &unpacked
        }
    };
    let large = || bad("it is larger than anything that Argo CD writes".to_owned());
    let left = Budget {
        bytes: budget.bytes.checked_sub(json.len() as u64).ok_or_else(large)?,
        memory: budget.memory.checked_sub(memory(json)).ok_or_else(large)?,
    };
    let read = serde_json::from_slice(json)
        .map_err(|error| bad(format!("it is not the JSON that Argo CD writes: {error}")))?;
    *budget = left;
    Ok(read)
}

/// What a document may take in memory once it is read, texts left out: counted by what stands outside of them.
fn memory(json: &[u8]) -> u64 {
    let (mut sum, mut in_text, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => sum += STRUCTURE,
            b',' if !in_text => sum += VALUE,
            _ => {}
        }
    }
    sum
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use argosy_api::v1alpha1::ResourceNode;

    use super::*;

    fn nodes(count: usize) -> Vec<u8> {
        let list = vec!["{}"; count].join(",");
        format!(r#"{{"nodes":[{list}]}}"#).into_bytes()
    }

    #[test]
    fn what_an_entry_takes_is_counted_outside_of_its_texts() {
        assert!(size_of::<ResourceNode>() as u64 <= STRUCTURE);
        assert_eq!(
            memory(br#"{"a":"{[,\"{[,","b":[1,2]}"#),
            2 * STRUCTURE + 2 * VALUE
        );
    }

    #[test]
    fn pieces_come_off_one_budget_of_bytes_and_of_memory() {
        let read = |value: &[u8], budget: &mut Budget| {
            unpack::<ApplicationTree>(Compress::None, "key", value, budget).map(|tree| tree.nodes.len())
        };
        let (piece, most) = (nodes(10), memory(&nodes(10)));
        let start = Budget {
            bytes: 100,
            memory: 2 * most,
        };
        let mut budget = start;
        assert_eq!(read(&piece, &mut budget).unwrap(), 10);
        assert_eq!((budget.bytes, budget.memory), (100 - piece.len() as u64, most));
        assert_eq!(read(&piece, &mut budget).unwrap(), 10);
        // Neither bytes nor memory are left for a third.
        assert!(read(b"{}", &mut budget).is_err());
        let mut budget = Budget { bytes: 12, ..start };
        assert!(read(&piece, &mut budget).is_err());
    }

    #[test]
    fn a_small_entry_that_becomes_a_large_one_is_refused() {
        let many = nodes(3_000_000);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&many).unwrap();
        let packed = encoder.finish().unwrap();
        for (compress, value) in [(Compress::Gzip, &packed), (Compress::None, &many)] {
            let mut budget = APPLICATION;
            let read = unpack::<ApplicationTree>(compress, "key", value, &mut budget);
            let error = read.unwrap_err().to_string();
            assert!(error.contains("larger"), "{error}");
        }
    }
}
