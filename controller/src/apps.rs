//! Applications and AppProjects as the control plane has them, each decoded by itself.
//!
//! One writer: the watches of [`follow_applications`] and [`follow_projects`], and the answers of our own writes, which
//! come in through [`Store::observed`] so that the next pass reads what the last one wrote. A version that is older
//! than the one known is passed over.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use argosy_api::v1alpha1::{AppProject, Application};
use argosy_kube_io::api::{self, Change, Place, TypedWatch, Unreadable};
use argosy_kube_io::target::Selection;
use argosy_kube_io::{Client, Target};
use parking_lot::RwLock;
use tracing::{debug, info, warn};

use crate::context::AppKey;
use crate::dirty::Marker;
use crate::status;

/// Which namespaces' Applications are looked after.
#[derive(Clone, Debug)]
pub struct Namespaces {
    control_plane: String,
    others: Vec<Pattern>,
}

#[derive(Clone, Debug)]
enum Pattern {
    Glob(globset::GlobMatcher),
    Regex(regex::Regex),
}

impl Namespaces {
    /// The control plane's namespace, and what the patterns match: globs, or regular expressions between slashes. A
    /// pattern that cannot be read matches nothing and is reported.
    pub fn new(control_plane: &str, patterns: &[String]) -> Self {
        let pattern = |text: &String| {
            let text = text.trim();
            let read = match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
                Some(expression) => regex::Regex::new(expression)
                    .map(Pattern::Regex)
                    .map_err(|error| error.to_string()),
                None => globset::Glob::new(text)
                    .map(|glob| Pattern::Glob(glob.compile_matcher()))
                    .map_err(|error| error.to_string()),
            };
            read.map_err(|error| {
                warn!(
                    pattern = text,
                    error, "a pattern of application namespaces is passed over"
                )
            })
            .ok()
        };
        let others = patterns
            .iter()
            .filter(|text| !text.trim().is_empty())
            .filter_map(pattern)
            .collect();
        Namespaces {
            control_plane: control_plane.to_owned(),
            others,
        }
    }

    /// Are Applications of `namespace` looked after?
    pub fn contains(&self, namespace: &str) -> bool {
        namespace == self.control_plane
            || self.others.iter().any(|pattern| match pattern {
                Pattern::Glob(glob) => glob.is_match(namespace),
                Pattern::Regex(expression) => expression.is_match(namespace),
            })
    }

    /// The namespace to watch: all of them when there is more than the control plane's.
    fn watched(&self) -> Selection {
        if self.others.is_empty() {
            Selection::namespace(&self.control_plane)
        } else {
            Selection::default()
        }
    }
}

/// The Applications and projects of this process.
pub struct Store {
    control_plane: String,
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    apps: HashMap<AppKey, Arc<Application>>,
    by_instance: HashMap<String, AppKey>,
    /// Server or name of the destination, as the spec has it.
    by_destination: HashMap<String, BTreeSet<AppKey>>,
    by_project: HashMap<String, BTreeSet<AppKey>>,
    /// Namespace of the destination.
    by_namespace: HashMap<String, BTreeSet<AppKey>>,
    projects: HashMap<String, Arc<AppProject>>,
    /// Projects that exist and cannot be read, with what is wrong.
    unreadable_projects: HashMap<String, String>,
    /// Applications that exist and cannot be read.
    unreadable: BTreeSet<AppKey>,
}

/// What a project's name stands for.
pub enum Project {
    /// The project.
    Found(Arc<AppProject>),
    /// It exists and cannot be read, for this reason.
    Unreadable(String),
    /// There is none.
    Missing,
}

impl Store {
    /// An empty store of the control plane in this namespace.
    pub fn new(control_plane: &str) -> Arc<Self> {
        Arc::new(Store {
            control_plane: control_plane.to_owned(),
            inner: RwLock::default(),
        })
    }

    /// The Application of this key.
    pub fn get(&self, key: &AppKey) -> Option<Arc<Application>> {
        self.inner.read().apps.get(key).cloned()
    }

