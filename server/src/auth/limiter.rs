//! How often somebody may guess a password.
//!
//! Failures are counted for each account that exists, so that noise about names that do not cannot push anything out:
//! the table is as large as the list of accounts. Names that do not exist share one small budget among them. Failures
//! are written to a Secret as well, at most [`Limits::failures`] a window and account, so that neither a restart nor
//! another server gives new guesses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::state::ControlPlane;

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
        let since = now - i64::try_from(self.limits.window.as_secs()).unwrap_or(i64::MAX);
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
        // Two guesses of one second are two.
        let mut at = now;
        while own.contains(&at) {
            at += 1;
        }
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
            self.remember(&guess.account, None).await;
        }
    }

    /// The guess was wrong.
    pub(crate) async fn failed(&self, guess: Guess) {
        let own = {
            let mut failures = self.failures.lock();
            let own = failures.entry(guess.account.clone()).or_default();
            // A right guess made at the same time has forgotten all others.
            if !own.contains(&guess.at) {
                own.push(guess.at);
            }
            own.clone()
        };
        let text = own.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        self.remember(&guess.account, Some(text)).await;
    }

    fn remembered(&self, account: &str) -> Vec<i64> {
        let secret = self.plane.own_secret(FAILURES);
        let text = secret
            .map(|secret| secret.text(&key(account)))
            .unwrap_or_default();
        text.split(',').filter_map(|at| at.parse().ok()).collect()
    }

    async fn remember(&self, account: &str, text: Option<String>) {
        let data = BTreeMap::from([(key(account), text)]);
        if let Err(error) = self.plane.merge_secret(FAILURES, data).await {
            // The budget in memory still holds.
            tracing::warn!(account, error = error.message(), "remember a failed login");
        }
    }
}

/// Names of accounts are keys of a ConfigMap already, so they are keys of a Secret too.
fn key(account: &str) -> String {
    account.to_owned()
}
