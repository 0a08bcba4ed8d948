//! What the services do, where neither a controller nor a repo-server is needed for it.

use argosy_test_cluster::api::kinds;
use serde_json::{Value, json};

use crate::world::{CANARY, run, start, world};

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn app(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"project": "shop",
        "source": {"repoURL": "https://git.example.com/app", "path": "deploy"},
        "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"}}})
}

#[test]
fn an_application_is_made_changed_and_deleted() {
    run(async {
        let world = world().await;
        let dev = world.token("dev").await;
        let create = async |body: Value, query: &str| {
            world
                .http(
                    "POST",
                    &format!("/api/v1/applications?validate=false{query}"),
                    &dev,
                    Some(body),
                )
                .await
        };
        let (status, body) = create(app("made"), "").await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(parsed(&body)["metadata"]["namespace"], "argocd");
        // The same once more is no error; another without upsert is.
        assert_eq!(create(app("made"), "").await.0, 200);
        let mut other = app("made");
        other["spec"]["source"]["path"] = "elsewhere".into();
        let (status, body) = create(other.clone(), "").await;
        assert_eq!(status, 400);
        assert!(body.contains("use upsert flag to force update"), "{body}");
        assert_eq!(create(other, "&upsert=true").await.0, 200);
        // Status and operations cannot be smuggled in.
        let mut smuggled = app("smuggled");
        smuggled["status"] = json!({"sync": {"status": "Synced"}});
        smuggled["operation"] = json!({"sync": {"revision": "x"}});
        let (status, body) = create(smuggled, "").await;
        assert_eq!(status, 200, "{body}");
        assert!(parsed(&body).get("operation").is_none(), "{body}");
        // Not into projects of others, neither at first nor by moving.
        let mut foreign = app("foreign");
        foreign["spec"]["project"] = "other".into();
        assert_eq!(create(foreign, "").await.0, 403);
        let moved = json!({"patch": "{\"spec\":{\"project\":\"other\"}}", "patchType": "merge"});
        let (status, body) = world
            .http("PATCH", "/api/v1/applications/made", &dev, Some(moved))
            .await;
        assert_eq!(status, 403, "{body}");

        let (status, body) = world
            .http("DELETE", "/api/v1/applications/made?cascade=true", &dev, None)
            .await;
        assert_eq!((status, body.as_str()), (200, "{}"));
        let stored = world
            .api
            .get(kinds::APPLICATION, "argocd", "made")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            stored["metadata"]["finalizers"],
            json!(["resources-finalizer.argocd.argoproj.io"])
        );
        assert!(stored["metadata"]["deletionTimestamp"].is_string());
        let (status, body) = world
            .http("DELETE", "/api/v1/applications/made?cascade=false", &dev, None)
            .await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            world.api.get(kinds::APPLICATION, "argocd", "made").await.unwrap(),
            None
        );
        let (status, body) = world
            .http(
                "DELETE",
                "/api/v1/applications/smuggled?cascade=false&propagationPolicy=foreground",
                &dev,
                None,
            )
            .await;
        assert_eq!(status, 400, "{body}");
        assert_eq!(
            world
                .http(
                    "DELETE",
                    "/api/v1/applications/smuggled?cascade=false",
                    &dev,
                    None
                )
                .await
                .0,
            200
        );
    });
}

#[test]
fn what_cannot_be_deployed_is_refused_when_it_is_made() {
    run(async {
        let world = world().await;
        let dev = world.token("dev").await;
        let cases = [
            (
                json!({"destination": {"namespace": "default"}}),
                "application destination spec for bad is invalid: Destination server missing from app spec",
            ),
            (
                json!({"destination": {"name": "nowhere", "namespace": "default"}}),
                "application destination spec for bad is invalid: there are no clusters with this name: nowhere",
            ),
            (
                json!({"destination": {"name": "in-cluster", "server": "https://kubernetes.default.svc"}}),
                "application destination can't have both name and server defined: in-cluster https://kubernetes.default.svc",
            ),
            (
                json!({"source": {"repoURL": "https://git.example.com/app"}}),
                "InvalidSpecError: spec.source.repoURL and either spec.source.path or spec.source.chart are required",
            ),
            (
                json!({"source": {"repoURL": "https://charts.example.com", "chart": "web"}}),
                "InvalidSpecError: spec.source.targetRevision is required if the manifest source is a helm chart",
            ),
            (
                json!({"source": null, "sources": [
                    {"repoURL": "https://git.example.com/app", "path": "a", "name": "one"},
                    {"repoURL": "https://git.example.com/app", "path": "b", "name": "one"},
                ]}),
                "application bad has duplicate source name: one",
            ),
        ];
        for (change, words) in cases {
            let mut bad = app("bad");
            for (key, value) in change.as_object().unwrap() {
                bad["spec"][key] = value.clone();
            }
            let (status, body) = world
                .http("POST", "/api/v1/applications?validate=false", &dev, Some(bad))
                .await;
            assert_eq!(status, 400, "{body}");
            let message = parsed(&body)["message"].as_str().unwrap_or_default().to_owned();
            assert!(message.ends_with(words), "{message}");
        }
        // That a repository cannot be asked for is no fault of the spec.
        let (status, body) = world
            .http("POST", "/api/v1/applications", &dev, Some(app("bad")))
            .await;
        assert_eq!(status, 503, "{body}");
    });
}

