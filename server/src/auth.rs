//! Who is calling: [`Authenticator::caller`] turns the headers of a request into a [`Caller`], or says why not.
//!
//! Single sign-on will verify the tokens of further issuers here; until then there is one issuer, this installation.

pub(crate) mod jwt;
pub(crate) mod limiter;
pub(crate) mod password;
pub(crate) mod session;

use std::sync::Arc;

use argosy_runtime::clock::Clock;
use http::HeaderMap;
use tonic::Status;

use crate::state::ControlPlane;
use crate::state::accounts::Capability;
use jwt::Claims;

/// Seconds before the end of a session in which it is renewed.
const RENEWED_BEFORE: i64 = 300;

/// Who makes a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Nobody in particular, where that is allowed.
    Anonymous,
    /// Somebody whose token counts.
    User(Arc<User>),
}

/// Somebody whose token counts.
#[derive(Debug)]
pub(crate) struct User {
    /// The account, or `proj:<project>:<role>`.
    pub name: String,
    /// Groups of single sign-on.
    pub groups: Vec<String>,
    claims: Claims,
}

impl User {
    /// The project of a token that belongs to a role of one.
    pub(crate) fn project_role(&self) -> Option<&str> {
        self.name
            .strip_prefix("proj:")
            .and_then(|rest| rest.split_once(':'))
            .map(|(project, _)| project)
    }

    /// The names in policies.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.groups.iter().map(String::as_str))
    }

    /// The verified claims.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }
}

impl Caller {
    /// The user, unless anonymous.
    pub(crate) fn user(&self) -> Option<&User> {
        match self {
            Caller::Anonymous => None,
            Caller::User(user) => Some(user),
        }
    }

    /// The user's name; empty for nobody.
    pub(crate) fn name(&self) -> &str {
        self.user().map_or("", |user| &user.name)
    }

    /// How refusals name the caller.
    pub(crate) fn described(&self) -> String {
        match self.user() {
            None => String::new(),
            Some(user) => {
                let iat = user
                    .claims
                    .iat
                    .and_then(|iat| jiff::Timestamp::from_second(iat).ok());
                let iat = iat.map(|iat| format!(", iat: {iat}")).unwrap_or_default();
                format!(", sub: {}{iat}", user.name)
            }
        }
    }
}

/// The outcome of looking at a request's token; it travels with the request.
#[derive(Clone)]
pub(crate) struct Identity(pub Result<Caller, Status>);

/// The caller of a request that must have one.
pub(crate) fn caller<T>(request: &tonic::Request<T>) -> Result<Caller, Status> {
    match request.extensions().get::<Identity>() {
        Some(Identity(outcome)) => outcome.clone(),
        None => Err(no_session()),
    }
}

fn no_session() -> Status {
    Status::unauthenticated("no session information")
}

/// Looks at tokens.
pub(crate) struct Authenticator {
    plane: Arc<ControlPlane>,
    clock: Arc<dyn Clock>,
    /// Nobody is asked who they are.
    disabled: bool,
}

