//! Where the bounds of what somebody may do lie: what a project reaches, whose repositories one looks into, what is told of what is
//! others'.

use argosy_test_cluster::api::kinds;
use serde_json::{Value, json};
use tonic::Code;

use crate::world::{run, start};

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn a_project_reaches_no_further_than_those_who_change_it() {
    run(async {
        let world = start("reach", &["--insecure"]).await;
        let owner = world.token("nobody").await;
        let lines = [
            "p, nobody, projects, update, shop, allow",
            "p, nobody, projects, create, shop, allow",
            "p, nobody, projects, get, shop, allow",
        ];
        world.allow("reach", &owner, &lines).await;
        let put = async |change: &dyn Fn(&mut Value)| {
            let (_, body) = world.http("GET", "/api/v1/projects/shop", &owner, None).await;
            let mut project = parsed(&body);
            change(&mut project["spec"]);
            let body = json!({"project": project});
            world
                .http("PUT", "/api/v1/projects/shop", &owner, Some(body))
                .await
        };
        let (status, body) = put(&|spec| spec["description"] = "mine".into()).await;
        assert_eq!(status, 200, "{body}");
        let far = |spec: &mut Value| {
            spec["destinations"]
                .as_array_mut()
                .unwrap()
                .push(json!({"server": "https://far.example.com:6443", "namespace": "*"}));
        };
        let repository = |spec: &mut Value| {
            spec["sourceRepos"]
                .as_array_mut()
                .unwrap()
                .push("https://git.example.com/new".into());
        };
        let kinds =
            |spec: &mut Value| spec["clusterResourceWhitelist"] = json!([{"group": "", "kind": "Node"}]);
        for (what, change) in [
            ("clusters, update, https://far", &far as &dyn Fn(&mut Value)),
            ("repositories, update, https://git.example.com/new", &repository),
            ("clusters, update, *", &kinds),
        ] {
            let (status, body) = put(change).await;
            assert_eq!(status, 403, "{what}: {body}");
            assert!(body.contains(what), "{body}");
        }
        // Nor by the way round of making it once more.
        let (_, body) = world.http("GET", "/api/v1/projects/shop", &owner, None).await;
        let mut spec = parsed(&body)["spec"].clone();
        far(&mut spec);
        let again = json!({"project": {"metadata": {"name": "shop"}, "spec": spec}, "upsert": true});
        let (status, body) = world.http("POST", "/api/v1/projects", &owner, Some(again)).await;
        assert_eq!(status, 403, "{body}");

        let lines = [
            "p, nobody, repositories, update, *, allow",
            "p, nobody, clusters, update, *, allow",
        ];
        world.allow("reach", &owner, &lines).await;
        for change in [&far as &dyn Fn(&mut Value), &repository, &kinds] {
            let (status, body) = put(change).await;
            assert_eq!(status, 200, "{body}");
        }
        // What it has deploys on.
        let (status, body) = put(&|spec| spec["sourceRepos"] = json!(["https://git.example.com/new"])).await;
        assert_eq!(status, 400, "{body}");
        assert!(
            body.contains("as a result of project update 1 applications source became invalid"),
            "{body}"
        );
        let (status, body) = put(&|spec| {
            spec["destinations"] = json!([{"server": "https://far.example.com:6443", "namespace": "*"}]);
        })
        .await;
        assert_eq!(status, 400, "{body}");
        assert!(
            body.contains("1 applications destination became invalid"),
            "{body}"
        );
    });
}

#[test]
fn to_look_into_a_repository_takes_more_than_to_see_it() {
    run(async {
        let world = start("inside", &["--insecure"]).await;
        let reader = world.token("reader").await;
        let known = "https%3A%2F%2Fgit.example.com%2Fapp";
        let details = async |token: &str, body: Value| {
            let path = format!("/api/v1/repositories/{known}/appdetails");
            world.http("POST", &path, token, Some(body)).await
        };
        let source = |path: &str| json!({"repoURL": "https://git.example.com/app", "path": path});
        // The sources of an Application that one sees are open; others are for those who may have them deployed.
        let of_web = json!({"source": source("deploy"), "appName": "web", "appProject": "shop"});
        assert_eq!(details(&reader, of_web).await.0, 503, "there is no repo-server");
        for (name, project) in [("", ""), ("", "shop"), ("none", "shop"), ("web", "shop")] {
            let other = json!({"source": source("other"), "appName": name, "appProject": project});
            let (status, body) = details(&reader, other).await;
            assert!(
                matches!(status, 403 | 404),
                "{name:?} {project:?}: {status} {body}"
            );
        }
        let apps = format!("/api/v1/repositories/{known}/apps?appProject=shop&appName=new");
        let (status, body) = world.http("GET", &apps, &reader, None).await;
        assert_eq!(status, 403, "{body}");
        // Who may create may look; not, however, where the project does not reach.
        let lines = [
            "p, reader, applications, create, shop/*, allow",
            "p, reader, applications, create, other/*, allow",
        ];
        world.allow("inside", &reader, &lines).await;
        assert_eq!(world.http("GET", &apps, &reader, None).await.0, 503);
        let new = json!({"source": source("other"), "appName": "new", "appProject": "shop"});
        assert_eq!(details(&reader, new).await.0, 503);
        let narrow = json!({"spec": {"sourceRepos": ["https://git.example.com/shop"]}});
        world
            .api
            .merge_patch(kinds::PROJECT, "inside", "other", &narrow)
            .await
            .unwrap();
        let elsewhere = apps.replace("appProject=shop", "appProject=other");
        let started = std::time::Instant::now();
        loop {
            let (status, body) = world.http("GET", &elsewhere, &reader, None).await;
            if status == 403 {
                assert!(body.contains("not permitted in project 'other'"), "{body}");
                break;
            }
            assert!(started.elapsed() < crate::world::PATIENCE, "{status} {body}");
        }
    });
}