#[test]
fn what_argo_cds_program_relies_on_is_answered_as_argo_cd_answers_it() {
    run(async {
        let world = world().await;
        let human = world.token("human").await;
        let http = async |method: &str, path: &str, token: &str, body: Option<Value>| {
            let (status, body) = world.http(method, path, token, body).await;
            (status, parsed(&body))
        };
        // It makes an ApplicationSet only where it is told that there is none.
        let (status, body) = http("GET", "/api/v1/applicationsets/none", &human, None).await;
        assert_eq!((status, &body["code"]), (404, &json!(5)), "{body}");

        // Capabilities stand as the ConfigMap says them, tokens with the newest first, and what is not there cannot go.
        let (_, account) = http("GET", "/api/v1/account/human", &human, None).await;
        assert_eq!(account["capabilities"], json!(["login", "apiKey"]));
        let path = "/api/v1/account/human/token/none";
        let (status, body) = http("DELETE", path, &human, None).await;
        assert_eq!(status, 404);
        assert_eq!(body["message"], "token with id 'none' does not exist");
        let (status, body) = http("GET", "/api/v1/account/can-i/applications/fly/x", &human, None).await;
        assert_eq!(status, 400);
        assert_eq!(
            body["message"],
            "[get create update delete sync rollback override action invoke] does not contain fly"
        );
    });
}

#[test]
fn a_sync_is_an_operation_that_is_written_once() {
    run(async {
        let world = start("syncs", &["--insecure"]).await;
        let syncer = world.token("syncer").await;
        let manifests = json!({"manifests": ["{}"], "dryRun": true});
        // Manifests of one's own need the right to override.
        let (status, body) = world
            .http(
                "POST",
                "/api/v1/applications/web/sync",
                &syncer,
                Some(manifests.clone()),
            )
            .await;
        assert_eq!(status, 403, "{body}");
        let dev = world.token("dev").await;
        let sync = async |body: Value| {
            world
                .http("POST", "/api/v1/applications/web/sync", &dev, Some(body))
                .await
        };
        let mut asked = manifests;
        asked["prune"] = true.into();
        asked["infos"] = json!([{"name": "why", "value": "test"}]);
        asked["syncOptions"] = json!({"items": ["ServerSideApply=true"]});
        let (status, body) = sync(asked).await;
        assert_eq!(status, 200, "{body}");
        let operation = &parsed(&body)["operation"];
        assert_eq!(operation["initiatedBy"], json!({"username": "dev"}));
        assert_eq!(operation["sync"]["prune"], true);
        assert_eq!(operation["sync"]["dryRun"], true);
        assert_eq!(operation["sync"]["syncOptions"], json!(["ServerSideApply=true"]));
        assert_eq!(operation["info"], json!([{"name": "why", "value": "test"}]));
        let (status, body) = sync(json!({"manifests": ["{}"], "dryRun": true})).await;
        assert_eq!(status, 400);
        assert!(
            body.contains("another operation is already in progress"),
            "{body}"
        );
        let (status, body) = world
            .http("DELETE", "/api/v1/applications/web/operation", &dev, None)
            .await;
        assert_eq!(status, 400, "there is no state of it yet: {body}");
        let (status, body) = world
            .http(
                "POST",
                "/api/v1/applications/web/rollback",
                &dev,
                Some(json!({"id": 7})),
            )
            .await;
        assert_eq!(status, 400);
        assert!(body.contains("does not have deployment with id 7"), "{body}");
    });
}

