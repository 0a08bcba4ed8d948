//! One small HTTP GET, for readiness only.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const PATIENCE: Duration = Duration::from_secs(5);

/// Whether `GET http://127.0.0.1:port/path` answers 200.
pub(crate) fn http_ok(port: u16, path: &str) -> bool {
    connect(port).is_some_and(|stream| answers_ok(stream, path, None))
}

/// Whether `GET https://127.0.0.1:port/path` answers 200, verified by the certificates in `ca`.
pub(crate) fn https_ok(port: u16, path: &str, ca: &Path, token: &str) -> bool {
    let Some(config) = client_config(ca) else {
        return false;
    };
    let Ok(name) = ServerName::try_from("127.0.0.1") else {
        return false;
    };
    let Ok(connection) = ClientConnection::new(Arc::new(config), name) else {
        return false;
    };
    connect(port).is_some_and(|stream| answers_ok(StreamOwned::new(connection, stream), path, Some(token)))
}

fn connect(port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    Some(stream)
}

fn client_config(ca: &Path) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let pem = fs::read(ca).ok()?;
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).flatten());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?;
    Some(builder.with_root_certificates(roots).with_no_client_auth())
}

fn answers_ok(mut stream: impl Read + Write, path: &str, token: Option<&str>) -> bool {
    let authorization = token
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n");
    let mut status = [0; 12];
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut status).is_ok()
        && &status == b"HTTP/1.1 200"
}
