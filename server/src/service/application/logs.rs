//! Logs of the pods of an Application.

use std::collections::HashSet;
use std::sync::Arc;

use argosy_api::meta::Time;
use argosy_api::services::application::{ApplicationPodLogsQuery, LogEntry};
use argosy_api::v1alpha1::{Application, ApplicationTree, ResourceRef};
use futures::stream::{BoxStream, select_all};
use futures::{AsyncBufRead, AsyncBufReadExt as _, StreamExt as _};
use jiff::Timestamp;
use tonic::Status;

use super::Answers;
use crate::auth::Caller;
use crate::gate::{Get, Granted};
use crate::service::Api;
use crate::status;

/// Pods whose logs are shown together, unless `server.maxPodLogsToRender` says otherwise.
const PODS_MAX: usize = 10;
/// Entries that a reader may be behind.
const BUFFER: usize = 64;
/// A longer line is told in pieces: what runs in a pod may write without ever ending one.
const LINE_LEN_MAX: usize = 256 << 10;

/// One line, and when it was written.
struct Line {
    at: Option<Timestamp>,
    stamp: String,
    content: String,
    pod: Arc<str>,
}

impl Line {
    fn read(text: &str, pod: &Arc<str>) -> Self {
        let (stamp, content) = text.split_once(' ').unwrap_or((text, ""));
        let at = stamp.parse::<Timestamp>().ok();
        let (stamp, content) = if at.is_some() {
            (stamp, content)
        } else {
            ("", text)
        };
        Line {
            at,
            stamp: stamp.to_owned(),
            content: content.to_owned(),
            pod: pod.clone(),
        }
    }

    fn entry(self, last: bool) -> LogEntry {
        LogEntry {
            content: self.content,
            time_stamp: Time::from_timestamp(self.at.unwrap_or_default()),
            last,
            time_stamp_str: self.stamp,
            pod_name: self.pod.to_string(),
        }
    }
}

/// Which lines are wanted.
struct Filter {
    text: String,
    negated: bool,
    match_case: bool,
}

impl Filter {
    fn read(query: &ApplicationPodLogsQuery) -> Self {
        let text = query.filter();
        let (text, negated) = text.strip_prefix('!').map_or((text, false), |rest| (rest, true));
        let match_case = query.match_case();
        Filter {
            text: if match_case {
                text.to_owned()
            } else {
                text.to_lowercase()
            },
            negated,
            match_case,
        }
    }

    fn passes(&self, line: &str) -> bool {
        if self.text.is_empty() {
            return true;
        }
        let found = match self.match_case {
            true => line.contains(&self.text),
            false => line.to_lowercase().contains(&self.text),
        };
        found != self.negated
    }
}

/// The pods that a query means: one by name, those below a resource, or all.
fn pods(tree: &ApplicationTree, query: &ApplicationPodLogsQuery) -> Vec<ResourceRef> {
    let is_pod = |node: &&argosy_api::v1alpha1::ResourceNode| {
        node.resource_ref.kind == "Pod" && node.resource_ref.group.is_empty()
    };
    let in_namespace =
        |found: &ResourceRef| query.namespace().is_empty() || found.namespace == query.namespace();
    let all = tree.nodes.iter().filter(is_pod);
    if !query.pod_name().is_empty() {
        let named =
            all.filter(|node| node.resource_ref.name == query.pod_name() && in_namespace(&node.resource_ref));
        return named.map(|node| node.resource_ref.clone()).collect();
    }
    if query.kind().is_empty() && query.group().is_empty() && query.resource_name().is_empty() {
        return all.map(|node| node.resource_ref.clone()).collect();
    }
    let any = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
    let selected = tree.nodes.iter().filter(|node| {
        let found = &node.resource_ref;
        any(query.kind(), &found.kind)
            && any(query.group(), &found.group)
            && any(query.resource_name(), &found.name)
            && in_namespace(found)
    });
    let mut below: HashSet<&str> = selected.map(|node| node.resource_ref.uid.as_str()).collect();
    loop {
        let children = tree.nodes.iter().filter(|node| {
            !below.contains(node.resource_ref.uid.as_str())
                && node
                    .parent_refs
                    .iter()
                    .any(|parent| below.contains(parent.uid.as_str()))
        });
        let more: Vec<&str> = children.map(|node| node.resource_ref.uid.as_str()).collect();
        if more.is_empty() {
            break;
        }
        below.extend(more);
    }
    let found = tree
        .nodes
        .iter()
        .filter(is_pod)
        .filter(|node| below.contains(node.resource_ref.uid.as_str()));
    found.map(|node| node.resource_ref.clone()).collect()
}

