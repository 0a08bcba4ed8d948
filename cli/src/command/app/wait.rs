//! `app wait`, and the waiting of `sync` and `rollback`.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use argosy_api::v1alpha1::{Application, ResourceStatus};

use super::resources::Wanted;
use super::show::{FORMATS, show};
use super::{Named, Several};
use crate::output;
use crate::remote::{Remote, ask, said};

#[derive(clap::Args)]
pub(super) struct Wait {
    #[command(flatten)]
    apps: Several,
    /// Until they are synced.
    #[arg(long)]
    sync: bool,
    /// Until they are healthy.
    #[arg(long)]
    health: bool,
    /// Until they are suspended.
    #[arg(long)]
    suspended: bool,
    /// Until they are degraded.
    #[arg(long)]
    degraded: bool,
    /// Until they are deleted.
    #[arg(long)]
    delete: bool,
    /// Until what is hydrated is written.
    #[arg(long)]
    hydrated: bool,
    /// Until no operation is at work.
    #[arg(long)]
    operation: bool,
    /// Only these: GROUP:KIND:NAME or GROUP:KIND:NAMESPACE/NAME; `*` stands for anything, `!` before it for all others.
    #[arg(long)]
    resource: Vec<String>,
    /// Seconds to wait; 0 for ever.
    #[arg(long, default_value_t = 0)]
    timeout: u64,
    /// How to print them afterwards.
    #[arg(long, short, default_value = "wide", value_parser = FORMATS)]
    output: String,
}

/// What is waited for.
#[derive(Clone, Copy, Default)]
pub(super) struct Until {
    pub(super) sync: bool,
    pub(super) health: bool,
    pub(super) suspended: bool,
    pub(super) degraded: bool,
    pub(super) delete: bool,
    pub(super) hydrated: bool,
    pub(super) operation: bool,
}

/// How a wait ended.
pub(super) enum Waited {
    Met(Box<Application>),
    Deleted,
    /// What was to become healthy became degraded: the health it had, and what it is of.
    Degraded(Box<Application>, String),
    TimedOut,
}

