//! A server, or a proxy before it, that asks who is calling before a word is spoken.

use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use serde_json::json;
use tempfile::TempDir;

/// The longest wait for a handshake.
const PATIENCE: Duration = Duration::from_secs(60);

fn pair() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// Takes connections of whoever shows the client's certificate, tells what was shown, and hangs up.
fn asker(client: &CertificateDer<'static>) -> (String, Receiver<CertificateDer<'static>>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut known = RootCertStore::empty();
    known.add(client.clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(known), provider.clone());
    let own = pair();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
            let shown = connection.peer_certificates().and_then(<[_]>::first);
            if let Some(shown) = shown {
                let _ = tell.send(shown.clone().into_owned());
            }
        }
    });
    (address, told)
}

fn list(dir: &TempDir, server: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_argosy"))
        .args(["app", "list", "--insecure", "--server", server])
        .args(more)
        .env("ARGOCD_CONFIG", dir.path().join("config"))
        .env("ARGOCD_AUTH_TOKEN", "t")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn who_asks_is_shown_the_certificate_of_the_flags_or_of_the_login() {
    let (dir, client) = (TempDir::new().unwrap(), pair());
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (certificate, key) = (client.cert.pem(), client.signing_key.serialize_pem());
    let (certificate_file, key_file) = (file("client.crt", &certificate), file("client.key", &key));
    let flags = ["--client-crt", &certificate_file, "--client-crt-key", &key_file];
    let (server, told) = asker(client.cert.der());
    for way in [&[][..], &["--grpc-web"]] {
        list(&dir, &server, &[&flags[..], way].concat());
        assert_eq!(&told.recv_timeout(PATIENCE).unwrap(), client.cert.der());
        while told.try_recv().is_ok() {}
    }

    let half = list(&dir, &server, &flags[..2]);
    assert_eq!(half.status.code(), Some(20));
    assert!(String::from_utf8_lossy(&half.stderr).contains("must always be specified together"));

    let entry = json!({
        "server": server,
        "client-certificate-data": STANDARD.encode(&certificate),
        "client-certificate-key-data": STANDARD.encode(&key),
    });
    let config = json!({"servers": [entry], "contexts": [], "users": []});
    let path = file("config", &config.to_string());
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    list(&dir, &server, &["--grpc-web"]);
    assert_eq!(&told.recv_timeout(PATIENCE).unwrap(), client.cert.der());
}
