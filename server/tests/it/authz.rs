//! Every method × every kind of caller, over gRPC: the matrix of who gets what, held against `authz.txt`.
//!
//! The methods come from the descriptors, so a new one without a row fails. The requests name objects that exist. Each
//! cell is the code of the answer; answers that are allowed are searched for credentials.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, MethodDescriptor, ReflectMessage as _, Value};
use tonic::Code;

use crate::raw;
use crate::world::{ADMIN_PASSWORD, CANARY, PATIENCE, World, log_in, run, start, world};

/// What methods answer without anybody being logged in.
const PUBLIC: &[&str] = &[
    "cluster.SettingsService.Get",
    "session.SessionService.Create",
    "session.SessionService.Delete",
    "session.SessionService.GetUserInfo",
    "version.VersionService.Version",
];

/// A request about things that exist: Application `web` of project `shop`, its repository, cluster and so on.
pub(crate) fn request(descriptor: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    let package = descriptor.package_name().to_owned();
    for field in descriptor.fields() {
        // Streams of clients begin with their query.
        let is_choice = field.containing_oneof().is_some() && field.name() != "query";
        if field.is_list() || field.is_map() || is_choice {
            continue;
        }
        let name = field.name().to_owned();
        let text = |text: &str| Some(Value::String(text.to_owned()));
        let value = match (field.kind(), name.as_str()) {
            (Kind::String, "name") => text(match package.as_str() {
                "project" => "shop",
                "account" => "human",
                "cluster" => "far",
                _ => "web",
            }),
            (Kind::String, "applicationName" | "appName") => text("web"),
            (Kind::String, "project" | "appProject") if package == "repository" => text(""),
            (Kind::String, "project") => text("shop"),
            (Kind::String, "role") => text("ci"),
            (Kind::String, "repo" | "repoURL") => text("https://git.example.com/app"),
            (Kind::String, "url") => text("https://git.example.com/"),
            (Kind::String, "server") => text("https://far.example.com:6443"),
            (Kind::String, "kind") => text("Deployment"),
            (Kind::String, "group") => text("apps"),
            (Kind::String, "version") => text("v1"),
            (Kind::String, "resourceName") => text("web"),
            (Kind::String, "action") if package == "account" => text("get"),
            (Kind::String, "action") => text("restart"),
            (Kind::String, "resource") => text("applications"),
            (Kind::String, "subresource") => text("shop/web"),
            (Kind::String, "patch") => text("{}"),
            (Kind::String, "patchType") => text("merge"),
            (Kind::String, "revision") => text("HEAD"),
            (Kind::String, "keyID") => text("0123456789ABCDEF"),
            (Kind::String, "hostNamePattern") => text("git.example.com"),
            (
                Kind::Message(inner),
                "application" | "project" | "applicationset" | "repo" | "creds" | "cluster",
            ) => Some(Value::Message(object(&inner))),
            (Kind::Message(inner), "query") => Some(Value::Message(request(&inner))),
            (Kind::Message(inner), "source") => {
                let mut source = DynamicMessage::new(inner);
                source.set_field_by_name("repoURL", Value::String("https://git.example.com/app".into()));
                Some(Value::Message(source))
            }
            _ => None,
        };
        if let Some(value) = value {
            message.set_field(&field, value);
        }
    }
    message
}