    /// The key of the Application with this instance name.
    pub fn by_instance(&self, instance: &str) -> Option<AppKey> {
        self.inner.read().by_instance.get(instance).cloned()
    }

    /// Every Application there is.
    pub fn keys(&self) -> Vec<AppKey> {
        self.inner.read().apps.keys().cloned().collect()
    }

    /// Every Application there is, for metrics.
    pub fn all(&self) -> Vec<Arc<Application>> {
        self.inner.read().apps.values().cloned().collect()
    }

    /// Number of Applications.
    pub fn len(&self) -> usize {
        self.inner.read().apps.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applications of a project.
    pub fn of_project(&self, name: &str) -> Vec<AppKey> {
        self.inner
            .read()
            .by_project
            .get(name)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Applications whose destination has this server, or this name.
    pub fn of_destination(&self, server_or_name: &str) -> Vec<AppKey> {
        self.inner
            .read()
            .by_destination
            .get(server_or_name)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether there are several destinations.
    pub fn is_spread(&self) -> bool {
        self.inner.read().by_destination.len() > 1
    }

    /// Server or name of an Application's destination.
    pub fn destination_of(&self, key: &AppKey) -> Option<String> {
        destinations(self.inner.read().apps.get(key)?).next()
    }

    /// Applications whose destination has this namespace.
    pub fn of_namespace(&self, namespace: &str) -> Vec<AppKey> {
        self.inner
            .read()
            .by_namespace
            .get(namespace)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// The project of this name.
    pub fn project(&self, name: &str) -> Project {
        let inner = self.inner.read();
        match (inner.projects.get(name), inner.unreadable_projects.get(name)) {
            (Some(project), _) => Project::Found(project.clone()),
            (None, Some(message)) => Project::Unreadable(message.clone()),
            (None, None) => Project::Missing,
        }
    }

    /// All projects, for those that inherit from global ones.
    pub fn projects(&self) -> Vec<Arc<AppProject>> {
        self.inner.read().projects.values().cloned().collect()
    }

    /// Takes in an Application that a watch or a write returned. Gives how it was known before and how it is known
    /// now, or nothing if a newer version is known already.
    pub fn observed(&self, mut app: Application) -> Option<(Option<Arc<Application>>, Arc<Application>)> {
        // Who manages which field is of no use here, and often the largest part of the object.
        app.metadata.managed_fields = Vec::new();
        let key = AppKey::of(&app);
        let mut inner = self.inner.write();
        let before = inner.apps.get(&key).cloned();
        if before.as_ref().is_some_and(|before| !newer(&app, before)) {
            return None;
        }
        if let Some(before) = &before {
            inner.unindex(&key, before);
        }
        inner
            .by_instance
            .insert(key.instance(&self.control_plane), key.clone());
        for destination in destinations(&app) {
            inner
                .by_destination
                .entry(destination)
                .or_default()
                .insert(key.clone());
        }
        inner
            .by_project
            .entry(project_name(&app).to_owned())
            .or_default()
            .insert(key.clone());
        inner
            .by_namespace
            .entry(app.spec.destination.namespace.clone())
            .or_default()
            .insert(key.clone());
        let app = Arc::new(app);
        inner.apps.insert(key, app.clone());
        Some((before, app))
    }

    /// Forgets an Application.
    pub fn forget(&self, key: &AppKey) -> Option<Arc<Application>> {
        let mut inner = self.inner.write();
        let app = inner.apps.remove(key)?;
        inner.unindex(key, &app);
        inner.by_instance.remove(&key.instance(&self.control_plane));
        Some(app)
    }

    /// How many Applications and projects exist and cannot be read.
    pub(crate) fn unreadable(&self) -> (usize, usize) {
        let inner = self.inner.read();
        (inner.unreadable.len(), inner.unreadable_projects.len())
    }

    /// Notes whether an Application can be read.
    fn set_readable(&self, key: &AppKey, readable: bool) {
        let mut inner = self.inner.write();
        match readable {
            true => drop(inner.unreadable.remove(key)),
            false => drop(inner.unreadable.insert(key.clone())),
        }
    }

    pub(crate) fn project_observed(&self, mut project: AppProject) {
        project.metadata.managed_fields = Vec::new();
        let mut inner = self.inner.write();
        inner.unreadable_projects.remove(&project.metadata.name);
        inner
            .projects
            .insert(project.metadata.name.clone(), Arc::new(project));
    }

    fn project_unreadable(&self, name: &str, message: String) {
        let mut inner = self.inner.write();
        inner.projects.remove(name);
        inner.unreadable_projects.insert(name.to_owned(), message);
    }

    fn project_gone(&self, name: &str) {
        let mut inner = self.inner.write();
        inner.projects.remove(name);
        inner.unreadable_projects.remove(name);
    }
}

impl Inner {
    fn unindex(&mut self, key: &AppKey, app: &Application) {
        let remove = |index: &mut HashMap<String, BTreeSet<AppKey>>, name: &str| {
            if let Some(keys) = index.get_mut(name) {
                keys.remove(key);
                if keys.is_empty() {
                    index.remove(name);
                }
            }
        };
        for destination in destinations(app) {
            remove(&mut self.by_destination, &destination);
        }
        remove(&mut self.by_project, project_name(app));
        remove(&mut self.by_namespace, &app.spec.destination.namespace);
    }
}

/// The project an Application names; empty means `default`.
pub fn project_name(app: &Application) -> &str {
    if app.spec.project.is_empty() {
        "default"
    } else {
        &app.spec.project
    }
}

/// Server and name of the destination, without the slash that people leave at the end.
fn destinations(app: &Application) -> impl Iterator<Item = String> {
    let destination = &app.spec.destination;
    let texts = [
        destination.server.trim_end_matches('/').to_owned(),
        destination.name.clone(),
    ];
    texts.into_iter().filter(|text| !text.is_empty())
}

/// Is `app` a newer state than `known`? resourceVersions of one kind are comparable numbers.
fn newer(app: &Application, known: &Application) -> bool {
    let version = |app: &Application| app.metadata.resource_version.parse::<u64>();
    match (version(app), version(known)) {
        (Ok(new), Ok(old)) => new > old,
        _ => app.metadata.resource_version != known.metadata.resource_version,
    }
}

/// Follows Applications into the store and marks them. Ends never. `synced` is called after each full list.
pub async fn follow_applications(
    client: Client,
    namespaces: Namespaces,
    store: Arc<Store>,
    marker: Arc<Marker>,
    synced: impl Fn() + Send,
) {
    let target = Target::new(client.clone());
    let mut watch = TypedWatch::<Application>::new(client, api::applications(), namespaces.watched());
    loop {
        match watch.next().await {
            Change::Applied(app) if namespaces.contains(&app.metadata.namespace) => {
                store.set_readable(&AppKey::new(&app.metadata.namespace, &app.metadata.name), true);
                if let Some((before, app)) = store.observed(app) {
                    marker.application(before.as_deref(), &app);
                }
            }
            Change::Applied(_) => {}
            Change::Deleted(place) => {
                let key = AppKey::new(&place.namespace, &place.name);
                store.set_readable(&key, true);
                if store.forget(&key).is_some() {
                    debug!(app = %key.name, app_namespace = %key.namespace, "application is gone");
                }
                marker.gone(&key);
            }
            Change::Unreadable(unreadable) if namespaces.contains(&unreadable.place.namespace) => {
                report_unreadable(&target, &store, &marker, &unreadable).await;
            }
            Change::Unreadable(_) => {}
            Change::Synced => {
                info!(applications = store.len(), "applications are listed");
                synced();
            }
            Change::Failed(error) => warn!(error = argosy_runtime::log::chain(&error), "follow applications"),
        }
    }
}

/// An Application that cannot be read is no longer looked after; its status says so.
async fn report_unreadable(target: &Target, store: &Store, marker: &Marker, unreadable: &Unreadable) {
    let Place { namespace, name } = &unreadable.place;
    let key = AppKey::new(namespace, name);
    store.forget(&key);
    store.set_readable(&key, false);
    marker.gone(&key);
    warn!(
        app = name,
        app_namespace = namespace,
        error = unreadable.message,
        "an application cannot be read"
    );
    if let Err(error) = status::report_unreadable(target, unreadable).await {
        warn!(
            app = name,
            app_namespace = namespace,
            error = argosy_runtime::log::chain(&error),
            "report it"
        );
    }
}

/// Follows AppProjects of the control plane into the store and marks their Applications. Ends never.
pub async fn follow_projects(
    client: Client,
    store: Arc<Store>,
    marker: Arc<Marker>,
    synced: impl Fn() + Send,
) {
    let selection = Selection::namespace(&store.control_plane);
    let mut watch = TypedWatch::<AppProject>::new(client, api::app_projects(), selection);
    loop {
        let name = match watch.next().await {
            Change::Applied(project) => {
                let name = project.metadata.name.clone();
                store.project_observed(project);
                name
            }
            Change::Deleted(place) => {
                store.project_gone(&place.name);
                place.name
            }
            Change::Unreadable(unreadable) => {
                warn!(
                    project = unreadable.place.name,
                    error = unreadable.message,
                    "a project cannot be read"
                );
                store.project_unreadable(&unreadable.place.name, unreadable.message);
                unreadable.place.name
            }
            Change::Synced => {
                info!("projects are listed");
                synced();
                continue;
            }
            Change::Failed(error) => {
                warn!(error = argosy_runtime::log::chain(&error), "follow projects");
                continue;
            }
        };
        marker.project(&name);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn app(name: &str, version: &str, server: &str, project: &str) -> Application {
        let mut app = Application::default();
        app.metadata.namespace = "argocd".into();
        app.metadata.name = name.into();
        app.metadata.resource_version = version.into();
        app.spec.destination.server = server.into();
        app.spec.project = project.into();
        app
    }

    #[test]
    fn an_older_version_is_passed_over() {
        let store = Store::new("argocd");
        assert!(store.observed(app("a", "10", "https://c1", "")).is_some());
        assert!(store.observed(app("a", "9", "https://c2", "")).is_none());
        assert!(store.observed(app("a", "10", "https://c2", "")).is_none());
        assert_eq!(
            store
                .get(&AppKey::new("argocd", "a"))
                .unwrap()
                .spec
                .destination
                .server,
            "https://c1"
        );
    }

    #[test]
    fn indexes_follow_the_spec() {
        let store = Store::new("argocd");
        let key = AppKey::new("argocd", "a");
        store.observed(app("a", "1", "https://c1/", ""));
        assert_eq!(store.of_destination("https://c1"), std::slice::from_ref(&key));
        assert_eq!(store.of_project("default"), std::slice::from_ref(&key));
        store.observed(app("a", "2", "https://c2", "team"));
        assert!(store.of_destination("https://c1").is_empty() && store.of_project("default").is_empty());
        assert_eq!(store.of_destination("https://c2"), std::slice::from_ref(&key));
        store.forget(&key);
        assert!(store.of_destination("https://c2").is_empty() && store.of_project("team").is_empty());
        assert!(store.by_instance("a").is_none());
    }

    #[test]
    fn instances_outside_the_control_plane_carry_their_namespace() {
        let store = Store::new("argocd");
        let mut other = app("a", "1", "https://c1", "");
        other.metadata.namespace = "team".into();
        store.observed(other);
        assert_eq!(store.by_instance("team_a"), Some(AppKey::new("team", "a")));
        assert_eq!(store.by_instance("a"), None);
    }

    #[test]
    fn namespaces_are_globs_or_regular_expressions() {
        let namespaces = Namespaces::new("argocd", &["team-*".into(), "/^x[0-9]+$/".into(), "/(/".into()]);
        for (namespace, expected) in [
            ("argocd", true),
            ("team-a", true),
            ("x12", true),
            ("x12y", false),
            ("other", false),
        ] {
            assert_eq!(namespaces.contains(namespace), expected, "{namespace}");
        }
    }
}
