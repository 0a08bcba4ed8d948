//! What one caller sees of many objects, worked out once a policy: for each project all of it, nothing, or some. A list of
//! ten thousand Applications costs one who sees a hundred of them a hundred.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use argosy_api::v1alpha1::Application;
use argosy_rbac::Reach;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::{Gate, Granted, Shut, Verb};
use crate::auth::Caller;
use crate::state::{Event, Rbac, Rows, project_of};

/// The names of a caller, none for nobody, and the action that is asked about.
pub(super) type Asking = (Vec<String>, &'static str);

/// Partitions that are kept. One of a thousand projects takes about 150 kB: 256 of them 40 MB at most. The one too many
/// begins anew.
const PARTITIONS_MAX: usize = 256;

/// What one caller may do one thing with, resource by resource and project by project: worked out once, and good until
/// a policy changes.
pub(super) struct Partition {
    rbac: Arc<Rbac>,
    /// The generation of the projects, whose own policies count too.
    projects: u64,
    reaches: Mutex<HashMap<&'static str, HashMap<String, Reach>>>,
}

impl Partition {
    /// What is allowed in a project, as `ask` is told.
    fn in_project<R>(
        &self,
        gate: &Gate,
        caller: &Caller,
        action: &str,
        name: (&'static str, &str),
        ask: impl FnOnce(&Reach) -> R,
    ) -> R {
        let (resource, project) = name;
        let mut reaches = self.reaches.lock();
        let reaches = reaches.entry(resource).or_default();
        if let Some(reach) = reaches.get(project) {
            return ask(reach);
        }
        let prefix = match resource {
            "applications" | "applicationsets" | "logs" => format!("{project}/"),
            // These may belong to a project and are not all named after it.
            _ => String::new(),
        };
        let access = gate.access(caller, &self.rbac, project);
        let reach = access.narrow(resource, action).beginning_with(&prefix);
        let answer = ask(&reach);
        reaches.insert(project.to_owned(), reach);
        answer
    }
}

impl Gate {
    /// The eyes of a caller, to look at many objects with.
    pub(crate) fn view<V: Verb>(&self, caller: &Caller) -> View<'_, V> {
        View {
            gate: self,
            caller: caller.clone(),
            partition: self.partition(caller, V::ACTION),
            verb: PhantomData,
        }
    }

    fn partition(&self, caller: &Caller, action: &'static str) -> Arc<Partition> {
        let names = caller
            .user()
            .map(|user| user.names().map(str::to_owned).collect());
        let key = (names.unwrap_or_default(), action);
        let mut partitions = self.partitions.lock();
        if let Some(known) = partitions.get(&key)
            && self.is_current(known)
        {
            return known.clone();
        }
        if partitions.len() >= PARTITIONS_MAX {
            partitions.clear();
        }
        let partition = Arc::new(Partition {
            rbac: self.plane.settings().rbac.clone(),
            projects: self.plane.projects_generation(),
            reaches: Mutex::default(),
        });
        partitions.insert(key, partition.clone());
        partition
    }

    fn is_current(&self, partition: &Partition) -> bool {
        partition.projects == self.plane.projects_generation()
            && Arc::ptr_eq(&partition.rbac, &self.plane.settings().rbac)
    }
}

/// What a caller may do `V` with. It is always as the policies are now.
pub(crate) struct View<'a, V> {
    gate: &'a Gate,
    caller: Caller,
    partition: Arc<Partition>,
    verb: PhantomData<V>,
}

/// Applications out of the table, and what happened to them while a watcher was away.
pub(crate) struct Resumed<V> {
    /// As they are now, in no order.
    pub apps: Vec<Granted<Arc<Application>, V>>,
    /// Those that went, as they were last.
    pub gone: Vec<Granted<Arc<Application>, V>>,
    /// Nothing is missing in the two.
    pub complete: bool,
    /// Everything that happens from here on. What it tells is to be shown to [`View::open_app`] first.
    pub events: broadcast::Receiver<Event<Application>>,
}

