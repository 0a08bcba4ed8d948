//! The recipe for one object.

use std::borrow::Cow;

use argosy_object::schema::Schemas;
use argosy_object::{Value, meta};
use bumpalo::Bump;

use crate::ignore::{Finding, IgnoreRules, each_once};
use crate::merge::{self, Merge, Recorder};
use crate::node::{Node, Semantics, schema_of};
use crate::{
    CLIENT_SIDE_APPLY_MANAGER, FIELD_MANAGER, LAST_APPLIED, last_applied, managed, mask, normalize,
    structured,
};

/// What a comparison needs to know besides the two objects.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Schemas of the target cluster.
    pub schemas: &'a Schemas,
    /// What to leave out.
    pub rules: &'a IgnoreRules,
    /// How to compare.
    pub options: &'a Options,
}

/// How to compare.
#[derive(Debug, Clone)]
pub struct Options {
    /// The object is applied server-side: what our manager owned and Git no longer states counts as removed, and lists merge as their
    /// schema says also for custom resources. What was ours is told by `managedFields` instead of the last applied configuration.
    pub server_side_apply: bool,
    /// What others set beside what Git states makes a difference, and goes at an apply (`Strict=true`).
    pub strict: bool,
    /// Rules of a ClusterRole with `aggregationRule` are not compared (`resource.compareoptions: ignoreAggregatedRoles`). They never are
    /// when Git states no rules for such a role, because then the control plane fills them.
    pub ignore_aggregated_roles: bool,
    /// Whose `status` is left out.
    pub ignore_status: IgnoreStatus,
    /// Our field manager.
    pub manager: String,
    /// The field manager of client-side apply whose fields the first server-side apply takes over, if it does.
    pub migrate_from: Option<Cow<'static, str>>,
    /// Annotations of Secrets that are secret themselves (`resource.sensitive.mask.annotations`).
    pub sensitive_annotations: Vec<String>,
    /// Types of fields that a schema does not tell (`resource.customizations.knownTypeFields`).
    pub known_types: Vec<KnownType>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server_side_apply: false,
            strict: false,
            ignore_aggregated_roles: false,
            ignore_status: IgnoreStatus::All,
            manager: FIELD_MANAGER.to_owned(),
            migrate_from: Some(CLIENT_SIDE_APPLY_MANAGER.into()),
            sensitive_annotations: Vec::new(),
            known_types: Vec::new(),
        }
    }
}

/// `resource.compareoptions: ignoreResourceStatusField`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IgnoreStatus {
    /// Of every object.
    #[default]
    All,
    /// Of CustomResourceDefinitions only.
    Crd,
    /// Of none.
    None,
}

/// The type of a field of a kind, told by an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownType {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Path of the field, names joined by dots, without list positions: `spec.limits.memory`. Fields below it have the type too.
    pub field: String,
    /// The type.
    pub known: KnownTypeKind,
}

/// Types that an operator can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownTypeKind {
    /// `core/Quantity`, and `core/v1/ResourceList`, which holds nothing else.
    Quantity,
    /// Any other type of the core API (`core/v1/PodSpec`): amounts are quantities in it.
    Core,
    /// `meta/v1/Duration`
    Duration,
}

const NOT_IN_SCHEMA: &str = "is not in the schema that the cluster serves; it is compared by its form";

/// The verdict on one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Whether an apply would change the live object.
    pub modified: bool,
    /// Every place that would change. Values of Secrets are masked.
    pub differences: Vec<Difference>,
    /// The live object without what Git cannot own and what is ignored; null if there is none. Not masked.
    pub normalized_live: Value,
    /// The same after an apply, where it is not the same.
    pub(crate) applied: Option<Value>,
    /// What could not be taken into account.
    pub findings: Vec<Finding>,
}

impl Comparison {
    /// The live object after an apply, without what Git cannot own and what is ignored; null if Git has no such object. Not masked.
    #[must_use]
    pub fn predicted_live(&self) -> &Value {
        self.applied.as_ref().unwrap_or(&self.normalized_live)
    }
}

/// One place that would change.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Readable path, as `spec.template.spec.containers[name=main].image`; empty for the whole object.
    pub path: String,
    /// The value after an apply, if there is one.
    pub desired: Option<Value>,
    /// The value now, if there is one.
    pub live: Option<Value>,
    /// Why it would change, in words: the rule.
    pub why: String,
    /// The field managers that own the value that is there now, as far as the object tells.
    pub owners: Vec<String>,
}

/// Compares what Git wants with what the cluster has.
///
/// Only in Git: modified, the whole object is the difference. Only in the cluster: not modified (whether to prune it is not asked here).
/// Tracking labels and annotations must be aligned by the caller.
#[must_use]
pub fn compare(desired: Option<&Value>, live: Option<&Value>, ctx: &Context<'_>) -> Comparison {
    match (desired, live) {
        (Some(desired), Some(live)) => compare_owned(desired.clone(), live.clone(), ctx),
        (Some(desired), None) => only_desired(desired.clone(), ctx),
        (None, Some(live)) => only_live(live.clone(), ctx),
        (None, None) => nothing(),
    }
}

/// [`compare`] of two sides that the caller has no more use for: nothing is copied.
#[must_use]
pub fn compare_owned(desired: Value, live: Value, ctx: &Context<'_>) -> Comparison {
    compare_both(desired, live, ctx, &Bump::new())
}