#[test]
fn roles_and_tokens_of_a_project_come_and_go() {
    run(async {
        let world = start("projects", &["--insecure"]).await;
        let admin = world.admin().await;
        let project = json!({"project": {"metadata": {"name": "new"}, "spec": {"sourceRepos": ["*"],
            "destinations": [{"server": "*", "namespace": "*"}]}}});
        let (status, body) = world
            .http("POST", "/api/v1/projects", &admin, Some(project))
            .await;
        assert_eq!(status, 200, "{body}");
        let mut stored = parsed(&body);
        stored["spec"]["roles"] =
            json!([{"name": "ci", "policies": ["p, proj:new:ci, applications, get, other/*, allow"]}]);
        let put = async |project: &Value| {
            world
                .http(
                    "PUT",
                    "/api/v1/projects/new",
                    &admin,
                    Some(json!({"project": project})),
                )
                .await
        };
        let (status, body) = put(&stored).await;
        assert_eq!(status, 400);
        assert!(body.contains("object must be of form 'new/*'"), "{body}");
        stored["spec"]["roles"][0]["policies"] = json!(["p, proj:new:ci, applications, get, new/*, allow"]);
        assert_eq!(put(&stored).await.0, 200);
        // What was read before that is old now.
        let (status, body) = put(&stored).await;
        assert_eq!(status, 409, "{body}");

        let made = world
            .http(
                "POST",
                "/api/v1/projects/new/roles/ci/token",
                &admin,
                Some(json!({"id": "one", "expiresIn": "3600"})),
            )
            .await;
        assert_eq!(made.0, 400, "numbers are numbers: {}", made.1);
        let (status, body) = world
            .http(
                "POST",
                "/api/v1/projects/new/roles/ci/token",
                &admin,
                Some(json!({"id": "one", "expiresIn": 3600})),
            )
            .await;
        assert_eq!(status, 200, "{body}");
        let token = parsed(&body)["token"].as_str().unwrap().to_owned();
        assert_eq!(
            world.http("GET", "/api/v1/projects/new", &token, None).await.0,
            200
        );
        assert_eq!(
            world.http("GET", "/api/v1/projects/shop", &token, None).await.0,
            403
        );
        let stored = world
            .api
            .get(kinds::PROJECT, "projects", "new")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(stored["status"]["jwtTokensByRole"]["ci"]["items"][0]["id"], "one");
        let iat = stored["spec"]["roles"][0]["jwtTokens"][0]["iat"]
            .as_i64()
            .unwrap();
        let path = format!("/api/v1/projects/new/roles/ci/token/{iat}");
        assert_eq!(world.http("DELETE", &path, &admin, None).await.0, 200);
        assert_eq!(
            world.http("GET", "/api/v1/projects/new", &token, None).await.0,
            401
        );
        assert_eq!(
            world
                .http("DELETE", "/api/v1/projects/default", &admin, None)
                .await
                .0,
            400
        );
        let (status, body) = world.http("DELETE", "/api/v1/projects/shop", &admin, None).await;
        assert_eq!(status, 400);
        assert!(body.contains("referenced by 1 applications"), "{body}");
        assert_eq!(
            world.http("DELETE", "/api/v1/projects/new", &admin, None).await.0,
            200
        );
    });
}

#[test]
fn a_cluster_is_changed_only_by_who_may_change_what_it_is_and_what_it_becomes() {
    run(async {
        let world = start("clusters", &["--insecure"]).await;
        let policy =
            json!({"data": {"policy.csv": "p, dev, clusters, *, https://only.example.com, allow\n"}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "clusters", "argocd-rbac-cm", &policy)
            .await
            .unwrap();
        let dev = world.token("dev").await;
        let body =
            json!({"server": "https://only.example.com", "name": "far", "config": {"bearerToken": "stolen"}});
        // The path says one cluster, the body another.
        let path = "/api/v1/clusters/https%3A%2F%2Ffar.example.com%3A6443";
        assert_eq!(world.http("PUT", path, &dev, Some(body.clone())).await.0, 403);
        assert_eq!(
            world
                .http("PUT", "/api/v1/clusters/far?id.type=name", &dev, Some(body))
                .await
                .0,
            403
        );
        assert_eq!(world.http("DELETE", path, &dev, None).await.0, 403);
        let stored = world
            .api
            .get(kinds::SECRET, "clusters", "cluster-1")
            .await
            .unwrap()
            .unwrap();
        assert!(stored["data"]["config"].is_string());
        let admin = world.admin().await;
        let (status, body) = world.http("DELETE", path, &admin, None).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            world
                .api
                .get(kinds::SECRET, "clusters", "cluster-1")
                .await
                .unwrap(),
            None
        );
    });
}

