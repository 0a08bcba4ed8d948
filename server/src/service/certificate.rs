//! `certificate.CertificateService`: certificates of Git servers (`argocd-tls-certs-cm`) and their SSH host keys
//! (`argocd-ssh-known-hosts-cm`).

mod x509;

use argosy_api::glob;
use argosy_api::services::certificate::certificate_service_server::CertificateService;
use argosy_api::services::certificate::{RepositoryCertificateCreateRequest, RepositoryCertificateQuery};
use argosy_api::v1alpha1::{RepositoryCertificate, RepositoryCertificateList};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth;
use crate::gate::{Create, Delete, Get};
use crate::state::ConfigMap;
use crate::state::write::Change;

const TLS: &str = "argocd-tls-certs-cm";
const SSH: &str = "argocd-ssh-known-hosts-cm";
const SSH_KEY: &str = "ssh_known_hosts";

/// One line of known hosts: hosts, type, key.
fn ssh_entry(line: &str) -> Option<RepositoryCertificate> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace();
    let (host, kind, key) = (words.next()?, words.next()?, words.next()?);
    let bytes = STANDARD.decode(key).ok()?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
    Some(RepositoryCertificate {
        server_name: host.to_owned(),
        cert_type: "ssh".to_owned(),
        cert_sub_type: kind.to_owned(),
        cert_data: key.as_bytes().to_vec(),
        cert_info: format!("SHA256:{}", STANDARD_NO_PAD.encode(digest.as_ref())),
    })
}

fn known_hosts(map: &ConfigMap) -> &str {
    map.data.get(SSH_KEY).map_or("", String::as_str)
}

/// A certificate that is to be stored, checked.
enum New {
    Https {
        host: String,
        pem: String,
    },
    Ssh {
        line: String,
        entry: RepositoryCertificate,
    },
}

impl New {
    fn read(certificate: &RepositoryCertificate) -> Result<Self, Status> {
        let host = &certificate.server_name;
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(Status::invalid_argument(format!(
                "serverName: {host:?} is not the name of a host"
            )));
        }
        let text = String::from_utf8(certificate.cert_data.clone())
            .map_err(|_| Status::invalid_argument("certData: it is not text"))?;
        match certificate.cert_type.as_str() {
            "https" => {
                check_pem(&text)?;
                Ok(New::Https {
                    host: host.clone(),
                    pem: text,
                })
            }
            "ssh" => {
                let line = format!("{host} {} {}", certificate.cert_sub_type, text.trim());
                let entry = ssh_entry(&line)
                    .ok_or_else(|| Status::invalid_argument("certData: it is not an SSH key in base64"))?;
                Ok(New::Ssh { line, entry })
            }
            other => Err(Status::invalid_argument(format!(
                "certType: {other:?} is neither https nor ssh"
            ))),
        }
    }
}

/// The certificates of a Git server, one entry each; one for what is no certificate, so that it is seen and can go.
fn tls_entries(host: &str, pem: &str) -> Vec<RepositoryCertificate> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let mut told: Vec<_> = found
        .iter()
        .flatten()
        .map(|certificate| x509::read(certificate))
        .collect();
    if told.is_empty() {
        told.push(None);
    }
    let entry = |told: Option<x509::Told>| {
        let (kind, info) = told.map_or(("invalid", "it is no certificate".to_owned()), |told| {
            (told.algorithm, told.subject)
        });
        RepositoryCertificate {
            server_name: host.to_owned(),
            cert_type: "https".to_owned(),
            cert_sub_type: kind.to_owned(),
            cert_data: pem.as_bytes().to_vec(),
            cert_info: info,
        }
    };
    told.into_iter().map(entry).collect()
}

fn selected(query: &RepositoryCertificateQuery, certificate: &RepositoryCertificate) -> bool {
    let any = |wanted: &str| wanted.is_empty() || wanted == "*";
    let wanted_type = match query.cert_type.as_str() {
        "tls" => "https",
        other => other,
    };
    (any(&query.host_name_pattern) || glob::matches(&query.host_name_pattern, &certificate.server_name))
        && (any(&query.cert_type) || wanted_type == certificate.cert_type)
        && (any(&query.cert_sub_type) || query.cert_sub_type == certificate.cert_sub_type)
}

/// Certificates without their data where only a list is wanted, as Argo CD gives them.
fn listed(mut items: Vec<RepositoryCertificate>) -> Response<RepositoryCertificateList> {
    for item in &mut items {
        item.cert_data.clear();
    }
    Response::new(RepositoryCertificateList {
        items,
        ..RepositoryCertificateList::default()
    })
}

fn check_pem(pem: &str) -> Result<(), Status> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(()),
        _ => Err(Status::invalid_argument(
            "certData: no certificate in PEM form is in it",
        )),
    }
}

