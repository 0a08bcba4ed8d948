//! Requests as tests make them, over HTTP and without.

use argosy_simulation::{ADMIN_TOKEN, Answer, ApiServer, Options, Watch};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A server without sockets, with its own clock.
pub(crate) struct Direct {
    pub(crate) server: ApiServer,
    pub(crate) now: Timestamp,
}

impl Direct {
    pub(crate) fn new(options: Options) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Self {
            server: ApiServer::new(options, now),
            now,
        }
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Lets the controllers work until nothing is left to do.
    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            self.server.advance(self.now);
            if !self.server.has_work(self.now) {
                match self.server.next_due() {
                    Some(due) if due < self.now + SignedDuration::from_secs(10) => self.now = due,
                    _ => return,
                }
            }
        }
        panic!("the controllers never come to rest");
    }

    pub(crate) fn answer(&mut self, method: &str, target: &str, media: &str, body: &str) -> Answer {
        let request = http::Request::builder()
            .method(method)
            .uri(target)
            .header("authorization", format!("Bearer {ADMIN_TOKEN}"))
            .header("content-type", media)
            .body(Bytes::from(body.to_owned()))
            .unwrap();
        self.server.handle(&request, self.now)
    }

    pub(crate) fn call(&mut self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let media = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        match self.answer(method, target, media, &body) {
            Answer::Document(response) => (
                response.status().as_u16(),
                serde_json::from_slice(response.body()).unwrap_or_default(),
            ),
            Answer::Watch(_) => panic!("{target} is a watch"),
            Answer::Broken => (0, Value::Null),
        }
    }

    pub(crate) fn watch(&mut self, target: &str) -> Watch {
        match self.answer("GET", target, "", "") {
            Answer::Watch(watch) => *watch,
            _ => panic!("{target} is no watch"),
        }
    }

    /// What the watch says now, as `TYPE name`.
    pub(crate) fn events(&mut self, watch: &mut Watch) -> Vec<String> {
        self.lines(watch)
            .iter()
            .map(|line| {
                let name = line["object"]["metadata"]["name"].as_str().unwrap_or_default();
                format!("{} {name}", line["type"].as_str().unwrap_or_default())
                    .trim()
                    .to_owned()
            })
            .collect()
    }

    pub(crate) fn lines(&mut self, watch: &mut Watch) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let more = self.server.next_events(watch, self.now);
            if more.is_empty() {
                return lines;
            }
            lines.extend(
                more.iter()
                    .map(|line| serde_json::from_slice(line).unwrap_or_default()),
            );
        }
    }
}

/// A server over HTTP, real or simulated.
pub(crate) struct Remote(kube::Client);

/// What came back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Remote {
    pub(crate) async fn connect(kubeconfig: Value) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let file: kube::config::Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(file, &options)
            .await
            .unwrap();
        Self(kube::Client::try_from(config).unwrap())
    }

    /// A document in a form.
    pub(crate) async fn ask(&self, path: &str, accept: &str) -> Value {
        let request = http::Request::builder().uri(path).header("accept", accept);
        let request = request.body(kube::client::Body::empty()).unwrap();
        let response = self.0.send(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    pub(crate) async fn call(&self, method: &str, target: &str, media: &str, body: &str) -> Reply {
        let mut request = http::Request::builder()
            .method(method)
            .uri(target)
            .header("user-agent", "script/1");
        if !body.is_empty() {
            request = request.header("content-type", media);
        }
        let request = request
            .body(kube::client::Body::from(body.as_bytes().to_vec()))
            .unwrap();
        // A script must not hang where an answer is a stream.
        let patience = std::time::Duration::from_secs(300);
        let sent = tokio::time::timeout(patience, self.0.send(request)).await;
        let response = sent
            .unwrap_or_else(|_| panic!("no answer to {method} {target}"))
            .unwrap();
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings
            .map(|value| value.to_str().unwrap_or_default().to_owned())
            .collect();
        let body = tokio::time::timeout(patience, response.into_body().collect()).await;
        let bytes = body
            .unwrap_or_else(|_| panic!("no end of {method} {target}"))
            .unwrap()
            .to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        Reply { code, body, warnings }
    }
}
