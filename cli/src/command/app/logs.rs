//! `app logs`

use anyhow::Result;
use argosy_api::services::application::ApplicationPodLogsQuery;

use super::Named;
use crate::output;
use crate::remote::{Remote, ask, said};

#[derive(clap::Args)]
pub(super) struct Logs {
    #[command(flatten)]
    app: Named,
    /// Group of the resource.
    #[arg(long, default_value = "")]
    group: String,
    /// Kind of the resource.
    #[arg(long, default_value = "")]
    kind: String,
    /// Namespace of the resource.
    #[arg(long, default_value = "")]
    namespace: String,
    /// Name of the resource.
    #[arg(long = "name", default_value = "")]
    resource: String,
    /// Go on as more is written.
    #[arg(long, short)]
    follow: bool,
    /// Only the last lines.
    #[arg(long, default_value_t = 0)]
    tail: i64,
    /// Only of the last seconds.
    #[arg(long, default_value_t = 0)]
    since_seconds: i64,
    /// Only until this time, in RFC 3339.
    #[arg(long, default_value = "")]
    until_time: String,
    /// Only lines with this text; with `!` before it, without.
    #[arg(long, default_value = "")]
    filter: String,
    /// Letters of the filter in their case.
    #[arg(long, short)]
    match_case: bool,
    /// Only of this container.
    #[arg(long, short, default_value = "")]
    container: String,
    /// Of the container before the last start.
    #[arg(long, short)]
    previous: bool,
}

pub(super) async fn logs(remote: &Remote, args: Logs) -> Result<()> {
    let (namespace, name) = args.app.place();
    let request = ApplicationPodLogsQuery {
        name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        group: Some(args.group),
        kind: Some(args.kind),
        namespace: Some(args.namespace),
        resource_name: Some(args.resource),
        follow: Some(args.follow),
        tail_lines: Some(args.tail),
        since_seconds: Some(args.since_seconds),
        until_time: Some(args.until_time),
        filter: Some(args.filter),
        match_case: Some(args.match_case),
        container: Some(args.container),
        previous: Some(args.previous),
        ..ApplicationPodLogsQuery::default()
    };
    let mut lines = ask!(remote, applications.pod_logs(request));
    while let Some(line) = lines.message().await.map_err(said)? {
        if line.last {
            break;
        }
        output::text(&format!("{}\n", line.content))?;
    }
    Ok(())
}
