//! Identities whose tokens are shown in place of a password, with servers of the test's own that sell them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use argosy_repo_server::Materialiser;
use argosy_repo_server::chart::{ChartRepo, Charts, Limits};
use argosy_repo_server::egress::Egress;
use argosy_repo_server::git::{Access, Credentials, Secret, TrustStore};
use argosy_repo_server::identity::{GithubApp, Identity, Principal, Proof, ServiceAccount};
use argosy_repo_server::metrics::Metrics;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};

use crate::charts::shelf;
use crate::git::host;
use crate::support::{Answer, Authority, Http, Repo, Seen, answer, git, http_backend};

/// An RSA key, in PEM, and its public half.
fn key() -> (String, Vec<u8>) {
    use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
    use aws_lc_rs::signature::KeyPair as _;
    let pair = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let text = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        lines.join("\n")
    );
    (pem, pair.public_key().as_ref().to_vec())
}

/// The claims of a statement that was signed with a key.
fn claims(statement: &str, public: &[u8]) -> Value {
    let (text, signature) = statement.rsplit_once('.').unwrap();
    let signature = BASE64URL.decode(signature).unwrap();
    aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::RSA_PKCS1_2048_8192_SHA256, public)
        .verify(text.as_bytes(), &signature)
        .expect("it is signed with the key");
    serde_json::from_slice(&BASE64URL.decode(text.split_once('.').unwrap().1).unwrap()).unwrap()
}

fn fields(seen: &Seen) -> HashMap<String, String> {
    assert_eq!(seen.headers["content-type"], "application/x-www-form-urlencoded");
    url::form_urlencoded::parse(&seen.body).into_owned().collect()
}

/// A Git server that wants to see a header, beside who sells what it wants.
async fn server(
    repo: &Repo,
    wants: &'static str,
    sells: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
) -> Http {
    let root = repo.path().to_owned();
    Http::start(None, move |seen| {
        if !seen.path.starts_with("/.git") {
            return sells(seen);
        }
        match seen.headers.get("authorization") {
            Some(shown) if shown == wants => http_backend(&root, seen),
            _ => (
                401,
                vec![("WWW-Authenticate".into(), "Basic realm=\"git\"".into())],
                Vec::new(),
            ),
        }
    })
    .await
}

fn basic(user: &str, password: &str) -> &'static str {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    Box::leak(format!("Basic {pair}").into_boxed_str())
}

