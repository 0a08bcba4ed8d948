//! SEC-UNIFORM: what does not exist and what one may not know of are one answer, for every method that names an object: the
//! same code, text and headers, and the same work, so that time does not tell either. Work is counted where it is done: calls
//! of the Kubernetes API, of the controllers and of the repo-server. What comes from tables in memory is none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use argosy_simulation::serve::Transport;
use argosy_test_cluster::api::Api;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, MethodDescriptor, ReflectMessage as _, Value};
use tokio::net::TcpListener;

use crate::authz::request;
use crate::raw;
use crate::world::{self, ADMIN_PASSWORD, World, log_in, run};

/// Stands before the name of what does not exist.
const ABSENT: &str = "absent-";
/// What may come in between by itself (a watch that begins anew) does not come every time.
const TRIES: usize = 3;

/// A process that hangs up on whoever calls it, and counts.
struct Callee {
    address: String,
    calls: Arc<AtomicU64>,
}

impl Callee {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let calls = Arc::new(AtomicU64::new(0));
        let counting = calls.clone();
        tokio::spawn(async move {
            while let Ok(_caller) = listener.accept().await {
                // Before it is hung up on: whoever has an answer has been counted.
                counting.fetch_add(1, Ordering::SeqCst);
            }
        });
        Callee { address, calls }
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

/// A server all of whose work is counted.
struct Counted {
    world: World,
    cluster: argosy_simulation::Cluster,
    controller: Callee,
    repo_server: Callee,
    _kubeconfig: tempfile::NamedTempFile,
}

/// Calls of the Kubernetes API, the controller and the repo-server.
type Work = (u64, u64, u64);

impl Counted {
    async fn start() -> Self {
        let options = argosy_simulation::Options::default();
        let cluster = argosy_simulation::Cluster::start(options, Transport::Plain)
            .await
            .unwrap();
        let kubeconfig = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(kubeconfig.path(), cluster.kubeconfig().unwrap().to_string()).unwrap();
        let (controller, repo_server) = (Callee::start().await, Callee::start().await);
        let api = Api::connect(kubeconfig.path()).await.unwrap();
        let controller_arg = format!("--controller={}", controller.address);
        let repo_server_arg = format!("--repo-server={}", repo_server.address);
        let more = [
            "--insecure",
            &controller_arg,
            "--controller-plaintext",
            &repo_server_arg,
            "--repo-server-plaintext",
        ];
        let world = world::start_on(api, kubeconfig.path(), "uniform", &more).await;
        Counted {
            world,
            cluster,
            controller,
            repo_server,
            _kubeconfig: kubeconfig,
        }
    }

    fn work(&self) -> Work {
        let requests = self.cluster.with(|server| server.requests());
        (requests, self.controller.calls(), self.repo_server.calls())
    }

    /// The answer to a call, and the work that it made.
    async fn ask(&self, method: &MethodDescriptor, message: &DynamicMessage, token: &str) -> (Answer, Work) {
        let before = self.work();
        let outcome = raw::call(&self.world.channel, method, message.encode_to_vec(), Some(token)).await;
        let after = self.work();
        let work = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        (Answer::of(outcome), work)
    }
}

/// All of an answer but the date, with the names of what is absent as those of what is there.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: String,
    text: String,
    headers: BTreeMap<String, String>,
}

impl Answer {
    fn of(outcome: Result<Option<bytes::Bytes>, tonic::Status>) -> Self {
        let status = match outcome {
            Ok(message) => {
                return Answer {
                    code: "Ok".into(),
                    text: format!("{message:?}").replace(ABSENT, ""),
                    headers: BTreeMap::new(),
                };
            }
            Err(status) => status,
        };
        let headers = status.metadata().clone().into_headers();
        let headers = headers.iter().filter(|(name, _)| *name != "date");
        Answer {
            code: format!("{:?}", status.code()),
            text: status.message().replace(ABSENT, ""),
            headers: headers
                .map(|(name, value)| (name.to_string(), format!("{value:?}").replace(ABSENT, "")))
                .collect(),
        }
    }
}