pub(super) async fn wait(remote: &Remote, args: Wait) -> Result<ExitCode> {
    let mut until = Until {
        sync: args.sync,
        health: args.health,
        suspended: args.suspended,
        degraded: args.degraded,
        delete: args.delete,
        hydrated: args.hydrated,
        operation: args.operation,
    };
    if !(until.sync
        || until.health
        || until.suspended
        || until.degraded
        || until.delete
        || until.hydrated
        || until.operation)
    {
        (until.sync, until.health, until.operation) = (true, true, true);
    }
    let wanted = Wanted::read(&args.resource)?;
    for app in args.apps.resolve(remote, Vec::new()).await? {
        let timeout = Duration::from_secs(args.timeout);
        match wait_for(remote, &app, until, &wanted, timeout, args.output == "wide").await? {
            Waited::Met(found) => show(remote, &found, &args.output).await?,
            Waited::Deleted if until.delete => {
                output::text(&format!("Application '{}' deleted\n", app.name))?
            }
            Waited::Deleted => anyhow::bail!("application '{}' was deleted", app.name),
            Waited::Degraded(found, before) => {
                degraded(remote, &found, &before, &args.output).await?;
                return Ok(ExitCode::FAILURE);
            }
            Waited::TimedOut => {
                timed_out(remote, &app, args.timeout, &args.output).await?;
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows how an Application is that became degraded while it was to become healthy.
pub(super) async fn degraded(remote: &Remote, app: &Application, before: &str, format: &str) -> Result<()> {
    show(remote, app, format).await?;
    eprintln!(
        "application '{}' health state has transitioned from {before} to Degraded",
        app.metadata.name
    );
    Ok(())
}

/// Shows how an Application is that did not become as wanted in time.
pub(super) async fn timed_out(remote: &Remote, app: &Named, seconds: u64, format: &str) -> Result<()> {
    if format == "wide" {
        output::text("\nThis is the state of the app after wait timed out:\n")?;
    }
    show(remote, &app.get(remote).await?, format).await?;
    eprintln!(
        "timed out ({seconds}s) waiting for app {:?} to match the expected conditions",
        app.name
    );
    Ok(())
}

/// Watches until an Application is as wanted. A timeout of 0 is none. With `aloud`, what changes is printed.
pub(super) async fn wait_for(
    remote: &Remote,
    app: &Named,
    until: Until,
    wanted: &Wanted,
    timeout: Duration,
    aloud: bool,
) -> Result<Waited> {
    let started = Instant::now();
    let mut shown = Shown::new(aloud);
    let mut healths = Healths::default();
    loop {
        let mut events = ask!(remote, applications.watch(app.query()));
        if until.delete
            && let Err(status) = remote.applications().get(remote.request(app.query())?).await
        {
            // Who may not see it cannot be told that it is gone.
            return match status.code() {
                tonic::Code::NotFound | tonic::Code::PermissionDenied => Ok(Waited::Deleted),
                _ => Err(said(status)),
            };
        }
        loop {
            let next = match timeout.is_zero() {
                true => events.message().await,
                false => {
                    match tokio::time::timeout(timeout.saturating_sub(started.elapsed()), events.message())
                        .await
                    {
                        Ok(next) => next,
                        Err(_) => return Ok(Waited::TimedOut),
                    }
                }
            };
            match next {
                Ok(Some(event)) if event.r#type == "DELETED" => return Ok(Waited::Deleted),
                Ok(Some(event)) => {
                    shown.rows(&event.application, wanted)?;
                    if until.met(&event.application, wanted) {
                        return Ok(Waited::Met(Box::new(event.application)));
                    }
                    let degraded = healths.degraded(&event.application, wanted);
                    if let Some(before) = degraded.filter(|_| until.health && !until.degraded) {
                        return Ok(Waited::Degraded(Box::new(event.application), before));
                    }
                }
                Ok(None) => break,
                // A watch that fell behind is begun anew.
                Err(status) if status.code() == tonic::Code::Aborted => break,
                Err(status) => return Err(said(status)),
            }
        }
    }
}

impl Until {
    fn met(self, app: &Application, wanted: &Wanted) -> bool {
        let status = &app.status;
        // What is said of a state before the request, or before the end of the operation, is not waited for.
        if self.delete
            || app
                .metadata
                .annotations
                .contains_key(argosy_api::annotation::REFRESH)
        {
            return false;
        }
        if self.operation && in_operation(app) {
            return false;
        }
        let hydrating = status.source_hydrator.current_operation.as_ref();
        if self.hydrated
            && app.spec.source_hydrator.is_some()
            && hydrating.is_none_or(|operation| operation.phase != "Hydrated")
        {
            return false;
        }
        if wanted.all() {
            return self.is_so(&status.health.status, &status.sync.status);
        }
        status
            .resources
            .iter()
            .filter(|resource| {
                wanted.has(
                    &resource.group,
                    &resource.kind,
                    &resource.namespace,
                    &resource.name,
                )
            })
            .all(|resource| {
                // A kind without health is as healthy as it will be.
                let health = resource
                    .health
                    .as_ref()
                    .map_or("Healthy", |health| &health.status);
                self.is_so(health, &resource.status)
            })
    }

    fn is_so(self, health: &str, sync: &str) -> bool {
        let asked = self.health || self.suspended || self.degraded;
        let healthy = self.health && health == "Healthy"
            || self.suspended && health == "Suspended"
            || self.degraded && health == "Degraded";
        (!asked || healthy) && (!self.sync || sync == "Synced")
    }
}

/// Is an operation at work, or over without the status after it being known?
fn in_operation(app: &Application) -> bool {
    if app.operation.is_some() {
        return true;
    }
    let Some(state) = &app.status.operation_state else {
        return false;
    };
    let Some(finished) = state.finished_at else {
        return true;
    };
    let dry = state.operation.sync.as_ref().is_some_and(|sync| sync.dry_run);
    !dry && app
        .status
        .reconciled_at
        .is_none_or(|reconciled| reconciled.seconds < finished.seconds)
}

/// The health of resources, as it was told last.
#[derive(Default)]
struct Healths(HashMap<[String; 4], String>);

impl Healths {
    /// The health from which something became degraded, if anything did. What was so from the start may be on its way up.
    fn degraded(&mut self, app: &Application, wanted: &Wanted) -> Option<String> {
        let mut found = None;
        let of = |resource: &ResourceStatus| {
            [
                &resource.group,
                &resource.kind,
                &resource.namespace,
                &resource.name,
            ]
            .map(Clone::clone)
        };
        let resources = app.status.resources.iter().filter(|resource| {
            wanted.has(
                &resource.group,
                &resource.kind,
                &resource.namespace,
                &resource.name,
            )
        });
        let resources =
            resources.filter_map(|resource| Some((of(resource), resource.health.as_ref()?.status.clone())));
        let whole = wanted
            .all()
            .then(|| (Default::default(), app.status.health.status.clone()));
        for (place, health) in resources.chain(whole) {
            let is_degraded = health == "Degraded";
            let before = self.0.insert(place, health);
            let before = before.filter(|before| !matches!(before.as_str(), "" | "Unknown" | "Degraded"));
            if is_degraded && found.is_none() {
                found = before;
            }
        }
        found
    }
}

/// The changes of resources that were printed.
struct Shown {
    aloud: bool,
    known: HashMap<String, [String; 4]>,
}

impl Shown {
    fn new(aloud: bool) -> Self {
        Shown {
            aloud,
            known: HashMap::new(),
        }
    }

    /// Prints what is new: time, resource, status, health, hook and message.
    fn rows(&mut self, app: &Application, wanted: &Wanted) -> Result<()> {
        if !self.aloud {
            return Ok(());
        }
        if self.known.is_empty() {
            output::text(&line(
                "TIMESTAMP",
                ["GROUP", "KIND", "NAMESPACE", "NAME"],
                &["STATUS", "HEALTH", "HOOK", "MESSAGE"].map(str::to_owned),
            ))?;
            self.known.insert(String::new(), Default::default());
        }
        let results = app
            .status
            .operation_state
            .as_ref()
            .and_then(|state| state.sync_result.as_ref());
        let results = results.map_or(&[][..], |result| &result.resources);
        let now = now();
        let mut text = String::new();
        for resource in &app.status.resources {
            let place = [
                &resource.group,
                &resource.kind,
                &resource.namespace,
                &resource.name,
            ]
            .map(String::as_str);
            if !wanted.has(place[0], place[1], place[2], place[3]) {
                continue;
            }
            let result = results.iter().find(|result| {
                [&result.group, &result.kind, &result.namespace, &result.name].map(String::as_str) == place
            });
            let health = resource
                .health
                .as_ref()
                .map(|health| health.status.clone())
                .unwrap_or_default();
            let message = result.map(|result| result.message.clone()).unwrap_or_default();
            let state = [resource.status.clone(), health, String::new(), message];
            text += &self.changed(&now, place, state);
        }
        for hook in results.iter().filter(|result| !result.hook_type.is_empty()) {
            let place = [&hook.group, &hook.kind, &hook.namespace, &hook.name].map(String::as_str);
            let state = [
                hook.hook_phase.clone(),
                String::new(),
                hook.hook_type.clone(),
                hook.message.clone(),
            ];
            text += &self.changed(&now, place, state);
        }
        output::text(&text)
    }

    fn changed(&mut self, now: &str, place: [&str; 4], state: [String; 4]) -> String {
        let key = place.join("/");
        if self.known.get(&key) == Some(&state) {
            return String::new();
        }
        let line = line(now, place, &state);
        self.known.insert(key, state);
        line
    }
}

fn line(
    now: &str,
    [group, kind, namespace, name]: [&str; 4],
    [status, health, hook, message]: &[String; 4],
) -> String {
    let line = format!(
        "{now:<26}{group:>5}  {kind:>10}  {namespace:>10}  {name:>20}  {status:>8}  {health:>7}  {hook:>10}  {message}"
    );
    line.trim_end().to_owned() + "\n"
}

fn now() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    output::unix_time(i64::try_from(now.as_secs()).unwrap_or_default(), "")
}

#[cfg(test)]
mod tests {
    use argosy_api::meta::Time;
    use argosy_api::v1alpha1::{Operation, OperationState};

    use super::*;

    fn app(sync: &str, health: &str) -> Application {
        let mut app = Application::default();
        app.status.sync.status = sync.to_owned();
        app.status.health.status = health.to_owned();
        app
    }

    fn all() -> Wanted {
        Wanted::read(&[]).unwrap_or_default()
    }

    #[test]
    fn each_flag_waits_for_its_own() {
        let health = Until {
            health: true,
            ..Until::default()
        };
        assert!(health.met(&app("OutOfSync", "Healthy"), &all()));
        assert!(!health.met(&app("Synced", "Degraded"), &all()));
        let either = Until {
            health: true,
            degraded: true,
            ..Until::default()
        };
        assert!(either.met(&app("Synced", "Degraded"), &all()));
        let both = Until {
            health: true,
            sync: true,
            ..Until::default()
        };
        assert!(!both.met(&app("OutOfSync", "Healthy"), &all()));
        let gone = Until {
            delete: true,
            ..Until::default()
        };
        assert!(!gone.met(&app("Synced", "Healthy"), &all()));
    }

    #[test]
    fn what_becomes_degraded_is_told_and_what_was_is_not() {
        let mut healths = Healths::default();
        let mut degraded = |health: &str| healths.degraded(&app("Synced", health), &all());
        assert_eq!(degraded("Degraded"), None, "it was so before");
        assert_eq!(degraded("Progressing"), None);
        assert_eq!(degraded("Degraded").as_deref(), Some("Progressing"));
        assert_eq!(degraded("Unknown"), None);
        assert_eq!(degraded("Degraded"), None, "nobody knows what it was");
    }

    #[test]
    fn what_was_before_the_request_is_not_waited_for() {
        let until = Until {
            sync: true,
            health: true,
            operation: true,
            ..Until::default()
        };
        let mut app = app("Synced", "Healthy");
        app.operation = Some(Operation::default());
        assert!(!until.met(&app, &all()), "it was asked for and has not begun");
        app.operation = None;
        app.status.operation_state = Some(OperationState::default());
        assert!(!until.met(&app, &all()), "it runs");
        let at = |seconds| Some(Time { seconds, nanos: 0 });
        app.status.operation_state = Some(OperationState {
            finished_at: at(100),
            ..OperationState::default()
        });
        app.status.reconciled_at = at(99);
        assert!(
            !until.met(&app, &all()),
            "the status is older than the end of the operation"
        );
        app.status.reconciled_at = at(100);
        assert!(until.met(&app, &all()));
        app.metadata
            .annotations
            .insert(argosy_api::annotation::REFRESH.into(), "normal".into());
        assert!(!until.met(&app, &all()), "a look was asked for and has not been");
    }
}