/// Whether a name can be that of a pod or a namespace.
fn is_dns_name(name: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes
            .iter()
            .all(|byte| is_end(byte) || matches!(byte, b'-' | b'.'))
}

/// Where the log of a pod is. A tree may come from Redis, which vouches for nothing: a name that ends the path would have
/// something else read, such as Secrets, so what is no name is refused.
fn path(pod: &ResourceRef, query: &ApplicationPodLogsQuery) -> Result<String, Status> {
    for name in [&pod.namespace, &pod.name] {
        if !is_dns_name(name) {
            return Err(Status::failed_precondition(format!(
                "the tree of the application has a pod {:?}/{:?}: that is no name of one",
                pod.namespace, pod.name
            )));
        }
    }
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.append_pair("timestamps", "true");
    if query.follow() {
        form.append_pair("follow", "true");
    }
    if !query.container().is_empty() {
        form.append_pair("container", query.container());
    }
    if query.previous() {
        form.append_pair("previous", "true");
    }
    if let Some(seconds) = query.since_seconds.filter(|seconds| *seconds > 0) {
        form.append_pair("sinceSeconds", &seconds.to_string());
    } else if let Some(time) = query.since_time.filter(|time| !time.is_zero()) {
        form.append_pair("sinceTime", &argosy_runtime::clock::rfc3339(time.to_timestamp()));
    }
    if let Some(lines) = query.tail_lines.filter(|lines| *lines > 0) {
        form.append_pair("tailLines", &lines.to_string());
    }
    Ok(format!(
        "/api/v1/namespaces/{}/pods/{}/log?{}",
        pod.namespace,
        pod.name,
        form.finish()
    ))
}

impl Api {
    pub(super) async fn logs(
        &self,
        caller: &Caller,
        query: ApplicationPodLogsQuery,
    ) -> Result<Answers<LogEntry>, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        self.gate.open::<Get, _>(caller, app.shut().under("logs"))?;
        let until = match query.until_time() {
            "" => None,
            text => Some(
                text.parse::<Timestamp>()
                    .map_err(|_| Status::invalid_argument("untilTime: it is not a time of RFC 3339"))?,
            ),
        };
        let tree = self.live_tree(caller, &app).await?;
        // The tree may have been waited for.
        self.gate.open::<Get, _>(caller, app.shut().under("logs"))?;
        let pods = pods(&tree, &query);
        if pods.is_empty() {
            return Ok(Box::pin(futures::stream::iter([Ok(end())])));
        }
        let settings = self.plane.settings();
        let max = settings
            .texts
            .get("server.maxPodLogsToRender")
            .and_then(|text| text.parse().ok())
            .unwrap_or(PODS_MAX);
        if pods.len() > max {
            return Err(Status::invalid_argument(
                "max pods to view logs are reached. Please provide more granular query",
            ));
        }
        let streams = self.open_logs(&app, &pods, &query).await?;
        let merged: BoxStream<'static, Line> = match query.follow() {
            true => select_all(streams).boxed(),
            false => in_order(streams).boxed(),
        };
        let filter = Filter::read(&query);
        let (gate, auth, caller) = (self.gate.clone(), self.auth.clone(), caller.clone());
        let (tx, rx) = tokio::sync::mpsc::channel(BUFFER);
        tokio::spawn(async move {
            let mut merged = merged;
            let mut again = tokio::time::interval(std::time::Duration::from_secs(30));
            loop {
                let line = tokio::select! {
                    line = merged.next() => line,
                    () = tx.closed() => return,
                    _ = again.tick() => {
                        let still = auth.still(&caller) && gate.open::<Get, _>(&caller, app.shut().under("logs")).is_ok();
                        if still {
                            continue;
                        }
                        let _ = tx.send(Err(Status::permission_denied(crate::gate::DENIED))).await;
                        return;
                    }
                };
                let Some(line) = line else { break };
                if until.is_some_and(|until| line.at.is_some_and(|at| at > until)) {
                    break;
                }
                if filter.passes(&line.content) && tx.send(Ok(line.entry(false))).await.is_err() {
                    return;
                }
            }
            let _ = tx.send(Ok(end())).await;
        });
        Ok(Box::pin(tokio_stream::wrappers::ReceiverStream::new(rx)))
    }

    async fn open_logs(
        &self,
        app: &Granted<Arc<Application>, Get>,
        pods: &[ResourceRef],
        query: &ApplicationPodLogsQuery,
    ) -> Result<Vec<BoxStream<'static, Line>>, Status> {
        let cluster = self.destination(app)?;
        let target = self.targets.of(&self.plane, &cluster).await?;
        let mut streams = Vec::new();
        for pod in pods {
            let request = http::Request::get(path(pod, query)?).body(Vec::new());
            let request = request.map_err(|error| status::internal(&error))?;
            let name: Arc<str> = pod.name.as_str().into();
            match target.client().kube().request_stream(request).await {
                Ok(body) => streams.push(lines(body, name).boxed()),
                // One pod that has not begun keeps nobody from the logs of the others.
                Err(error) => {
                    let told = unread(pod, error);
                    streams.push(futures::stream::iter([Line::read(&told, &name)]).boxed());
                }
            }
        }
        Ok(streams)
    }
}

