//! The cluster's side of a look: is its state known, the snapshot, and the comparison on a thread of its own.

use std::sync::Arc;

use argosy_api::annotation::{self, CompareOptions};
use argosy_api::project::Target;
use argosy_api::v1alpha1::{
    AppProject, Application, ApplicationSummary, HealthStatus, ResourceStatus, SyncStatusCode,
};
use argosy_livestate::Snapshot;
use argosy_object::{GroupKind, Value, meta};
use argosy_sync::options::SyncOptions;
use parking_lot::Mutex;

use super::compare::{Input, Managed, compare};
use super::desired::ClusterKinds;
use super::dry_run;
use super::manifest::{Desired, Manifest};
use super::verdict::{self, Rules};
use super::versions;
use super::{Answers, Compared, Error, Memo, Request, conditions, health, spec_hash};
use crate::account;
use crate::clusters::{Cluster, KindFailure, Status};
use crate::context::AppKey;
use crate::settings::Settings;

/// So many pairs are few.
const SHORT_LEN: usize = 16;

/// Is the state of the cluster known, at least as it was?
pub(crate) fn known(cluster: &Cluster) -> Result<(), Error> {
    match cluster.status() {
        Status::Synced { .. } => Ok(()),
        Status::Syncing { .. } | Status::Stopped => Err(Error::Busy),
        Status::Failed { message, since } => Err(Error::Cluster {
            message: format!(
                "cluster {} cannot be reached since {since}: {message}",
                cluster.server()
            ),
        }),
    }
}

/// What a look knows before it compares.
pub(crate) struct Facts {
    pub app: Arc<Application>,
    pub project: Arc<AppProject>,
    pub cluster: Cluster,
    pub settings: Arc<Settings>,
    pub desired: Arc<Desired>,
    pub memo: Arc<Mutex<Memo>>,
    pub request: Request,
}

/// Everything a comparison needs, to be handed to another thread.
pub(crate) struct Task {
    facts: Facts,
    instance: Arc<str>,
    snapshot: Snapshot,
    rules: Rules,
    /// The verdicts of the last look were made by the same rules.
    same: bool,
    answers: Answers,
}

impl Task {
    /// Takes the snapshot with which `facts` are compared.
    pub(crate) fn new(facts: Facts, control_plane: &str) -> Self {
        let instance: Arc<str> = AppKey::of(&facts.app).instance(control_plane).into();
        let snapshot = facts.cluster.snapshot();
        let known = facts.memo.lock().rules.clone();
        let rules = rules(
            &facts.app,
            &instance,
            &facts.settings,
            &facts.cluster,
            known.as_ref(),
        );
        let same =
            known.is_some_and(|known| known.id == rules.id && Arc::ptr_eq(&known.schemas, &rules.schemas));
        Self {
            facts,
            instance,
            snapshot,
            rules,
            same,
            answers: Answers::default(),
        }
    }

    /// Asks the API server about what is compared by dry run, and for what Git has in another version. `by_default`: everything that does not say otherwise.
    pub(crate) async fn ask(&mut self, by_default: bool) {
        let of_app = compare_options(&self.facts.app);
        let wanted = |manifest: &Manifest| dry_run::wanted(manifest.compare, of_app, by_default);
        let manifests = &self.facts.desired.resources;
        let elsewhere = &self.facts.desired.read_elsewhere;
        let dry_runs = manifests.iter().any(|manifest| wanted(manifest));
        if !dry_runs && elsewhere.is_empty() {
            return;
        }
        let known = self.same.then(|| self.facts.memo.lock().verdicts.clone());
        let (snapshot, cluster) = (&self.snapshot, &self.facts.cluster);
        self.answers.in_version = versions::ask(elsewhere, snapshot, known.as_ref(), cluster).await;
        if dry_runs {
            // A dry run is a write to whoever decides on it: it is asked for as the sync would be.
            let account = account::of(
                &self.facts.settings,
                &self.facts.project,
                cluster.server(),
                &self.facts.app,
            );
            let account = account.map_err(|error| error.to_string());
            self.answers.dry_runs =
                dry_run::ask(manifests, snapshot, known.as_ref(), cluster, &account, wanted).await;
        }
    }

