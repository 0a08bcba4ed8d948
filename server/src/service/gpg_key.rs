//! `gpgkey.GPGKeyService`: public keys that commits are verified with, in `argocd-gpg-keys-cm`.

use argosy_api::services::gpgkey::gpg_key_service_server::GpgKeyService;
use argosy_api::services::gpgkey::{
    GnuPgPublicKeyCreateRequest, GnuPgPublicKeyCreateResponse, GnuPgPublicKeyQuery, GnuPgPublicKeyResponse,
};
use argosy_api::v1alpha1::{GnuPgPublicKey, GnuPgPublicKeyList};
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth;
use crate::gate::{Create, Delete, Get};
use crate::openpgp::{self, PublicKey};
use crate::state::write::Change;

/// The ConfigMap: a key id, then the armoured key.
const CONFIG_MAP: &str = "argocd-gpg-keys-cm";
/// Key ids have so many hexadecimal digits.
const ID_LEN: usize = 16;

/// A stored key; its text only where one key is asked for. What cannot be read any more is shown by its id.
fn shown(id: &str, data: &str, whole: bool) -> GnuPgPublicKey {
    let read = openpgp::read(data).ok().and_then(|keys| keys.into_iter().next());
    let mut shown = read.as_ref().map(public).unwrap_or_default();
    shown.key_id = id.to_owned();
    shown.key_data = if whole { data.to_owned() } else { String::new() };
    shown
}

fn public(key: &PublicKey) -> GnuPgPublicKey {
    GnuPgPublicKey {
        key_id: key.id().to_owned(),
        fingerprint: key.fingerprint.clone(),
        owner: key.owner.clone(),
        sub_type: key.kind.clone(),
        // Nobody has said how far they trust it; that it is stored is the trust.
        trust: "unknown".to_owned(),
        key_data: String::new(),
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
        let items = map.data.iter().map(|(id, data)| shown(id, data, false)).collect();
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
        Ok(Response::new(shown(&id, data, true)))
    }

    async fn create(
        &self,
        request: Request<GnuPgPublicKeyCreateRequest>,
    ) -> Result<Response<GnuPgPublicKeyCreateResponse>, Status> {
        let caller = auth::caller(&request)?;
        let map = self
            .gate
            .open::<Create, _>(&caller, self.plane.config_map(CONFIG_MAP, "gpgkeys", ""))?;
        let GnuPgPublicKeyCreateRequest { publickey, upsert } = request.into_inner();
        let sent = publickey.unwrap_or_default().key_data;
        let keys = openpgp::read(&sent)
            .map_err(|why| Status::invalid_argument(format!("publickey.keyData: {why}")))?;
        let (mut known, mut fresh) = (Vec::new(), Vec::new());
        self.plane
            .change_config_map(&map, CONFIG_MAP, |map| {
                (known, fresh) = keys
                    .iter()
                    .partition(|key| !upsert && map.data.contains_key(key.id()));
                let fresh = fresh.iter();
                Ok(fresh
                    .map(|key| (key.id().to_owned(), Some(key.armoured.clone())))
                    .collect())
            })
            .await?;
        Ok(Response::new(GnuPgPublicKeyCreateResponse {
            created: Some(GnuPgPublicKeyList {
                items: fresh.into_iter().map(public).collect(),
                ..GnuPgPublicKeyList::default()
            }),
            skipped: known.iter().map(|key| key.id().to_owned()).collect(),
        }))
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
        self.plane
            .change_config_map(&map, CONFIG_MAP, |map| match map.data.contains_key(&id) {
                true => Ok(Change::from([(id.clone(), None)])),
                false => Err(Status::not_found(format!("GPG public key {id} not found"))),
            })
            .await?;
        Ok(Response::new(GnuPgPublicKeyResponse {}))
    }
}
