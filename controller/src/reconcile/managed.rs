//! What an Application manages, with both states of each resource, for someone to read. Secrets are masked.

use std::sync::Arc;

use argosy_api::tracking;
use argosy_api::v1alpha1::{Application, ResourceDiff};
use argosy_object::Value;
use argosy_runtime::tasks::busy;
use argosy_sync::options::resource_options;

use super::compare::Managed;
use super::verdict::Rules;
use super::{Error, Request, compare_for};
use crate::context::{AppKey, Context};

/// Desired and live state of everything that `app` manages, compared by the rules of the last look.
pub(crate) async fn managed(ctx: &Context, app: &Arc<Application>) -> Result<Vec<ResourceDiff>, Error> {
    let request = Request {
        sources: app.spec.effective_sources(),
        ..Request::default()
    };
    let compared = compare_for(ctx, app, &request).await?;
    let rules = ctx.memos.of(&AppKey::of(app)).lock().rules.clone();
    let sensitive = ctx.settings.get().config.sensitive_annotations.clone();
    let made = busy(move || {
        let one = |managed: &Managed| diff(managed, rules.as_ref(), &sensitive);
        compared.resources.iter().map(one).collect()
    });
    made.await.map_err(|error| Error::Cluster {
        message: format!("the comparison was broken off: {error}"),
    })
}

fn diff(managed: &Managed, rules: Option<&Rules>, sensitive: &[String]) -> ResourceDiff {
    let (mut target, mut live) = (managed.desired(), managed.live());
    let (mut normalized, mut predicted) = (live.clone(), target.clone());
    // The verdict of the look stands: it may rest on a dry run that is not made again here.
    let modified = managed.out_of_sync();
    if let (Some(rules), Some(target), Some(live)) = (rules, &target, &live) {
        let mut aligned = live.clone();
        tracking::normalize_live(&mut aligned, target, &rules.tracking);
        let own = resource_options(
            &rules.sync_options,
            rules.migration_manager.as_deref(),
            Some(target),
            Some(live),
        );
        let options = rules.options_for(own);
        let context = argosy_diff::Context {
            schemas: &rules.schemas,
            rules: &rules.ignore,
            options: &options,
        };
        let comparison = argosy_diff::compare(Some(target), Some(&aligned), &context);
        predicted = Some(comparison.predicted_live().clone());
        normalized = Some(comparison.normalized_live);
    }
    let secret = target
        .as_ref()
        .or(live.as_ref())
        .is_some_and(argosy_diff::mask::is_secret);
    if secret {
        let mut documents = [&mut target, &mut live, &mut normalized, &mut predicted].map(Option::as_mut);
        argosy_diff::mask::mask_secrets(&mut documents, sensitive);
    }
    let text = |value: Option<Value>| value.unwrap_or(Value::Null).to_string();
    let key = &managed.key;
    ResourceDiff {
        group: key.group.to_string(),
        kind: key.kind.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        hook: managed.hook,
        resource_version: managed
            .resource
            .as_ref()
            .map(|live| live.resource_version.to_string())
            .unwrap_or_default(),
        modified,
        target_state: text(target),
        live_state: text(live),
        normalized_live_state: text(normalized),
        predicted_live_state: text(predicted),
        ..ResourceDiff::default()
    }
}
