//! Changes made at the same time, by people at two servers of one installation: none is lost.

use argosy_api::services::account::account_service_client::AccountServiceClient;
use argosy_api::services::account::{CreateTokenRequest, DeleteTokenRequest};
use argosy_api::services::certificate::RepositoryCertificateCreateRequest;
use argosy_api::services::certificate::certificate_service_client::CertificateServiceClient;
use argosy_api::services::project::ProjectTokenCreateRequest;
use argosy_api::services::project::project_service_client::ProjectServiceClient;
use argosy_api::v1alpha1::{RepositoryCertificate, RepositoryCertificateList};
use argosy_test_cluster::api::kinds;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use serde_json::Value;

use crate::world::{self, World, log_in, with};

const NAMESPACE: &str = "at-once";
/// So many at the same time.
const MANY: usize = 16;

async fn two_servers() -> [World; 2] {
    let one = world::start(NAMESPACE, &["--insecure"]).await;
    [one, world::start(NAMESPACE, &["--insecure"]).await]
}

async fn data(world: &World, kind: argosy_test_cluster::api::Kind, name: &str) -> Value {
    world.api.get(kind, NAMESPACE, name).await.unwrap().unwrap()["data"].take()
}

#[test]
fn nothing_that_is_made_at_the_same_time_is_lost() {
    world::run(async {
        let servers = two_servers().await;
        let admin = servers[0].admin().await;

        // Tokens of an account: one list in one value of a Secret.
        let made = try_join_all((0..MANY).map(|at| {
            let mut client = AccountServiceClient::new(servers[at % 2].channel.clone());
            let request = CreateTokenRequest {
                name: "dev".into(),
                id: format!("t{at}"),
                ..CreateTokenRequest::default()
            };
            let request = with(&admin, request);
            async move { client.create_token(request).await }
        }));
        made.await.unwrap();
        let tokens = |secret: Value| -> Vec<String> {
            let text = STANDARD
                .decode(secret["accounts.dev.tokens"].as_str().unwrap())
                .unwrap();
            let tokens: Vec<Value> = serde_json::from_slice(&text).unwrap();
            let mut ids: Vec<_> = tokens
                .iter()
                .map(|token| token["id"].as_str().unwrap().to_owned())
                .collect();
            ids.sort();
            ids
        };
        let mut expected: Vec<_> = (0..MANY).map(|at| format!("t{at}")).collect();
        expected.sort();
        assert_eq!(
            tokens(data(&servers[0], kinds::SECRET, "argocd-secret").await),
            expected
        );

        // Some go while others come.
        let changed = try_join_all((0..MANY).map(|at| {
            let mut client = AccountServiceClient::new(servers[at % 2].channel.clone());
            let admin = &admin;
            async move {
                if at < MANY / 2 {
                    let request = DeleteTokenRequest {
                        name: "dev".into(),
                        id: format!("t{at}"),
                    };
                    client.delete_token(with(admin, request)).await.map(drop)
                } else {
                    let request = CreateTokenRequest {
                        name: "dev".into(),
                        id: format!("u{at}"),
                        ..CreateTokenRequest::default()
                    };
                    client.create_token(with(admin, request)).await.map(drop)
                }
            }
        }));
        changed.await.unwrap();
        let mut expected: Vec<_> = (MANY / 2..MANY)
            .flat_map(|at| [format!("t{at}"), format!("u{at}")])
            .collect();
        expected.sort();
        assert_eq!(
            tokens(data(&servers[0], kinds::SECRET, "argocd-secret").await),
            expected
        );

        // An id that is taken is taken, however close the second comes.
        let twice = futures::future::join_all((0..4).map(|at| {
            let mut client = AccountServiceClient::new(servers[at % 2].channel.clone());
            let request = CreateTokenRequest {
                name: "dev".into(),
                id: "same".into(),
                ..CreateTokenRequest::default()
            };
            let request = with(&admin, request);
            async move { client.create_token(request).await }
        }));
        let twice = twice.await;
        assert_eq!(twice.iter().filter(|made| made.is_ok()).count(), 1, "{twice:?}");

        // Tokens of a project's role: a list in the project.
        let made = try_join_all((0..MANY).map(|at| {
            let mut client = ProjectServiceClient::new(servers[at % 2].channel.clone());
            let request = ProjectTokenCreateRequest {
                project: "shop".into(),
                role: "ci".into(),
                id: format!("p{at}"),
                ..ProjectTokenCreateRequest::default()
            };
            let request = with(&admin, request);
            async move { client.create_token(request).await }
        }));
        made.await.unwrap();
        let project = servers[0]
            .api
            .get(kinds::PROJECT, NAMESPACE, "shop")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            project["spec"]["roles"][0]["jwtTokens"].as_array().unwrap().len(),
            MANY
        );
        assert_eq!(
            project["status"]["jwtTokensByRole"]["ci"]["items"]
                .as_array()
                .unwrap()
                .len(),
            MANY
        );

        // Keys of SSH hosts: lines of one text.
        let key = STANDARD.encode("a key");
        let made = try_join_all((0..MANY).map(|at| {
            let mut client = CertificateServiceClient::new(servers[at % 2].channel.clone());
            let certificate = RepositoryCertificate {
                server_name: format!("host-{at}"),
                cert_type: "ssh".into(),
                cert_sub_type: "ssh-ed25519".into(),
                cert_data: key.clone().into_bytes(),
                ..RepositoryCertificate::default()
            };
            let certificates = RepositoryCertificateList {
                items: vec![certificate],
                ..RepositoryCertificateList::default()
            };
            let request = with(
                &admin,
                RepositoryCertificateCreateRequest {
                    certificates: Some(certificates),
                    upsert: false,
                },
            );
            async move { client.create_certificate(request).await }
        }));
        made.await.unwrap();
        let hosts = data(&servers[0], kinds::CONFIG_MAP, "argocd-ssh-known-hosts-cm").await;
        assert_eq!(hosts["ssh_known_hosts"].as_str().unwrap().lines().count(), MANY);

        // Failed logins at both servers are one budget.
        let failed = futures::future::join_all((0..6).map(|at| {
            let channel = servers[at % 2].channel.clone();
            async move { log_in(&channel, "human", "wrong").await }
        }));
        assert!(failed.await.iter().all(Result::is_err));
        let failures = data(&servers[0], kinds::SECRET, "argosy-login-failures").await;
        let failures = STANDARD.decode(failures["human"].as_str().unwrap()).unwrap();
        let failures = String::from_utf8(failures).unwrap();
        assert!(failures.split(',').count() >= 5, "{failures}");
    });
}

#[test]
fn servers_that_start_together_agree_on_the_first_password() {
    world::run(async {
        let namespace = "first-start";
        let both = world::start_bare(namespace);
        let [one, two] = both.await;
        let secret = one
            .api
            .get(kinds::SECRET, namespace, "argocd-initial-admin-secret")
            .await
            .unwrap()
            .unwrap();
        let password = STANDARD
            .decode(secret["data"]["password"].as_str().unwrap())
            .unwrap();
        let password = String::from_utf8(password).unwrap();
        let session = log_in(&one.channel, "admin", &password).await.unwrap();
        log_in(&two.channel, "admin", &password).await.unwrap();
        // What one signs counts at the other.
        let mut client = AccountServiceClient::new(two.channel.clone());
        let list = client.list_accounts(with(
            &session,
            argosy_api::services::account::ListAccountRequest {},
        ));
        assert_eq!(list.await.unwrap().into_inner().items.len(), 1);
    });
}