/// A whole object in a request.
fn object(descriptor: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    let set = |message: &mut DynamicMessage, name: &str, text: &str| {
        if message
            .descriptor()
            .get_field_by_name(name)
            .is_some_and(|field| field.kind() == Kind::String && !field.is_list())
        {
            message.set_field_by_name(name, Value::String(text.to_owned()));
        }
    };
    match descriptor.name() {
        "Repository" => set(&mut message, "repo", "https://git.example.com/app"),
        "RepoCreds" => set(&mut message, "url", "https://git.example.com/"),
        "Cluster" => {
            set(&mut message, "server", "https://far.example.com:6443");
            set(&mut message, "name", "far");
        }
        _ => {
            if let Some(field) = descriptor.get_field_by_name("metadata")
                && let Kind::Message(inner) = field.kind()
            {
                let mut metadata = DynamicMessage::new(inner);
                let name = if descriptor.name() == "AppProject" {
                    "shop"
                } else {
                    "web"
                };
                set(&mut metadata, "name", name);
                message.set_field(&field, Value::Message(metadata));
            }
            if let Some(field) = descriptor.get_field_by_name("spec")
                && let Kind::Message(inner) = field.kind()
            {
                let mut spec = DynamicMessage::new(inner);
                set(&mut spec, "project", "shop");
                message.set_field(&field, Value::Message(spec));
            }
        }
    }
    message
}

fn short(code: Code) -> &'static str {
    match code {
        Code::Ok => "ok",
        Code::Unauthenticated => "unauthenticated",
        Code::PermissionDenied => "denied",
        Code::InvalidArgument => "invalid",
        Code::NotFound => "notfound",
        Code::FailedPrecondition => "precondition",
        Code::Unavailable => "unavailable",
        Code::Unimplemented => "unimplemented",
        Code::AlreadyExists => "exists",
        Code::Aborted => "aborted",
        Code::ResourceExhausted => "exhausted",
        Code::DeadlineExceeded => "deadline",
        Code::Internal => "INTERNAL",
        Code::Unknown | Code::Cancelled | Code::OutOfRange | Code::DataLoss => "OTHER",
    }
}

fn writes(method: &MethodDescriptor) -> bool {
    let name = method.name();
    [
        "Create",
        "Update",
        "Delete",
        "Patch",
        "Sync",
        "Rollback",
        "Terminate",
        "Run",
        "Rotate",
        "Invalidate",
    ]
    .iter()
    .any(|verb| name.starts_with(verb))
}

#[test]
fn every_method_gives_each_caller_what_the_matrix_says() {
    run(async {
        // Its own world: administrators write here.
        let world = start("authz", &["--insecure"]).await;
        let principals = principals(&world, "authz").await;
        let methods = raw::methods();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/authz.txt");
        let matrix = std::fs::read_to_string(file).unwrap_or_default();
        let mut table: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (principal, token) in &principals {
            for method in &methods {
                // These end what the caller itself came with.
                if method.parent_service().full_name() == "session.SessionService"
                    && method.name() == "Delete"
                    && token.is_some()
                {
                    table
                        .entry(method.full_name().to_owned())
                        .or_default()
                        .push("-".to_owned());
                    continue;
                }
                // The account that asks for its own things is another row's matter.
                let message = request(&method.input()).encode_to_vec();
                // What is to come is waited for, however long it takes.
                let wait = match expected(&matrix, method.full_name(), principal) {
                    Some("ok") => PATIENCE,
                    _ => raw::A_WHILE,
                };
                let outcome = raw::call_within(wait, &world.channel, method, message, token.as_deref()).await;
                let cell = match &outcome {
                    Ok(None) => "empty",
                    Ok(Some(bytes)) => {
                        let shown = String::from_utf8_lossy(bytes);
                        assert!(
                            !shown.contains(CANARY),
                            "{principal} is told a credential by {}",
                            method.full_name()
                        );
                        if bytes.is_empty() { "empty" } else { "ok" }
                    }
                    Err(status) => {
                        assert!(
                            !status.message().contains(CANARY),
                            "{}: {status}",
                            method.full_name()
                        );
                        short(status.code())
                    }
                };
                if !PUBLIC.contains(&method.full_name())
                    && matches!(*principal, "nobody" | "garbage" | "disabled")
                {
                    assert_eq!(
                        cell,
                        "unauthenticated",
                        "{principal} calls {}: {outcome:?}",
                        method.full_name()
                    );
                }
                if writes(method)
                    && matches!(*principal, "powerless" | "getter" | "reader")
                    && !PUBLIC.contains(&method.full_name())
                {
                    assert!(
                        matches!(cell, "denied" | "invalid" | "unimplemented" | "notfound"),
                        "{principal} writes by {}: {outcome:?}",
                        method.full_name()
                    );
                }
                table
                    .entry(method.full_name().to_owned())
                    .or_default()
                    .push(cell.to_owned());
            }
        }
        let mut text = String::from("# Code of each answer, by method and caller. See authz.rs.\n");
        let names: Vec<_> = principals.iter().map(|(name, _)| format!("{name:<16}")).collect();
        writeln!(text, "{:<62}{}", "#", names.join("").trim_end()).unwrap();
        for (method, cells) in &table {
            let cells: Vec<_> = cells.iter().map(|cell| format!("{cell:<16}")).collect();
            writeln!(text, "{method:<62}{}", cells.join("").trim_end()).unwrap();
        }
        if std::env::var_os("ARGOSY_UPDATE").is_some() {
            return std::fs::write(file, &text).unwrap();
        }
        for (expected, got) in matrix.lines().zip(text.lines()) {
            assert_eq!(expected, got);
        }
        assert_eq!(
            matrix, text,
            "methods and rows differ: read authz.rs, then set ARGOSY_UPDATE=1 and review the file"
        );
    });
}