    /// Whether the comparison is done sooner than it is handed to another thread: few pairs, and nothing about them is new.
    pub(crate) fn is_short(&self) -> bool {
        let manifests = &self.facts.desired.resources;
        if !self.same || manifests.len() > SHORT_LEN {
            return false;
        }
        let memo = self.facts.memo.lock();
        let stands = |manifest: &Arc<Manifest>| {
            let live = self.snapshot.get(&manifest.key);
            let verdict = memo.verdicts.get(&manifest.key);
            verdict.is_some_and(|verdict| verdict.stands(Some(manifest), live.as_deref()))
        };
        self.snapshot.app_len(&self.instance) <= SHORT_LEN && manifests.iter().all(stands)
    }

    /// Compares, with the verdicts of the last look where they stand.
    pub(crate) fn compare(self) -> Compared {
        let Task {
            facts,
            instance,
            snapshot,
            rules,
            same,
            answers,
        } = self;
        let Facts {
            app,
            project,
            cluster,
            settings,
            desired,
            memo,
            request,
        } = facts;
        let cluster_name = cluster.name();
        let kinds = ClusterKinds::new(&cluster, &settings);
        let failures = cluster.kind_failures();
        let incomplete = |kind: &GroupKind| {
            let failure = failures.iter().find(|failure| failure.kind == *kind);
            failure.map(KindFailure::reason)
        };

        let mut verdicts = match same {
            true => std::mem::take(&mut memo.lock().verdicts),
            false => Default::default(),
        };
        let with_namespace = managed_namespace(&app, &instance, &snapshot, &desired);
        let compared_with = with_namespace.as_deref().unwrap_or(&desired);
        let input = Input {
            app: &app,
            instance: &instance,
            desired: Some(compared_with),
            snapshot: &snapshot,
            project: &project,
            kinds: &kinds,
            incomplete: &incomplete,
            rules: &rules,
            answers: &answers,
            target: Target {
                server: cluster.server(),
                name: &cluster_name,
            },
            own_cluster: cluster.info().project == project.metadata.name,
        };
        let outcome = compare(&input, &mut verdicts);
        let ignore_findings = rules.ignore_findings.clone();
        {
            let mut memo = memo.lock();
            memo.verdicts = verdicts;
            memo.rules = Some(rules);
            memo.failing_since = None;
            // A sync to an older revision, or of manifests brought along, is not what the Application should be.
            if request.revisions.is_empty() && request.manifests.is_empty() {
                memo.desired = Some(desired.clone());
            }
        }
        let mut found: Vec<_> = conditions::of_manifests(&desired.findings).collect();
        found.extend(conditions::of_comparison(&app, &outcome.findings));
        found.extend(conditions::of_rules(&ignore_findings));
        Compared {
            health: health::health(&app, &outcome.resources).health,
            revisions: desired.revisions.clone(),
            source_types: desired.source_types.clone(),
            rendered: desired.rendered,
            sources: request.sources,
            deletion_hooks: desired.deletion_hooks,
            resources: outcome.resources,
            hooks: outcome.hooks,
            status: with_namespace_metadata(&app, outcome.status),
            conditions: found,
            snapshot,
            project,
            cluster,
        }
    }
}

