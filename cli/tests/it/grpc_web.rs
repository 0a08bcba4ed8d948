//! The same commands behind a proxy that knows no HTTP/2, as many in front of clusters do.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::remote::{PASSWORD, Person, words, world};

/// Sends HTTP/1 on to the server, without `prefix` before its paths, and hangs up on HTTP/2. It lives as long as the test's
/// process.
fn proxy(prefix: &'static str) -> String {
    // Nobody is to wait at the proxy until the server is there.
    world();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || serve(connection, prefix));
        }
    });
    address
}

fn serve(mut client: TcpStream, prefix: &str) {
    let mut server = TcpStream::connect(&world().address).unwrap();
    let (mut from, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut buffer) {
        let sent = &buffer[..count];
        if sent.starts_with(b"PRI ") {
            break;
        }
        // A client writes a request at a time, and begins with its head.
        let rest = sent.strip_prefix(format!("POST {prefix}").as_bytes());
        let sent = rest.map_or_else(|| sent.to_vec(), |rest| [b"POST ", rest].concat());
        if server.write_all(&sent).is_err() {
            break;
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
    let _ = client.shutdown(std::net::Shutdown::Both);
}

fn log_in(person: &Person, address: &str, more: &[&str]) -> String {
    let login = ["login", address, "--username", "admin", "--password", PASSWORD];
    let output = person.run(&[&login, more].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

/// What the configuration file has of the only server.
fn remembered(person: &Person) -> Value {
    let text = std::fs::read_to_string(person.path("config")).unwrap();
    let config = argosy_object::yaml::parse(&text, &argosy_object::yaml::Limits::default()).unwrap();
    config["servers"][0].clone()
}

/// Commands of all kinds, with a short name that changes no table of other tests: one that reads, one that writes, one that is refused, one that streams.
fn works(person: &Person, name: &str) {
    person.says(&["proj", "create", name, "--description", "by gRPC-web"]);
    assert_eq!(
        person.json(&["proj", "get", name])["spec"]["description"],
        "by gRPC-web"
    );
    let (error, code) = person.fails(&["proj", "create", name]);
    assert_eq!(code, 20, "{error}");
    assert!(
        error.contains("AlreadyExists") || error.contains("InvalidArgument"),
        "{error}"
    );
    let create = format!(
        "app create {name} --project {name} --repo https://git.example.com/a --path . --dest-namespace a --dest-server \
         https://kubernetes.default.svc --validate=false"
    );
    let (error, _) = person.fails(&words(&create));
    assert!(error.contains("not permitted"), "{error}");
    let create = create.replace(&format!("--project {name}"), "--project default");
    person.says(&words(&create));
    // Waiting is a watch, which goes on until it is told that nothing comes.
    let (error, code) = person.fails(&["app", "wait", name, "--timeout", "1"]);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("timed out (1s)"), "{error}");
    person.says(&["app", "delete", name, "--cascade=false", "-y"]);
    person.says(&["proj", "delete", name, "-y"]);
}

#[test]
fn commands_go_by_grpc_web_where_they_are_told_to_and_the_login_says_so_from_then_on() {
    let (person, address) = (Person::new(), proxy(""));
    let said = log_in(&person, &address, &["--grpc-web"]);
    assert_eq!(said, "");
    assert_eq!(remembered(&person)["grpc-web"], true);
    works(&person, "web-1");
    let wrong = [
        "login",
        &address,
        "--username",
        "admin",
        "--password",
        "wrong-1",
        "--grpc-web",
    ];
    let (error, _) = person.fails(&wrong);
    assert!(error.contains("Invalid username or password"), "{error}");
}

#[test]
fn commands_find_out_by_themselves_that_grpc_does_not_get_there() {
    let (person, address) = (Person::new(), proxy(""));
    let said = log_in(&person, &address, &[]);
    assert!(said.contains("--grpc-web"), "{said}");
    assert_eq!(remembered(&person).get("grpc-web"), None);
    works(&person, "web-2");
}

#[test]
fn the_api_may_be_below_a_path() {
    let (person, address) = (Person::new(), proxy("/deploy/argocd"));
    log_in(&person, &address, &["--grpc-web-root-path", "/deploy/argocd/"]);
    assert_eq!(remembered(&person)["grpc-web-root-path"], "/deploy/argocd/");
    let contexts = person.says(&["context"]);
    assert!(
        contexts.contains(&format!("{address}/deploy/argocd")),
        "{contexts}"
    );
    works(&person, "web-3");
}

#[test]
fn a_server_that_no_way_leads_to_is_told_as_grpc_tells_it() {
    let person = Person::new();
    let server = ["--server", "127.0.0.1:1", "--auth-token", "t"];
    for way in [&["app", "list"][..], &["app", "list", "--grpc-web"]] {
        let (error, code) = person.fails(&[way, &server].concat());
        assert_eq!(code, 20, "{error}");
        assert!(
            error.contains("127.0.0.1:1") && error.contains("Unavailable"),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_yet_is_tried_again_if_that_is_asked_for() {
    let port = argosy_test_cluster::free_port().unwrap();
    let address = format!("127.0.0.1:{port}");
    let late = address.clone();
    world();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        for connection in TcpListener::bind(late).unwrap().incoming().flatten() {
            std::thread::spawn(move || serve(connection, ""));
        }
    });
    log_in(&Person::new(), &address, &["--grpc-web", "--http-retry-max", "6"]);
}

#[test]
fn calls_are_logged_where_that_is_asked_for() {
    let person = Person::admin();
    let output = person.run(&words("proj list --loglevel debug --logformat json"));
    let said = String::from_utf8(output.stderr).unwrap();
    let line: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&line["level"], &line["method"], &line["code"]),
        (
            &"debug".into(),
            &"/project.ProjectService/List".into(),
            &"Ok".into()
        ),
        "{said}"
    );
}
