//! `gpgkey.GPGKeyService`: public keys that commits are verified with, in `argocd-gpg-keys-cm`.

use std::collections::BTreeMap;

use argosy_api::services::gpgkey::gpg_key_service_server::GpgKeyService;
use argosy_api::services::gpgkey::{
    GnuPgPublicKeyCreateRequest, GnuPgPublicKeyCreateResponse, GnuPgPublicKeyQuery, GnuPgPublicKeyResponse,
};
use argosy_api::v1alpha1::{GnuPgPublicKey, GnuPgPublicKeyList};
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth;
use crate::gate::{Create, Delete, Get};

/// The ConfigMap: a key id, then the armoured key.
const CONFIG_MAP: &str = "argocd-gpg-keys-cm";
/// Key ids have so many hexadecimal digits.
const ID_LEN: usize = 16;

fn shown(id: &str, data: Option<&str>) -> GnuPgPublicKey {
    GnuPgPublicKey {
        key_id: id.to_owned(),
        key_data: data.unwrap_or_default().to_owned(),
        ..GnuPgPublicKey::default()
    }
}

/// A key id as it is stored: the last sixteen digits of whatever was given, in capitals.
fn id_of(text: &str) -> Result<String, Status> {
    let text = text.trim().to_uppercase();
    if text.len() < ID_LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Status::invalid_argument(
            "keyID: a key id or fingerprint of at least 16 hexadecimal digits is expected",
        ));
    }
    Ok(text[text.len() - ID_LEN..].to_owned())
}

#[tonic::async_trait]
impl GpgKeyService for Api {
    async fn list(
        &self,
        request: Request<GnuPgPublicKeyQuery>,
    ) -> Result<Response<GnuPgPublicKeyList>, Status> {
        let caller = auth::caller(&request)?;
        let map = self
            .gate
            .open::<Get, _>(&caller, self.plane.config_map(CONFIG_MAP, "gpgkeys", ""))?;
        let items = map.data.keys().map(|id| shown(id, None)).collect();
        Ok(Response::new(GnuPgPublicKeyList {
            items,
            ..GnuPgPublicKeyList::default()
        }))
    }

    async fn get(&self, request: Request<GnuPgPublicKeyQuery>) -> Result<Response<GnuPgPublicKey>, Status> {
        let caller = auth::caller(&request)?;
        let map = self
            .gate
            .open::<Get, _>(&caller, self.plane.config_map(CONFIG_MAP, "gpgkeys", ""))?;
        let id = id_of(&request.get_ref().key_id)?;
        let data = map
            .data
            .get(&id)
            .ok_or_else(|| Status::not_found(format!("GPG public key {id} not found")))?;
        Ok(Response::new(shown(&id, Some(data))))
    }

    async fn create(
        &self,
        request: Request<GnuPgPublicKeyCreateRequest>,
    ) -> Result<Response<GnuPgPublicKeyCreateResponse>, Status> {
        let caller = auth::caller(&request)?;
        self.gate
            .open::<Create, _>(&caller, self.plane.config_map(CONFIG_MAP, "gpgkeys", ""))?;
        Err(Status::unimplemented(
            "GPG keys cannot be added by the API yet: put the armoured key into ConfigMap argocd-gpg-keys-cm under its 16-digit id",
        ))
    }

    async fn delete(
        &self,
        request: Request<GnuPgPublicKeyQuery>,
    ) -> Result<Response<GnuPgPublicKeyResponse>, Status> {
        let caller = auth::caller(&request)?;
        let map = self
            .gate
            .open::<Delete, _>(&caller, self.plane.config_map(CONFIG_MAP, "gpgkeys", ""))?;
        let id = id_of(&request.get_ref().key_id)?;
        if !map.data.contains_key(&id) {
            return Err(Status::not_found(format!("GPG public key {id} not found")));
        }
        self.plane
            .write_config_map(&map, CONFIG_MAP, BTreeMap::from([(id, None)]))
            .await?;
        Ok(Response::new(GnuPgPublicKeyResponse {}))
    }
}
