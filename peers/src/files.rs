//! Certificates in files that Kubernetes mounts: it changes them under a process that runs, some time after their Secret.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Live, Material};

/// Files are looked at this often. Kubernetes takes a minute itself.
const LOOK: Duration = Duration::from_secs(5);

/// Where certificates are; what is not there is not shown, or not asked for.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Certificate and key, which come and go together.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Certificates of those who vouch for the other side.
    pub authority: Option<PathBuf>,
}

impl Files {
    /// What is there now.
    ///
    /// # Errors
    /// Names the file that cannot be read, or is missing beside its fellow.
    pub fn read(&self) -> Result<Material, Error> {
        let identity = match &self.identity {
            Some((certificate, key)) if certificate.exists() || key.exists() => {
                Some((read(certificate)?, read(key)?))
            }
            _ => None,
        };
        let authority = self.authority.as_deref().filter(|path| path.exists());
        Ok(Material {
            identity,
            authority: authority.map(read).transpose()?,
        })
    }

    /// Takes over what comes and changes, for as long as the process runs. What cannot be read or used is told once, and what
    /// was there before it counts.
    pub async fn follow(self, live: Arc<Live>) {
        let mut told = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let taken = self.read().and_then(|material| live.set(material));
            match taken {
                Ok(changed) => {
                    told.clear();
                    if changed {
                        tracing::info!(files = ?self, "certificates have changed");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != told {
                        tracing::warn!(files = ?self, %error, "new certificates do not count");
                        told = text;
                    }
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error(format!("read {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_certificate_without_its_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files = Files {
            identity: Some((path("tls.crt"), path("tls.key"))),
            authority: Some(path("ca.crt")),
        };
        assert!(files.read().unwrap() == Material::default());
        std::fs::write(path("tls.crt"), "x").unwrap();
        let error = files.read().err().unwrap().to_string();
        assert!(error.contains("tls.key"), "{error}");
    }

    #[test]
    fn what_cannot_be_used_leaves_what_was_there() {
        let make = |name: &str| {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            (
                made.cert.pem().into_bytes(),
                made.signing_key.serialize_pem().into_bytes(),
            )
        };
        let (first, second) = (make("a"), make("b"));
        let of = |identity| Material {
            identity: Some(identity),
            authority: None,
        };
        let live = Live::of(of(first.clone())).unwrap();
        // Half of the old one and half of the new one, as when files change between two reads.
        assert!(live.set(of((second.0.clone(), first.1))).is_err());
        assert_eq!(live.generation(), 1);
        assert!(live.set(of(second)).unwrap());
        assert!(!live.set(Material::default()).unwrap(), "what is gone stays");
    }
}
