//! `app resources`, `get-resource`, `patch-resource`, `delete-resource`, and how flags name resources.

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::services::application::{
    ApplicationResourceDeleteRequest, ApplicationResourcePatchRequest, ApplicationResourceRequest,
    ResourcesQuery,
};
use argosy_api::v1alpha1::{ApplicationTree, SyncOperationResource};
use argosy_object::{Value, meta};

use super::{Named, place};
use crate::remote::{Remote, ask};
use crate::{input, output};

/// Which resources `--resource` means: none of what a `!` stands before, and, if others are named, only those.
#[derive(Default)]
pub(super) struct Wanted(Vec<Rule>);

struct Rule {
    excludes: bool,
    group: String,
    kind: String,
    /// Empty for any.
    namespace: String,
    name: String,
}

impl Wanted {
    /// Reads `GROUP:KIND:NAME`, `GROUP:KIND:NAMESPACE/NAME`, each part a glob, perhaps after a `!`.
    pub(super) fn read(texts: &[String]) -> Result<Self> {
        let rule = |text: &String| {
            let plain = text.strip_prefix('!');
            let parts: Vec<&str> = plain.unwrap_or(text).splitn(3, ':').collect();
            let [group, kind, name] = parts[..] else {
                bail!("--resource {text}: GROUP:KIND:NAME is expected");
            };
            let (namespace, name) = place(name, "");
            Ok(Rule {
                excludes: plain.is_some(),
                group: group.to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        };
        texts.iter().map(rule).collect::<Result<_>>().map(Wanted)
    }

    /// These and no others; all if there are none.
    pub(super) fn exactly(resources: &[SyncOperationResource]) -> Self {
        let rule = |resource: &SyncOperationResource| Rule {
            excludes: false,
            group: resource.group.clone(),
            kind: resource.kind.clone(),
            namespace: resource.namespace.clone(),
            name: resource.name.clone(),
        };
        Wanted(resources.iter().map(rule).collect())
    }

    /// Are all meant?
    pub(super) fn all(&self) -> bool {
        self.0.is_empty()
    }

    /// Is this one meant?
    pub(super) fn has(&self, group: &str, kind: &str, namespace: &str, name: &str) -> bool {
        let fits = |rule: &Rule| {
            use argosy_api::glob::matches;
            let blank_or = |pattern: &str, text: &str| pattern == text || matches(pattern, text);
            blank_or(&rule.group, group)
                && blank_or(&rule.kind, kind)
                && blank_or(&rule.name, name)
                && (rule.namespace.is_empty() || blank_or(&rule.namespace, namespace))
        };
        let (out, within): (Vec<_>, Vec<_>) = self.0.iter().partition(|rule| rule.excludes);
        !out.into_iter().any(fits) && (within.is_empty() || within.into_iter().any(fits))
    }

    /// What is meant, where each is named in full.
    pub(super) fn plain(&self) -> Option<Vec<SyncOperationResource>> {
        let named = |rule: &Rule| {
            let whole = [&rule.group, &rule.kind, &rule.namespace, &rule.name];
            let plain = !rule.excludes && whole.iter().all(|text| !text.contains(['*', '?', '[', '{']));
            plain.then(|| SyncOperationResource {
                group: rule.group.clone(),
                kind: rule.kind.clone(),
                namespace: rule.namespace.clone(),
                name: rule.name.clone(),
            })
        };
        self.0.iter().map(named).collect()
    }
}

#[derive(clap::Args)]
pub(super) struct Resources {
    #[command(flatten)]
    app: Named,
    /// Only those that belong to nobody.
    #[arg(long)]
    orphaned: bool,
    /// Below their owners.
    #[arg(long, value_parser = ["tree", "tree=detailed"])]
    output: Option<String>,
    /// Project of the Application.
    #[arg(long, default_value = "")]
    project: String,
}

pub(super) async fn resources(remote: &Remote, args: Resources) -> Result<()> {
    if let Some(format) = &args.output {
        let app = args.app.get(remote).await?;
        return super::show::show(remote, &app, format).await;
    }
    let tree = tree(remote, &args.app, &args.project).await?;
    let row = |node: &argosy_api::v1alpha1::ResourceNode, orphaned: &str| {
        let found = &node.resource_ref;
        vec![
            found.group.clone(),
            found.kind.clone(),
            found.namespace.clone(),
            found.name.clone(),
            orphaned.to_owned(),
        ]
    };
    // What others own is told with its owner.
    let own = tree
        .nodes
        .iter()
        .filter(|node| !args.orphaned && node.parent_refs.is_empty())
        .map(|node| row(node, "No"));
    let orphaned = tree.orphaned_nodes.iter().map(|node| row(node, "Yes"));
    output::table(
        &["GROUP", "KIND", "NAMESPACE", "NAME", "ORPHANED"],
        own.chain(orphaned),
    )
}

async fn tree(remote: &Remote, app: &Named, project: &str) -> Result<ApplicationTree> {
    let (namespace, name) = app.place();
    let query = ResourcesQuery {
        application_name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        project: Some(project.to_owned()),
        ..ResourcesQuery::default()
    };
    Ok(ask!(remote, applications.resource_tree(query)))
}

/// Flags that choose among the live objects of an Application.
#[derive(clap::Args)]
pub(super) struct Target {
    #[command(flatten)]
    pub(super) app: Named,
    /// Name of the object.
    #[arg(long)]
    resource_name: Option<String>,
    /// Kind of the object.
    #[arg(long)]
    kind: Option<String>,
    /// Group of the object.
    #[arg(long)]
    group: Option<String>,
    /// Namespace of the object.
    #[arg(long)]
    namespace: Option<String>,
    /// Project of the Application.
    #[arg(long, default_value = "")]
    pub(super) project: String,
}

/// A live object of an Application.
pub(super) struct Chosen {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Target {
    /// The objects that the flags choose; several only with `all`.
    pub(super) async fn chosen(&self, remote: &Remote, all: bool) -> Result<Vec<Chosen>> {
        let fits = |flag: &Option<String>, text: &str| flag.as_ref().is_none_or(|flag| flag == text);
        let tree = tree(remote, &self.app, &self.project).await?;
        let found = tree
            .nodes
            .into_iter()
            .map(|node| node.resource_ref)
            .filter(|found| {
                fits(&self.resource_name, &found.name)
                    && fits(&self.kind, &found.kind)
                    && fits(&self.group, &found.group)
                    && fits(&self.namespace, &found.namespace)
            });
        let found: Vec<_> = found
            .map(|found| Chosen {
                group: found.group,
                version: found.version,
                kind: found.kind,
                namespace: found.namespace,
                name: found.name,
            })
            .collect();
        ensure!(!found.is_empty(), "no matching resource found");
        ensure!(
            all || found.len() == 1,
            "multiple resources match inputs: name one, or use the --all flag"
        );
        Ok(found)
    }
}

#[derive(clap::Args)]
pub(super) struct GetResource {
    #[command(flatten)]
    target: Target,
    /// Only these fields, such as `spec.replicas`.
    #[arg(long, value_delimiter = ',')]
    filter_fields: Vec<String>,
    /// Who manages which field, too.
    #[arg(long)]
    show_managed_fields: bool,
    /// How to print them.
    #[arg(long, short, default_value = "wide", value_parser = ["wide", "yaml", "json"])]
    output: String,
}

pub(super) async fn get(remote: &Remote, args: GetResource) -> Result<()> {
    let mut objects = Vec::new();
    for chosen in args.target.chosen(remote, true).await? {
        let (namespace, name) = args.target.app.place();
        let request = ApplicationResourceRequest {
            name: name.to_owned(),
            app_namespace: Some(namespace.to_owned()),
            namespace: Some(chosen.namespace),
            resource_name: chosen.name,
            version: chosen.version,
            group: Some(chosen.group),
            kind: chosen.kind,
            project: Some(args.target.project.clone()),
        };
        let answer = ask!(remote, applications.get_resource(request));
        let mut object: Value = serde_json::from_str(&answer.manifest).context("read the object")?;
        if !args.show_managed_fields
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove("managedFields");
        }
        objects.push(match args.filter_fields.is_empty() {
            true => object,
            false => only(&object, &args.filter_fields),
        });
    }
    match args.output.as_str() {
        "json" => output::documents(&objects, output::Documents::Json),
        "yaml" => output::documents(&objects, output::Documents::Yaml),
        _ => {
            let names = args.target.resource_name.is_none();
            let headings: &[&str] = if names {
                &["FIELD", "RESOURCE NAME", "VALUE"]
            } else {
                &["FIELD", "VALUE"]
            };
            output::table(
                headings,
                objects
                    .iter()
                    .flat_map(|object| wide(object, names, &args.filter_fields)),
            )
        }
    }
}

/// A row a field, however deep it lies. The identity beside fields that were asked for is not among them.
fn wide(object: &Value, names: bool, asked: &[String]) -> Vec<Vec<String>> {
    let mut fields = Vec::new();
    leaves(String::new(), object, &mut fields);
    let is_beside = |field: &String| {
        ["apiVersion", "kind", "metadata.name"].contains(&field.as_str()) && !asked.contains(field)
    };
    fields.retain(|(field, _)| asked.is_empty() || !is_beside(field));
    let row = |(field, value): (String, String)| match names {
        true => vec![field, meta::name(object).to_owned(), value],
        false => vec![field, value],
    };
    fields.into_iter().map(row).collect()
}

fn leaves(field: String, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = if field.is_empty() {
                    key.clone()
                } else {
                    format!("{field}.{key}")
                };
                leaves(name, value, found);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                leaves(format!("{field}[{at}]"), item, found);
            }
        }
        Value::String(text) => found.push((field, text.clone())),
        Value::Null => found.push((field, "<nil>".to_owned())),
        other => found.push((field, other.to_string())),
    }
}