#[tonic::async_trait]
impl CertificateService for Api {
    async fn list_certificates(
        &self,
        request: Request<RepositoryCertificateQuery>,
    ) -> Result<Response<RepositoryCertificateList>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let tls = self
            .gate
            .open::<Get, _>(&caller, self.plane.config_map(TLS, "certificates", ""))?;
        let ssh = self
            .gate
            .open::<Get, _>(&caller, self.plane.config_map(SSH, "certificates", ""))?;
        let tls = tls.data.iter().flat_map(|(host, pem)| tls_entries(host, pem));
        let ssh = known_hosts(&ssh).lines().filter_map(ssh_entry);
        let items = ssh
            .chain(tls)
            .filter(|certificate| selected(&query, certificate))
            .collect();
        Ok(listed(items))
    }

    async fn create_certificate(
        &self,
        request: Request<RepositoryCertificateCreateRequest>,
    ) -> Result<Response<RepositoryCertificateList>, Status> {
        let caller = auth::caller(&request)?;
        let request = request.into_inner();
        let tls = self
            .gate
            .open::<Create, _>(&caller, self.plane.config_map(TLS, "certificates", ""))?;
        let ssh = self
            .gate
            .open::<Create, _>(&caller, self.plane.config_map(SSH, "certificates", ""))?;
        let sent = request.certificates.unwrap_or_default().items;
        let new = sent.iter().map(New::read).collect::<Result<Vec<_>, _>>()?;
        let upsert = request.upsert;
        let mut made = vec![false; new.len()];
        self.plane
            .change_config_map(&tls, TLS, |map| {
                let mut change = Change::new();
                for (new, made) in new.iter().zip(&mut made) {
                    let New::Https { host, pem } = new else {
                        continue;
                    };
                    *made = match map.data.get(host) {
                        Some(known) if known == pem => false,
                        Some(_) if !upsert => return Err(exists(host)),
                        _ => true,
                    };
                    if *made {
                        change.insert(host.clone(), Some(pem.clone()));
                    }
                }
                Ok(change)
            })
            .await?;
        self.plane
            .change_config_map(&ssh, SSH, |map| {
                let mut lines: Vec<&str> = known_hosts(map).lines().collect();
                let mut changed = false;
                for (new, made) in new.iter().zip(&mut made) {
                    let New::Ssh { line, entry } = new else {
                        continue;
                    };
                    let same = |line: &&str| {
                        ssh_entry(line).is_some_and(|known| {
                            known.server_name == entry.server_name
                                && known.cert_sub_type == entry.cert_sub_type
                        })
                    };
                    let at = lines.iter().position(same);
                    *made = match at {
                        Some(at) if ssh_entry(lines[at]).as_ref() == Some(entry) => false,
                        Some(_) if !upsert => return Err(exists(&entry.server_name)),
                        Some(at) => {
                            lines[at] = line;
                            true
                        }
                        None => {
                            lines.push(line);
                            true
                        }
                    };
                    changed |= *made;
                }
                match changed {
                    true => Ok(Change::from([(
                        SSH_KEY.to_owned(),
                        Some(lines.join("\n") + "\n"),
                    )])),
                    false => Ok(Change::new()),
                }
            })
            .await?;
        let made = sent.into_iter().zip(made).filter(|(_, made)| *made);
        Ok(listed(made.map(|(certificate, _)| certificate).collect()))
    }

    async fn delete_certificate(
        &self,
        request: Request<RepositoryCertificateQuery>,
    ) -> Result<Response<RepositoryCertificateList>, Status> {
        let caller = auth::caller(&request)?;
        let query = request.into_inner();
        let tls = self
            .gate
            .open::<Delete, _>(&caller, self.plane.config_map(TLS, "certificates", ""))?;
        let ssh = self
            .gate
            .open::<Delete, _>(&caller, self.plane.config_map(SSH, "certificates", ""))?;
        if query.host_name_pattern.is_empty() {
            return Err(Status::invalid_argument(
                "hostNamePattern: name the hosts whose certificates are to go",
            ));
        }
        let mut gone_tls = Vec::new();
        self.plane
            .change_config_map(&tls, TLS, |map| {
                gone_tls = map
                    .data
                    .iter()
                    .flat_map(|(host, pem)| tls_entries(host, pem))
                    .collect();
                gone_tls.retain(|certificate| selected(&query, certificate));
                // A server's go together, so they are told as one.
                gone_tls.dedup_by(|a, b| a.server_name == b.server_name);
                for gone in &mut gone_tls {
                    gone.cert_sub_type.clear();
                    gone.cert_info.clear();
                }
                Ok(gone_tls
                    .iter()
                    .map(|gone| (gone.server_name.clone(), None))
                    .collect())
            })
            .await?;
        let mut gone = Vec::new();
        self.plane
            .change_config_map(&ssh, SSH, |map| {
                let mut kept = String::new();
                gone.clone_from(&gone_tls);
                for line in known_hosts(map).lines() {
                    match ssh_entry(line).filter(|certificate| selected(&query, certificate)) {
                        Some(certificate) => gone.push(certificate),
                        None => kept += &format!("{line}\n"),
                    }
                }
                match gone.len() == gone_tls.len() {
                    true => Ok(Change::new()),
                    false => Ok(Change::from([(SSH_KEY.to_owned(), Some(kept))])),
                }
            })
            .await?;
        Ok(listed(gone))
    }
}

fn exists(host: &str) -> Status {
    Status::invalid_argument(format!(
        "certificate for {host} exists with other data, use upsert to change it"
    ))
}
