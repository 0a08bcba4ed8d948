//! The shapes of REST, as Go writes them.

use serde_json::{Value, json};

use crate::world::{ADMIN_PASSWORD, CANARY, run, start, world};

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn errors_have_the_code_of_grpc_and_the_status_of_http() {
    run(async {
        let world = world().await;
        let (status, body) = world.http("GET", "/api/v1/applications", "", None).await;
        assert_eq!(status, 401);
        assert_eq!(
            body,
            r#"{"code":16,"error":"no session information","message":"no session information"}"#
        );
        let admin = world.admin().await;
        let (status, body) = world
            .http("GET", "/api/v1/applications/none?project=shop", &admin, None)
            .await;
        assert_eq!((status, parsed(&body)["code"].clone()), (404, json!(5)), "{body}");
        assert_eq!(world.http("GET", "/api/v1/nonsense", &admin, None).await.0, 404);
        assert_eq!(world.http("PATCH", "/api/v1/session", &admin, None).await.0, 501);
        let (status, body) = world
            .http("GET", "/api/v1/applications?selector=%3D", &admin, None)
            .await;
        assert_eq!((status, parsed(&body)["code"].clone()), (400, json!(3)), "{body}");
    });
}

#[test]
fn bodies_that_are_wrong_are_refused_with_a_reason() {
    run(async {
        let world = world().await;
        let admin = world.admin().await;
        let post = async |path: &str, body: &str, kind: &str| {
            let client = reqwest::Client::new();
            let request = client
                .post(format!("http://{}{path}", world.address))
                .bearer_auth(&admin);
            let answer = request
                .header("Content-Type", kind)
                .body(body.to_owned())
                .send()
                .await
                .unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let json = "application/json";
        for (body, part) in [
            ("{", "read the body as JSON"),
            ("[]", "read the request"),
            ("{\"metadata\": 7}", "read the request"),
            ("{\"spec\": {\"project\": []}}", "read the request"),
            ("{}", "metadata.name"),
        ] {
            let (status, text) = post("/api/v1/applications", body, json).await;
            assert_eq!(status, 400, "{body}: {text}");
            assert!(text.contains(part), "{body}: {text}");
        }
        assert_eq!(post("/api/v1/applications", "{}", "text/plain").await.0, 415);
        assert_eq!(
            post("/api/v1/applications", "{}", "application/x-www-form-urlencoded")
                .await
                .0,
            415
        );
        let (status, text) = post("/api/v1/applications/web/sync", "{\"dryRun\": \"perhaps\"}", json).await;
        assert_eq!(status, 400, "{text}");
    });
}

#[test]
fn lists_and_objects_are_what_go_clients_read() {
    run(async {
        let world = world().await;
        let reader = world.token("reader").await;
        let (status, body) = world
            .http("GET", "/api/v1/applications?project=shop", &reader, None)
            .await;
        assert_eq!(status, 200, "{body}");
        let list = parsed(&body);
        assert!(list["metadata"]["resourceVersion"].is_string());
        // Other tests make Applications of this project too.
        let items = list["items"].as_array().unwrap();
        let is_web = |app: &&Value| app["metadata"]["name"] == "web";
        let app = items.iter().find(is_web).unwrap();
        assert!(
            app.get("kind").is_none() && app.get("apiVersion").is_none(),
            "the envelope is not there"
        );
        assert!(app["metadata"].get("managedFields").is_none());
        assert_eq!(app["spec"]["source"]["repoURL"], "https://git.example.com/app");
        assert_eq!(
            app["spec"]["destination"]["server"],
            "https://kubernetes.default.svc"
        );
        assert!(app["status"].is_object());

        let (_, body) = world
            .http(
                "GET",
                "/api/v1/applications?fields=items.metadata.name,items.spec.project",
                &reader,
                None,
            )
            .await;
        let names: Vec<_> = parsed(&body)["items"].as_array().unwrap().clone();
        assert!(
            names.contains(&json!({"metadata": {"name": "web"}, "spec": {"project": "shop"}})),
            "{body}"
        );

        let (_, body) = world.http("GET", "/api/v1/projects/shop", &reader, None).await;
        assert_eq!(parsed(&body)["spec"]["roles"][0]["name"], "ci");
        let (_, body) = world.http("GET", "/api/v1/settings", "", None).await;
        let settings = parsed(&body);
        assert_eq!(settings["appLabelKey"], "app.kubernetes.io/instance");
        assert!(
            settings.get("controllerNamespace").is_none(),
            "only for those who are logged in: {body}"
        );
        let (_, body) = world.http("GET", "/api/version", "", None).await;
        let version = parsed(&body);
        assert!(version["Version"].as_str().unwrap().starts_with("v3.6.0"));
        assert_eq!(
            version.as_object().unwrap().len(),
            1,
            "no more than that for anonymous: {body}"
        );
        let (status, body) = world.http("GET", "/healthz", "", None).await;
        assert_eq!((status, body.as_str()), (200, "ok"));
        let (status, body) = world
            .http(
                "GET",
                "/api/v1/account/can-i/applications/get/shop/web",
                &reader,
                None,
            )
            .await;
        assert_eq!((status, parsed(&body)), (200, json!({"value": "yes"})));
    });
}

#[test]
fn escaped_names_in_paths_are_read_and_credentials_do_not_leave() {
    run(async {
        let world = world().await;
        let reader = world.token("reader").await;
        for path in [
            "/api/v1/clusters/https%3A%2F%2Ffar.example.com%3A6443",
            "/api/v1/clusters/far?id.type=name",
            "/api/v1/clusters",
            "/api/v1/repocreds",
            "/api/v1/projects/shop/detailed",
            "/api/v1/notifications/services",
            "/api/v1/certificates",
            "/api/v1/account",
            "/api/v1/settings",
        ] {
            let (status, body) = world.http("GET", path, &reader, None).await;
            assert_eq!(status, 200, "{path}: {body}");
            assert!(!body.contains(CANARY), "{path} tells a credential");
        }
        let (_, body) = world
            .http("GET", "/api/v1/clusters/far?id.type=name", &reader, None)
            .await;
        assert_eq!(parsed(&body)["server"], "https://far.example.com:6443");
        let (_, body) = world
            .http("GET", "/api/v1/projects/shop/detailed", &reader, None)
            .await;
        assert_eq!(
            parsed(&body)["repositories"][0]["repo"],
            "https://git.example.com/shop"
        );
    });
}

#[test]
fn a_browser_gets_its_session_as_a_cookie() {
    run(async {
        let world = world().await;
        let client = reqwest::Client::new();
        let url = format!("http://{}/api/v1/session", world.address);
        let body = json!({"username": "admin", "password": ADMIN_PASSWORD});
        let answer = client.post(&url).json(&body).send().await.unwrap();
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(
            cookie.starts_with("argocd.token=") && cookie.contains("SameSite=lax; httpOnly"),
            "{cookie}"
        );
        let pair = cookie.split(';').next().unwrap().to_owned();
        let url = format!("http://{}/api/v1/applications", world.address);
        let answer = client.get(&url).header("Cookie", pair).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(answer.headers()["x-frame-options"], "sameorigin");
    });
}

#[test]
fn watches_are_lines_or_events() {
    run(async {
        let world = world().await;
        let reader = world.token("reader").await;
        let read = async |accept: &str| {
            let client = reqwest::Client::new();
            let url = format!("http://{}/api/v1/stream/applications?name=web", world.address);
            let mut answer = client
                .get(url)
                .bearer_auth(&reader)
                .header("Accept", accept)
                .send()
                .await
                .unwrap();
            let chunk = tokio::time::timeout(crate::world::PATIENCE, answer.chunk())
                .await
                .unwrap()
                .unwrap()
                .unwrap();
            String::from_utf8(chunk.to_vec()).unwrap()
        };
        let line = read("*/*").await;
        let event = parsed(line.lines().next().unwrap());
        assert_eq!(
            (
                event["result"]["type"].as_str(),
                event["result"]["application"]["metadata"]["name"].as_str()
            ),
            (Some("ADDED"), Some("web"))
        );
        let event = read("text/event-stream").await;
        assert!(
            event.starts_with("data: {\"result\":") && event.ends_with("\n\n"),
            "{event}"
        );
    });
}

#[test]
fn a_port_with_tls_sends_plain_http_away() {
    run(async {
        let world = start("tls", &[]).await;
        let (status, _) = world.http("GET", "/api/version", "", None).await;
        assert_eq!(status, 307);
        let client = reqwest::Client::builder()
            .danger_accept_invalid_certs(true)
            .build()
            .unwrap();
        let answer = client
            .get(format!("https://{}/api/version", world.address))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let second = start("tls", &[]).await;
        let url = format!("https://{}/healthz", second.address);
        assert_eq!(
            client.get(url).send().await.unwrap().status().as_u16(),
            200,
            "the certificate is kept for the next start"
        );
    });
}

#[test]
fn errors_of_grpc_web_are_in_the_headers() {
    run(async {
        let world = world().await;
        let post = async |path: &str, token: &str| {
            let client = reqwest::Client::new();
            let request = client
                .post(format!("http://{}{path}", world.address))
                .body(vec![0_u8; 5]);
            let request = request
                .header("Content-Type", "application/grpc-web+proto")
                .header("Authorization", format!("Bearer {token}"));
            request.send().await.unwrap()
        };
        let path = "/application.ApplicationService/List";
        let answer = post(path, "no.such.token").await;
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(answer.headers()["grpc-status"], "16");
        assert!(
            answer.headers()["grpc-message"]
                .to_str()
                .unwrap()
                .starts_with("invalid session: token")
        );
        let reader = world.token("reader").await;
        let answer = post(path, &reader).await;
        assert_eq!(answer.headers()["content-type"], "application/grpc-web+proto");
        let body = answer.bytes().await.unwrap();
        assert_eq!(body[0], 0, "a data frame first");
        let len = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
        assert_eq!(body[5 + len], 0x80, "then the frame of trailers");
    });
}