/// By what this Application's pairs are judged; what is costly to make is taken from the last look.
fn rules(
    app: &Application,
    instance: &Arc<str>,
    settings: &Settings,
    cluster: &Cluster,
    known: Option<&Rules>,
) -> Rules {
    let migration_manager = app
        .metadata
        .annotations
        .get(annotation::CLIENT_SIDE_APPLY_MIGRATION_MANAGER);
    let compare_options = app.metadata.annotations.get(annotation::COMPARE_OPTIONS);
    let id = spec_hash(&(
        settings.version,
        migration_manager,
        compare_options,
        serde_json::to_string(&app.spec.ignore_differences).unwrap_or_default(),
        app.spec
            .sync_policy
            .as_ref()
            .map(|policy| policy.sync_options.clone()),
    ));
    let schemas = cluster.schemas();
    if let Some(known) = known.filter(|known| known.id == id) {
        return Rules {
            schemas,
            ..known.clone()
        };
    }
    let options = app
        .spec
        .sync_policy
        .iter()
        .flat_map(|policy| &policy.sync_options);
    let (ignore, ignore_findings) = settings.ignore_rules(&app.spec.ignore_differences);
    Rules {
        id,
        schemas,
        ignore,
        ignore_findings: ignore_findings.into(),
        options: settings.diff_options.clone(),
        health: settings.health.clone(),
        tracking: settings.tracking.clone(),
        instance: instance.clone(),
        sync_options: Arc::new(SyncOptions::parse(options.map(String::as_str))),
        migration_manager: migration_manager.map(|manager| manager.as_str().into()),
        include_webhooks: self::compare_options(app).include_mutation_webhook,
    }
}

/// What an Application says about its comparison.
fn compare_options(app: &Application) -> CompareOptions {
    let text = app.metadata.annotations.get(annotation::COMPARE_OPTIONS);
    text.map_or_else(CompareOptions::default, |text| CompareOptions::parse(text))
}

/// With `CreateNamespace` and metadata for it, the destination's namespace is a resource of the Application once it
/// carries its tracking: its labels and annotations are compared too.
fn managed_namespace(
    app: &Application,
    instance: &str,
    snapshot: &Snapshot,
    desired: &Arc<Desired>,
) -> Option<Arc<Desired>> {
    let policy = app.spec.sync_policy.as_ref()?;
    let metadata = policy.managed_namespace_metadata.as_ref()?;
    if !policy
        .sync_options
        .iter()
        .any(|option| option == "CreateNamespace=true")
    {
        return None;
    }
    let key = argosy_object::ResourceKey::new("", "Namespace", "", &*app.spec.destination.namespace);
    let live = snapshot
        .get(&key)
        .filter(|live| live.app.as_deref() == Some(instance))?;
    if desired.resources.iter().any(|manifest| *manifest.key == key) {
        return None;
    }
    let mut object = live.value();
    for (name, value) in &metadata.labels {
        meta::set_label(&mut object, name, value.as_str());
    }
    for (name, value) in &metadata.annotations {
        meta::set_annotation(&mut object, name, value.as_str());
    }
    let manifest = Manifest {
        key: Arc::new(key),
        version: "v1".to_owned(),
        document: argosy_object::Document::from_value(&object),
        hash: argosy_object::ContentHash::of_value(&object),
        hook: false,
        compare: CompareOptions::default(),
    };
    let mut resources = desired.resources.clone();
    resources.push(Arc::new(manifest));
    resources.sort_by(|a, b| a.key.cmp(&b.key));
    Some(Arc::new(Desired {
        resources,
        hooks: desired.hooks.clone(),
        findings: desired.findings.clone(),
        read_elsewhere: desired.read_elsewhere.clone(),
        deletion_hooks: desired.deletion_hooks,
        revisions: desired.revisions.clone(),
        source_types: desired.source_types.clone(),
        rendered: desired.rendered,
        inputs: desired.inputs,
        digests: desired.digests.clone(),
        answered: desired.answered,
    }))
}

/// The verdict on the whole, when labels and annotations of the destination's namespace count as well: others than the last sync was to set
/// are a difference, whether the namespace is followed or not.
fn with_namespace_metadata(app: &Application, status: SyncStatusCode) -> SyncStatusCode {
    let wanted = app
        .spec
        .sync_policy
        .as_ref()
        .and_then(|policy| policy.managed_namespace_metadata.as_ref());
    let last = app
        .status
        .operation_state
        .as_ref()
        .and_then(|state| state.sync_result.as_ref());
    let changed = match (wanted, last) {
        (Some(wanted), Some(last)) => last.managed_namespace_metadata.as_ref() != Some(wanted),
        _ => false,
    };
    match status {
        SyncStatusCode::Synced if changed => SyncStatusCode::OutOfSync,
        other => other,
    }
}

