//! Changes as a busy cluster has them: Pods that report themselves.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::json;

use crate::api_server::ApiServer;
use crate::registry::GroupResource;
use crate::serve::Cluster;

/// How often a batch of changes is made.
const BEAT: Duration = Duration::from_millis(20);

impl ApiServer {
    /// Makes `events` changes: each time another Pod's status, by the seed. Returns how many there were.
    pub fn churn(&mut self, events: u32, now: Timestamp) -> u32 {
        let pods = GroupResource::new("", "pods");
        let mut made = 0;
        for _ in 0..events {
            let Some(table) = self.store.table(&pods).filter(|table| !table.objects.is_empty()) else {
                return made;
            };
            let at = self.random.usize(..table.objects.len());
            let Some(key) = table.objects.keys().nth(at).cloned() else {
                return made;
            };
            let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
            let target = format!("/api/v1/namespaces/{namespace}/pods/{name}/status?fieldManager=kubelet");
            let restarts = self.random.u32(..1000);
            let patch = json!({"status": {"message": format!("restart {restarts} at {now}")}});
            let request = http::Request::builder()
                .method("PATCH")
                .uri(target)
                .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
                .header(
                    http::header::AUTHORIZATION,
                    format!("Bearer {}", crate::access::ADMIN_TOKEN),
                )
                .body(Bytes::from(patch.to_string()));
            if let Ok(request) = request {
                self.handle(&request, now);
                made += 1;
            }
        }
        made
    }
}

impl Cluster {
    /// Changes so many Pods a second from now on, as long as the cluster lives.
    pub fn churn(&self, events_per_second: u32) {
        let server = self.weak();
        tokio::spawn(async move {
            let mut beat = tokio::time::interval(BEAT);
            let mut owed = 0.0;
            loop {
                beat.tick().await;
                let Some(server) = server.upgrade() else { return };
                owed += f64::from(events_per_second) * BEAT.as_secs_f64();
                let events = owed as u32;
                owed -= f64::from(events);
                server.lock().churn(events, Timestamp::now());
            }
        });
    }
}