fn compare_both(mut desired: Value, mut live: Value, ctx: &Context<'_>, arena: &Bump) -> Comparison {
    let gvk = meta::gvk(&live);
    let schema = schema_of(ctx.schemas, &gvk).or_else(|| schema_of(ctx.schemas, &meta::gvk(&desired)));
    let semantics = Semantics::of(&gvk.group, ctx.options.server_side_apply);
    let node = Node::root(schema, ctx.schemas, &gvk, semantics);

    // What the live object tells about its owners and its last apply is read before it goes.
    let mut findings = Vec::new();
    let owners = ctx.options.server_side_apply.then(|| {
        managed::owners(
            &live,
            &ctx.options.manager,
            ctx.options.migrate_from.as_deref(),
            node,
        )
    });
    // Mostly what Git wants is what was applied last: then that is not read a second time.
    let mut base = None;
    let mut unchanged = false;
    if owners.is_none()
        && let Some(text) = meta::annotation(&live, LAST_APPLIED)
    {
        unchanged = last_applied::is(text, &desired);
        if !unchanged {
            base = last_applied::read(text)
                .map_err(|problem| findings.push(Finding::new("last applied configuration", problem)))
                .ok();
        }
    }
    if owners.is_some() {
        let lost = managed::lost(&live, &ctx.options.manager, node).into_iter();
        findings.extend(lost.map(|(field, version)| {
            let problem = format!(
                "was applied in {version}, and {} has no such field",
                gvk.api_version()
            );
            Finding::new(field, problem)
        }));
    }
    let set = ctx
        .options
        .strict
        .then(|| managed::kept_and_others(&live, &ctx.options.manager, &[]));
    let rules = ctx.rules.for_object(&live);
    let owned_by_others = rules
        .managers()
        .map(|manager| managed::fields_of(&live, manager))
        .collect::<Vec<_>>();
    let managers = managed::take(&mut live);

    normalize::align(&mut desired, &live, base.as_mut());
    for document in [Some(&mut desired), Some(&mut live), base.as_mut()]
        .into_iter()
        .flatten()
    {
        normalize::normalize(document, ctx.options);
        for fields in &owned_by_others {
            fields.remove_from(document);
        }
        rules.remove_from(document, &mut findings);
    }
    normalize::roles(&mut desired, &mut live, base.as_mut(), ctx.options);
    normalize::service(&mut desired, &mut live, base.as_mut());

    let mut recorder = Recorder::new(&ctx.options.known_types, &gvk, &managers);
    let rest = set.and_then(|(kept, others)| {
        let merge = Merge::new(arena, Some(&mut recorder));
        let owners = merge::Owners {
            others: others.root(),
            kept: Some(kept.root()),
        };
        merge.without_unstated(&desired, &live, owners, node, &[])
    });
    let found = rest.as_ref().unwrap_or(&live);
    let merge = Merge::new(arena, Some(&mut recorder));
    let applied = match &owners {
        Some(owners) => {
            let others: Vec<_> = owners.others.iter().map(managed::Fields::root).collect();
            let unknown = structured::unknown_fields(&desired, node).into_iter();
            findings.extend(unknown.map(|field| Finding::new(field, NOT_IN_SCHEMA)));
            let applied = structured::apply(found, &desired, &owners.last.root(), &others, node, arena);
            merge.prediction(&applied, found, node, merge::REMOVED)
        }
        None => {
            let base = if unchanged { Some(&desired) } else { base.as_ref() };
            merge.document(base, &desired, found, node)
        }
    };
    let applied = applied.or(rest);
    let mut differences = recorder.differences;
    if mask::is_secret(&live) {
        mask::mask_differences(&mut differences, &ctx.options.sensitive_annotations);
    }
    each_once(&mut findings);
    Comparison {
        modified: !differences.is_empty(),
        differences,
        normalized_live: live,
        applied,
        findings,
    }
}

fn only_desired(mut desired: Value, ctx: &Context<'_>) -> Comparison {
    let mut findings = Vec::new();
    let rules = ctx.rules.for_object(&desired);
    normalize::normalize(&mut desired, ctx.options);
    rules.remove_from(&mut desired, &mut findings);
    let mut shown = desired.clone();
    if mask::is_secret(&shown) {
        mask::mask_secrets(&mut [Some(&mut shown)], &ctx.options.sensitive_annotations);
    }
    Comparison {
        modified: true,
        differences: vec![Difference {
            path: String::new(),
            desired: Some(shown),
            live: None,
            why: "in Git, but not in the cluster".to_owned(),
            owners: Vec::new(),
        }],
        applied: Some(desired),
        findings,
        ..nothing()
    }
}

fn only_live(mut live: Value, ctx: &Context<'_>) -> Comparison {
    let mut findings = Vec::new();
    let rules = ctx.rules.for_object(&live);
    normalize::normalize(&mut live, ctx.options);
    rules.remove_from(&mut live, &mut findings);
    Comparison {
        normalized_live: live,
        applied: Some(Value::Null),
        findings,
        ..nothing()
    }
}

fn nothing() -> Comparison {
    Comparison {
        modified: false,
        differences: Vec::new(),
        normalized_live: Value::Null,
        applied: None,
        findings: Vec::new(),
    }
}
