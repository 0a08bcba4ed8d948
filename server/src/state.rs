//! What the server knows of the control plane, kept by watches, and the only way to change it.
//!
//! One [`Table`] a kind; [`Settings`] are read anew whenever a ConfigMap or Secret changes. Rows of people's objects come
//! out as [`Shut`]: whoever wants to look inside asks the gate. Writes are in [`write`] and want what the gate gave.

pub(crate) mod accounts;
mod rows;
pub(crate) mod settings;
mod table;
mod turns;
pub(crate) mod write;

use std::sync::Arc;

use argosy_api::glob;
use argosy_api::v1alpha1::{AppProject, Application, ApplicationSet, Cluster, RepoCreds, Repository};
use argosy_kube_io::target::Selection;
use argosy_kube_io::{Client, ClusterAuth, Target, api};
use argosy_runtime::tasks::Tasks;
use tokio::sync::watch;

pub(crate) use rows::{ConfigMap, Secret};
pub(crate) use settings::{Rbac, Settings};
pub(crate) use table::{Event, Rows, Table};

use crate::gate::Shut;
use turns::Turns;

/// The field manager of our writes: Argo CD's API server's.
const FIELD_MANAGER: &str = "argocd-server";

/// The control plane.
pub(crate) struct ControlPlane {
    namespace: String,
    /// Patterns of further namespaces that Applications may live in.
    namespaces: Vec<String>,
    target: Target,
    auth: ClusterAuth,
    apps: Arc<Table<Application>>,
    projects: Arc<Table<AppProject>>,
    app_sets: Arc<Table<ApplicationSet>>,
    config_maps: Arc<Table<ConfigMap>>,
    secrets: Arc<Table<Secret>>,
    settings: watch::Sender<Arc<Settings>>,
    turns: Turns,
}

impl ControlPlane {
    /// Starts the watches. Nothing is known before [`ControlPlane::listed`].
    pub(crate) fn start(
        tasks: &Tasks,
        client: &Client,
        auth: ClusterAuth,
        namespace: &str,
        namespaces: Vec<String>,
    ) -> Arc<Self> {
        let nothing = Settings::read(namespace, &[], &[], None);
        let plane = Arc::new(ControlPlane {
            namespace: namespace.to_owned(),
            namespaces: namespaces
                .into_iter()
                .filter(|text| !text.trim().is_empty())
                .collect(),
            target: Target::new(client.clone()).with_field_manager(FIELD_MANAGER),
            auth,
            apps: Table::new(),
            projects: Table::new(),
            app_sets: Table::new(),
            config_maps: Table::new(),
            secrets: Table::new(),
            settings: watch::Sender::new(Arc::new(nothing)),
            turns: Turns::new(),
        });
        let own = Selection::namespace(namespace);
        let of_apps = match plane.namespaces.is_empty() {
            true => own.clone(),
            false => Selection::default(),
        };
        let here = |_: &str| true;
        let enabled = {
            let (control_plane, patterns) = (plane.namespace.clone(), plane.namespaces.clone());
            move |namespace: &str| {
                namespace == control_plane
                    || glob::matches_list(patterns.iter().map(|text| text.trim()), namespace)
            }
        };
        plane.apps.follow(
            tasks,
            "applications",
            client,
            api::applications(),
            of_apps.clone(),
            enabled.clone(),
        );
        plane.app_sets.follow(
            tasks,
            "applicationsets",
            client,
            api::application_sets(),
            of_apps,
            enabled,
        );
        plane
            .projects
            .follow(tasks, "projects", client, api::app_projects(), own.clone(), here);
        plane
            .config_maps
            .follow(tasks, "configmaps", client, api::config_maps(), own.clone(), here);
        plane
            .secrets
            .follow(tasks, "secrets", client, api::secrets(), own, here);
        let following = plane.clone();
        tasks.spawn("settings", async move { following.follow_settings().await });
        plane
    }

