//! Every write of this server to the control plane. Each wants what the gate granted for exactly this object; what the
//! API server answers is in the tables before the call returns.

mod credentials;
mod settings;

use std::sync::Arc;

use argosy_api::v1alpha1::{AppProject, Application, ApplicationSet, Stored};
use argosy_kube_io::target::{Delete, Deleted, Patch, Propagation, Write};
use argosy_kube_io::{ApiResource, api};
use argosy_object::Value;
use serde_json::json;
use tonic::Status;

use super::ControlPlane;
use super::table::{Row, Table};
use crate::gate::{Granted, Shut, Writes};
use crate::status;

pub(crate) use settings::Change;

/// After a conflict the object is read anew, at most so often. Requests of one server take turns, so that only other
/// writers count.
const TRIES: usize = 10;

fn overtaken(name: &str) -> Status {
    Status::aborted(format!(
        "{name} is being changed by others all the time, try again"
    ))
}

fn moved(name: &str) -> Status {
    Status::aborted(format!(
        "{name} has been moved to another project by others: read it again and repeat the change"
    ))
}

/// A kind that is both stored and followed.
pub(crate) trait Kept: Stored + Row {
    /// Its name in URLs of the Kubernetes API.
    fn resource() -> ApiResource;
    /// Its table.
    fn table(plane: &ControlPlane) -> &Arc<Table<Self>>;
    /// Where it is in policies.
    fn place(plane: &ControlPlane, row: &Self) -> Shut<()>;
}

macro_rules! kept {
    ($($kind:ty, $resource:path, $table:ident, $place:ident;)*) => {$(
        impl Kept for $kind {
            fn resource() -> ApiResource {
                $resource()
            }

            fn table(plane: &ControlPlane) -> &Arc<Table<Self>> {
                &plane.$table
            }

            fn place(plane: &ControlPlane, row: &Self) -> Shut<()> {
                plane.$place(row)
            }
        }
    )*};
}

kept! {
    Application, api::applications, apps, place_of_app;
    AppProject, api::app_projects, projects, place_of_project;
    ApplicationSet, api::application_sets, app_sets, place_of_app_set;
}

impl ControlPlane {
    fn observe<T: Kept>(&self, document: &Value) -> Result<Arc<T>, Status> {
        let row = T::from_document(document).map_err(|error| status::internal(&error))?;
        Ok(T::table(self).observe(row))
    }

    /// The newest version of what was granted, unless it is gone.
    pub(crate) fn as_it_is<T: Kept, V>(&self, granted: &Granted<Arc<T>, V>) -> Option<Arc<T>> {
        let known = granted.metadata();
        let found = T::table(self).get(&known.namespace, &known.name);
        found.filter(|found| found.metadata().uid == known.uid)
    }

    /// Creates the object that was granted, or only tries to.
    pub(crate) async fn create<T: Kept, V: Writes>(
        &self,
        granted: &Granted<Arc<T>, V>,
        dry_run: bool,
    ) -> Result<Arc<T>, Status> {
        let write = Write {
            dry_run,
            ..Write::default()
        };
        let document = granted.to_document();
        let written = self
            .target
            .create(&T::resource(), &document, &write)
            .await
            .map_err(status::kube)?;
        if dry_run {
            let row = T::from_document(&written.object).map_err(|error| status::internal(&error))?;
            return Ok(Arc::new(row));
        }
        self.observe(&written.object)
    }

    /// Changes the object that was granted. `change` is called on the newest version until the write is not overtaken,
    /// and may refuse. One that others have moved to another project meanwhile is left alone: there it was not granted.
    pub(crate) async fn update<T: Kept + Clone, V: Writes>(
        &self,
        granted: &Granted<Arc<T>, V>,
        mut change: impl FnMut(&mut T) -> Result<(), Status>,
    ) -> Result<Arc<T>, Status> {
        let (namespace, name) = (
            granted.metadata().namespace.clone(),
            granted.metadata().name.clone(),
        );
        let uid = granted.metadata().uid.clone();
        let resource = T::resource();
        let _turn = self.turns.take(&resource.plural, &namespace, &name).await;
        // Whoever had the turn before has left a newer version.
        let known = T::table(self).get(&namespace, &name);
        let known = known.filter(|known| known.metadata().uid == uid);
        let mut row: T = known.map_or_else(|| T::clone(&***granted), |known| T::clone(&known));
        for _ in 0..TRIES {
            if !granted.is_at(&T::place(self, &row)) {
                return Err(moved(&name));
            }
            let before = row.to_document();
            change(&mut row)?;
            let after = row.to_document();
            let mut patch = difference(&before, &after);
            if patch.as_object().is_some_and(serde_json::Map::is_empty) {
                return Ok(Arc::new(row));
            }
            patch["metadata"]["resourceVersion"] = row.metadata().resource_version.clone().into();
            patch["metadata"]["uid"] = uid.clone().into();
            let written = self
                .target
                .patch(
                    &T::resource(),
                    &namespace,
                    &name,
                    Patch::Merge(&patch),
                    &Write::default(),
                )
                .await;
            match written {
                Ok(written) => return self.observe(&written.object),
                Err(error) if error.conflict() => {
                    let newest = self
                        .target
                        .get(&T::resource(), &namespace, &name)
                        .await
                        .map_err(status::kube)?;
                    let newest = newest.filter(|newest| newest["metadata"]["uid"] == uid.as_str());
                    let newest = newest.ok_or_else(|| status::not_found(T::PLURAL, &name))?;
                    row = T::clone(&*self.observe::<T>(&newest)?);
                }
                Err(error) => return Err(status::kube(error)),
            }
        }
        Err(overtaken(&name))
    }

