//! The certificate of the port: the administrator's, or one of our own that is made at the first start.

use std::sync::Arc;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::state::ControlPlane;
use crate::state::write::Change;

/// The Secret for a certificate from outside, such as of cert-manager.
const EXTERNAL: &str = "argocd-server-tls";
/// The Secret that holds everything else.
const OWN: &str = "argocd-secret";

/// Makes a certificate if there is none.
pub(crate) async fn ensure(plane: &ControlPlane) -> anyhow::Result<()> {
    if pair(plane).is_some() {
        return Ok(());
    }
    let namespace = plane.namespace();
    let names = ["localhost", "argocd-server"]
        .map(str::to_owned)
        .into_iter()
        .chain([
            format!("argocd-server.{namespace}"),
            format!("argocd-server.{namespace}.svc"),
            format!("argocd-server.{namespace}.svc.cluster.local"),
        ])
        .collect::<Vec<_>>();
    let made = rcgen::generate_simple_self_signed(names).context("make a certificate")?;
    plane
        .change_secret(OWN, |secret| {
            // Another server that starts at the same time may have been first.
            if secret.data.contains_key("tls.crt") && secret.data.contains_key("tls.key") {
                return Ok(Change::new());
            }
            Ok(Change::from([
                ("tls.crt".to_owned(), Some(made.cert.pem())),
                ("tls.key".to_owned(), Some(made.signing_key.serialize_pem())),
            ]))
        })
        .await
        .context("store the certificate in argocd-secret")?;
    Ok(())
}

/// Certificate and key that count now, in PEM.
pub(crate) fn pair(plane: &ControlPlane) -> Option<(Vec<u8>, Vec<u8>)> {
    [EXTERNAL, OWN].into_iter().find_map(|name| {
        let secret = plane.own_secret(name)?;
        Some((
            secret.data.get("tls.crt")?.clone(),
            secret.data.get("tls.key")?.clone(),
        ))
    })
}

/// What connections are accepted with.
pub(crate) fn config(certificate: &[u8], key: &[u8]) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .context("read tls.crt of the server's certificate")?;
    let key = PrivateKeyDer::from_pem_slice(key).context("read tls.key of the server's certificate")?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("use the server's certificate")?;
    // Clients of gRPC refuse a server that does not offer HTTP/2.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
