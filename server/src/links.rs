//! Deep links: URLs to other systems that people have written into `argocd-cm` (`application.links`, `project.links`,
//! `resource.links`), with templates and conditions over what they are about. Pure.

mod expression;
mod functions;
mod template;

use argosy_api::annotation;
use argosy_api::services::application::{LinkInfo, LinksResponse};
use argosy_api::v1alpha1::{AppProject, Application, Cluster, Stored as _};
use argosy_object::yaml;
use serde::Deserialize;
use serde_json::{Value, json};

/// A link as it is written down.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    url: String,
    title: String,
    description: Option<String>,
    #[serde(rename = "icon.class")]
    icon_class: Option<String>,
    #[serde(rename = "if")]
    condition: Option<String>,
}

/// What links are about; templates and conditions see it by these names.
#[derive(Default)]
pub(crate) struct About {
    names: serde_json::Map<String, Value>,
}

impl About {
    /// An Application, as `app` and `application`.
    pub(crate) fn app(mut self, app: &Application) -> Self {
        let document = app.to_document();
        let by = app.metadata.annotations.get(annotation::MANAGED_BY_URL);
        if let Some(by) = by.filter(|by| by.starts_with("https://") || by.starts_with("http://")) {
            self.names.insert("managedByURL".to_owned(), by.as_str().into());
        }
        self.names.insert("app".to_owned(), document.clone());
        self.names.insert("application".to_owned(), document);
        self
    }

    /// Its project.
    pub(crate) fn project(mut self, project: &AppProject) -> Self {
        self.names.insert("project".to_owned(), project.to_document());
        self
    }

    /// Its cluster, without credentials.
    pub(crate) fn cluster(mut self, cluster: &Cluster) -> Self {
        let shown = json!({"server": cluster.server, "name": cluster.name, "namespaces": cluster.namespaces, "shard": cluster.shard,
            "project": cluster.project, "labels": cluster.labels, "annotations": cluster.annotations});
        self.names.insert("cluster".to_owned(), shown);
        self
    }

    /// A live resource, masked.
    pub(crate) fn resource(mut self, resource: Value) -> Self {
        self.names.insert("resource".to_owned(), resource);
        self
    }

    /// The links that fit, out of the text of a setting. One that is wrong is told in the log and is not there.
    pub(crate) fn links(self, key: &str, text: &str) -> LinksResponse {
        let object = Value::Object(self.names);
        let items = read(key, text).into_iter().filter_map(|link| {
            let shown = show(&link, &object);
            if let Err(why) = &shown {
                tracing::warn!(
                    setting = key,
                    link = link.title,
                    "a deep link does not count: {why}"
                );
            }
            shown.ok().flatten()
        });
        LinksResponse {
            items: items.collect(),
        }
    }
}

fn read(key: &str, text: &str) -> Vec<Link> {
    if text.trim().is_empty() {
        return Vec::new();
    }
    let read = yaml::parse(text, &yaml::Limits::default())
        .map_err(|error| error.to_string())
        .and_then(|value| serde_json::from_value(value).map_err(|error| error.to_string()));
    read.unwrap_or_else(|why| {
        tracing::warn!("{key} of argocd-cm does not count: {why}");
        Vec::new()
    })
}

/// The link, unless its condition does not hold.
fn show(link: &Link, object: &Value) -> Result<Option<LinkInfo>, String> {
    if let Some(condition) = &link.condition {
        match expression::evaluate(condition, object).map_err(|why| format!("{condition:?}: {why}"))? {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(None),
            other => return Err(format!("{condition:?} is {other}, neither true nor false")),
        }
    }
    let url = template::render(&link.url, object).map_err(|why| format!("{:?}: {why}", link.url))?;
    Ok(Some(LinkInfo {
        title: link.title.clone(),
        url,
        description: link.description.clone(),
        icon_class: link.icon_class.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_shown_where_their_condition_holds() {
        let mut app = Application::default();
        app.metadata.name = "web".into();
        app.spec.project = "shop".into();
        let cluster = Cluster {
            name: "far".into(),
            ..Cluster::default()
        };
        let text = "- url: https://logs/{{ .app.metadata.name }}?c={{ .cluster.name }}\n  title: Logs\n  description: of all pods\n  icon.class: fa-book\n\
            - {url: 'https://no', title: Never, if: 'application.spec.project == \"other\"'}\n\
            - {url: 'https://wrong/{{ nothing }}', title: Wrong}\n\
            - {url: 'https://none', title: Unclear, if: 'app.spec.project'}\n\
            - {url: 'https://yes', title: Ever, if: 'application.spec.project == \"shop\"'}\n";
        let links = About::default()
            .app(&app)
            .cluster(&cluster)
            .links("application.links", text);
        let urls: Vec<_> = links.items.iter().map(|link| link.url.as_str()).collect();
        assert_eq!(urls, ["https://logs/web?c=far", "https://yes"]);
        assert_eq!(links.items[0].icon_class.as_deref(), Some("fa-book"));
        assert!(
            About::default()
                .links("application.links", "url: no list")
                .items
                .is_empty()
        );
    }
}
