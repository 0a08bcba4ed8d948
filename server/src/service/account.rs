//! `account.AccountService`: local accounts, their passwords and tokens.

use argosy_api::services::account::account_service_server::AccountService;
use argosy_api::services::account::{
    Account, AccountsList, CanIRequest, CanIResponse, CreateTokenRequest, CreateTokenResponse,
    DeleteTokenRequest, EmptyResponse, GetAccountRequest, ListAccountRequest, Token, UpdatePasswordRequest,
    UpdatePasswordResponse,
};
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth::{self, Caller, session};
use crate::gate::{Get, Granted, Shut, Update};
use crate::state::accounts::{self, secret_key};
use crate::state::write::Change;
use crate::status;

/// Resources and actions that policies know.
const RESOURCES: &[&str] = &[
    "clusters",
    "projects",
    "applications",
    "applicationsets",
    "repositories",
    "write-repositories",
    "certificates",
    "accounts",
    "gpgkeys",
    "logs",
    "exec",
    "extensions",
];
const ACTIONS: &[&str] = &[
    "get", "create", "update", "delete", "sync", "rollback", "override", "action", "invoke",
];

#[tonic::async_trait]
impl AccountService for Api {
    async fn can_i(&self, request: Request<CanIRequest>) -> Result<Response<CanIResponse>, Status> {
        let caller = auth::caller(&request)?;
        let CanIRequest {
            resource,
            action,
            subresource,
            explain,
        } = request.into_inner();
        let known = |all: &[&str], one: &str, asked: &str| match all.contains(&one) {
            true => Ok(()),
            false => Err(Status::invalid_argument(format!(
                "[{}] does not contain {asked}",
                all.join(" ")
            ))),
        };
        known(ACTIONS, action.split('/').next().unwrap_or_default(), &action)?;
        known(RESOURCES, &resource, &resource)?;
        let verdict = self.gate.ask(&caller, &resource, &action, &subresource);
        Ok(Response::new(CanIResponse {
            value: if verdict.allowed() { "yes" } else { "no" }.to_owned(),
            why: if explain {
                verdict.to_string()
            } else {
                String::new()
            },
        }))
    }

    async fn update_password(
        &self,
        request: Request<UpdatePasswordRequest>,
    ) -> Result<Response<UpdatePasswordResponse>, Status> {
        let caller = auth::caller(&request)?;
        let request = request.into_inner();
        let name = match request.name.as_str() {
            "" => caller.name().to_owned(),
            name => name.to_owned(),
        };
        let granted = self.own_or_granted(&caller, &name)?;
        let settings = self.plane.settings();
        // The caller proves who they are once more; for a local account by its password.
        let user = caller
            .user()
            .ok_or_else(|| Status::unauthenticated("no session information"))?;
        let Some(own) = settings.accounts.get(&user.name) else {
            return Err(Status::permission_denied("only local accounts have passwords"));
        };
        let guess = self.limiter.guess(&user.name, self.auth.now());
        let guess = guess.ok_or_else(|| Status::invalid_argument("current password does not match"))?;
        if !self
            .passwords
            .fits(&request.current_password, Some(&own.password_hash))
            .await?
        {
            self.limiter.failed(guess).await;
            return Err(Status::invalid_argument("current password does not match"));
        }
        self.limiter.succeeded(guess).await;
        if !settings.accounts.contains_key(&name) {
            return Err(Status::not_found(format!("account '{name}' does not exist")));
        }
        let pattern = regex::Regex::new(&settings.password_pattern).map_err(|_| {
            Status::failed_precondition("passwordPattern of argocd-cm is not a regular expression")
        })?;
        if !pattern.is_match(&request.new_password) {
            return Err(Status::invalid_argument(format!(
                "new password does not match the following expression: {}",
                settings.password_pattern
            )));
        }
        let hash = self.passwords.hash(&request.new_password).await?;
        let changed = argosy_runtime::clock::rfc3339(self.now());
        self.plane
            .change_account(&granted, |_| {
                Ok(Change::from([
                    (secret_key(&name, "password"), Some(hash.clone())),
                    (secret_key(&name, "passwordMtime"), Some(changed.clone())),
                ]))
            })
            .await?;
        tracing::info!(account = name, by = user.name, "a password was changed");
        Ok(Response::new(UpdatePasswordResponse {}))
    }

    async fn list_accounts(
        &self,
        request: Request<ListAccountRequest>,
    ) -> Result<Response<AccountsList>, Status> {
        let caller = auth::caller(&request)?;
        let settings = self.plane.settings();
        let shut = settings.accounts.keys().map(|name| account(name));
        let visible: Vec<Granted<String, Get>> = self.gate.filter(&caller, shut);
        let items = visible.iter().map(|name| self.shown(name)).collect();
        Ok(Response::new(AccountsList { items }))
    }