/// Reads a file of the repository behind the server twice, with the refs asked for anew: one token does for all of it.
async fn read(server: &Http, identity: Identity) -> String {
    let credentials = Credentials {
        identity: Some(identity),
        ..Credentials::default()
    };
    let access = Access::new(&format!("http://{}/.git", server.address), credentials, 0).unwrap();
    let host = host();
    let text = host.read(&access, "", "a.txt").await.unwrap();
    host.git.refs(&access, true).await.unwrap();
    let seen = std::mem::take(&mut *server.seen.lock().unwrap());
    let sold = seen
        .iter()
        .filter(|seen| !seen.path.starts_with("/.git") && seen.method == "POST");
    assert_eq!(sold.count(), 1);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_of_github_reads_with_the_token_of_its_installation() {
    let repo = Repo::with(&[("a.txt", "for the app")]);
    let (pem, public) = key();
    let server = server(&repo, basic("x-access-token", "t0ken"), move |seen| {
        if seen.method == "GET" {
            assert_eq!(seen.path, "/api/v3/repos/team/app/installation");
            return answer(200, json!({"id": 77}).to_string());
        }
        assert_eq!(seen.path, "/api/v3/app/installations/77/access_tokens");
        let statement = seen.headers["authorization"].strip_prefix("Bearer ").unwrap();
        let claims = claims(statement, &public);
        assert_eq!(claims["iss"], "12");
        assert!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap() <= 600);
        answer(201, json!({"token": "t0ken"}).to_string())
    })
    .await;
    let app = GithubApp {
        app_id: 12,
        installation_id: 77,
        repository: String::new(),
        private_key: Secret::new(pem),
        base_url: format!("http://{}/api/v3/", server.address),
    };
    assert_eq!(
        read(&server, Identity::GithubApp(app.clone())).await,
        "for the app"
    );
    // Which installation it is, its owner knows.
    let app = GithubApp {
        installation_id: 0,
        repository: "team/app".into(),
        ..app
    };
    assert_eq!(read(&server, Identity::GithubApp(app)).await, "for the app");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_of_google_reads_with_a_token_that_its_key_buys() {
    let repo = Repo::with(&[("a.txt", "for the account")]);
    let (pem, public) = key();
    let email = "reader@project.iam.gserviceaccount.com";
    let server = server(&repo, basic(email, "t0ken"), move |seen| {
        let fields = fields(seen);
        assert_eq!(
            fields["grant_type"],
            "urn:ietf:params:oauth:grant-type:jwt-bearer"
        );
        let claims = claims(&fields["assertion"], &public);
        assert_eq!(claims["iss"], email);
        assert_eq!(claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
        assert_eq!(claims["aud"], format!("http://{}/token", seen.headers["host"]));
        answer(
            200,
            json!({"access_token": "t0ken", "expires_in": 3599}).to_string(),
        )
    })
    .await;
    let file = json!({
        "type": "service_account", "client_email": email, "private_key": pem,
        "token_uri": format!("http://{}/token", server.address),
    });
    let account = ServiceAccount::read(&file.to_string()).unwrap();
    assert_eq!(read(&server, Identity::Google(account)).await, "for the account");
    for other in [
        "",
        "{}",
        r#"{"type": "authorized_user", "client_email": "a", "private_key": "b"}"#,
    ] {
        assert!(ServiceAccount::read(other).is_err(), "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_and_a_workload_of_azure_read_with_tokens_of_entra() {
    let repo = Repo::with(&[("a.txt", "for azure")]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from-kubernetes\n").unwrap();
    let proofs = [
        (Proof::Secret(Secret::new("s3cret")), "client_secret", "s3cret"),
        (
            Proof::File(file.path().to_owned()),
            "client_assertion",
            "from-kubernetes",
        ),
    ];
    for (proof, field, value) in proofs {
        let server = server(&repo, "Bearer t0ken", move |seen| {
            assert_eq!(seen.path, "/tenant/oauth2/v2.0/token");
            let fields = fields(seen);
            assert_eq!(fields["grant_type"], "client_credentials");
            assert_eq!(fields["client_id"], "client");
            assert_eq!(fields["scope"], "499b84ac-1321-427f-aa17-267ca6975798/.default");
            assert_eq!(fields[field], value);
            answer(
                200,
                json!({"access_token": "t0ken", "expires_in": 3599}).to_string(),
            )
        })
        .await;
        let principal = Principal {
            tenant: "tenant".into(),
            client_id: "client".into(),
            proof,
            authority: format!("http://{}", server.address),
            resource: String::new(),
        };
        assert_eq!(read(&server, Identity::Azure(principal)).await, "for azure");
    }
}

/// Answers as a registry of Azure does (docs/AAD-OAuth.md of Azure/acr): a token of Entra is exchanged for one that refreshes, which is
/// the password of nobody (a GUID of zeros) where tokens for one repository are given out, and these open the shelf.
async fn registry_of_azure(tls: Arc<rustls::ServerConfig>, takes: &'static str) -> Http {
    let shelf = shelf();
    Http::start(Some(tls), move |seen| {
        let host = &seen.headers["host"];
        match (seen.method.as_str(), seen.path.as_str()) {
            ("POST", "/oauth2/exchange") => {
                let fields = fields(seen);
                let field = |name: &str| fields.get(name).map(String::as_str);
                let service = Some(host.as_str());
                if field("grant_type") != Some("access_token") || field("service") != service {
                    return answer(400, "");
                }
                if field("tenant") != Some("tenant") || field("access_token") != Some(takes) {
                    return answer(401, "");
                }
                answer(200, json!({"refresh_token": "acr-refresh"}).to_string())
            }
            ("GET", "/oauth2/token") => {
                let asked: HashMap<_, _> = url::form_urlencoded::parse(seen.query.as_bytes())
                    .into_owned()
                    .collect();
                let nobody = "00000000-0000-0000-0000-000000000000:acr-refresh";
                let right = asked["service"] == *host && asked["scope"] == "repository:charts/web:pull";
                match (seen.basic().as_deref() == Some(nobody), right) {
                    (true, true) => answer(200, json!({"access_token": "acr-access"}).to_string()),
                    (true, false) => answer(403, ""),
                    (false, _) => answer(401, ""),
                }
            }
            _ if seen
                .headers
                .get("authorization")
                .is_some_and(|shown| shown == "Bearer acr-access") =>
            {
                shelf(seen)
            }
            _ => {
                let challenge = format!("Bearer realm=\"https://{host}/oauth2/token\",service=\"{host}\"");
                (401, vec![("WWW-Authenticate".into(), challenge)], Vec::new())
            }
        }
    })
    .await
}

/// Charts, by way of a trust in the test's own authority.
fn charts(authority: &Authority, dir: &Path) -> Charts {
    let trust = TrustStore {
        tls_dir: dir.join("trust"),
        known_hosts: "/nonexistent".into(),
    };
    std::fs::create_dir(&trust.tls_dir).unwrap();
    std::fs::write(trust.tls_dir.join("localhost"), &authority.ca).unwrap();
    let minute = Duration::from_secs(60);
    let http = Arc::new(argosy_repo_server::http::Http::new(trust, Egress::open(), minute));
    let files = Arc::new(Materialiser::new(dir.join("trees"), u64::MAX, u64::MAX).unwrap());
    Charts::new(http, files, Limits::default(), minute, Metrics::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_of_azure_exchanges_its_token_for_one_of_the_registry() {
    let authority = Authority::new();
    let token = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(token.path(), "from-kubernetes\n").unwrap();
    // What an operator says registries take, and for whom a token is bought then.
    let resources = [
        ("", "https://management.core.windows.net/.default"),
        (
            "https://containerregistry.azure.net",
            "https://containerregistry.azure.net/.default",
        ),
    ];
    for (resource, scope) in resources {
        let registry = registry_of_azure(authority.server_config(false), "entra").await;
        let entra = Http::start(None, move |seen| {
            assert_eq!(seen.path, "/tenant/oauth2/v2.0/token");
            assert_eq!(fields(seen)["scope"], scope);
            answer(
                200,
                json!({"access_token": "entra", "expires_in": 3599}).to_string(),
            )
        })
        .await;
        let credentials = Credentials {
            identity: Some(Identity::Azure(Principal {
                tenant: "tenant".into(),
                client_id: "client".into(),
                proof: Proof::File(token.path().to_owned()),
                authority: format!("http://{}", entra.address),
                resource: resource.into(),
            })),
            ..Credentials::default()
        };
        let url = format!("localhost:{}/charts", registry.address.port());
        let repo = ChartRepo::new(&url, true, false, credentials, false);
        let dir = tempfile::tempdir().unwrap();
        let charts = charts(&authority, dir.path());
        let version = charts.resolve(&repo, "web", "1.x", false).await.unwrap();
        assert_eq!(version, "1.2.3");
        let chart = charts.fetch(&repo, "web", &version).await.unwrap();
        assert!(chart.path.join("Chart.yaml").is_file());
        // One of each for all of it.
        assert_eq!(entra.seen.lock().unwrap().len(), 1);
        let seen = registry.seen.lock().unwrap();
        assert_eq!(
            seen.iter().filter(|seen| seen.path == "/oauth2/exchange").count(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_of_azure_that_refuses_the_exchange_is_told_without_the_tokens() {
    let authority = Authority::new();
    let registry = registry_of_azure(authority.server_config(false), "another").await;
    let entra = Http::start(None, |_| {
        answer(
            200,
            json!({"access_token": "entra-t0ken", "expires_in": 3599}).to_string(),
        )
    })
    .await;
    let principal = Principal {
        tenant: "tenant".into(),
        client_id: "client".into(),
        proof: Proof::Secret(Secret::new("s3cret")),
        authority: format!("http://{}", entra.address),
        resource: String::new(),
    };
    let credentials = Credentials {
        identity: Some(Identity::Azure(principal)),
        ..Credentials::default()
    };
    let url = format!("localhost:{}/charts", registry.address.port());
    let repo = ChartRepo::new(&url, true, false, credentials, false);
    let dir = tempfile::tempdir().unwrap();
    let charts = charts(&authority, dir.path());
    let error = charts.resolve(&repo, "web", "1.x", false).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("/oauth2/exchange") && text.contains("401"),
        "{text}"
    );
    assert!(!text.contains("s3cret") && !text.contains("t0ken"), "{text}");
    // Nobody was asked as somebody without a name instead.
    let seen = registry.seen.lock().unwrap();
    assert!(
        seen.iter().all(|seen| seen.path != "/v2/charts/web/tags/list"),
        "{seen:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_that_buys_nothing_is_told_without_its_secrets() {
    let repo = Repo::with(&[("a.txt", "x")]);
    assert!(!git(repo.path(), &["rev-parse", "HEAD"]).is_empty());
    let server = Arc::new(server(&repo, "nothing", |_| answer(400, "no such client")).await);
    let principal = Principal {
        tenant: "tenant".into(),
        client_id: "client".into(),
        proof: Proof::Secret(Secret::new("s3cret")),
        authority: format!("http://{}", server.address),
        resource: String::new(),
    };
    let credentials = Credentials {
        identity: Some(Identity::Azure(principal)),
        ..Credentials::default()
    };
    let access = Access::new(&format!("http://{}/.git", server.address), credentials, 0).unwrap();
    let error = host().git.refs(&access, true).await.unwrap_err().to_string();
    assert!(
        error.contains("/tenant/oauth2/v2.0/token") && error.contains("400"),
        "{error}"
    );
    assert!(!error.contains("s3cret"), "{error}");
}
