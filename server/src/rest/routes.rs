//! Which HTTP request is which method: the table, one row a route.
//!
//! A row has the method, the path with its parameters (dots lead into nested messages, `=**` takes the rest of the path),
//! what the body is (`*` the whole message, a name that field, nothing none), and the method of the service.

use std::sync::Arc;

use argosy_api::services::account::account_service_server::AccountService;
use argosy_api::services::application::application_service_server::ApplicationService;
use argosy_api::services::applicationset::application_set_service_server::ApplicationSetService;
use argosy_api::services::certificate::certificate_service_server::CertificateService;
use argosy_api::services::cluster::cluster_service_server::ClusterService;
use argosy_api::services::cluster::settings_service_server::SettingsService;
use argosy_api::services::gpgkey::gpg_key_service_server::GpgKeyService;
use argosy_api::services::notification::notification_service_server::NotificationService;
use argosy_api::services::project::project_service_server::ProjectService;
use argosy_api::services::repocreds::repo_creds_service_server::RepoCredsService;
use argosy_api::services::repository::repository_service_server::RepositoryService;
use argosy_api::services::session::session_service_server::SessionService;
use argosy_api::services::version::version_service_server::VersionService;
use http::Method;

use super::{Call, Route, session, stream, unary};
use crate::service::Api;

macro_rules! routes {
    ($api:ident; $($kind:ident $method:ident $path:literal $body:literal => $service:ident :: $rpc:ident;)*) => {
        vec![$({
            let api = $api.clone();
            Route::new(Method::$method, $path, $body, Box::new(move |call: Call| {
                let api = api.clone();
                Box::pin($kind(call, async move |request| <Api as $service>::$rpc(&api, request).await))
            }))
        }),*]
    };
}