/// What stands in place of a log that cannot be read: what the Kubernetes API said, as Argo CD has it.
fn unread(pod: &ResourceRef, error: kube::Error) -> String {
    match error {
        kube::Error::Api(refusal) => refusal.message,
        other => format!("read the logs of pod {}/{}: {other}", pod.namespace, pod.name),
    }
}

/// The lines of a log, each of bounded length.
fn lines(
    body: impl AsyncBufRead + Send + Unpin + 'static,
    pod: Arc<str>,
) -> impl futures::Stream<Item = Line> + Send {
    futures::stream::unfold(Some(body), move |body| {
        let pod = pod.clone();
        async move {
            let mut body = body?;
            match line(&mut body).await {
                Ok(None) => None,
                Ok(Some(text)) => Some((Line::read(&text, &pod), Some(body))),
                Err(error) => Some((Line::read(&format!("the log breaks off: {error}"), &pod), None)),
            }
        }
    })
}

/// The next line, or as much of it as is told at once. What is no text in it stands as such.
async fn line(body: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let read = body.fill_buf().await?;
        let room = LINE_LEN_MAX - line.len();
        let end = read.iter().take(room).position(|byte| *byte == b'\n');
        let len = end.unwrap_or_else(|| read.len().min(room));
        line.extend_from_slice(&read[..len]);
        let is_over = read.is_empty();
        body.consume_unpin(len + usize::from(end.is_some()));
        if is_over && line.is_empty() {
            return Ok(None);
        }
        if is_over || end.is_some() || line.len() == LINE_LEN_MAX {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
    }
}

/// The entry after which nothing comes.
fn end() -> LogEntry {
    let nothing = Line {
        at: None,
        stamp: String::new(),
        content: String::new(),
        pod: "".into(),
    };
    nothing.entry(true)
}

