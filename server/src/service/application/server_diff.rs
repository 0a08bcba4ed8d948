//! What an apply of given manifests would make of live resources, told by a dry run of the target cluster's API server.
//!
//! Both sides of a pair must be one resource, and it must be the Application's: else a caller could have this server look
//! at anything in the cluster. The live side is read from the cluster, whatever a request says of it.

use argosy_api::annotation::{self, CompareOptions};
use argosy_api::services::application::{ApplicationServerSideDiffQuery, ApplicationServerSideDiffResponse};
use argosy_api::v1alpha1::{Application, Cluster, ResourceDiff, ResourceOverride};
use argosy_diff::{Context, IgnoreRule, IgnoreRules, Options};
use argosy_kube_io::target::{FieldValidation, Patch, Write};
use argosy_object::schema::Schemas;
use argosy_object::{Value, meta};
use argosy_sync::options::{SyncOptions, resource_options};
use futures::{StreamExt as _, TryStreamExt as _};
use tonic::Status;

use crate::auth::Caller;
use crate::egress;
use crate::gate::Get;
use crate::service::Api;
use crate::status;

/// Dry runs at the same time for one request.
const AT_ONCE: usize = 10;

/// One resource: where it is, and the manifest that would be applied.
struct Pair {
    of: ResourceDiff,
    target: Option<Value>,
}

impl Api {
    pub(super) async fn server_diff(
        &self,
        caller: &Caller,
        query: ApplicationServerSideDiffQuery,
    ) -> Result<ApplicationServerSideDiffResponse, Status> {
        let app =
            self.gate
                .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.app_name)?;
        let managed = self.live_managed(caller, &app).await?;
        let pairs = pairs(query, &managed)?;
        let cluster = self.destination(&app)?;
        let rules = self.rules(&app);
        let (app, cluster, rules) = (&**app, &cluster, &rules);
        let items: Vec<ResourceDiff> = futures::stream::iter(pairs)
            .map(|pair| async move { Box::pin(self.one_diff(app, cluster, rules, pair)).await })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let sensitive = &self.plane.settings().config.sensitive_annotations;
        Ok(ApplicationServerSideDiffResponse {
            modified: items.iter().any(|item| item.modified),
            items: items
                .into_iter()
                .map(|item| egress::resource_diff(item, sensitive))
                .collect(),
        })
    }

    async fn one_diff(
        &self,
        app: &Application,
        cluster: &Cluster,
        rules: &IgnoreRules,
        pair: Pair,
    ) -> Result<ResourceDiff, Status> {
        let Pair { mut of, target } = pair;
        // The kind as the manifest has it; without one, the object is only gone from Git.
        let Some(target) = target else {
            (of.target_state, of.modified) = ("null".to_owned(), true);
            return Ok(of);
        };
        let (connection, resource) = self
            .targets
            .kind(&self.plane, cluster, &meta::gvk(&target))
            .await?;
        let live = connection
            .get(&resource, &of.namespace, &of.name)
            .await
            .map_err(status::kube)?;
        let Some(live) = live else {
            (of.live_state, of.target_state, of.modified) = ("null".to_owned(), target.to_string(), true);
            return Ok(of);
        };
        let options = self.diff_options(app, &target);
        let write = Write {
            dry_run: true,
            field_validation: FieldValidation::Ignore,
            field_manager: Some(options.manager.clone()),
            ..Write::default()
        };
        let apply = Patch::Apply {
            object: &target,
            force: true,
        };
        let predicted = connection
            .patch(&resource, &of.namespace, &of.name, apply, &write)
            .await
            .map_err(status::kube)?;
        let schemas = Schemas::builtin();
        let context = Context {
            schemas: &schemas,
            rules,
            options: &options,
        };
        let wanted = app
            .metadata
            .annotations
            .get(annotation::COMPARE_OPTIONS)
            .map(String::as_str)
            .unwrap_or_default();
        let webhooks = CompareOptions::parse(wanted).include_mutation_webhook;
        let compared = argosy_diff::compare_dry_run(&live, &predicted.object, webhooks, &context)
            .map_err(|error| Status::internal(error.to_string()))?;
        of.live_state = compared.normalized_live.to_string();
        of.target_state = compared.predicted_live().to_string();
        of.modified = compared.modified;
        Ok(of)
    }

    fn diff_options(&self, app: &Application, target: &Value) -> Options {
        let of_app = app
            .spec
            .sync_policy
            .as_ref()
            .map(|policy| policy.sync_options.as_slice());
        let of_app = SyncOptions::parse(of_app.unwrap_or_default().iter().map(String::as_str));
        Options {
            server_side_apply: true,
            strict: resource_options(&of_app, None, Some(target), None).strict,
            sensitive_annotations: self.plane.settings().config.sensitive_annotations.clone(),
            ..Options::default()
        }
    }

    /// What the Application and the settings say is no difference.
    fn rules(&self, app: &Application) -> IgnoreRules {
        let of_app = app.spec.ignore_differences.iter().map(|rule| IgnoreRule {
            group: rule.group.clone(),
            kind: rule.kind.clone(),
            name: rule.name.clone(),
            namespace: rule.namespace.clone(),
            json_pointers: rule.json_pointers.clone(),
            jq_path_expressions: rule.jq_path_expressions.clone(),
            managed_fields_managers: rule.managed_fields_managers.clone(),
        });
        let of_kind = |(key, found): (&String, &ResourceOverride)| {
            let (group, kind) = key.split_once('/').unwrap_or(("", key));
            IgnoreRule {
                group: group.to_owned(),
                kind: kind.to_owned(),
                json_pointers: found.ignore_differences.json_pointers.clone(),
                jq_path_expressions: found.ignore_differences.jq_path_expressions.clone(),
                managed_fields_managers: found.ignore_differences.managed_fields_managers.clone(),
                ..IgnoreRule::default()
            }
        };
        let settings = self.plane.settings();
        let (rules, findings) = IgnoreRules::new(of_app.chain(settings.config.overrides.iter().map(of_kind)));
        for finding in findings {
            tracing::warn!(app = app.metadata.name, "ignoreDifferences: {finding}");
        }
        rules
    }
}

