//! Logging in and out, and what tokens are worth.

use argosy_api::services::account::ListAccountRequest;
use argosy_api::services::account::account_service_client::AccountServiceClient;
use argosy_api::services::session::session_service_client::SessionServiceClient;
use argosy_api::services::session::{GetUserInfoRequest, SessionDeleteRequest};
use argosy_runtime::bounds::{self, Limit};
use argosy_test_cluster::api::kinds;
use serde_json::json;
use tonic::Code;

use crate::world::{ADMIN_PASSWORD, PATIENCE, log_in, run, start, with, world};

#[test]
fn a_password_opens_a_session_and_logging_out_ends_it() {
    run(async {
        let world = world().await;
        let token = world.admin().await;
        let mut client = SessionServiceClient::new(world.channel.clone());
        let info = client
            .get_user_info(with(&token, GetUserInfoRequest {}))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (info.logged_in, info.username.as_str(), info.iss.as_str()),
            (true, "admin", "argocd")
        );
        client
            .delete(with(&token, SessionDeleteRequest {}))
            .await
            .unwrap();
        let info = client
            .get_user_info(with(&token, GetUserInfoRequest {}))
            .await
            .unwrap()
            .into_inner();
        assert!(!info.logged_in);
        let (status, body) = world.http("GET", "/api/v1/applications", &token, None).await;
        assert_eq!(status, 401, "{body}");
        // A key is no session: it lasts until it is taken back.
        let key = world.token("reader").await;
        client.delete(with(&key, SessionDeleteRequest {})).await.unwrap();
        let (status, body) = world.http("GET", "/api/v1/applications", &key, None).await;
        assert_eq!(status, 200, "{body}");
    });
}

#[test]
fn a_refused_login_does_not_say_why() {
    run(async {
        let world = world().await;
        let texts = [("admin", "wrong"), ("noone", "wrong"), ("nobody", "wrong")];
        for (name, password) in texts {
            let status = log_in(&world.channel, name, password).await.unwrap_err();
            assert_eq!(
                (status.code(), status.message()),
                (Code::Unauthenticated, "Invalid username or password"),
                "{name}"
            );
        }
        let status = log_in(&world.channel, &"x".repeat(33), "wrong")
            .await
            .unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::InvalidArgument, "username exceeds max length")
        );
        let status = log_in(&world.channel, "", "").await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
    });
}

#[test]
fn guesses_are_counted_across_restarts_and_noise_changes_nothing() {
    run(async {
        let first = start("guesses", &["--insecure"]).await;
        let wrong = async |world: &crate::world::World| {
            log_in(&world.channel, "human", "wrong").await.unwrap_err().code()
        };
        let right = async |world: &crate::world::World| log_in(&world.channel, "human", ADMIN_PASSWORD).await;
        right(&first).await.unwrap();
        let guesses = (0..3).map(|_| wrong(&first));
        for code in futures::future::join_all(guesses).await {
            assert_eq!(code, Code::Unauthenticated);
        }
        // Names that are nobody's.
        let noise = (0..20).map(|at| {
            let channel = first.channel.clone();
            async move { log_in(&channel, &format!("noise-{at}"), "wrong").await.is_err() }
        });
        assert!(
            futures::future::join_all(noise)
                .await
                .into_iter()
                .all(|refused| refused)
        );
        // Another process of the same installation.
        let second = start("guesses", &["--insecure"]).await;
        for _ in 0..2 {
            assert_eq!(wrong(&second).await, Code::Unauthenticated);
        }
        // Five have failed: the right one is not looked at any more, by neither.
        let before = bounds::times_exceeded(Limit::LoginFailures);
        assert!(right(&second).await.is_err(), "the sixth guess was looked at");
        assert!(bounds::times_exceeded(Limit::LoginFailures) > before);
        let third = start("guesses", &["--insecure"]).await;
        assert!(right(&third).await.is_err(), "a restart gave new guesses");
        // Others are not kept out.
        assert!(log_in(&third.channel, "admin", ADMIN_PASSWORD).await.is_ok());
    });
}

