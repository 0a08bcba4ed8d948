//! `session.SessionService`: logging in and out.

use std::time::Duration;

use argosy_api::services::session::session_service_server::SessionService;
use argosy_api::services::session::{
    GetUserInfoRequest, GetUserInfoResponse, SessionCreateRequest, SessionDeleteRequest, SessionResponse,
};
use argosy_runtime::bounds::{self, Class, Limit};
use tonic::{Request, Response, Status};

use super::Api;
use crate::auth::{self, jwt, password, session};
use crate::state::accounts::Capability;

/// A login that fails takes as long as this, and as much again by chance: guesses are cheap to nobody. It is counted from
/// when the login came, so that how long the answer takes does not tell what was done for it: a name that is nobody's, a
/// password that is wrong and an account that is closed for a while differ in that.
const PENALTY: Duration = Duration::from_millis(500);
/// Stands for every name that is nobody's in the limiter.
const NOBODY: &str = "-";

fn refused() -> Status {
    Status::unauthenticated("Invalid username or password")
}

#[tonic::async_trait]
impl SessionService for Api {
    async fn get_user_info(
        &self,
        request: Request<GetUserInfoRequest>,
    ) -> Result<Response<GetUserInfoResponse>, Status> {
        let caller = auth::caller(&request).ok();
        let user = caller.as_ref().and_then(|caller| caller.user());
        Ok(Response::new(match user {
            None => GetUserInfoResponse::default(),
            Some(user) => GetUserInfoResponse {
                logged_in: true,
                username: user.name.clone(),
                iss: jwt::ISSUER.to_owned(),
                groups: user.groups.clone(),
            },
        }))
    }

    async fn create(
        &self,
        request: Request<SessionCreateRequest>,
    ) -> Result<Response<SessionResponse>, Status> {
        let request = request.into_inner();
        if !request.token.is_empty() {
            return Err(Status::unauthenticated(
                "token-based session creation no longer supported. please upgrade argocd cli to v0.7+",
            ));
        }
        if request.username.is_empty() || request.password.is_empty() {
            return Err(Status::unauthenticated("no credentials supplied"));
        }
        let busy = |_| {
            bounds::shed(Class::Login);
            Status::resource_exhausted("too many logins at the same time, try again in a moment")
        };
        let place = self.logins.try_acquire().map_err(busy)?;
        let chance = u64::from(session::random::<1>()?[0]) * 2;
        let refusal_at = tokio::time::Instant::now() + PENALTY + Duration::from_millis(chance);
        let outcome = self.log_in(&request.username, &request.password).await;
        if let Err(status) = &outcome
            && status.code() == tonic::Code::Unauthenticated
        {
            // Whoever is only let wait takes no place from those who know their password.
            let _refused = self.refusals.try_acquire().map_err(busy)?;
            drop(place);
            tokio::time::sleep_until(refusal_at).await;
        }
        outcome.map(|token| Response::new(SessionResponse { token }))
    }

    async fn delete(
        &self,
        request: Request<SessionDeleteRequest>,
    ) -> Result<Response<SessionResponse>, Status> {
        if let Some(user) = auth::caller(&request)
            .ok()
            .as_ref()
            .and_then(|caller| caller.user())
        {
            session::end(&self.plane, user.claims(), self.auth.now()).await?;
        }
        Ok(Response::new(SessionResponse::default()))
    }
}

impl Api {
    async fn log_in(&self, name: &str, password: &str) -> Result<String, Status> {
        if name.len() > password::NAME_LEN_MAX {
            return Err(Status::invalid_argument("username exceeds max length"));
        }
        let settings = self.plane.settings();
        let account = settings.accounts.get(name);
        // Whether the name is anybody's shows neither in the words nor in the work: names that are nobody's are
        // compared too, with a hash that fits nothing.
        let Some(account) = account else {
            self.passwords.fits_nobody(password).await?;
            tracing::info!(account = NOBODY, "a login failed");
            return Err(refused());
        };
        let Some(guess) = self.limiter.guess(name, self.auth.now()) else {
            bounds::exceeded(Limit::LoginFailures);
            tracing::warn!(
                account = name,
                "logins are refused for a while: too many have failed"
            );
            return Err(refused());
        };
        let fits = self
            .passwords
            .fits(password, Some(&account.password_hash))
            .await?;
        if !fits {
            tracing::info!(account = name, "a login failed");
            self.limiter.failed(guess).await;
            return Err(refused());
        }
        self.limiter.succeeded(guess).await;
        if !account.enabled {
            return Err(Status::unauthenticated(format!("account {name} is disabled")));
        }
        if !account.can(Capability::Login) {
            return Err(Status::unauthenticated(format!(
                "account {name} does not have login capability"
            )));
        }
        let seconds = i64::try_from(settings.session.as_secs()).unwrap_or(i64::MAX);
        session::issue(
            &self.plane,
            format!("{name}:login"),
            session::uuid()?,
            self.auth.now(),
            Some(seconds),
        )
    }
}
