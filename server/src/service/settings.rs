//! `cluster.SettingsService`: what clients must know of the installation.

use std::collections::BTreeMap;

use argosy_api::services::cluster::settings_service_server::SettingsService;
use argosy_api::services::cluster::{
    GoogleAnalyticsConfig, Help, Plugin, Settings, SettingsPluginsResponse, SettingsQuery,
};
use argosy_api::v1alpha1::KustomizeOptions;
use tonic::{Request, Response, Status};

use super::Api;
use crate::state::accounts::Capability;
use crate::{auth, status};

#[tonic::async_trait]
impl SettingsService for Api {
    async fn get(&self, request: Request<SettingsQuery>) -> Result<Response<Settings>, Status> {
        let settings = self.plane.settings();
        let text = |key: &str| settings.texts.get(key).cloned().unwrap_or_default();
        let is_true = |key: &str| text(key) == "true";
        let help = settings.texts.iter().filter_map(|(key, url)| {
            key.strip_prefix("help.download.")
                .map(|platform| (platform.to_owned(), url.clone()))
        });
        let mut answer = Settings {
            url: settings.config.url.clone(),
            app_label_key: settings.config.tracking.label_key.clone(),
            status_badge_enabled: is_true("statusbadge.enabled"),
            status_badge_root_url: text("statusbadge.url"),
            google_analytics: Some(GoogleAnalyticsConfig {
                tracking_id: text("ga.trackingid"),
                anonymize_users: text("ga.anonymizeusers") != "false",
            }),
            // Where programs lie on the repo-server's disk is nobody's business here.
            kustomize_options: Some(KustomizeOptions {
                build_options: settings.config.kustomize.build_options.clone(),
                ..KustomizeOptions::default()
            }),
            help: Some(Help {
                chat_url: text("help.chatUrl"),
                chat_text: text("help.chatText"),
                binary_urls: help.collect::<BTreeMap<_, _>>(),
            }),
            user_logins_disabled: !settings
                .accounts
                .values()
                .any(|account| account.enabled && account.can(Capability::Login)),
            kustomize_versions: settings
                .config
                .kustomize
                .versions
                .iter()
                .map(|each| each.name.clone())
                .collect(),
            ui_css_url: text("ui.cssurl"),
            tracking_method: settings.config.tracking.method.as_str().to_owned(),
            exec_enabled: is_true("exec.enabled"),
            apps_in_any_namespace_enabled: self.plane.has_other_namespaces(),
            impersonation_enabled: settings.config.impersonation_enabled,
            installation_id: settings.config.tracking.installation_id.clone(),
            sync_with_replace_allowed: self.options.replace_allowed,
            ui_login_button_text: text("ui.loginButtonText"),
            resource_view_enabled: !is_true("ui.view.resources.disabled"),
            ..Settings::default()
        };
        let logged_in = auth::caller(&request).is_ok_and(|caller| caller.user().is_some());
        if logged_in {
            answer.password_pattern.clone_from(&settings.password_pattern);
        }
        if logged_in || self.options.auth_disabled {
            answer.ui_banner_content = text("ui.bannercontent");
            answer.ui_banner_url = text("ui.bannerurl");
            answer.ui_banner_permanent = is_true("ui.bannerpermanent");
            answer.ui_banner_position = text("ui.bannerposition");
            answer.controller_namespace = self.plane.namespace().to_owned();
            answer.resource_overrides = settings.config.overrides.clone();
        }
        Ok(Response::new(answer))
    }

    async fn get_plugins(
        &self,
        request: Request<SettingsQuery>,
    ) -> Result<Response<SettingsPluginsResponse>, Status> {
        auth::caller(&request)?;
        let listed = self.repo.list_plugins().await.map_err(status::repo)?;
        let plugins = listed.items.into_iter().map(|found| Plugin { name: found.name });
        Ok(Response::new(SettingsPluginsResponse {
            plugins: plugins.collect(),
        }))
    }
}