    /// Deletes the object that was granted.
    pub(crate) async fn delete<T: Kept, V: Writes>(
        &self,
        granted: &Granted<Arc<T>, V>,
    ) -> Result<(), Status> {
        let meta = granted.metadata();
        if self
            .as_it_is(granted)
            .is_some_and(|now| !granted.is_at(&T::place(self, &now)))
        {
            return Err(moved(&meta.name));
        }
        let delete = Delete {
            uid: Some(meta.uid.clone()),
            propagation: Propagation::Background,
            ..Delete::default()
        };
        match self
            .target
            .delete(&T::resource(), &meta.namespace, &meta.name, &delete)
            .await
            .map_err(status::kube)?
        {
            Deleted::Gone => T::table(self).forget(&meta.namespace, &meta.name),
            Deleted::Marked(object) => _ = self.observe::<T>(&object)?,
        }
        Ok(())
    }

    /// Asks the controller to look at every Application that is so; the number of those asked.
    pub(crate) async fn ask_for_looks(&self, so: impl Fn(&Application) -> bool) -> usize {
        let patch = json!({"metadata": {"annotations": {argosy_api::annotation::REFRESH: "normal"}}});
        let mut asked = 0;
        for app in self.apps.all() {
            let waiting = app
                .metadata
                .annotations
                .contains_key(argosy_api::annotation::REFRESH);
            if waiting || !so(&app) {
                continue;
            }
            let meta = &app.metadata;
            let patched = self
                .target
                .patch(
                    &api::applications(),
                    &meta.namespace,
                    &meta.name,
                    Patch::Merge(&patch),
                    &Write::default(),
                )
                .await;
            match patched {
                Ok(written) => {
                    asked += 1;
                    if let Err(error) = self.observe::<Application>(&written.object) {
                        tracing::warn!(
                            app = meta.name,
                            error = error.message(),
                            "read an Application back"
                        );
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        app = meta.name,
                        error = argosy_runtime::log::chain(&error),
                        "ask for a look"
                    );
                }
            }
        }
        asked
    }

    /// Makes the project that every installation has.
    pub(crate) async fn ensure_default_project(&self) -> Result<(), Status> {
        if self.projects.get(&self.namespace, "default").is_some() {
            return Ok(());
        }
        let object = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "default", "namespace": self.namespace},
            "spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}});
        match self
            .target
            .create(&api::app_projects(), &object, &Write::default())
            .await
        {
            Ok(written) => self.observe::<AppProject>(&written.object).map(|_| ()),
            Err(error) if error.already_exists() => Ok(()),
            Err(error) => Err(status::kube(error)),
        }
    }

    /// Raw reads of core kinds beside the control plane's own, such as events. The object they are about must have been
    /// granted.
    pub(crate) async fn events_about<T: Kept, V>(
        &self,
        granted: &Granted<Arc<T>, V>,
    ) -> Result<Vec<bytes::Bytes>, Status> {
        let meta = granted.metadata();
        let selection = argosy_kube_io::target::Selection {
            namespace: meta.namespace.clone(),
            fields: format!(
                "involvedObject.name={},involvedObject.uid={}",
                meta.name, meta.uid
            ),
            ..Default::default()
        };
        Ok(self
            .target
            .list(&api::events(), &selection)
            .await
            .map_err(status::kube)?
            .items)
    }
}

/// The merge patch that leads from one document to another.
pub(crate) fn difference(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return after.clone();
    };
    let mut patch = serde_json::Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(known) if known == value => {}
            Some(known) if known.is_object() && value.is_object() => {
                patch.insert(key.clone(), difference(known, value));
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_difference_is_a_merge_patch() {
        let (before, after) = (
            json!({"a": {"b": 1, "c": 2}, "d": [1]}),
            json!({"a": {"b": 1, "c": 3}, "e": 4}),
        );
        let patch = difference(&before, &after);
        assert_eq!(patch, json!({"a": {"c": 3}, "d": null, "e": 4}));
        let mut patched = before;
        json_patch::merge(&mut patched, &patch);
        assert_eq!(patched, after);
    }
}