/// Puts other names into a message. Nothing is said of a field without a name.
fn renamed(message: &DynamicMessage, rename: &impl Fn(&str, &str) -> Option<String>) -> DynamicMessage {
    let mut made = message.clone();
    for field in message.descriptor().fields() {
        if field.is_list() || field.is_map() || !message.has_field(&field) {
            continue;
        }
        let value = match &*message.get_field(&field) {
            Value::String(text) => match rename(field.name(), text) {
                Some(text) => Value::String(text),
                None => {
                    made.clear_field(&field);
                    continue;
                }
            },
            Value::Message(inner) => Value::Message(renamed(inner, rename)),
            _ => continue,
        };
        made.set_field(&field, value);
    }
    made
}

/// The name of something of that kind that is not there; other texts as they are.
fn absent(text: &str) -> String {
    match text {
        "web" | "api" | "shop" | "other" | "far" | "human" | "ci" | "git.example.com" => {
            format!("{ABSENT}{text}")
        }
        url if url.starts_with("https://") => url.replace("https://", &format!("https://{ABSENT}")),
        other => other.to_owned(),
    }
}

#[test]
fn what_is_absent_and_what_is_forbidden_are_one_answer_and_the_same_work() {
    run(async {
        let counted = Counted::start().await;
        let world = &counted.world;
        let (powerless, dev) = (world.token("nobody").await, world.token("dev").await);
        let is_project = |field: &str| matches!(field, "project" | "appProject");
        let (mut compared, mut faults) = (0, Vec::new());
        for method in raw::methods() {
            if method.parent_service().name() == "SessionService" {
                continue;
            }
            for (who, token) in [("nobody", &powerless), ("dev", &dev)] {
                // Of the two projects dev may look at one, and asks about the other.
                let of_others = |_: &str, text: &str| {
                    Some(match text {
                        "web" if who == "dev" => "api".to_owned(),
                        "shop" if who == "dev" => "other".to_owned(),
                        other => other.to_owned(),
                    })
                };
                let there = renamed(&request(&method.input()), &of_others);
                let without_project = |field: &str, text: &str| (!is_project(field)).then(|| text.to_owned());
                for there in [renamed(&there, &without_project), there] {
                    let all = renamed(&there, &|_, text| Some(absent(text)));
                    let in_project = renamed(&there, &|field, text| {
                        Some(if is_project(field) {
                            text.to_owned()
                        } else {
                            absent(text)
                        })
                    });
                    for missing in [all, in_project] {
                        if missing == there {
                            continue;
                        }
                        compared += 1;
                        let mut told = None;
                        for _ in 0..TRIES {
                            let there = counted.ask(&method, &there, token).await;
                            let missing = counted.ask(&method, &missing, token).await;
                            if there == missing {
                                told = None;
                                break;
                            }
                            told = Some(format!("{who} {}: {there:?} | {missing:?}", method.full_name()));
                        }
                        faults.extend(told);
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(compared > 200, "only {compared} pairs were compared");

        // The counts count: who may look has all three do something.
        let admin = log_in(&world.channel, "admin", ADMIN_PASSWORD).await.unwrap();
        let methods = raw::methods();
        let of = async |name: &str| {
            let method = methods.iter().find(|method| method.full_name() == name).unwrap();
            counted.ask(method, &request(&method.input()), &admin).await.1
        };
        assert!(of("application.ApplicationService.ResourceTree").await.1 > 0);
        assert!(of("application.ApplicationService.RevisionMetadata").await.2 > 0);
        assert!(of("application.ApplicationService.ListResourceEvents").await != (0, 0, 0));
        assert!(of("application.ApplicationService.Delete").await.0 > 0);
    });
}
