//! Sync windows, as they are now for one Application.

use argosy_api::services::application::{
    ApplicationSyncWindow, ApplicationSyncWindowsQuery, ApplicationSyncWindowsResponse,
};
use argosy_api::sync_window::{self, Attempt};
use argosy_api::v1alpha1::{Application, SyncWindow};
use tonic::Status;

use crate::auth::Caller;
use crate::gate::Get;
use crate::service::Api;
use crate::state::project_of;

fn shown(window: &SyncWindow) -> ApplicationSyncWindow {
    ApplicationSyncWindow {
        kind: window.kind.clone(),
        schedule: window.schedule.clone(),
        duration: window.duration.clone(),
        manual_sync: window.manual_sync,
    }
}

impl Api {
    fn windows_of(&self, app: &Application) -> (Vec<SyncWindow>, String, String) {
        let project = self.plane.project_for_gate(project_of(app));
        let windows = project
            .map(|project| self.joined(&project).spec.sync_windows)
            .unwrap_or_default();
        let destination = &app.spec.destination;
        let (server, name) = match self.cluster_for(app) {
            Ok(cluster) => (cluster.server, cluster.name),
            Err(_) => (destination.server.clone(), destination.name.clone()),
        };
        (windows, server, name)
    }

    /// May the Application be synced now?
    pub(super) fn window_lets_in(&self, app: &Application, manual: bool) -> bool {
        let (windows, server, name) = self.windows_of(app);
        let attempt = Attempt {
            manual,
            started: None,
        };
        sync_window::permits(&windows, app, &server, &name, attempt, self.now())
    }

    pub(super) fn sync_windows(
        &self,
        caller: &Caller,
        query: &ApplicationSyncWindowsQuery,
    ) -> Result<ApplicationSyncWindowsResponse, Status> {
        let app = self
            .gate
            .open_app::<Get>(caller, query.project(), query.app_namespace(), &query.name)?;
        let (windows, server, name) = self.windows_of(&app);
        let assigned = sync_window::of_app(&windows, &app, &server, &name);
        let now = self.now();
        Ok(ApplicationSyncWindowsResponse {
            active_windows: assigned
                .iter()
                .filter(|window| sync_window::is_open(window, now))
                .map(|window| shown(window))
                .collect(),
            assigned_windows: assigned.iter().map(|window| shown(window)).collect(),
            can_sync: self.window_lets_in(&app, true),
        })
    }
}
