//! Live state: trees, desired and live state of resources, how clusters are. The controller that owns a cluster is asked for
//! it; where none of ours does, what Argo CD's controller has written to Redis is read, if the flags name one.

mod controllers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use argosy_api::v1alpha1::{Application, ApplicationTree, ClusterInfo, ResourceDiff};
use argosy_redis::entries::Entries;
use argosy_repo_client::{Error, Tls};
use argosy_runtime::log::chain;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use tonic::Status;

use crate::gate::Granted;
use crate::state::ControlPlane;
use controllers::{Controllers, Untold};

/// Trees that are watched in Redis end after so long: a controller that owns the cluster by now is found by watching again.
const REDIS_WATCH: Duration = Duration::from_secs(60);

/// Whoever knows live state.
pub(crate) struct Live {
    plane: Arc<ControlPlane>,
    controllers: Controllers,
    redis: Option<Arc<Entries>>,
}

impl Live {
    /// The controllers behind these names (`host:port`; there may be none), and the Redis of others.
    pub(crate) fn new(
        plane: Arc<ControlPlane>,
        names: &[String],
        tls: &Tls,
        redis: Option<Entries>,
    ) -> Result<Self, Error> {
        Ok(Live {
            controllers: Controllers::new(plane.clone(), names, tls)?,
            redis: redis.map(Arc::new),
            plane,
        })
    }

    /// Everything an Application owns. Nothing where Redis is asked and has nothing.
    pub(crate) async fn tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Option<ApplicationTree>, Status> {
        match self.controllers.tree(app).await {
            Ok(tree) => Ok(Some(tree)),
            Err(untold) => {
                let tree = self.instead(untold)?.tree(&self.plane.instance(app)).await;
                tree.map_err(|error| unreadable(&error))
            }
        }
    }

    /// The tree now and after every change. It ends with UNAVAILABLE where it is to be watched again.
    pub(crate) async fn watch_tree<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<BoxStream<'static, Result<ApplicationTree, Status>>, Status> {
        match self.controllers.watch_tree(app).await {
            Ok(trees) => Ok(trees.boxed()),
            Err(untold) => {
                let redis = self.instead(untold)?.clone();
                trees(redis, self.plane.instance(app)).await
            }
        }
    }

    /// Desired and live state of what an Application manages. Nothing where Redis is asked and has nothing.
    pub(crate) async fn managed<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Result<Option<Vec<ResourceDiff>>, Status> {
        match self.controllers.managed(app).await {
            Ok(managed) => Ok(Some(managed.items)),
            Err(untold) => {
                let managed = self
                    .instead(untold)?
                    .managed_resources(&self.plane.instance(app))
                    .await;
                managed.map_err(|error| unreadable(&error))
            }
        }
    }

    /// How the clusters of these servers are, by server, as far as anybody tells.
    pub(crate) async fn clusters(&self, servers: &[&str]) -> Result<HashMap<String, ClusterInfo>, Status> {
        if servers.is_empty() {
            return Ok(HashMap::new());
        }
        let told = self.controllers.clusters().await;
        let Some(redis) = &self.redis else { return told };
        let mut infos = told.unwrap_or_default();
        let untold = servers.iter().filter(|server| !infos.contains_key(**server));
        let untold: Vec<_> = untold.map(|server| (*server).to_owned()).collect();
        match redis.clusters(&untold).await {
            Ok(found) => infos.extend(found),
            Err(error) if infos.is_empty() => return Err(unreadable(&error)),
            // What controllers told stands.
            Err(error) => tracing::debug!(error = chain(&error), "read how clusters are from Redis"),
        }
        Ok(infos)
    }

    /// Redis, where it is asked instead of a controller.
    fn instead(&self, untold: Untold) -> Result<&Arc<Entries>, Status> {
        match (untold, &self.redis) {
            (Untold::NoOwner(_), Some(redis)) => Ok(redis),
            (untold, _) => Err(untold.into()),
        }
    }
}

/// The tree in Redis, now and each time that there is said to be a new one.
async fn trees(
    redis: Arc<Entries>,
    instance: String,
) -> Result<BoxStream<'static, Result<ApplicationTree, Status>>, Status> {
    // Listen first: a change between the first tree and listening would be missed.
    let changes = redis.changes(&instance).await;
    let changes = changes.map_err(|error| unreadable(&error))?;
    let trees = stream::iter([()]).chain(changes).filter_map(move |()| {
        let (redis, instance) = (redis.clone(), instance.clone());
        async move {
            match redis.tree(&instance).await {
                Ok(tree) => tree.map(Ok),
                Err(error) => Some(Err(unreadable(&error))),
            }
        }
    });
    Ok(for_a_while(trees, REDIS_WATCH).boxed())
}

/// These answers for so long, and then that one is to watch again, as also where they end before.
fn for_a_while<T>(
    answers: impl Stream<Item = Result<T, Status>>,
    time: Duration,
) -> impl Stream<Item = Result<T, Status>> {
    let end = Status::unavailable("Redis tells no more of this tree: watch again");
    answers
        .take_until(tokio::time::sleep(time))
        .chain(stream::iter([Err(end)]))
}

fn unreadable(error: &argosy_redis::Error) -> Status {
    let text = chain(error);
    match error {
        argosy_redis::Error::Entry { .. } => Status::failed_precondition(text),
        _ => Status::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_watched_in_redis_ends_with_watch_again() {
        let answers = stream::iter([Ok(1)]).chain(stream::pending());
        let answers = for_a_while(answers, Duration::from_secs(2));
        let answers: Vec<_> = answers
            .map(|answer| answer.map_err(|end| end.code()))
            .collect()
            .await;
        assert_eq!(answers, [Ok(1), Err(tonic::Code::Unavailable)]);
    }
}
