//! Every route × every kind of caller, over HTTP: what `authz.txt` says of the method behind the route holds for the route.
//!
//! The routes are read out of the table of the server itself, so that none is forgotten; the requests are those of the
//! matrix over gRPC, taken apart into path, query and body as a route wants them.

use std::collections::HashMap;

use prost_reflect::{DynamicMessage, Kind, MessageDescriptor};
use serde_json::{Value, json};

use crate::authz::{principals, request};
use crate::raw;
use crate::world::{CANARY, run, start};

const ROUTES: &str = include_str!("../../src/rest/routes.rs");
const MATRIX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/authz.txt");

struct Route {
    method: String,
    path: String,
    body: String,
    /// `service.method` in lower case without underscores.
    rpc: String,
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace('_', "")
}

/// The rows of the table: `unary GET "/path" "body" => Service::method;`
fn routes() -> Vec<Route> {
    let row = |line: &str| {
        let (head, rpc) = line.trim().strip_suffix(';')?.split_once(" => ")?;
        let mut words = head.split_whitespace();
        let (_, method) = (words.next()?, words.next()?);
        let mut texts = head.split('"').skip(1).step_by(2);
        let (service, name) = rpc.split_once("::")?;
        Some(Route {
            method: method.to_owned(),
            path: texts.next()?.to_owned(),
            body: texts.next()?.to_owned(),
            rpc: format!("{}.{}", plain(service), plain(name)),
        })
    };
    ROUTES.lines().filter_map(row).collect()
}

/// The cells of the matrix by method and caller.
fn matrix() -> HashMap<(String, String), String> {
    let text = std::fs::read_to_string(MATRIX).unwrap();
    let mut lines = text.lines().skip(1);
    let callers: Vec<_> = lines.next().unwrap().split_whitespace().skip(1).collect();
    let mut cells = HashMap::new();
    for line in lines {
        let (method, row) = line.split_once(char::is_whitespace).unwrap();
        let method = plain(method.split_once('.').unwrap().1);
        for (caller, cell) in callers.iter().zip(row.split_whitespace()) {
            cells.insert((method.clone(), (*caller).to_owned()), cell.to_owned());
        }
    }
    cells
}

/// A message as JSON, by the names of its fields.
fn json_of(message: &DynamicMessage) -> Value {
    let fields = message.fields().map(|(field, value)| {
        let value = match value {
            prost_reflect::Value::String(text) => json!(text),
            prost_reflect::Value::Message(inner) => json_of(inner),
            prost_reflect::Value::I64(number) => json!(number),
            prost_reflect::Value::Bool(yes) => json!(yes),
            other => panic!("{}: {other:?}", field.full_name()),
        };
        (field.name().to_owned(), value)
    });
    Value::Object(fields.collect())
}

/// Takes a value out of a message by a path of dots.
fn take(message: &mut Value, path: &str) -> String {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = parents
        .split('.')
        .filter(|part| !part.is_empty())
        .fold(message, |place, part| &mut place[part]);
    let taken = parent.as_object_mut().and_then(|fields| fields.remove(last));
    taken
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_else(|| "0".to_owned())
}

fn escaped(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

/// `a.b=text` for every text in a message.
fn query(message: &Value, prefix: &str, out: &mut Vec<String>) {
    for (name, value) in message.as_object().into_iter().flatten() {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(_) => query(value, &format!("{name}."), out),
            Value::String(text) => out.push(format!("{name}={}", escaped(text))),
            Value::Null => {}
            other => out.push(format!("{name}={other}")),
        }
    }
}

/// Path with query, and body.
fn taken_apart(route: &Route, input: &MessageDescriptor) -> (String, Option<Value>) {
    let mut message = json_of(&request(input));
    let mut path = String::new();
    for segment in route.path.trim_start_matches('/').split('/') {
        path.push('/');
        match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            // Over gRPC a cluster is asked for by its URL.
            Some("id.value") => path += &escaped(&take(&mut message, "server")),
            Some(name) => path += &escaped(&take(&mut message, name.trim_end_matches("=**"))),
            None => path += segment,
        }
    }
    let body = match route.body.as_str() {
        "" => None,
        "*" => Some(std::mem::take(&mut message)),
        field => {
            let text = input
                .get_field_by_name(field)
                .is_some_and(|field| field.kind() == Kind::String);
            let nothing = if text { json!("") } else { json!({}) };
            let sent = message.as_object_mut().and_then(|fields| fields.remove(field));
            Some(sent.unwrap_or(nothing))
        }
    };
    let mut texts = Vec::new();
    query(&message, "", &mut texts);
    if !texts.is_empty() {
        path += &format!("?{}", texts.join("&"));
    }
    (path, body)
}

/// The HTTP status that belongs to a cell.
fn status(cell: &str) -> u16 {
    match cell {
        "ok" | "empty" => 200,
        "unauthenticated" => 401,
        "denied" => 403,
        "invalid" | "precondition" => 400,
        "notfound" => 404,
        "exists" | "aborted" => 409,
        "unimplemented" => 501,
        "unavailable" => 503,
        "deadline" => 504,
        other => panic!("{other}"),
    }
}

#[test]
fn every_route_gives_each_caller_what_its_method_gives() {
    run(async {
        let world = start("authzrest", &["--insecure"]).await;
        let matrix = matrix();
        let methods = raw::methods();
        let mut routes = routes();
        assert!(routes.len() > 90, "the table was read: {} rows", routes.len());
        // In the order of the matrix: callers that may write leave the next method the same world.
        routes.sort_by(|a, b| (&a.rpc, &a.path).cmp(&(&b.rpc, &b.path)));
        let mut seen = 0;
        for (principal, token) in principals(&world, "authzrest").await {
            for route in &routes {
                // These end what the caller itself came with, or begin it.
                if route.rpc.starts_with("sessionservice.") {
                    continue;
                }
                let method = methods.iter().find(|method| {
                    plain(&format!("{}.{}", method.parent_service().name(), method.name())) == route.rpc
                });
                let method = method.unwrap_or_else(|| panic!("{} is no method", route.rpc));
                let cell = &matrix[&(route.rpc.clone(), principal.to_owned())];
                let (path, body) = taken_apart(route, &method.input());
                let (got, text) = world
                    .http_head(&route.method, &path, token.as_deref().unwrap_or_default(), body)
                    .await;
                assert_eq!(
                    got,
                    status(cell),
                    "{principal}: {} {path}: {cell} over gRPC, and {text}",
                    route.method
                );
                assert!(
                    !text.contains(CANARY),
                    "{principal} is told a credential by {} {path}",
                    route.method
                );
                seen += 1;
            }
        }
        assert!(seen > 800, "{seen} requests");
    });
}
