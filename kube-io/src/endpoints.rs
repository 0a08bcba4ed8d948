//! The addresses behind a Service that are ready, followed through its EndpointSlices: a replica that comes or goes is known
//! when Kubernetes knows, not when a name is resolved again.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use argosy_runtime::tasks::Tasks;
use serde::Deserialize;
use tokio::sync::watch;

use crate::api::{self, Change, TypedWatch};
use crate::client::Client;
use crate::target::Selection;

/// The label by which the slices of a Service are found.
const SERVICE: &str = "kubernetes.io/service-name";

/// What of an EndpointSlice matters here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointSlice {
    metadata: Metadata,
    #[serde(deserialize_with = "null_as_default")]
    endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "null_as_default")]
    ports: Vec<Port>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    addresses: Vec<String>,
    conditions: Conditions,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    /// Not told is ready.
    ready: Option<bool>,
    /// Not told is staying.
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Port {
    port: Option<u16>,
}

fn null_as_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A Service, and the port of its pods that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Where it is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The port that pods listen on; where slices name one other port alone, that.
    pub port: u16,
}

impl Service {
    /// The Service that an address such as `argocd-repo-server:8081` or `argocd-repo-server.argocd.svc:8081` stands for, seen from
    /// `namespace`; none for an address that is no name of a Service.
    pub fn of(address: &str, namespace: &str) -> Option<Service> {
        let (host, port) = address.rsplit_once(':')?;
        let mut parts = host.split('.');
        let name = parts.next().filter(|name| !name.is_empty())?;
        let namespace = parts.next().unwrap_or(namespace);
        // A colon is of an address of IPv6, in brackets or not.
        let is_address = host.contains(':') || host.parse::<IpAddr>().is_ok();
        let is_service = matches!(parts.next(), None | Some("svc")) && !is_address;
        is_service.then(|| {
            Some(Service {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                port: port.parse().ok()?,
            })
        })?
    }

    /// The ready addresses of slices, sorted.
    fn ready<'a>(&self, slices: impl IntoIterator<Item = &'a EndpointSlice>) -> Vec<SocketAddr> {
        let mut found = BTreeSet::new();
        for slice in slices {
            let ports = || slice.ports.iter().filter_map(|port| port.port);
            let port = match ports().find(|port| *port == self.port) {
                Some(port) => port,
                None => match (ports().next(), ports().count()) {
                    (Some(only), 1) => only,
                    _ => continue,
                },
            };
            let ready = |endpoint: &&Endpoint| {
                endpoint.conditions.ready != Some(false) && endpoint.conditions.terminating != Some(true)
            };
            let ready = slice.endpoints.iter().filter(ready);
            let addresses = ready.flat_map(|endpoint| &endpoint.addresses);
            let addresses = addresses.filter_map(|text| text.parse::<IpAddr>().ok());
            found.extend(addresses.map(|address| SocketAddr::new(address, port)));
        }
        found.into_iter().collect()
    }

    /// Tells the ready addresses from the first full list on, and again at each change, for as long as somebody wants to know.
    /// While the slices cannot be followed, what was told last stands.
    pub async fn follow(self, client: Client, tell: watch::Sender<Option<Vec<SocketAddr>>>) {
        let selection = Selection {
            labels: format!("{SERVICE}={}", self.name),
            ..Selection::namespace(&self.namespace)
        };
        let mut changes = TypedWatch::<EndpointSlice>::new(client, api::endpoint_slices(), selection);
        let mut slices = HashMap::new();
        let mut whole = false;
        let mut failing = false;
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = tell.closed() => return,
            };
            match change {
                Change::Applied(slice) => {
                    let place = api::Place {
                        namespace: slice.metadata.namespace.clone(),
                        name: slice.metadata.name.clone(),
                    };
                    slices.insert(place, slice);
                }
                Change::Deleted(place) => _ = slices.remove(&place),
                Change::Unreadable(bad) => {
                    tracing::warn!(
                        service = self.name,
                        slice = bad.place.name,
                        bad.message,
                        "an EndpointSlice cannot be read"
                    );
                    slices.remove(&bad.place);
                }
                Change::Synced => (whole, failing) = (true, false),
                Change::Failed(error) => {
                    if !failing {
                        tracing::warn!(service = self.name, %error, "the EndpointSlices cannot be followed");
                    }
                    failing = true;
                }
            }
            if whole {
                let ready = self.ready(slices.values());
                tell.send_if_modified(|told| {
                    let differs = told.as_ref() != Some(&ready);
                    if differs {
                        *told = Some(ready);
                    }
                    differs
                });
            }
        }
    }
}

/// An address that is no name of a Service.
#[derive(Debug, thiserror::Error)]
#[error("--repo-server-endpoints: {0:?} is not the address of a Service (--repo-server)")]
pub struct NoService(String);

/// Which replicas of the repo-server are ready, as Kubernetes knows it, for as long as the process runs.
///
/// # Errors
/// When the address names no Service.
pub fn ready_replicas(
    tasks: &Tasks,
    client: &Client,
    address: &str,
    namespace: &str,
) -> Result<watch::Receiver<Option<Vec<SocketAddr>>>, NoService> {
    let service = Service::of(address, namespace).ok_or_else(|| NoService(address.to_owned()))?;
    let (tell, told) = watch::channel(None);
    tasks.spawn("repo-server endpoints", service.follow(client.clone(), tell));
    Ok(told)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_address_names_a_service_or_none() {
        let of = |address: &str| {
            Service::of(address, "here")
                .map(|service| format!("{}/{}:{}", service.namespace, service.name, service.port))
        };
        assert_eq!(
            of("argocd-repo-server:8081").unwrap(),
            "here/argocd-repo-server:8081"
        );
        for address in [
            "repo.argocd:1",
            "repo.argocd.svc:1",
            "repo.argocd.svc.cluster.local:1",
        ] {
            assert_eq!(of(address).unwrap(), "argocd/repo:1");
        }
        for other in [
            "127.0.0.1:8081",
            "[::1]:8081",
            "repo.example.com:8081",
            "repo",
            ":1",
            "repo:http",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_ready_counts_on_the_port_that_is_asked_for() {
        let slice = |ports: serde_json::Value, endpoints: serde_json::Value| -> EndpointSlice {
            serde_json::from_value(json!({"ports": ports, "endpoints": endpoints})).unwrap()
        };
        let service = Service::of("repo:8081", "argocd").unwrap();
        let slices = [
            slice(
                json!([{"name": "metrics", "port": 8084}, {"name": "server", "port": 8081}]),
                json!([
                    {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.1"], "conditions": {}},
                    {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                    {"addresses": ["10.0.0.4"], "conditions": {"ready": true, "terminating": true}},
                ]),
            ),
            slice(json!([{"port": 9000}]), json!([{"addresses": ["fd00::1"]}])),
            slice(
                json!([{"port": 1}, {"port": 2}]),
                json!([{"addresses": ["10.0.0.9"]}]),
            ),
            slice(json!([{"port": 8081}]), json!(null)),
        ];
        let ready: Vec<String> = service.ready(&slices).iter().map(ToString::to_string).collect();
        assert_eq!(ready, ["10.0.0.1:8081", "10.0.0.2:8081", "[fd00::1]:9000"]);
    }
}
