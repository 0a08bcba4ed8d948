//! How often somebody may guess a password.
//!
//! Failures are counted for each account that exists, so that noise about names that do not cannot push anything out:
//! the table is as large as the list of accounts. Names that do not exist are not counted: there is nothing to guess, and
//! [`super::password`] bounds what they cost. Failures are written to a Secret as well, at most [`Limits::failures`] a
//! window and account, so that neither a restart nor another server gives new guesses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tonic::Status;

use crate::state::write::Change;
use crate::state::{ControlPlane, Secret};

/// The Secret that remembers failures.
const FAILURES: &str = "argosy-login-failures";

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// So many failures in a window; then nothing is compared any more.
    pub failures: usize,
    /// The window.
    pub window: Duration,
}

impl Limits {
    /// `ARGOCD_SESSION_FAILURE_MAX_FAIL_COUNT` and `ARGOCD_SESSION_FAILURE_WINDOW_SECONDS`, or 5 in 300 seconds.
    pub(crate) fn from_env() -> Self {
        let number = |name: &str, default: u64| {
            std::env::var(name)
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(default)
        };
        Limits {
            failures: usize::try_from(number("ARGOCD_SESSION_FAILURE_MAX_FAIL_COUNT", 5)).unwrap_or(5),
            window: Duration::from_secs(number("ARGOCD_SESSION_FAILURE_WINDOW_SECONDS", 300)),
        }
    }
}

/// Counts failures.
pub(crate) struct Limiter {
    plane: Arc<ControlPlane>,
    limits: Limits,
    /// Seconds since 1970 of each failure.
    failures: Mutex<HashMap<String, Vec<i64>>>,
}

/// A guess that may be made. It counts as failed until it is said to have succeeded, so that guesses made at the same
/// time share one budget.
#[must_use]
pub(crate) struct Guess {
    account: String,
    at: i64,
}

impl Limiter {
    /// No failures but those that the Secret remembers.
    pub(crate) fn new(plane: Arc<ControlPlane>, limits: Limits) -> Self {
        Limiter {
            plane,
            limits,
            failures: Mutex::default(),
        }
    }

    /// May a password of this account be tried at `now`? Only for accounts that exist.
    pub(crate) fn guess(&self, account: &str, now: i64) -> Option<Guess> {
        let since = self.since(now);
        let remembered = self.remembered(account);
        let mut failures = self.failures.lock();
        let own = failures.entry(account.to_owned()).or_default();
        for at in remembered {
            if !own.contains(&at) {
                own.push(at);
            }
        }
        own.retain(|at| *at > since);
        if own.len() >= self.limits.failures {
            return None;
        }
        let at = free(own, now);
        own.push(at);
        Some(Guess {
            account: account.to_owned(),
            at,
        })
    }

    /// The guess was right: past failures are forgotten.
    pub(crate) async fn succeeded(&self, guess: Guess) {
        let had = self.failures.lock().remove(&guess.account);
        if had.is_some_and(|had| had.len() > 1) || !self.remembered(&guess.account).is_empty() {
            let change = |_: &Secret| Ok(Change::from([(guess.account.clone(), None)]));
            self.remember(&guess.account, change).await;
        }
    }

    /// The guess was wrong.
    pub(crate) async fn failed(&self, guess: Guess) {
        {
            let mut failures = self.failures.lock();
            let own = failures.entry(guess.account.clone()).or_default();
            // A right guess made at the same time has forgotten all others.
            if !own.contains(&guess.at) {
                own.push(guess.at);
            }
        }
        let since = self.since(guess.at);
        let mut at = guess.at;
        let change = |secret: &Secret| {
            // Another server may have written down guesses of its own, some of the same second.
            let mut all = times(&secret.text(&guess.account));
            all.retain(|at| *at > since);
            at = free(&all, guess.at);
            all.push(at);
            let text = all.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
            Ok(Change::from([(guess.account.clone(), Some(text))]))
        };
        self.remember(&guess.account, change).await;
        if at != guess.at
            && let Some(own) = self.failures.lock().get_mut(&guess.account)
        {
            own.retain(|known| *known != guess.at);
            own.push(at);
        }
    }

    /// Failures before this time are forgotten.
    fn since(&self, now: i64) -> i64 {
        now - i64::try_from(self.limits.window.as_secs()).unwrap_or(i64::MAX)
    }

    fn remembered(&self, account: &str) -> Vec<i64> {
        let secret = self.plane.own_secret(FAILURES);
        secret
            .map(|secret| times(&secret.text(account)))
            .unwrap_or_default()
    }

    async fn remember(&self, account: &str, change: impl FnMut(&Secret) -> Result<Change, Status>) {
        if let Err(error) = self.plane.change_secret(FAILURES, change).await {
            // The budget in memory still holds.
            tracing::warn!(account, error = error.message(), "remember a failed login");
        }
    }
}

/// The first second from `at` on that is not taken: two guesses of one second are two.
fn free(taken: &[i64], mut at: i64) -> i64 {
    while taken.contains(&at) {
        at += 1;
    }
    at
}

/// Reads what the Secret has of an account. Names of accounts are keys of a ConfigMap already, so they are keys of a Secret
/// too.
fn times(text: &str) -> Vec<i64> {
    text.split(',').filter_map(|at| at.parse().ok()).collect()
}