#[test]
fn known_hosts_certificates_and_templates_are_written_where_argo_cd_keeps_them() {
    run(async {
        let world = start("keys", &["--insecure"]).await;
        let admin = world.admin().await;
        let key = "AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
        use base64::Engine as _;
        let data = base64::engine::general_purpose::STANDARD.encode(key);
        let body = json!({"items": [{"serverName": "git.example.com", "certType": "ssh", "certSubType": "ssh-ed25519", "certData": data}]});
        let (status, text) = world
            .http("POST", "/api/v1/certificates", &admin, Some(body))
            .await;
        assert_eq!(status, 200, "{text}");
        let stored = world
            .api
            .get(kinds::CONFIG_MAP, "keys", "argocd-ssh-known-hosts-cm")
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            stored["data"]["ssh_known_hosts"],
            format!("git.example.com ssh-ed25519 {key}\n")
        );
        let (_, text) = world
            .http("GET", "/api/v1/certificates?certType=ssh", &admin, None)
            .await;
        assert!(text.contains("\"certInfo\":\"SHA256:"), "{text}");
        let (status, _) = world
            .http(
                "DELETE",
                "/api/v1/certificates?hostNamePattern=git.*",
                &admin,
                None,
            )
            .await;
        assert_eq!(status, 200);

        let body = json!({"url": "https://new.example.com/", "username": "u", "password": CANARY});
        let (status, text) = world.http("POST", "/api/v1/repocreds", &admin, Some(body)).await;
        assert_eq!(status, 200, "{text}");
        assert!(!text.contains(CANARY), "{text}");
        let secrets = world.api.list(kinds::SECRET, "keys").await.unwrap();
        let made = secrets.iter().find(|secret| {
            secret["metadata"]["name"].as_str().unwrap().starts_with("creds-")
                && secret["metadata"]["annotations"]["managed-by"] == "argocd.argoproj.io"
        });
        assert_eq!(
            made.unwrap()["metadata"]["labels"]["argocd.argoproj.io/secret-type"],
            "repo-creds"
        );
        let (status, _) = world
            .http(
                "DELETE",
                "/api/v1/repocreds/https%3A%2F%2Fnew.example.com%2F",
                &admin,
                None,
            )
            .await;
        assert_eq!(status, 200);
    });
}

#[test]
fn a_webhook_asks_for_a_look_at_what_it_touches_and_nothing_else() {
    run(async {
        let world = start("hooks", &["--insecure"]).await;
        let push = json!({"ref": "refs/heads/main", "repository": {"html_url": "https://git.example.com/app", "default_branch": "main"}});
        let client = reqwest::Client::new();
        let url = format!("http://{}/api/webhook", world.address);
        let post = async |body: String| {
            client
                .post(&url)
                .header("X-GitHub-Event", "push")
                .body(body)
                .send()
                .await
                .unwrap()
                .status()
                .as_u16()
        };
        assert_eq!(post("nonsense".to_owned()).await, 400);
        assert_eq!(client.get(&url).send().await.unwrap().status().as_u16(), 405);
        let floods = (0..200).map(|_| post(push.to_string()));
        assert!(
            futures::future::join_all(floods)
                .await
                .into_iter()
                .all(|status| status == 200)
        );
        let started = std::time::Instant::now();
        loop {
            let app = world
                .api
                .get(kinds::APPLICATION, "hooks", "web")
                .await
                .unwrap()
                .unwrap();
            if app["metadata"]["annotations"]["argocd.argoproj.io/refresh"] == "normal" {
                break;
            }
            assert!(
                started.elapsed() < crate::world::PATIENCE,
                "nothing was asked for"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let secret = json!({"stringData": {"webhook.github.secret": "s3cret"}});
        world
            .api
            .merge_patch(kinds::SECRET, "hooks", "argocd-secret", &secret)
            .await
            .unwrap();
        while post(push.to_string()).await != 401 {
            assert!(
                started.elapsed() < crate::world::PATIENCE,
                "an unsigned hook is still taken"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
}