/// Brings the lists of a request together, and holds each pair against what the Application manages.
fn pairs(query: ApplicationServerSideDiffQuery, managed: &[ResourceDiff]) -> Result<Vec<Pair>, Status> {
    if query.live_resources.len() != query.target_manifests.len() {
        return Err(Status::invalid_argument(
            "liveResources and targetManifests must be as many",
        ));
    }
    let pair = |(live, target): (ResourceDiff, String)| {
        let key = |item: &ResourceDiff| {
            (
                item.group.clone(),
                item.kind.clone(),
                item.namespace.clone(),
                item.name.clone(),
            )
        };
        let of = managed
            .iter()
            .find(|item| key(item) == key(&live))
            .ok_or_else(|| {
                Status::permission_denied(format!(
                    "{}/{} {} not found as part of the application",
                    live.group, live.kind, live.name
                ))
            })?;
        let target: Option<Value> = match target.as_str() {
            "" | "null" => None,
            text => Some(
                serde_json::from_str(text)
                    .map_err(|error| Status::invalid_argument(format!("targetManifests: {error}")))?,
            ),
        };
        if let Some(target) = &target {
            let same = meta::group(target) == of.group
                && meta::kind(target) == of.kind
                && meta::name(target) == of.name
                && (meta::namespace(target).is_empty() || meta::namespace(target) == of.namespace);
            if !same {
                return Err(Status::invalid_argument(format!(
                    "targetManifests: {} is not the resource beside it, {}/{} {}/{}",
                    meta::key(target),
                    of.group,
                    of.kind,
                    of.namespace,
                    of.name
                )));
            }
        }
        Ok(Pair {
            of: of.clone(),
            target,
        })
    };
    query
        .live_resources
        .into_iter()
        .zip(query.target_manifests)
        .map(pair)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn item(kind: &str, name: &str) -> ResourceDiff {
        ResourceDiff {
            kind: kind.into(),
            namespace: "shop".into(),
            name: name.into(),
            ..ResourceDiff::default()
        }
    }

    fn ask(live: ResourceDiff, target: &str) -> Result<Vec<Pair>, Status> {
        let query = ApplicationServerSideDiffQuery {
            live_resources: vec![live],
            target_manifests: vec![target.to_owned()],
            ..ApplicationServerSideDiffQuery::default()
        };
        pairs(query, &[item("ConfigMap", "web")])
    }

    #[test]
    fn only_the_applications_own_resources_are_looked_at() {
        let map = |name: &str, namespace: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"{namespace}"}}}}"#
            )
        };
        assert!(
            ask(item("ConfigMap", "web"), &map("web", "shop")).unwrap()[0]
                .target
                .is_some()
        );
        assert!(ask(item("ConfigMap", "web"), "null").unwrap()[0].target.is_none());
        let code = |outcome: Result<Vec<Pair>, Status>| outcome.err().unwrap().code();
        assert_eq!(
            code(ask(item("Secret", "key"), "null")),
            tonic::Code::PermissionDenied
        );
        // A pair whose two sides are two resources would have the second one looked at.
        assert_eq!(
            code(ask(item("ConfigMap", "web"), &map("other", "shop"))),
            tonic::Code::InvalidArgument
        );
        assert_eq!(
            code(ask(item("ConfigMap", "web"), &map("web", "kube-system"))),
            tonic::Code::InvalidArgument
        );
        let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web","namespace":"shop"}}"#;
        assert_eq!(
            code(ask(item("ConfigMap", "web"), secret)),
            tonic::Code::InvalidArgument
        );
    }
}