impl<V: Verb> View<'_, V> {
    /// Opens the object, if the caller may.
    pub(crate) fn open<T>(&mut self, shut: Shut<T>) -> Option<Granted<T, V>> {
        self.look_again();
        let Shut { name, object } = shut;
        let allowed = self.ask((name.resource, &name.project), |reach| {
            reach.contains(&name.object)
        });
        allowed.then(|| Granted {
            name,
            object,
            verb: PhantomData,
        })
    }

    /// Opens an Application that an event told, if the caller may. One that is out of reach costs no memory.
    pub(crate) fn open_app(&mut self, app: &Arc<Application>) -> Option<Granted<Arc<Application>, V>> {
        self.look_again();
        let allowed = self.ask(("applications", project_of(app)), |reach| {
            self.reaches(reach, app)
        });
        allowed.then(|| self.grant(app))
    }

    /// The Applications that the caller may see and that are `so`, and the version of the newest of all.
    ///
    /// Projects out of reach are passed over as wholes; where a project is in reach in parts, each Application costs a
    /// comparison. Memory is taken for what is given back alone.
    pub(crate) fn apps(
        &mut self,
        so: impl Fn(&Application) -> bool,
    ) -> (Vec<Granted<Arc<Application>, V>>, u64) {
        self.look_again();
        let plane = self.gate.plane.clone();
        plane.apps_for_gate(|rows| (self.of(rows, &so), rows.newest()))
    }

    /// The same for one who was away since a version (0: who was never there), and goes on watching.
    pub(crate) fn apps_since(&mut self, since: u64, so: impl Fn(&Application) -> bool) -> Resumed<V> {
        self.look_again();
        let plane = self.gate.plane.clone();
        let ((apps, gone, complete), events) = plane.watch_apps_for_gate(|rows| {
            let (gone, complete) = rows.gone_since(since);
            let gone = gone.filter(|app| {
                so(app)
                    && self.ask(("applications", project_of(app)), |reach| {
                        self.reaches(reach, app)
                    })
            });
            let gone = gone.map(|app| self.grant(app)).collect();
            (self.of(rows, &so), gone, complete)
        });
        Resumed {
            apps,
            gone,
            complete,
            events,
        }
    }

    fn of(
        &self,
        rows: &Rows<Application>,
        so: impl Fn(&Application) -> bool,
    ) -> Vec<Granted<Arc<Application>, V>> {
        let mut found = Vec::new();
        for (project, apps) in rows.groups() {
            let reach = self.ask(("applications", project), Reach::clone);
            if matches!(reach, Reach::Nothing) {
                continue;
            }
            let visible = apps.filter(|app| self.reaches(&reach, app) && so(app));
            found.extend(visible.map(|app| self.grant(app)));
        }
        found
    }

    /// A policy that has changed counts at once.
    fn look_again(&mut self) {
        if !self.gate.is_current(&self.partition) {
            self.partition = self.gate.partition(&self.caller, V::ACTION);
        }
    }

    fn ask<R>(&self, name: (&'static str, &str), ask: impl FnOnce(&Reach) -> R) -> R {
        self.partition
            .in_project(self.gate, &self.caller, V::ACTION, name, ask)
    }

    fn reaches(&self, reach: &Reach, app: &Application) -> bool {
        match reach {
            Reach::Nothing => false,
            Reach::Everything => true,
            Reach::Some(objects) => {
                let place = &app.metadata;
                objects.contain(
                    &self
                        .gate
                        .plane
                        .in_project(project_of(app), &place.namespace, &place.name),
                )
            }
        }
    }

    fn grant(&self, app: &Arc<Application>) -> Granted<Arc<Application>, V> {
        let Shut { name, object } = self.gate.plane.shut_app(app.clone());
        Granted {
            name,
            object,
            verb: PhantomData,
        }
    }
}
