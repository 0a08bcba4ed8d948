//! Local accounts: `argocd-cm` names them, `argocd-secret` has their passwords and tokens.

use std::collections::BTreeMap;

use argosy_api::annotation::parse_bool;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The account that every installation has.
pub(crate) const ADMIN: &str = "admin";

/// A local account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// May it be used at all?
    pub enabled: bool,
    /// What it can do, in the order in which `argocd-cm` says it.
    pub capabilities: Vec<Capability>,
    /// bcrypt; empty if it has no password.
    pub password_hash: String,
    /// Tokens issued before are void.
    pub password_mtime: Option<Timestamp>,
    /// The tokens that count.
    pub tokens: Vec<Token>,
}

/// What an account can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    /// Log in with a password.
    Login,
    /// Have tokens.
    ApiKey,
}

impl Capability {
    /// Argo CD's words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::ApiKey => "apiKey",
        }
    }
}

/// A token that was issued, as `argocd-secret` lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    /// Its `jti`.
    pub id: String,
    /// Seconds since 1970.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// Seconds since 1970; 0 for never.
    #[serde(rename = "exp", skip_serializing_if = "zero")]
    pub expires_at: i64,
}

fn zero(value: &i64) -> bool {
    *value == 0
}

impl Account {
    /// Whether it can do this.
    pub(crate) fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// Key of an account's value in `argocd-secret`: `admin.password` or `accounts.alice.password`.
pub(crate) fn secret_key(account: &str, what: &str) -> String {
    match account {
        ADMIN => format!("admin.{what}"),
        _ => format!("accounts.{account}.{what}"),
    }
}

/// Reads a list of tokens. None count of one that cannot be read.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Reads the accounts.
pub(crate) fn read(
    config: &BTreeMap<String, String>,
    secret: &BTreeMap<String, Vec<u8>>,
) -> BTreeMap<String, Account> {
    let mut accounts = BTreeMap::from([(
        ADMIN.to_owned(),
        Account {
            enabled: config.get("admin.enabled").and_then(|text| parse_bool(text)) != Some(false),
            capabilities: vec![Capability::Login],
            ..Account::default()
        },
    )]);
    for (key, value) in config {
        let Some(name) = key
            .strip_prefix("accounts.")
            // What follows another dot is said of an account, and is none.
            .filter(|name| !name.contains('.'))
        else {
            continue;
        };
        let account = accounts.entry(name.to_owned()).or_insert_with(|| Account {
            enabled: true,
            ..Account::default()
        });
        for word in value.split(',').map(str::trim) {
            let known = [Capability::Login, Capability::ApiKey];
            let said = known.into_iter().find(|capability| capability.as_str() == word);
            account
                .capabilities
                .extend(said.filter(|said| !account.can(*said)));
        }
        if let Some(enabled) = config.get(&format!("accounts.{name}.enabled")) {
            account.enabled = parse_bool(enabled) == Some(true);
        }
    }
    for (name, account) in &mut accounts {
        let text = |what: &str| {
            let bytes = secret.get(&secret_key(name, what));
            bytes
                .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
                .unwrap_or_default()
        };
        account.password_hash = text("password");
        account.password_mtime = text("passwordMtime").parse().ok();
        account.tokens = tokens(&text("tokens"));
    }
    accounts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn an_account_is_what_the_config_map_says_and_the_secret_knows() {
        let secret = BTreeMap::from([
            ("admin.password".to_owned(), b"$2a$10$x".to_vec()),
            (
                "accounts.ci.tokens".to_owned(),
                br#"[{"id":"a","iat":5},{"id":"b","iat":6,"exp":7}]"#.to_vec(),
            ),
        ]);
        let accounts = read(
            &config(&[
                ("accounts.ci", "apiKey, login"),
                ("accounts.ci.enabled", "false"),
                ("url", "x"),
            ]),
            &secret,
        );
        assert_eq!(accounts.keys().collect::<Vec<_>>(), ["admin", "ci"]);
        assert_eq!(accounts["admin"].capabilities, [Capability::Login]);
        assert_eq!(accounts["admin"].password_hash, "$2a$10$x");
        let ci = &accounts["ci"];
        assert!(!ci.enabled);
        assert_eq!(ci.capabilities, [Capability::ApiKey, Capability::Login]);
        assert_eq!(
            ci.tokens[1],
            Token {
                id: "b".into(),
                issued_at: 6,
                expires_at: 7
            }
        );
    }

    #[test]
    fn admin_is_there_unless_it_is_turned_off() {
        assert!(read(&config(&[]), &BTreeMap::new())["admin"].enabled);
        for text in ["false", "False", "FALSE", "f", "0"] {
            let accounts = read(&config(&[("admin.enabled", text)]), &BTreeMap::new());
            assert!(!accounts["admin"].enabled, "{text}");
        }
    }

    #[test]
    fn an_account_is_on_or_off_in_any_word_for_it_and_has_no_dot() {
        let with = |enabled: &str| {
            let accounts = config(&[
                ("accounts.ci", "login"),
                ("accounts.ci.enabled", enabled),
                ("accounts.a.b", "login"),
            ]);
            read(&accounts, &BTreeMap::new())
        };
        for (text, enabled) in [
            ("true", true),
            ("True", true),
            ("1", true),
            ("False", false),
            ("0", false),
            ("perhaps", false),
        ] {
            assert_eq!(with(text)["ci"].enabled, enabled, "{text}");
        }
        assert_eq!(with("true").keys().collect::<Vec<_>>(), ["admin", "ci"]);
    }
}