    async fn get_account(&self, request: Request<GetAccountRequest>) -> Result<Response<Account>, Status> {
        let caller = auth::caller(&request)?;
        let name = request.into_inner().name;
        let granted = if caller.name() == name {
            None
        } else {
            Some(self.gate.open::<Get, _>(&caller, account(&name))?)
        };
        let name = granted.map_or(name, Granted::into_inner);
        if !self.plane.settings().accounts.contains_key(&name) {
            return Err(Status::not_found(format!("account '{name}' does not exist")));
        }
        Ok(Response::new(self.shown(&name)))
    }

    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenResponse>, Status> {
        let caller = auth::caller(&request)?;
        let CreateTokenRequest { name, expires_in, id } = request.into_inner();
        let granted = self.own_or_granted(&caller, &name)?;
        if expires_in < 0 {
            return Err(Status::invalid_argument("expiresIn must not be negative"));
        }
        let settings = self.plane.settings();
        let account = settings.accounts.get(&name);
        let account = account.ok_or_else(|| Status::not_found(format!("account '{name}' does not exist")))?;
        if !account.can(accounts::Capability::ApiKey) {
            return Err(Status::invalid_argument(format!(
                "account '{name}' does not have apiKey capability"
            )));
        }
        let id = if id.is_empty() { session::uuid()? } else { id };
        let now = self.auth.now();
        let lasts = (expires_in > 0).then_some(expires_in);
        let token = session::issue(&self.plane, format!("{name}:apiKey"), id.clone(), now, lasts)?;
        self.change_tokens(&granted, &name, |tokens| {
            if tokens.iter().any(|token| token.id == id) {
                return Err(Status::invalid_argument(format!(
                    "account already has token with id '{id}'"
                )));
            }
            tokens.push(accounts::Token {
                id: id.clone(),
                issued_at: now,
                expires_at: lasts.map_or(0, |lasts| now.saturating_add(lasts)),
            });
            Ok(())
        })
        .await?;
        Ok(Response::new(CreateTokenResponse { token }))
    }

    async fn delete_token(
        &self,
        request: Request<DeleteTokenRequest>,
    ) -> Result<Response<EmptyResponse>, Status> {
        let caller = auth::caller(&request)?;
        let DeleteTokenRequest { name, id } = request.into_inner();
        let granted = self.own_or_granted(&caller, &name)?;
        let settings = self.plane.settings();
        if !settings.accounts.contains_key(&name) {
            return Err(Status::not_found(format!("account '{name}' does not exist")));
        }
        self.change_tokens(&granted, &name, |tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.id != id);
            match tokens.len() == before {
                true => Err(Status::not_found(format!("token with id '{id}' does not exist"))),
                false => Ok(()),
            }
        })
        .await?;
        Ok(Response::new(EmptyResponse {}))
    }
}

/// An account as the gate knows it.
fn account(name: &str) -> Shut<String> {
    Shut::new("accounts", name.to_owned(), String::new(), name.to_owned())
}

impl Api {
    /// People may change their own account; others need the right to.
    fn own_or_granted(&self, caller: &Caller, name: &str) -> Result<Granted<String, Update>, Status> {
        match caller.user() {
            Some(user) if user.name == name && user.project_role().is_none() => {
                Ok(Granted::own_account(user))
            }
            _ => self.gate.open(caller, account(name)),
        }
    }

    fn shown(&self, name: &str) -> Account {
        let settings = self.plane.settings();
        let account = settings.accounts.get(name).cloned().unwrap_or_default();
        let token = |token: &accounts::Token| Token {
            id: token.id.clone(),
            issued_at: token.issued_at,
            expires_at: token.expires_at,
        };
        let mut tokens: Vec<_> = account.tokens.iter().map(token).collect();
        // The newest first.
        tokens.sort_by_key(|token| std::cmp::Reverse(token.issued_at));
        let words = account.capabilities.iter().map(|one| one.as_str().to_owned());
        Account {
            name: name.to_owned(),
            enabled: account.enabled,
            capabilities: words.collect(),
            tokens,
        }
    }

    /// Changes the list of an account's tokens, as it stands at the moment of writing.
    async fn change_tokens(
        &self,
        granted: &Granted<String, Update>,
        name: &str,
        change: impl Fn(&mut Vec<accounts::Token>) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let key = secret_key(name, "tokens");
        self.plane
            .change_account(granted, |secret| {
                let mut tokens = accounts::tokens(&secret.text(&key));
                let before = tokens.clone();
                change(&mut tokens)?;
                if tokens == before {
                    return Ok(Change::new());
                }
                let text = serde_json::to_string(&tokens).map_err(|error| status::internal(&error))?;
                Ok(Change::from([(key.clone(), Some(text))]))
            })
            .await
    }
}