#[test]
fn tokens_are_worth_what_is_written_now() {
    run(async {
        let world = start("tokens", &["--insecure"]).await;
        let status = async |token: &str| world.http("GET", "/api/v1/session/userinfo", token, None).await.1;
        let known = |body: &str| body.contains("\"loggedIn\":true");
        let account = world.token("reader").await;
        let role = world.project_token("shop", "ci").await;
        let session = log_in(&world.channel, "human", ADMIN_PASSWORD).await.unwrap();
        // Who changes a password because somebody else knows it means what they made with it, too.
        let key = world.token("human").await;
        for token in [&account, &role, &session, &key] {
            assert!(known(&status(token).await));
        }
        // The account's tokens are taken back, the role goes, the password changes.
        let secret = json!({"stringData": {"accounts.reader.tokens": "[]", "accounts.human.passwordMtime": "2999-01-01T00:00:00Z"}});
        world
            .api
            .merge_patch(kinds::SECRET, "tokens", "argocd-secret", &secret)
            .await
            .unwrap();
        let project = json!({"spec": {"roles": []}, "status": {"jwtTokensByRole": null}});
        world
            .api
            .merge_patch(kinds::PROJECT, "tokens", "shop", &project)
            .await
            .unwrap();
        let started = std::time::Instant::now();
        for token in [&account, &role, &session, &key] {
            while known(&status(token).await) {
                assert!(started.elapsed() < crate::world::PATIENCE, "a token still counts");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    });
}

#[test]
fn anonymous_has_the_default_role_and_a_bad_token_has_nothing() {
    run(async {
        let world = start("anonymous", &["--insecure"]).await;
        let list = async |token: &str| world.http("GET", "/api/v1/applications", token, None).await;
        assert_eq!(list("").await.0, 401);
        let open = json!({"data": {"users.anonymous.enabled": "true"}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "anonymous", "argocd-cm", &open)
            .await
            .unwrap();
        let started = std::time::Instant::now();
        while list("").await.0 != 200 {
            assert!(
                started.elapsed() < crate::world::PATIENCE,
                "anonymous is not let in"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert!(
            list("").await.1.contains("\"items\":[]"),
            "without a default role nothing is seen"
        );
        assert_eq!(list("not.a.token").await.0, 401);
        let role = json!({"data": {"policy.default": "role:readonly"}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "anonymous", "argocd-rbac-cm", &role)
            .await
            .unwrap();
        while !list("").await.1.contains("\"web\"") {
            assert!(
                started.elapsed() < crate::world::PATIENCE,
                "the default role does not count"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(
            world.http("DELETE", "/api/v1/applications/web", "", None).await.0,
            403
        );
    });
}

#[test]
fn a_session_that_is_about_to_end_is_renewed() {
    run(async {
        let world = start("renewed", &["--insecure"]).await;
        let minutes = json!({"data": {"users.session.duration": "4m"}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "renewed", "argocd-cm", &minutes)
            .await
            .unwrap();
        let accounts = AccountServiceClient::new(world.channel.clone());
        let renewed = async |token: &str| {
            let answer = accounts
                .clone()
                .list_accounts(with(token, ListAccountRequest {}))
                .await
                .unwrap();
            answer
                .metadata()
                .get("renew-token")
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let started = std::time::Instant::now();
        let (session, next) = loop {
            let session = world.admin().await;
            if let Some(next) = renewed(&session).await {
                break (session, next);
            }
            assert!(started.elapsed() < PATIENCE, "sessions do not become shorter");
        };
        assert_ne!(session, next);
        // The other one counts, and a browser gets it as its cookie.
        let client = reqwest::Client::new();
        let answer = client
            .get(format!("http://{}/api/v1/account", world.address))
            .bearer_auth(&next)
            .send()
            .await
            .unwrap();
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(
            cookie.starts_with("argocd.token=") && cookie.contains("httpOnly"),
            "{cookie}"
        );
        // Logging out gives nothing back, and a key of the API ends when it said it would.
        let request = client.delete(format!("http://{}/api/v1/session", world.address));
        let request = request
            .bearer_auth(&next)
            .header("Content-Type", "application/json");
        let answer = request.send().await.unwrap();
        let cookies: Vec<_> = answer.headers().get_all("set-cookie").iter().collect();
        assert!(
            cookies
                .iter()
                .all(|cookie| cookie.to_str().unwrap().contains("Max-Age=0")),
            "{cookies:?}"
        );
        assert_eq!(renewed(&world.token("dev").await).await, None);
    });
}

#[test]
fn a_browser_and_argo_cds_program_end_a_session_at_auth_logout() {
    run(async {
        let world = world().await;
        let session = world.admin().await;
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let log_out = async |cookie: &str| {
            let request = client.post(format!("http://{}/auth/logout", world.address));
            let request = match cookie {
                "" => request,
                cookie => request.header("Cookie", format!("argocd.token={cookie}")),
            };
            request.send().await.unwrap()
        };
        let answer = log_out(&session).await;
        assert_eq!(answer.status(), 303);
        // Argo CD's program goes where it is sent.
        assert_eq!(answer.headers()["location"], "/");
        let home = client.get(format!("http://{}/", world.address));
        assert_eq!(home.send().await.unwrap().status(), 200);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        assert!(cookie.starts_with("argocd.token=;"), "{cookie}");
        let ended = world.http("GET", "/api/v1/account", &session, None).await;
        assert_eq!(ended.0, 401, "{}", ended.1);
        // Again: there is nothing left to end, and the browser is sent on all the same.
        assert_eq!(log_out(&session).await.status(), 303);
        assert_eq!(log_out("").await.status(), 400);
        // A key of the API that does not end is none of a browser's.
        let key = world.token("dev").await;
        assert_eq!(log_out(&key).await.status(), 303);
        assert_eq!(world.http("GET", "/api/v1/account", &key, None).await.0, 200);
    });
}