    async fn follow_settings(&self) {
        let (mut maps, mut secrets) = (self.config_maps.events(), self.secrets.events());
        self.config_maps.listed().await;
        self.secrets.listed().await;
        loop {
            self.read_settings();
            // Lagging behind means that there is something to read, too.
            tokio::select! {
                _ = maps.recv() => {}
                _ = secrets.recv() => {}
            }
            while maps.try_recv().is_ok() || secrets.try_recv().is_ok() {}
        }
    }

    /// Reads the settings anew: what was just written counts for the next request.
    fn read_settings(&self) {
        let before = self.settings.borrow().rbac.clone();
        let read = Settings::read(
            &self.namespace,
            &self.config_maps.all(),
            &self.secrets.all(),
            Some(&before),
        );
        self.settings.send_replace(Arc::new(read));
    }

    /// Waits until every kind has been listed.
    pub(crate) async fn listed(&self) {
        self.apps.listed().await;
        self.projects.listed().await;
        self.app_sets.listed().await;
        self.config_maps.listed().await;
        self.secrets.listed().await;
        self.read_settings();
    }

    /// Has every kind been listed?
    pub(crate) fn is_listed(&self) -> bool {
        self.apps.is_listed()
            && self.projects.is_listed()
            && self.app_sets.is_listed()
            && self.config_maps.is_listed()
            && self.secrets.is_listed()
    }

    /// The namespace of the control plane.
    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// May Applications live in this namespace?
    pub(crate) fn is_enabled(&self, namespace: &str) -> bool {
        namespace == self.namespace
            || glob::matches_list(self.namespaces.iter().map(|text| text.trim()), namespace)
    }