/// All routes of the API.
pub(super) fn routes(api: &Arc<Api>) -> Vec<Route> {
    routes! { api;
        // account.AccountService
        unary GET "/api/v1/account/can-i/{resource}/{action}/{subresource=**}" "" => AccountService::can_i;
        unary PUT "/api/v1/account/password" "*" => AccountService::update_password;
        unary GET "/api/v1/account" "" => AccountService::list_accounts;
        unary GET "/api/v1/account/{name}" "" => AccountService::get_account;
        unary POST "/api/v1/account/{name}/token" "*" => AccountService::create_token;
        unary DELETE "/api/v1/account/{name}/token/{id}" "" => AccountService::delete_token;
        // application.ApplicationService
        unary GET "/api/v1/applications" "" => ApplicationService::list;
        unary GET "/api/v1/applications/{name}/events" "" => ApplicationService::list_resource_events;
        stream GET "/api/v1/stream/applications" "" => ApplicationService::watch;
        unary POST "/api/v1/applications" "application" => ApplicationService::create;
        unary GET "/api/v1/applications/{name}" "" => ApplicationService::get;
        unary GET "/api/v1/applications/{name}/syncwindows" "" => ApplicationService::get_application_sync_windows;
        unary GET "/api/v1/applications/{name}/revisions/{revision}/metadata" "" => ApplicationService::revision_metadata;
        unary GET "/api/v1/applications/{name}/revisions/{revision}/chartdetails" "" => ApplicationService::revision_chart_details;
        unary GET "/api/v1/applications/{name}/revisions/{revision}/ocimetadata" "" => ApplicationService::get_oci_metadata;
        unary GET "/api/v1/applications/{name}/manifests" "" => ApplicationService::get_manifests;
        unary PUT "/api/v1/applications/{application.metadata.name}" "application" => ApplicationService::update;
        unary PUT "/api/v1/applications/{name}/spec" "spec" => ApplicationService::update_spec;
        unary PATCH "/api/v1/applications/{name}" "*" => ApplicationService::patch;
        unary DELETE "/api/v1/applications/{name}" "" => ApplicationService::delete;
        unary POST "/api/v1/applications/{name}/sync" "*" => ApplicationService::sync;
        unary GET "/api/v1/applications/{applicationName}/managed-resources" "" => ApplicationService::managed_resources;
        unary GET "/api/v1/applications/{appName}/server-side-diff" "" => ApplicationService::server_side_diff;
        unary GET "/api/v1/applications/{applicationName}/resource-tree" "" => ApplicationService::resource_tree;
        stream GET "/api/v1/stream/applications/{applicationName}/resource-tree" "" => ApplicationService::watch_resource_tree;
        unary POST "/api/v1/applications/{name}/rollback" "*" => ApplicationService::rollback;
        unary DELETE "/api/v1/applications/{name}/operation" "" => ApplicationService::terminate_operation;
        unary GET "/api/v1/applications/{name}/resource" "" => ApplicationService::get_resource;
        unary POST "/api/v1/applications/{name}/resource" "patch" => ApplicationService::patch_resource;
        unary GET "/api/v1/applications/{name}/resource/actions" "" => ApplicationService::list_resource_actions;
        unary POST "/api/v1/applications/{name}/resource/actions" "action" => ApplicationService::run_resource_action;
        unary POST "/api/v1/applications/{name}/resource/actions/v2" "*" => ApplicationService::run_resource_action_v2;
        unary DELETE "/api/v1/applications/{name}/resource" "" => ApplicationService::delete_resource;
        stream GET "/api/v1/applications/{name}/pods/{podName}/logs" "" => ApplicationService::pod_logs;
        stream GET "/api/v1/applications/{name}/logs" "" => ApplicationService::pod_logs;
        unary GET "/api/v1/applications/{name}/links" "" => ApplicationService::list_links;
        unary GET "/api/v1/applications/{name}/resource/links" "" => ApplicationService::list_resource_links;
        // applicationset.ApplicationSetService
        unary GET "/api/v1/applicationsets/{name}" "" => ApplicationSetService::get;
        unary POST "/api/v1/applicationsets/generate" "*" => ApplicationSetService::generate;
        unary GET "/api/v1/applicationsets" "" => ApplicationSetService::list;
        unary POST "/api/v1/applicationsets" "applicationset" => ApplicationSetService::create;
        unary DELETE "/api/v1/applicationsets/{name}" "" => ApplicationSetService::delete;
        unary GET "/api/v1/applicationsets/{name}/resource-tree" "" => ApplicationSetService::resource_tree;
        unary GET "/api/v1/applicationsets/{name}/events" "" => ApplicationSetService::list_resource_events;
        stream GET "/api/v1/stream/applicationsets" "" => ApplicationSetService::watch;
        // certificate.CertificateService
        unary GET "/api/v1/certificates" "" => CertificateService::list_certificates;
        unary POST "/api/v1/certificates" "certificates" => CertificateService::create_certificate;
        unary DELETE "/api/v1/certificates" "" => CertificateService::delete_certificate;
        // cluster.ClusterService
        unary GET "/api/v1/clusters" "" => ClusterService::list;
        unary POST "/api/v1/clusters" "cluster" => ClusterService::create;
        unary GET "/api/v1/clusters/{id.value}" "" => ClusterService::get;
        unary PUT "/api/v1/clusters/{id.value}" "cluster" => ClusterService::update;
        unary DELETE "/api/v1/clusters/{id.value}" "" => ClusterService::delete;
        unary POST "/api/v1/clusters/{id.value}/rotate-auth" "" => ClusterService::rotate_auth;
        unary POST "/api/v1/clusters/{id.value}/invalidate-cache" "" => ClusterService::invalidate_cache;
        // gpgkey.GPGKeyService
        unary GET "/api/v1/gpgkeys" "" => GpgKeyService::list;
        unary GET "/api/v1/gpgkeys/{keyID}" "" => GpgKeyService::get;
        unary POST "/api/v1/gpgkeys" "publickey" => GpgKeyService::create;
        unary DELETE "/api/v1/gpgkeys" "" => GpgKeyService::delete;
        // notification.NotificationService
        unary GET "/api/v1/notifications/triggers" "" => NotificationService::list_triggers;
        unary GET "/api/v1/notifications/services" "" => NotificationService::list_services;
        unary GET "/api/v1/notifications/templates" "" => NotificationService::list_templates;
        // project.ProjectService
        unary POST "/api/v1/projects/{project}/roles/{role}/token" "*" => ProjectService::create_token;
        unary DELETE "/api/v1/projects/{project}/roles/{role}/token/{iat}" "" => ProjectService::delete_token;
        unary POST "/api/v1/projects" "*" => ProjectService::create;
        unary GET "/api/v1/projects" "" => ProjectService::list;
        unary GET "/api/v1/projects/{name}/detailed" "" => ProjectService::get_detailed_project;
        unary GET "/api/v1/projects/{name}" "" => ProjectService::get;
        unary GET "/api/v1/projects/{name}/globalprojects" "" => ProjectService::get_global_projects;
        unary PUT "/api/v1/projects/{project.metadata.name}" "*" => ProjectService::update;
        unary DELETE "/api/v1/projects/{name}" "" => ProjectService::delete;
        unary GET "/api/v1/projects/{name}/events" "" => ProjectService::list_events;
        unary GET "/api/v1/projects/{name}/syncwindows" "" => ProjectService::get_sync_windows_state;
        unary GET "/api/v1/projects/{name}/links" "" => ProjectService::list_links;
        // repocreds.RepoCredsService
        unary GET "/api/v1/repocreds" "" => RepoCredsService::list_repository_credentials;
        unary GET "/api/v1/write-repocreds" "" => RepoCredsService::list_write_repository_credentials;
        unary POST "/api/v1/repocreds" "creds" => RepoCredsService::create_repository_credentials;
        unary POST "/api/v1/write-repocreds" "creds" => RepoCredsService::create_write_repository_credentials;
        unary PUT "/api/v1/repocreds/{creds.url}" "creds" => RepoCredsService::update_repository_credentials;
        unary PUT "/api/v1/write-repocreds/{creds.url}" "creds" => RepoCredsService::update_write_repository_credentials;
        unary DELETE "/api/v1/repocreds/{url}" "" => RepoCredsService::delete_repository_credentials;
        unary DELETE "/api/v1/write-repocreds/{url}" "" => RepoCredsService::delete_write_repository_credentials;
        // repository.RepositoryService
        unary GET "/api/v1/repositories" "" => RepositoryService::list;
        unary GET "/api/v1/repositories/{repo}" "" => RepositoryService::get;
        unary GET "/api/v1/write-repositories/{repo}" "" => RepositoryService::get_write;
        unary GET "/api/v1/write-repositories" "" => RepositoryService::list_write_repositories;
        unary GET "/api/v1/repositories/{repo}/refs" "" => RepositoryService::list_refs;
        unary GET "/api/v1/repositories/{repo}/oci-tags" "" => RepositoryService::list_oci_tags;
        unary GET "/api/v1/repositories/{repo}/apps" "" => RepositoryService::list_apps;
        unary POST "/api/v1/repositories/{source.repoURL}/appdetails" "*" => RepositoryService::get_app_details;
        unary GET "/api/v1/repositories/{repo}/helmcharts" "" => RepositoryService::get_helm_charts;
        unary POST "/api/v1/repositories" "repo" => RepositoryService::create;
        unary POST "/api/v1/write-repositories" "repo" => RepositoryService::create_write_repository;
        unary PUT "/api/v1/repositories/{repo.repo}" "repo" => RepositoryService::update;
        unary PUT "/api/v1/write-repositories/{repo.repo}" "repo" => RepositoryService::update_write_repository;
        unary DELETE "/api/v1/repositories/{repo}" "" => RepositoryService::delete;
        unary DELETE "/api/v1/write-repositories/{repo}" "" => RepositoryService::delete_write_repository;
        unary POST "/api/v1/repositories/{repo}/validate" "repo" => RepositoryService::validate_access;
        unary POST "/api/v1/write-repositories/{repo}/validate" "repo" => RepositoryService::validate_write_access;
        // session.SessionService
        unary GET "/api/v1/session/userinfo" "" => SessionService::get_user_info;
        session POST "/api/v1/session" "*" => SessionService::create;
        session DELETE "/api/v1/session" "" => SessionService::delete;
        // cluster.SettingsService
        unary GET "/api/v1/settings" "" => SettingsService::get;
        unary GET "/api/v1/settings/plugins" "" => SettingsService::get_plugins;
        // version.VersionService
        unary GET "/api/version" "" => VersionService::version;
    }
}