/// `status.resources`.
pub(crate) fn resource_statuses(resources: &[Managed], with_health: bool) -> Vec<ResourceStatus> {
    let status = |resource: &Managed| {
        let key = &resource.key;
        let health = resource
            .health
            .as_ref()
            .filter(|_| with_health)
            .map(|health| HealthStatus {
                status: health.status.to_string(),
                message: health.message.clone(),
                last_transition_time: None,
            });
        ResourceStatus {
            group: key.group.clone(),
            version: resource.version.clone(),
            kind: key.kind.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            status: resource.status.map(String::from).unwrap_or_default(),
            health,
            hook: resource.hook,
            requires_pruning: resource.requires_pruning,
            sync_wave: resource.sync_wave,
            requires_deletion_confirmation: resource.requires_confirmation,
        }
    };
    resources.iter().map(status).collect()
}

/// Images and addresses of the live resources and of what they own.
pub(crate) fn summary(compared: &Compared) -> ApplicationSummary {
    let mut images: Vec<String> = Vec::new();
    let mut urls: Vec<String> = Vec::new();
    let mut apps = false;
    for resource in &compared.resources {
        images.extend(resource.counts.images.iter().cloned());
        urls.extend(resource.counts.urls.iter().cloned());
        apps |= resource.key.group == "argoproj.io" && resource.key.kind == "Application";
        // Pods may still run what the template no longer names.
        let Some(live) = resource
            .resource
            .as_ref()
            .filter(|_| !resource.counts.images.is_empty())
        else {
            continue;
        };
        for child in compared.snapshot.descendants(live) {
            if child.key.kind == "Pod" && child.key.group.is_empty() {
                let spec = child.document.value_at(&["spec"]).unwrap_or(Value::Null);
                images.extend(verdict::images(&serde_json::json!({ "spec": spec })));
            }
        }
    }
    for list in [&mut images, &mut urls] {
        list.sort_unstable();
        list.dedup();
    }
    ApplicationSummary {
        external_urls: urls,
        images,
        is_app_of_apps: apps,
    }
}

#[cfg(test)]
mod tests {
    use argosy_api::v1alpha1::{ManagedNamespaceMetadata, OperationState, SyncOperationResult, SyncPolicy};

    use super::*;

    #[test]
    fn labels_of_the_namespace_that_no_sync_has_set_are_a_difference() {
        let metadata = |value: &str| ManagedNamespaceMetadata {
            labels: [("team".to_owned(), value.to_owned())].into(),
            ..ManagedNamespaceMetadata::default()
        };
        let mut app = Application::default();
        let synced = |app: &Application| with_namespace_metadata(app, SyncStatusCode::Synced);
        app.spec.sync_policy = Some(SyncPolicy {
            managed_namespace_metadata: Some(metadata("shop")),
            ..SyncPolicy::default()
        });
        assert_eq!(
            synced(&app),
            SyncStatusCode::Synced,
            "never synced: the rest tells"
        );
        for (last, status) in [
            (None, SyncStatusCode::OutOfSync),
            (Some(metadata("other")), SyncStatusCode::OutOfSync),
            (Some(metadata("shop")), SyncStatusCode::Synced),
        ] {
            app.status.operation_state = Some(OperationState {
                sync_result: Some(SyncOperationResult {
                    managed_namespace_metadata: last,
                    ..SyncOperationResult::default()
                }),
                ..OperationState::default()
            });
            assert_eq!(synced(&app), status);
        }
        assert_eq!(
            with_namespace_metadata(&app, SyncStatusCode::Unknown),
            SyncStatusCode::Unknown
        );
    }
}
