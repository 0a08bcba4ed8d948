//! Comparison by what the API server itself says: the answer of a server-side apply in dry-run mode against the live object
//! (`ServerSideDiff`). Defaults, conversions and admission are the server's own then; nothing has to be known about the kind.

use argosy_object::{Value, meta};
use bumpalo::Bump;

use crate::compare::{Comparison, Context};
use crate::ignore::{Applicable, each_once};
use crate::merge::{Merge, Owners, Recorder};
use crate::node::{Node, Semantics, schema_of};
use crate::{managed, mask, normalize, structured};

const TAKEN_AWAY: &str = "the API server takes it away at an apply";

/// Compares `live` with `predicted`, the API server's answer to a server-side apply of what Git wants, as a dry run under our manager.
///
/// Without `include_webhooks` (`IncludeMutationWebhook=true`), fields that others than our manager own in the answer count as they are now:
/// what a mutating webhook adds at each write is no difference. That our manager owns nothing in the answer is an error: then it is not
/// the answer to an apply.
pub fn compare_dry_run(
    live: &Value,
    predicted: &Value,
    include_webhooks: bool,
    ctx: &Context<'_>,
) -> Result<Comparison, NotAnApply> {
    let gvk = meta::gvk(live);
    let schema = schema_of(ctx.schemas, &gvk).or_else(|| schema_of(ctx.schemas, &meta::gvk(predicted)));
    let node = Node::root(schema, ctx.schemas, &gvk, Semantics::of(&gvk.group, true));
    let arena = Bump::new();
    let ours = managed::fields_of(predicted, &ctx.options.manager);
    if ours.root().is_empty() {
        return Err(NotAnApply {
            manager: ctx.options.manager.clone(),
        });
    }
    let set = ctx
        .options
        .strict
        .then(|| managed::kept_and_others(predicted, &ctx.options.manager, &[]));
    let mut predicted = if include_webhooks {
        predicted.clone()
    } else {
        structured::without_others(predicted, Some(live), Some(ours.root()), node, &arena).unwrap_or_default()
    };
    let (stored, mut live) = (live, live.clone());
    let managers = managed::take(&mut live);
    let mut findings = Vec::new();
    let rules: Applicable<'_> = ctx.rules.for_object(stored);
    let by_others: Vec<_> = rules
        .managers()
        .map(|manager| managed::fields_of(stored, manager))
        .collect();
    // The same object in two versions of its API: what names it is no difference.
    if let (Some(fields), Some(version)) = (predicted.as_object_mut(), stored.get("apiVersion")) {
        fields.insert("apiVersion".to_owned(), version.clone());
    }
    for document in [&mut predicted, &mut live] {
        normalize::normalize(document, ctx.options);
        for fields in &by_others {
            fields.remove_from(document);
        }
        rules.remove_from(document, &mut findings);
    }
    normalize::roles(&mut predicted, &mut live, None, ctx.options);
    normalize::service(&mut predicted, &mut live, None);

    let mut recorder = Recorder::new(&ctx.options.known_types, &gvk, &managers);
    let mut rest = None;
    if let Some((kept, others)) = &set {
        // Of what Git states our manager owns everything in the answer, so that the rest is told by the owners alone.
        let owners = Owners {
            others: others.root(),
            kept: Some(kept.root()),
        };
        let stated = Value::Null;
        let without = |merge: Merge<'_, '_, '_>, document: &Value| {
            merge.without_unstated(&stated, document, owners, node, &[])
        };
        rest = without(Merge::new(&arena, Some(&mut recorder)), &live);
        predicted = without(Merge::new(&arena, None), &predicted).unwrap_or(predicted);
    }
    let found = rest.as_ref().unwrap_or(&live);
    let merge = Merge::new(&arena, Some(&mut recorder));
    let applied = merge.prediction(&predicted, found, node, TAKEN_AWAY).or(rest);
    let mut differences = recorder.differences;
    if mask::is_secret(&live) {
        mask::mask_differences(&mut differences, &ctx.options.sensitive_annotations);
    }
    each_once(&mut findings);
    Ok(Comparison {
        modified: !differences.is_empty(),
        differences,
        normalized_live: live,
        applied,
        findings,
    })
}

/// The API server's answer does not say that our manager applied anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAnApply {
    /// Our manager.
    pub manager: String,
}

impl std::fmt::Display for NotAnApply {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "read the answer of a dry run: no managed fields found for manager {}",
            self.manager
        )
    }
}

impl std::error::Error for NotAnApply {}