/// The cell of a method and a caller.
fn expected<'a>(matrix: &'a str, method: &str, principal: &str) -> Option<&'a str> {
    let mut lines = matrix.lines().skip(1);
    let mut callers = lines.next()?.split_whitespace().skip(1);
    let at = callers.position(|caller| caller == principal)?;
    let row = lines.find(|line| line.split_whitespace().next() == Some(method))?;
    row.split_whitespace().nth(at + 1)
}

/// Everybody who asks, with what they show.
pub(crate) async fn principals(world: &World, namespace: &str) -> Vec<(&'static str, Option<String>)> {
    let mut principals = vec![("nobody", None), ("garbage", Some("a.b.c".to_owned()))];
    for (name, account) in [
        ("powerless", "nobody"),
        ("getter", "getter"),
        ("syncer", "syncer"),
        ("dev", "dev"),
        ("reader", "reader"),
    ] {
        principals.push((name, Some(world.token(account).await)));
    }
    principals.push(("role", Some(world.project_token("shop", "ci").await)));
    principals.push(("disabled", Some(disabled(world, namespace).await)));
    principals
}

/// A token that was good until its account was turned off.
async fn disabled(world: &World, namespace: &str) -> String {
    use argosy_test_cluster::api::kinds;
    use serde_json::json;
    let enable = |on: &str| json!({"data": {"accounts.former.enabled": on}});
    let token = world.token("former").await;
    world
        .api
        .merge_patch(kinds::CONFIG_MAP, namespace, "argocd-cm", &enable("false"))
        .await
        .unwrap();
    let started = std::time::Instant::now();
    let methods = raw::methods();
    let list = methods
        .iter()
        .find(|method| method.full_name() == "application.ApplicationService.List")
        .unwrap();
    while raw::call(&world.channel, list, Vec::new(), Some(&token))
        .await
        .is_ok()
    {
        assert!(
            started.elapsed() < crate::world::PATIENCE,
            "the account is still let in"
        );
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    token
}

#[test]
fn what_is_missing_and_what_is_forbidden_are_the_same_answer() {
    run(async {
        let world = world().await;
        let token = world.token("nobody").await;
        let methods = raw::methods();
        let method = |name: &str| {
            methods
                .iter()
                .find(|method| method.full_name() == name)
                .unwrap()
                .clone()
        };
        let ask = async |name: &str, field: &str, value: &str| {
            let method = method(name);
            let mut message = request(&method.input());
            message.clear_field_by_name("project");
            message.set_field_by_name(field, Value::String(value.to_owned()));
            let outcome = raw::call(&world.channel, &method, message.encode_to_vec(), Some(&token)).await;
            outcome
                .map(|_| ())
                .map_err(|status| (status.code(), status.message().to_owned()))
        };
        for (name, field, there, missing) in [
            ("application.ApplicationService.Get", "name", "web", "none"),
            ("application.ApplicationService.Sync", "name", "web", "none"),
            ("application.ApplicationService.Delete", "name", "web", "none"),
            (
                "application.ApplicationService.ResourceTree",
                "applicationName",
                "web",
                "none",
            ),
            (
                "application.ApplicationService.GetManifests",
                "name",
                "web",
                "none",
            ),
            ("project.ProjectService.Get", "name", "shop", "none"),
            ("project.ProjectService.Delete", "name", "shop", "none"),
            (
                "cluster.ClusterService.Get",
                "server",
                "https://far.example.com:6443",
                "https://none.example.com",
            ),
            (
                "cluster.ClusterService.Delete",
                "server",
                "https://far.example.com:6443",
                "https://none.example.com",
            ),
            (
                "repository.RepositoryService.Get",
                "repo",
                "https://git.example.com/app",
                "https://git.example.com/none",
            ),
            ("applicationset.ApplicationSetService.Get", "name", "web", "none"),
        ] {
            let (there, missing) = (ask(name, field, there).await, ask(name, field, missing).await);
            assert_eq!(there, missing, "{name}");
            // Argo CD's program makes an ApplicationSet only where it is told that there is none.
            let code = match name {
                "applicationset.ApplicationSetService.Get" => Code::NotFound,
                _ => Code::PermissionDenied,
            };
            assert_eq!(there.unwrap_err().0, code, "{name}");
        }
    });
}

#[test]
fn an_application_is_denied_missing_or_there_by_what_one_may_know() {
    run(async {
        let world = world().await;
        let dev = world.token("dev").await;
        let code = async |path: &str| world.http("GET", path, &dev, None).await.0;
        assert_eq!(code("/api/v1/applications/web").await, 200);
        assert_eq!(code("/api/v1/applications/web?project=shop").await, 200);
        // Of another project than its own: it is not there.
        assert_eq!(code("/api/v1/applications/web?project=other").await, 403);
        // Missing: told only to who names a project they may see.
        assert_eq!(code("/api/v1/applications/none").await, 403);
        assert_eq!(code("/api/v1/applications/none?project=shop").await, 404);
        // Another's.
        assert_eq!(code("/api/v1/applications/api").await, 403);
        assert_eq!(code("/api/v1/applications/api?project=shop").await, 404);
        assert_eq!(code("/api/v1/applications/api?project=other").await, 403);
    });
}

#[test]
fn a_policy_that_cannot_be_read_leaves_the_old_one_in_force() {
    run(async {
        use argosy_test_cluster::api::kinds;
        use serde_json::json;
        let world = start("badpolicy", &["--insecure"]).await;
        let token = world.token("getter").await;
        let can = async || {
            world
                .http("GET", "/api/v1/applications/web", &token, None)
                .await
                .0
        };
        assert_eq!(can().await, 200);
        let patch = |policy: &str| json!({"data": {"policy.csv": policy, "policy.default": "role:admin"}});
        let broken = patch("p, role:getter, applications, get, */*");
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "badpolicy", "argocd-rbac-cm", &broken)
            .await
            .unwrap();
        // A policy after it that can be read shows that the broken one has been seen.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(can().await, 200, "what was allowed is still allowed");
        let nobody = world.token("nobody").await;
        let (status, _) = world.http("GET", "/api/v1/applications/web", &nobody, None).await;
        assert_eq!(status, 403, "nothing became open");
        let mended = json!({"data": {"policy.csv": "", "policy.default": ""}});
        world
            .api
            .merge_patch(kinds::CONFIG_MAP, "badpolicy", "argocd-rbac-cm", &mended)
            .await
            .unwrap();
        let started = std::time::Instant::now();
        while can().await != 403 {
            assert!(
                started.elapsed() < crate::world::PATIENCE,
                "the mended policy does not count"
            );
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert!(log_in(&world.channel, "admin", ADMIN_PASSWORD).await.is_ok());
    });
}
