//! What an installation issues, on real connections.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use argosy_peers::authority::{Authority, Data, client_secret, server_secret};
use argosy_peers::client::{self, Server};
use argosy_peers::{Caller, Callers, Component, Live, Material, server};
use jiff::civil::Date;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt as _;
use tonic::transport::server::Connected as _;

fn today() -> Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn material(data: &Data, name: &str, authority: &str) -> Material {
    let get = |key: &str| data[key].clone().into_bytes();
    Material {
        identity: Some((get(&format!("{name}.crt")), get(&format!("{name}.key")))),
        authority: Some(get(authority)),
    }
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    rustls_pemfile::certs(&mut pem.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap()
}

#[test]
fn each_certificate_that_is_issued_says_who_shows_it() {
    let authority = Authority::new(today()).unwrap();
    let data = client_secret(None, &authority, today()).unwrap().unwrap();
    let live = Live::of(material(&data, "client", "client-ca.crt")).unwrap();
    let callers = Callers::new(live.clone());
    let who = |key: &str| callers.who(&certificates(&data[key]));
    assert_eq!(who("client.crt"), Caller::Known(Vec::new()));
    assert_eq!(who("argocd-server.crt"), Caller::Known(vec![Component::Server]));
    assert_eq!(
        who("argocd-application-controller.crt"),
        Caller::Known(vec![Component::Controller])
    );
    assert_eq!(callers.who(&[]), Caller::Nobody);

    // Another authority takes its place: what was known is known no longer.
    let other = Authority::new(today()).unwrap();
    let others = client_secret(None, &other, today()).unwrap().unwrap();
    live.set(material(&others, "client", "client-ca.crt")).unwrap();
    assert!(matches!(who("argocd-server.crt"), Caller::Stranger(_)));
}

#[test]
fn what_the_next_authority_issues_is_believed_by_who_knows_the_bundle_of_before() {
    let day = |after: i32| today().checked_add(jiff::Span::new().days(after)).unwrap();
    // It was made eight years ago.
    let joined = Authority::new(day(-2921)).unwrap().due(day(-1)).unwrap().unwrap();
    let before = client_secret(None, &joined, day(-1)).unwrap().unwrap();
    let callers = Callers::new(Live::of(material(&before, "client", "client-ca.crt")).unwrap());
    let replaced = joined.due(today()).unwrap().unwrap();
    let after = client_secret(None, &replaced, today()).unwrap().unwrap();
    for data in [&before, &after] {
        let caller = callers.who(&certificates(&data["argocd-server.crt"]));
        assert_eq!(caller, Caller::Known(vec![Component::Server]));
    }
}

/// One connection: what the server sees of its client.
async fn connect(
    server: Arc<rustls::ServerConfig>,
    client: Arc<rustls::ClientConfig>,
    name: &'static str,
) -> std::io::Result<Vec<CertificateDer<'static>>> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut incoming = server::incoming(listener, Some(server));
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(client);
    let name = ServerName::try_from(name).unwrap();
    let (_client, taken) = tokio::try_join!(connector.connect(name, stream), async {
        incoming.next().await.unwrap()
    })?;
    Ok(taken.connect_info().certificates().to_vec())
}

#[tokio::test]
async fn a_connection_without_tls_carries_bytes_both_ways_and_shows_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut incoming = server::incoming(listener, None);
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut taken = incoming.next().await.unwrap().unwrap();
    assert!(taken.connect_info().certificates().is_empty());
    let mut read = [0; 4];
    client.write_all(b"ping").await.unwrap();
    taken.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"ping");
    taken.write_all(b"pong").await.unwrap();
    client.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"pong");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_side_knows_the_other_by_what_counts_when_they_connect() {
    let authority = Authority::new(today()).unwrap();
    let clients = client_secret(None, &authority, today()).unwrap().unwrap();
    let servers = server_secret(None, &authority, "argocd", today())
        .unwrap()
        .unwrap();
    let (served, called) = (Arc::new(Live::default()), Arc::new(Live::default()));
    let config = server::config(&served, &["localhost"]).unwrap();
    let component = Server::Component {
        live: called.clone(),
        component: Component::RepoServer,
    };
    let as_component = client::config(component, Some(called.clone())).unwrap();
    let strict = client::config(Server::Named { live: called.clone() }, None).unwrap();

    // Nobody has anything yet.
    let shown = connect(config.clone(), as_component.clone(), "anything")
        .await
        .unwrap();
    assert!(shown.is_empty());
    assert!(
        connect(config.clone(), strict.clone(), "argocd-repo-server")
            .await
            .is_err()
    );

    // The client has its certificate before the server has its own.
    called
        .set(material(&clients, "argocd-server", "client-ca.crt"))
        .unwrap();
    let shown = connect(config.clone(), as_component.clone(), "anything")
        .await
        .unwrap();
    assert_eq!(shown, certificates(&clients["argocd-server.crt"]));
    assert!(
        connect(config.clone(), strict.clone(), "argocd-repo-server")
            .await
            .is_err()
    );

    served.set(material(&servers, "tls", "ca.crt")).unwrap();
    let callers = Callers::new(served);
    assert_eq!(callers.who(&shown), Caller::Known(vec![Component::Server]));
    connect(config.clone(), as_component, "anything").await.unwrap();
    for name in ["argocd-repo-server", "argocd-repo-server-replicas.argocd.svc"] {
        connect(config.clone(), strict.clone(), name).await.unwrap();
    }
    assert!(connect(config, strict, "somebody-else").await.is_err());
}