impl Authenticator {
    /// Checks tokens against the accounts and projects of this control plane.
    pub(crate) fn new(plane: Arc<ControlPlane>, clock: Arc<dyn Clock>, disabled: bool) -> Self {
        Authenticator {
            plane,
            clock,
            disabled,
        }
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    /// Who sends these headers.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        let Some(token) = token(headers) else {
            let open = self.disabled || self.plane.settings().anonymous;
            return if open {
                Ok(Caller::Anonymous)
            } else {
                Err(no_session())
            };
        };
        // A token that does not count is never taken for none: whoever sends one wants to be somebody.
        match self.verify(&token) {
            Ok(user) => Ok(Caller::User(Arc::new(user))),
            Err(_) if self.disabled => Ok(Caller::Anonymous),
            Err(why) => Err(Status::unauthenticated(format!("invalid session: {why}"))),
        }
    }

    /// Does the token of a caller still count? For streams that outlast a change.
    pub(crate) fn still(&self, caller: &Caller) -> bool {
        let Some(user) = caller.user() else {
            return self.disabled || self.plane.settings().anonymous;
        };
        self.disabled || self.check(&user.claims).is_ok()
    }

    /// Another token for somebody whose session is about to end; it lasts as long as the session did. Keys of the API and of
    /// projects end when they said they would.
    pub(crate) fn renewed(&self, Identity(outcome): &Identity) -> Option<String> {
        let user = outcome.as_ref().ok()?.user()?;
        let (from, until) = (user.claims.iat?, user.claims.exp?);
        let is_session = user.project_role().is_none() && !user.claims.sub.ends_with(":apiKey");
        if !is_session || until - self.now() >= RENEWED_BEFORE {
            return None;
        }
        let subject = format!("{}:login", user.name);
        let issued = session::issue(
            &self.plane,
            subject,
            session::uuid().ok()?,
            self.now(),
            Some(until - from),
        );
        issued.ok()
    }

    /// The user of a token.
    fn verify(&self, token: &str) -> Result<User, String> {
        let settings = self.plane.settings();
        let claims =
            jwt::verify(token, &settings.signing_key, self.now()).map_err(|error| error.to_string())?;
        let name = self.check(&claims)?;
        Ok(User {
            name,
            groups: Vec::new(),
            claims,
        })
    }

    /// The name that claims stand for now: accounts are disabled, tokens taken back, passwords changed.
    fn check(&self, claims: &Claims) -> Result<String, String> {
        if claims.exp.is_some_and(|exp| exp <= self.now()) {
            return Err("token is expired".to_owned());
        }
        if session::is_revoked(&self.plane, &claims.jti) {
            return Err("token is revoked, please re-login".to_owned());
        }
        match claims.sub.strip_prefix("proj:") {
            Some(rest) => {
                self.project_token(rest, claims)?;
                Ok(claims.sub.clone())
            }
            None => self.account_token(claims),
        }
    }

    fn account_token(&self, claims: &Claims) -> Result<String, String> {
        let (name, capability) = claims.sub.rsplit_once(':').unwrap_or((&claims.sub, "login"));
        let settings = self.plane.settings();
        let account = settings
            .accounts
            .get(name)
            .ok_or_else(|| format!("account {name} does not exist"))?;
        if !account.enabled {
            return Err(format!("account {name} is disabled"));
        }
        if claims.jti.is_empty() {
            return Err(
                "token does not have a unique identifier (jti claim) and cannot be validated".to_owned(),
            );
        }
        match capability {
            "apiKey" => {
                if !account.can(Capability::ApiKey) {
                    return Err(format!("account {name} does not have token access"));
                }
                if !account.tokens.iter().any(|token| token.id == claims.jti) {
                    return Err(format!(
                        "account {name} does not have token with id {}",
                        claims.jti
                    ));
                }
            }
            "login" => {
                if !account.can(Capability::Login) {
                    return Err(format!("account {name} does not have login access"));
                }
            }
            other => return Err(format!("the token has an unknown capability {other:?}")),
        }
        // Whoever changes a password because somebody else may know it ends what they have made with it, keys too.
        let changed = account.password_mtime.map_or(0, |at| at.as_second());
        if claims.iat.unwrap_or_default() < changed {
            return Err("account password has changed since token issued".to_owned());
        }
        Ok(name.to_owned())
    }

    fn project_token(&self, rest: &str, claims: &Claims) -> Result<(), String> {
        let (project, role) = rest.split_once(':').ok_or("the token names no role")?;
        let found = self
            .plane
            .project_for_gate(project)
            .ok_or("the token's project does not exist")?;
        let issued = found
            .status
            .jwt_tokens_by_role
            .get(role)
            .map_or(&[][..], |tokens| &tokens.items[..]);
        let of_role = found
            .spec
            .roles
            .iter()
            .find(|known| known.name == role)
            .ok_or("the token's role does not exist")?;
        let listed = issued.iter().chain(&of_role.jwt_tokens).any(|token| {
            let by_id = !claims.jti.is_empty() && token.id == claims.jti;
            by_id || (token.id.is_empty() && Some(token.iat) == claims.iat)
        });
        if !listed {
            return Err("the token is not in the project any more".to_owned());
        }
        Ok(())
    }
}

/// The token of a request: `token`, then `Authorization`, then the cookie.
pub(crate) fn token(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .filter(|text| !text.is_empty())
    };
    if let Some(token) = text("token") {
        return Some(token.to_owned());
    }
    if let Some(value) = text("authorization") {
        let (scheme, token) = value.split_once(' ').unwrap_or_default();
        if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() {
            return Some(token.trim().to_owned());
        }
    }
    let cookies = headers
        .get_all(http::header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let cookies: Vec<(&str, &str)> = cookies
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .collect();
    session::join_cookies(&cookies)
}