    /// May Applications live anywhere else than here?
    pub(crate) fn has_other_namespaces(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// How the control plane's own API server is reached.
    pub(crate) fn auth(&self) -> &ClusterAuth {
        &self.auth
    }

    /// The settings now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    /// Tells when settings changed.
    pub(crate) fn settings_changes(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    /// A project as the gate needs it: its own policies decide about access, so it cannot be shut to the gate.
    pub(crate) fn project_for_gate(&self, name: &str) -> Option<Arc<AppProject>> {
        self.projects.get(&self.namespace, name)
    }

    /// The Application of this place; an empty namespace is the control plane's.
    pub(crate) fn app(&self, namespace: &str, name: &str) -> Option<Shut<Arc<Application>>> {
        let namespace = if namespace.is_empty() {
            &self.namespace
        } else {
            namespace
        };
        self.apps.get(namespace, name).map(|app| self.shut_app(app))
    }

    /// What tracking marks call an Application, and what it goes by where there are no namespaces.
    pub(crate) fn instance(&self, app: &Application) -> String {
        match app.metadata.namespace == self.namespace {
            true => app.metadata.name.clone(),
            false => format!("{}_{}", app.metadata.namespace, app.metadata.name),
        }
    }

    /// Applications as the gate needs them: it leaves out what may not be seen before anything is made of it.
    pub(crate) fn apps_for_gate<R>(&self, read: impl FnOnce(&Rows<Application>) -> R) -> R {
        self.apps.read(read)
    }

    /// The same, and everything that happens to Applications afterwards.
    pub(crate) fn watch_apps_for_gate<R>(
        &self,
        read: impl FnOnce(&Rows<Application>) -> R,
    ) -> (R, tokio::sync::broadcast::Receiver<Event<Application>>) {
        self.apps.read_and_events(read)
    }

    /// Another number after every change of a project.
    pub(crate) fn projects_generation(&self) -> u64 {
        self.projects.generation()
    }

    /// How many Applications are so. A number tells nothing about any one of them.
    pub(crate) fn count_apps(&self, so: impl Fn(&Application) -> bool) -> usize {
        self.apps.all().iter().filter(|app| so(app)).count()
    }

    /// Everything that happens to Applications. What it tells is to be shown to the gate.
    pub(crate) fn app_events(&self) -> tokio::sync::broadcast::Receiver<Event<Application>> {
        self.apps.events()
    }

    /// Shuts an Application: one that is about to be made, or one that an event told.
    pub(crate) fn shut_app(&self, app: Arc<Application>) -> Shut<Arc<Application>> {
        self.place_of_app(&app).with(app)
    }

    /// Where an Application is in policies.
    pub(crate) fn place_of_app(&self, app: &Application) -> Shut<()> {
        let project = project_of(app).to_owned();
        let object = self.in_project(&project, &app.metadata.namespace, &app.metadata.name);
        Shut::new("applications", object, project, ())
    }

    /// The name of an Application or ApplicationSet in policies.
    pub(crate) fn in_project(&self, project: &str, namespace: &str, name: &str) -> String {
        if namespace.is_empty() || namespace == self.namespace {
            format!("{project}/{name}")
        } else {
            format!("{project}/{namespace}/{name}")
        }
    }

    /// The ApplicationSet of this place.
    pub(crate) fn app_set(&self, namespace: &str, name: &str) -> Option<Shut<Arc<ApplicationSet>>> {
        let namespace = if namespace.is_empty() {
            &self.namespace
        } else {
            namespace
        };
        self.app_sets
            .get(namespace, name)
            .map(|set| self.shut_app_set(set))
    }

    /// All ApplicationSets, and the version of the newest of them.
    pub(crate) fn app_sets(&self) -> (Vec<Shut<Arc<ApplicationSet>>>, u64) {
        let (sets, newest) = self.app_sets.read(|rows| (rows.all(), rows.newest()));
        (
            sets.into_iter().map(|set| self.shut_app_set(set)).collect(),
            newest,
        )
    }

    /// Everything that happens to ApplicationSets, and how all of them are now.
    pub(crate) fn watch_app_sets(
        &self,
    ) -> (
        Vec<Shut<Arc<ApplicationSet>>>,
        tokio::sync::broadcast::Receiver<Event<ApplicationSet>>,
    ) {
        let (rows, events) = self.app_sets.all_and_events();
        (
            rows.into_iter().map(|set| self.shut_app_set(set)).collect(),
            events,
        )
    }

    /// Shuts an ApplicationSet. Its project is that of its template; one that is itself a template is taken literally,
    /// so that nothing but `*` matches it.
    pub(crate) fn shut_app_set(&self, set: Arc<ApplicationSet>) -> Shut<Arc<ApplicationSet>> {
        self.place_of_app_set(&set).with(set)
    }

    /// Where an ApplicationSet is in policies.
    pub(crate) fn place_of_app_set(&self, set: &ApplicationSet) -> Shut<()> {
        let project = set.spec.template.spec.project.clone();
        let object = self.in_project(&project, &set.metadata.namespace, &set.metadata.name);
        Shut::new("applicationsets", object, project, ())
    }

    /// The project of this name.
    pub(crate) fn project(&self, name: &str) -> Option<Shut<Arc<AppProject>>> {
        self.projects
            .get(&self.namespace, name)
            .map(|project| self.shut_project(project))
    }

    /// All projects.
    pub(crate) fn projects(&self) -> Vec<Shut<Arc<AppProject>>> {
        self.projects
            .all()
            .into_iter()
            .map(|project| self.shut_project(project))
            .collect()
    }

    /// Shuts a project.
    pub(crate) fn shut_project(&self, project: Arc<AppProject>) -> Shut<Arc<AppProject>> {
        self.place_of_project(&project).with(project)
    }

    /// Where a project is in policies.
    pub(crate) fn place_of_project(&self, project: &AppProject) -> Shut<()> {
        let name = project.metadata.name.clone();
        Shut::new("projects", name.clone(), name, ())
    }

    /// All clusters, with the name of the Secret that describes each.
    pub(crate) fn clusters(&self) -> Vec<Shut<(Option<String>, Cluster)>> {
        let settings = self.settings();
        settings
            .clusters
            .iter()
            .cloned()
            .map(|(secret, cluster)| self.shut_cluster(secret, cluster))
            .collect()
    }

    /// Shuts a cluster.
    pub(crate) fn shut_cluster(
        &self,
        secret: Option<String>,
        cluster: Cluster,
    ) -> Shut<(Option<String>, Cluster)> {
        let object = scoped(&cluster.project, &cluster.server);
        Shut::new("clusters", object, cluster.project.clone(), (secret, cluster))
    }

    /// All repositories, with the name of each one's Secret.
    pub(crate) fn repositories(&self, write: bool) -> Vec<Shut<(String, Repository)>> {
        let settings = self.settings();
        let found = if write {
            &settings.write_repositories
        } else {
            &settings.repositories
        };
        found
            .iter()
            .cloned()
            .map(|(secret, repository)| self.shut_repository(write, secret, repository))
            .collect()
    }

    /// The repositories that are so, with the project of each. What was looked at stays shut.
    pub(crate) fn repositories_of(
        &self,
        write: bool,
        so: impl Fn(&Repository) -> bool,
    ) -> Vec<(String, Shut<(String, Repository)>)> {
        let settings = self.settings();
        let all = if write {
            &settings.write_repositories
        } else {
            &settings.repositories
        };
        let found = all.iter().filter(|(_, repository)| so(repository));
        found
            .map(|(secret, repository)| {
                (
                    repository.project.clone(),
                    self.shut_repository(write, secret.clone(), repository.clone()),
                )
            })
            .collect()
    }

    /// An Application that there is not, as the gate would see it.
    pub(crate) fn new_app(&self, project: &str, name: &str) -> Shut<Arc<Application>> {
        let mut app = Application::default();
        app.metadata.name = name.to_owned();
        app.spec.project = project.to_owned();
        self.shut_app(Arc::new(app))
    }

    /// Shuts a repository.
    pub(crate) fn shut_repository(
        &self,
        write: bool,
        secret: String,
        repository: Repository,
    ) -> Shut<(String, Repository)> {
        let resource = if write {
            "write-repositories"
        } else {
            "repositories"
        };
        let object = scoped(&repository.project, &repository.repo);
        Shut::new(resource, object, repository.project.clone(), (secret, repository))
    }

    /// All credential templates, with the name of each one's Secret.
    pub(crate) fn templates(&self, write: bool) -> Vec<Shut<(String, RepoCreds)>> {
        let settings = self.settings();
        let found = if write {
            &settings.write_templates
        } else {
            &settings.templates
        };
        found
            .iter()
            .cloned()
            .map(|(secret, template)| self.shut_template(write, secret, template))
            .collect()
    }

    /// Shuts a credential template.
    pub(crate) fn shut_template(
        &self,
        write: bool,
        secret: String,
        template: RepoCreds,
    ) -> Shut<(String, RepoCreds)> {
        let resource = if write {
            "write-repositories"
        } else {
            "repositories"
        };
        Shut::new(resource, template.url.clone(), String::new(), (secret, template))
    }

    /// The keys of a ConfigMap, without what they hold.
    pub(crate) fn config_map_keys(&self, name: &str) -> Vec<String> {
        let map = self.config_maps.get(&self.namespace, name);
        map.map(|map| map.data.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// A ConfigMap of the control plane, behind what the gate asks for it.
    pub(crate) fn config_map(
        &self,
        name: &str,
        resource: &'static str,
        object: &str,
    ) -> Shut<Arc<ConfigMap>> {
        let map = self.config_maps.get(&self.namespace, name).unwrap_or_default();
        Shut::new(resource, object.to_owned(), String::new(), map)
    }
}

/// The project of an Application: `default` if it names none.
pub(crate) fn project_of(app: &Application) -> &str {
    match app.spec.project.as_str() {
        "" => "default",
        project => project,
    }
}

/// The name in policies of what may belong to a project.
fn scoped(project: &str, name: &str) -> String {
    match project {
        "" => name.to_owned(),
        project => format!("{project}/{name}"),
    }
}