/// The lines of several finite logs by time.
fn in_order(streams: Vec<BoxStream<'static, Line>>) -> impl futures::Stream<Item = Line> + Send {
    let heads: Vec<_> = streams
        .into_iter()
        .map(|stream| (None::<Line>, stream, false))
        .collect();
    futures::stream::unfold(heads, |mut heads| async move {
        for (head, stream, ended) in &mut heads {
            if head.is_none() && !*ended {
                *head = stream.next().await;
                *ended = head.is_none();
            }
        }
        let next = heads
            .iter()
            .enumerate()
            .filter_map(|(index, (head, ..))| head.as_ref().map(|head| (head.at, index)))
            .min()
            .map(|(_, index)| index)?;
        let line = heads[next].0.take()?;
        Some((line, heads))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_is_a_time_and_what_was_written() {
        let pod: Arc<str> = "web".into();
        let line = Line::read("2026-01-02T03:04:05.678901234Z hello  world", &pod);
        assert_eq!(
            (line.stamp.as_str(), line.content.as_str()),
            ("2026-01-02T03:04:05.678901234Z", "hello  world")
        );
        let line = Line::read("no time here", &pod);
        assert_eq!((line.at, line.content.as_str()), (None, "no time here"));
    }

    #[tokio::test]
    async fn a_line_that_does_not_end_is_told_in_pieces_and_what_is_no_text_stands_as_such() {
        let mut log = b"2026-01-01T00:00:01Z one\r\n\n2026-01-01T00:00:02Z \xff two\n".to_vec();
        log.extend(vec![b'x'; 2 * LINE_LEN_MAX + 5]);
        let lines: Vec<_> = lines(futures::io::Cursor::new(log), "web".into()).collect().await;
        let told: Vec<&str> = lines.iter().map(|line| line.content.as_str()).collect();
        assert_eq!(told[..3], ["one", "", "\u{fffd} two"]);
        let lens: Vec<usize> = told[3..].iter().map(|piece| piece.len()).collect();
        assert_eq!(lens, [LINE_LEN_MAX, LINE_LEN_MAX, 5]);
    }

    #[test]
    fn a_pod_whose_name_would_lead_elsewhere_is_refused() {
        let query = ApplicationPodLogsQuery {
            container: Some("a&b".into()),
            ..Default::default()
        };
        let path = |namespace: &str, name: &str| {
            let pod = ResourceRef {
                namespace: namespace.into(),
                name: name.into(),
                ..Default::default()
            };
            path(&pod, &query)
        };
        assert_eq!(
            path("shop", "web-0.a1").unwrap(),
            "/api/v1/namespaces/shop/pods/web-0.a1/log?timestamps=true&container=a%26b"
        );
        for bad in [
            "kube-system/secrets?x=",
            "kube-system/secrets#",
            "a/b",
            "a?b",
            "a%2fb",
            "..",
            "-a",
            "A",
            "",
        ] {
            assert!(path(bad, "web").is_err() && path("shop", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn in_place_of_a_log_that_cannot_be_read_the_api_servers_words_stand() {
        let said = "container sidecar is not valid for pod web-0";
        let refusal = kube::core::Status::failure(said, "BadRequest").with_code(400);
        let error = kube::Error::Api(refusal.boxed());
        assert_eq!(unread(&ResourceRef::default(), error), said);
    }

    #[tokio::test]
    async fn logs_of_several_pods_are_one_log_by_time() {
        let stream = |pod: &str, lines: &[&str]| {
            let pod: Arc<str> = pod.into();
            let lines: Vec<_> = lines.iter().map(|text| Line::read(text, &pod)).collect();
            futures::stream::iter(lines).boxed()
        };
        let streams = vec![
            stream("a", &["2026-01-01T00:00:01Z 1", "2026-01-01T00:00:04Z 4"]),
            stream(
                "b",
                &[
                    "2026-01-01T00:00:02Z 2",
                    "2026-01-01T00:00:03Z 3",
                    "2026-01-01T00:00:05Z 5",
                ],
            ),
        ];
        let lines: Vec<_> = in_order(streams).map(|line| line.content).collect().await;
        assert_eq!(lines, ["1", "2", "3", "4", "5"]);
    }

    #[test]
    fn a_filter_may_be_turned_round_and_minds_case_if_told_to() {
        let filter = |text: &str, match_case| {
            Filter::read(&ApplicationPodLogsQuery {
                filter: Some(text.into()),
                match_case: Some(match_case),
                ..Default::default()
            })
        };
        assert!(filter("error", false).passes("An ERROR"));
        assert!(!filter("error", true).passes("An ERROR"));
        assert!(!filter("!error", false).passes("An ERROR"));
        assert!(filter("", false).passes("anything"));
    }
}