/// An object of these fields and its identity.
fn only(object: &Value, fields: &[String]) -> Value {
    let mut kept = serde_json::json!({"apiVersion": meta::api_version(object), "kind": meta::kind(object),
        "metadata": {"name": meta::name(object)}});
    for field in fields {
        let path = format!("/{}", field.replace('.', "/"));
        let Some(value) = object.pointer(&path) else {
            continue;
        };
        let mut place = &mut kept;
        for part in field.split('.') {
            place = &mut place[part];
        }
        *place = value.clone();
    }
    kept
}

#[derive(clap::Args)]
pub(super) struct PatchResource {
    #[command(flatten)]
    target: Target,
    /// The patch.
    #[arg(long)]
    patch: String,
    /// What it is.
    #[arg(long, default_value = "application/merge-patch+json", value_parser = [
        "application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"])]
    patch_type: String,
    /// All that the flags choose.
    #[arg(long)]
    all: bool,
}

pub(super) async fn patch(remote: &Remote, args: PatchResource) -> Result<()> {
    for chosen in args.target.chosen(remote, args.all).await? {
        let (namespace, name) = args.target.app.place();
        let (kind, patched) = (chosen.kind.clone(), chosen.name.clone());
        let request = ApplicationResourcePatchRequest {
            name: name.to_owned(),
            app_namespace: Some(namespace.to_owned()),
            namespace: Some(chosen.namespace),
            resource_name: chosen.name,
            version: chosen.version,
            group: Some(chosen.group),
            kind: chosen.kind,
            patch: args.patch.clone(),
            patch_type: args.patch_type.clone(),
            project: Some(args.target.project.clone()),
        };
        ask!(remote, applications.patch_resource(request));
        output::text(&format!("Resource {kind} '{patched}' patched\n"))?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(super) struct DeleteResource {
    #[command(flatten)]
    target: Target,
    /// At once.
    #[arg(long)]
    force: bool,
    /// Leave what it owns.
    #[arg(long)]
    orphan: bool,
    /// All that the flags choose.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

pub(super) async fn delete(remote: &Remote, args: DeleteResource) -> Result<()> {
    for chosen in args.target.chosen(remote, args.all).await? {
        let (namespace, name) = args.target.app.place();
        let shown = format!(
            "{}/{} {}/{}",
            chosen.group, chosen.kind, chosen.namespace, chosen.name
        );
        if !input::confirmed(&format!("Are you sure you want to delete {shown}?"), args.yes)? {
            output::text(&format!("The command to delete {shown} was cancelled.\n"))?;
            continue;
        }
        let (kind, deleted) = (chosen.kind.clone(), chosen.name.clone());
        let request = ApplicationResourceDeleteRequest {
            name: name.to_owned(),
            app_namespace: Some(namespace.to_owned()),
            namespace: Some(chosen.namespace),
            resource_name: chosen.name,
            version: chosen.version,
            group: Some(chosen.group),
            kind: chosen.kind,
            force: Some(args.force),
            orphan: Some(args.orphan),
            project: Some(args.target.project.clone()),
        };
        ask!(remote, applications.delete_resource(request));
        output::text(&format!("Resource {kind} '{deleted}' deleted\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn resources_are_named_by_globs_and_left_out_by_a_mark() {
        let read = |texts: &[&str]| {
            Wanted::read(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).unwrap()
        };
        assert!(read(&[]).has("apps", "Deployment", "shop", "web"));
        let one = read(&["apps:Deployment:shop/web"]);
        assert!(one.has("apps", "Deployment", "shop", "web"));
        assert!(!one.has("apps", "Deployment", "other", "web"));
        assert_eq!(one.plain().unwrap()[0].namespace, "shop");
        assert!(read(&[":ConfigMap:*"]).has("", "ConfigMap", "shop", "any"));
        assert!(read(&[":ConfigMap:*"]).plain().is_none());
        let but = read(&["!*:Secret:*"]);
        assert!(but.has("apps", "Deployment", "shop", "web") && !but.has("", "Secret", "shop", "key"));
        assert!(Wanted::read(&["Deployment/web".to_owned()]).is_err());
    }

    #[test]
    fn fields_are_kept_with_what_the_object_is() {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "uid": "u"}, "spec": {"a": 1, "b": 2}});
        let kept = only(&object, &["spec.a".to_owned(), "status".to_owned()]);
        assert_eq!(
            kept,
            serde_json::json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"a": 1}})
        );
    }

    #[test]
    fn wide_is_a_row_a_field() {
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0"},
            "spec": {"containers": [{"name": "web", "args": ["-v", 1]}], "x": {}, "y": null}, "z": 0.5});
        let rows = |asked: &[&str]| -> Vec<String> {
            let asked: Vec<String> = asked.iter().map(|field| (*field).to_owned()).collect();
            let shown = if asked.is_empty() {
                object.clone()
            } else {
                only(&object, &asked)
            };
            wide(&shown, true, &asked)
                .into_iter()
                .map(|row| row.join(" "))
                .collect()
        };
        let all = rows(&[]);
        for row in [
            "kind web-0 Pod",
            "spec.containers[0].args[1] web-0 1",
            "spec.y web-0 <nil>",
            "z web-0 0.5",
        ] {
            assert!(all.iter().any(|found| found == row), "{row}: {all:?}");
        }
        assert!(!all.iter().any(|row| row.starts_with("spec.x")), "{all:?}");
        assert_eq!(rows(&["z"]), ["z web-0 0.5"]);
        assert_eq!(rows(&["kind", "z"]), ["kind web-0 Pod", "z web-0 0.5"]);
    }
}