#[test]
fn credentials_of_templates_are_not_a_projects_to_use() {
    run(async {
        let world = start("templates", &["--insecure"]).await;
        let member = world.token("nobody").await;
        let line = "p, nobody, repositories, get, shop/*, allow";
        world.allow("templates", &member, &[line]).await;
        let refs = async |name: &str| {
            let path =
                format!("/api/v1/repositories/https%3A%2F%2Fgit.example.com%2F{name}/refs?appProject=shop");
            world.http("GET", &path, &member, None).await
        };
        // Its own is there to be asked; one that nobody has stored is entered with a template, which is everybody's.
        assert_eq!(refs("shop").await.0, 503);
        let (status, body) = refs("private").await;
        assert_eq!(status, 403, "{body}");
    });
}

#[test]
fn what_the_installation_denies_a_project_does_not_allow() {
    run(async {
        let world = start("denied", &["--insecure"]).await;
        let role = world.project_token("shop", "ci").await;
        let can = async |action: &str| {
            let path = format!("/api/v1/account/can-i/applications/{action}/shop/web");
            world.http("GET", &path, &role, None).await.1
        };
        assert_eq!(can("sync").await, r#"{"value":"yes"}"#);
        let line = "p, proj:shop:ci, applications, sync, shop/web, deny";
        world.allow("denied", &role, &[line]).await;
        assert_eq!(can("get").await, r#"{"value":"yes"}"#);
        let body = json!({"manifests": ["{}"], "dryRun": true});
        let (status, body) = world
            .http("POST", "/api/v1/applications/web/sync", &role, Some(body))
            .await;
        assert_eq!(status, 403, "{body}");
    });
}

#[test]
fn a_name_that_is_taken_does_not_tell_by_whom() {
    run(async {
        let world = start("taken", &["--insecure"]).await;
        let dev = world.token("dev").await;
        let app = json!({"metadata": {"name": "api"}, "spec": {"project": "shop",
            "source": {"repoURL": "https://git.example.com/app", "path": "deploy"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"}}});
        let path = "/api/v1/applications?validate=false&upsert=true";
        let (status, body) = world.http("POST", path, &dev, Some(app)).await;
        assert_eq!(status, 403, "{body}");
        assert!(!body.contains("other"), "{body}");
    });
}

#[test]
fn a_dry_run_writes_nothing_whatever_there_is() {
    run(async {
        let world = start("dryruns", &["--insecure"]).await;
        let admin = world.admin().await;
        let set = |name: &str| {
            json!({"metadata": {"name": "set", "labels": {"name": name}}, "spec": {"generators": [{"list": {"elements": []}}],
                "template": {"metadata": {"name": name}, "spec": {"project": "shop", "destination": {}}}}})
        };
        let post = async |query: &str, set: Value| {
            let path = format!("/api/v1/applicationsets?{query}");
            world.http("POST", &path, &admin, Some(set)).await
        };
        let name = async || {
            let (_, body) = world
                .http("GET", "/api/v1/applicationsets/set", &admin, None)
                .await;
            parsed(&body)["spec"]["template"]["metadata"]["name"].clone()
        };
        assert_eq!(post("dryRun=true", set("a")).await.0, 200);
        assert!(name().await.is_null());
        let (status, body) = post("", set("a")).await;
        assert_eq!(status, 200, "{body}");
        let (status, body) = post("upsert=true&dryRun=true", set("b")).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(
            parsed(&body)["spec"]["template"]["metadata"]["name"],
            "b",
            "what it would be"
        );
        assert_eq!(name().await, "a");
        assert_eq!(post("upsert=true", set("b")).await.0, 200);
        assert_eq!(name().await, "b");
    });
}

#[test]
fn manifests_of_ones_own_do_not_go_round_signatures() {
    run(async {
        let world = start("signed", &["--insecure"]).await;
        let dev = world.token("dev").await;
        let body = json!({"manifests": ["{}"], "dryRun": true});
        let sync = async || {
            let path = "/api/v1/applications/web/sync";
            world.http("POST", path, &dev, Some(body.clone())).await
        };
        let keys = json!({"spec": {"signatureKeys": [{"keyID": "4AEE18F83AFDEB23"}]}});
        world
            .api
            .merge_patch(kinds::PROJECT, "signed", "shop", &keys)
            .await
            .unwrap();
        let started = std::time::Instant::now();
        while parsed(&world.http("GET", "/api/v1/projects/shop", &dev, None).await.1)["spec"]["signatureKeys"]
            .is_null()
        {
            assert!(started.elapsed() < crate::world::PATIENCE);
        }
        let (status, text) = sync().await;
        assert_eq!(status, 400, "{text}");
        assert!(
            text.contains("Cannot use local manifests when source integrity is enforced"),
            "{text}"
        );
    });
}

#[test]
fn an_application_that_moves_away_while_it_is_changed_is_left_alone() {
    run(async {
        let world = start("moving", &["--insecure"]).await;
        let dev = world.token("dev").await;
        let project = |name: &str| json!({"spec": {"project": name, "source": {"path": "deploy"}}});
        for round in 0..20 {
            world
                .api
                .merge_patch(kinds::APPLICATION, "moving", "web", &project("shop"))
                .await
                .unwrap();
            let started = std::time::Instant::now();
            while world.http("GET", "/api/v1/applications/web", &dev, None).await.0 != 200 {
                assert!(started.elapsed() < crate::world::PATIENCE);
            }
            // It goes to a project of others at the same moment.
            world
                .api
                .merge_patch(kinds::APPLICATION, "moving", "web", &project("other"))
                .await
                .unwrap();
            let patch = json!({"patch": "[{\"op\": \"replace\", \"path\": \"/spec/source/path\", \"value\": \"mine\"}]"});
            let (status, body) = world
                .http("PATCH", "/api/v1/applications/web", &dev, Some(patch))
                .await;
            assert!(matches!(status, 403 | 409), "round {round}: {status} {body}");
            let now = world
                .api
                .get(kinds::APPLICATION, "moving", "web")
                .await
                .unwrap()
                .unwrap();
            assert_eq!(now["spec"]["project"], "other", "round {round}");
            assert_eq!(now["spec"]["source"]["path"], "deploy", "round {round}");
        }
    });
}

#[test]
fn who_watches_a_name_is_told_of_one_application() {
    run(async {
        let world = start("named", &["--insecure", "--application-namespaces=named-too"]).await;
        let admin = world.admin().await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "named-too"}});
        world.api.apply(kinds::NAMESPACE, &namespace).await.unwrap();
        let app = json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "web", "namespace": "named-too"},
            "spec": {"project": "shop", "source": {"repoURL": "https://git.example.com/app", "path": "deploy"},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"}}});
        world.api.apply(kinds::APPLICATION, &app).await.unwrap();
        let started = std::time::Instant::now();
        while world
            .http(
                "GET",
                "/api/v1/applications/web?appNamespace=named-too",
                &admin,
                None,
            )
            .await
            .0
            != 200
        {
            assert!(started.elapsed() < crate::world::PATIENCE);
        }
        let mut watch = world.watch("/api/v1/stream/applications?name=web", &admin).await;
        let first = watch.next().await;
        assert_eq!(first["result"]["application"]["metadata"]["namespace"], "named");
        for namespace in ["named-too", "named"] {
            let patch = json!({"metadata": {"annotations": {"seen": namespace}}});
            world
                .api
                .merge_patch(kinds::APPLICATION, namespace, "web", &patch)
                .await
                .unwrap();
        }
        let next = watch.next().await;
        assert_eq!(next["result"]["type"], "MODIFIED");
        assert_eq!(next["result"]["application"]["metadata"]["namespace"], "named");
        let mut other = world
            .watch(
                "/api/v1/stream/applications?name=web&appNamespace=named-too",
                &admin,
            )
            .await;
        let first = other.next().await;
        assert_eq!(
            first["result"]["application"]["metadata"]["namespace"],
            "named-too"
        );
    });
}

#[test]
fn what_strangers_learn_of_the_installation_is_little() {
    run(async {
        let world = start("strangers", &["--insecure"]).await;
        let data = json!({"data": {"kustomize.buildOptions": "--enable-helm", "kustomize.path.v1.0.0": "/opt/secret-place"}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "strangers", "argocd-cm", &data)
            .await
            .unwrap();
        let started = std::time::Instant::now();
        let body = loop {
            let (_, body) = world.http("GET", "/api/v1/settings", "", None).await;
            if body.contains("--enable-helm") {
                break body;
            }
            assert!(started.elapsed() < crate::world::PATIENCE);
        };
        assert!(!body.contains("/opt/secret-place"), "{body}");
        assert_eq!(parsed(&body)["kustomizeVersions"], json!(["v1.0.0"]));
    });
}

#[test]
fn a_token_sent_without_tls_by_mistake_is_not_taken() {
    run(async {
        let world = start("tls-only", &[]).await;
        let refused = crate::world::log_in(&world.channel, "admin", crate::world::ADMIN_PASSWORD).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("TLS"), "{refused}");
    });
}
