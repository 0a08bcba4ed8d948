//! What Argo CD's own API server and web interface read, in Redis: each Application's tree and managed resources, and how
//! clusters are. Only with `--redis`; Argosy's API server asks the controller instead ([`crate::tree`]).
//!
//! How it lies there is [`argosy_redis::entries`]' affair. Work is asked for by every look at an Application, and done by one
//! task that merges what waits; of what Redis has already it is only asked to keep it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use argosy_object::ContentHash;
use argosy_redis::entries::{self, Entries};
use argosy_runtime::tasks::Tasks;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use crate::context::{AppKey, Context};
use crate::{reconcile, tree};

/// After a failure, what waits is tried again after so long.
const RETRY: Duration = Duration::from_secs(5);
/// How clusters are is told this often.
const CLUSTERS: Duration = Duration::from_secs(60);
/// Applications that are put together at the same time.
const AT_ONCE: usize = 2;
/// At most so many Applications are taken off the queue at a time.
const BATCH: usize = 1000;

/// Flags of what is written.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "redis-state")]
pub struct Flags {
    /// Where to, and in which form.
    #[command(flatten)]
    pub entries: entries::Flags,
    /// How long an Application's state stands in Redis without being told anew.
    #[arg(long, env = "ARGOCD_APP_STATE_CACHE_EXPIRATION", default_value = "1h", value_parser = crate::args::duration)]
    pub app_state_cache_expiration: Duration,
}

/// Where looks at Applications are noted.
#[derive(Clone)]
pub struct Looked(UnboundedSender<AppKey>);

impl Looked {
    /// The Application has just been looked at, or has gone.
    pub(crate) fn note(&self, key: &AppKey) {
        // The task ends with the process alone.
        let _ = self.0.send(key.clone());
    }
}

/// What is to be written, until [`start`] begins.
pub(crate) struct Waiting {
    entries: Entries,
    lasts: Duration,
    looks: UnboundedReceiver<AppKey>,
}

/// Prepares to write, if the flags name a Redis.
///
/// # Errors
/// When its certificates cannot be used.
pub(crate) fn prepare(flags: &Flags) -> anyhow::Result<Option<(Looked, Waiting)>> {
    let Some(entries) = Entries::new(&flags.entries)? else {
        return Ok(None);
    };
    let (sender, looks) = unbounded_channel();
    let waiting = Waiting {
        entries,
        lasts: flags.app_state_cache_expiration,
        looks,
    };
    Ok(Some((Looked(sender), waiting)))
}

/// Writes, as a task.
pub(crate) fn start(tasks: &Tasks, ctx: &Arc<Context>, waiting: Waiting) {
    let Waiting {
        entries,
        lasts,
        mut looks,
    } = waiting;
    let publisher = Publisher {
        ctx: ctx.clone(),
        entries,
        lasts,
        sent: Mutex::default(),
    };
    tasks.spawn("state for Argo CD in Redis", async move {
        let mut clusters = tokio::time::interval(CLUSTERS);
        clusters.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut keys, mut failing) = (Vec::new(), false);
        loop {
            let outcome = if keys.is_empty() {
                tokio::select! {
                    count = looks.recv_many(&mut keys, BATCH) => match count {
                        0 => return,
                        _ => publisher.applications(&mut keys).await,
                    },
                    _ = clusters.tick() => publisher.clusters().await,
                }
            } else {
                publisher.applications(&mut keys).await
            };
            match (&outcome, failing) {
                (Err(error), false) => {
                    warn!(error = %format!("{error:#}"), "write state for Argo CD's API server to Redis")
                }
                (Ok(()), true) => info!("Redis takes state for Argo CD's API server again"),
                _ => {}
            }
            failing = outcome.is_err();
            if failing {
                tokio::time::sleep(RETRY).await;
            }
        }
    });
}

struct Publisher {
    ctx: Arc<Context>,
    entries: Entries,
    /// How long an Application's state stands.
    lasts: Duration,
    sent: Mutex<HashMap<AppKey, Sent>>,
}

/// What was written of an Application.
#[derive(PartialEq, Eq)]
struct Sent {
    tree: ContentHash,
    managed: ContentHash,
}

impl Publisher {
    /// Writes these Applications; those that failed stay in `keys`.
    async fn applications(&self, keys: &mut Vec<AppKey>) -> anyhow::Result<()> {
        let unique: BTreeSet<AppKey> = keys.drain(..).collect();
        let outcomes: Vec<_> = futures::stream::iter(unique)
            .map(|key| async move {
                let outcome = self.application(&key).await;
                (key, outcome)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut first = Ok(());
        for (key, outcome) in outcomes {
            if let Err(error) = outcome {
                keys.push(key);
                first = first.and(Err(error));
            }
        }
        first
    }

    async fn application(&self, key: &AppKey) -> anyhow::Result<()> {
        let instance = key.instance(&self.ctx.options.namespace);
        let Some(app) = self.ctx.apps.get(key) else {
            self.entries.remove_application(&instance).await?;
            self.sent.lock().remove(key);
            return Ok(());
        };
        let Ok(cluster) = self.ctx.clusters.resolve(&app.spec.destination) else {
            return Ok(());
        };
        let tree = match tree::tree(&self.ctx, &app, &cluster) {
            Ok(tree) => serde_json::to_vec(&tree)?,
            // Of a cluster that is not known yet there is nothing to tell.
            Err(_) => return Ok(()),
        };
        let managed = match reconcile::managed::managed(&self.ctx, &app).await {
            Ok(mut managed) => {
                managed.sort_by_cached_key(|one| {
                    [&one.group, &one.kind, &one.namespace, &one.name].map(String::clone)
                });
                serde_json::to_vec(&managed)?
            }
            // The condition says why; what was told before stands.
            Err(_) => return Ok(()),
        };
        let sent = Sent {
            tree: ContentHash::of(&tree),
            managed: ContentHash::of(&managed),
        };
        let is_known = self.sent.lock().get(key) == Some(&sent);
        // Redis may have lost it since.
        if is_known && self.entries.keep_application(&instance, self.lasts).await? {
            return Ok(());
        }
        let written = self
            .entries
            .write_application(&instance, &tree, &managed, self.lasts);
        written.await?;
        self.sent.lock().insert(key.clone(), sent);
        Ok(())
    }

    async fn clusters(&self) -> anyhow::Result<()> {
        for (server, info) in tree::clusters(&self.ctx) {
            let info = serde_json::to_vec(&info)?;
            self.entries.write_cluster(&server, &info).await?;
        }
        Ok(())
    }
}
