//! Tokens of this installation: JSON Web Tokens signed with HMAC-SHA256 and the key of `argocd-secret`.
//!
//! The algorithm is not read from the token but is the only one there is: a header that names another is refused, and so
//! is every header with more to say than that. Claims exist only as what [`verify`] returns.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// `iss` of our tokens.
pub(crate) const ISSUER: &str = "argocd";
/// A longer token is not looked at.
const LEN_MAX: usize = 16 << 10;
/// Clocks may differ by so many seconds.
const LEEWAY: i64 = 30;

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Claims {
    /// Who issued it.
    pub iss: String,
    /// Who it is about: `alice:login`, `ci:apiKey`, `proj:shop:deployer`.
    pub sub: String,
    /// Seconds since 1970 before which it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    /// Seconds since 1970 when it was issued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    /// Seconds since 1970 from which it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// Its own name, by which it is revoked.
    pub jti: String,
}

/// Why a token does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// It is not a token of ours at all.
    #[error("token is malformed")]
    Malformed,
    /// The header names something else than HMAC-SHA256.
    #[error("signing method is invalid")]
    Algorithm,
    /// It was signed with another key, or by nobody.
    #[error("signature is invalid")]
    Signature,
    /// It is past its time.
    #[error("token is expired")]
    Expired,
    /// Its time has not come.
    #[error("token is not valid yet")]
    Early,
    /// Another issuer.
    #[error("the issuer is unknown")]
    Issuer,
}

/// Signs claims.
pub(crate) fn sign(claims: &Claims, key: &[u8]) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let claims = serde_json::to_vec(claims).unwrap_or_default();
    let text = format!(
        "{}.{}",
        encode(br#"{"alg":"HS256","typ":"JWT"}"#),
        encode(&claims)
    );
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    format!("{text}.{}", encode(tag.as_ref()))
}

/// Checks a token at `now` (seconds since 1970) and gives its claims.
///
/// # Errors
/// When it does not count for any reason.
pub(crate) fn verify(token: &str, key: &[u8], now: i64) -> Result<Claims, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Header {
        alg: String,
        #[serde(default)]
        typ: Option<String>,
    }
    if key.is_empty() || token.len() > LEN_MAX {
        return Err(Error::Malformed);
    }
    let mut parts = token.split('.');
    let (Some(header), Some(body), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Error::Malformed);
    };
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| Error::Malformed);
    let read: Header = serde_json::from_slice(&decode(header)?).map_err(|_| Error::Algorithm)?;
    if read.alg != "HS256" || read.typ.is_some_and(|typ| typ != "JWT") {
        return Err(Error::Algorithm);
    }
    let signed = format!("{header}.{body}");
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::verify(&key, signed.as_bytes(), &decode(signature)?).map_err(|_| Error::Signature)?;
    let claims: Claims = serde_json::from_slice(&decode(body)?).map_err(|_| Error::Malformed)?;
    if claims.iss != ISSUER {
        return Err(Error::Issuer);
    }
    if claims.exp.is_some_and(|exp| exp <= now) {
        return Err(Error::Expired);
    }
    let early = |at: Option<i64>| at.is_some_and(|at| at > now + LEEWAY);
    if early(claims.nbf) || early(claims.iat) {
        return Err(Error::Early);
    }
    if claims.sub.is_empty() || claims.iat.is_none() {
        return Err(Error::Malformed);
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: i64 = 1_800_000_000;

    fn claims() -> Claims {
        Claims {
            iss: ISSUER.into(),
            sub: "admin:login".into(),
            nbf: Some(NOW),
            iat: Some(NOW),
            exp: Some(NOW + 60),
            jti: "a".into(),
        }
    }

    fn raw(header: &str, body: &str, key: &[u8]) -> String {
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(body)
        );
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    #[test]
    fn what_was_signed_is_read_back() {
        let token = sign(&claims(), KEY);
        assert_eq!(verify(&token, KEY, NOW), Ok(claims()));
    }

    #[test]
    fn no_other_algorithm_counts_whatever_it_is_called() {
        let body = serde_json::to_string(&claims()).unwrap();
        for alg in [
            "none", "None", "NONE", "nOnE", "", "HS384", "HS512", "RS256", "ES256", "EdDSA", "hs256",
            "HS256 ",
        ] {
            let token = raw(&format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#), &body, KEY);
            assert_eq!(verify(&token, KEY, NOW), Err(Error::Algorithm), "{alg}");
            let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
            assert!(verify(&unsigned, KEY, NOW).is_err(), "{alg} without signature");
        }
    }

    #[test]
    fn headers_that_point_to_keys_are_refused() {
        let body = serde_json::to_string(&claims()).unwrap();
        for more in [
            r#""kid":"../../dev/null""#,
            r#""kid":"x' UNION SELECT 'k""#,
            r#""jku":"https://evil.example.com/keys""#,
            r#""x5u":"https://evil.example.com/cert""#,
            r#""jwk":{"kty":"oct","k":"AA"}"#,
            r#""crit":["exp"]"#,
            r#""zip":"DEF""#,
        ] {
            let token = raw(&format!(r#"{{"alg":"HS256","typ":"JWT",{more}}}"#), &body, KEY);
            assert_eq!(verify(&token, KEY, NOW), Err(Error::Algorithm), "{more}");
        }
    }

    #[test]
    fn a_token_of_another_key_issuer_or_time_does_not_count() {
        let token = |change: &dyn Fn(&mut Claims)| {
            let mut claims = claims();
            change(&mut claims);
            sign(&claims, KEY)
        };
        assert_eq!(
            verify(&sign(&claims(), b"other"), KEY, NOW),
            Err(Error::Signature)
        );
        assert_eq!(
            verify(&sign(&claims(), KEY), b"", NOW),
            Err(Error::Malformed),
            "no key, no token"
        );
        assert_eq!(
            verify(&sign(&claims(), b""), b"", NOW),
            Err(Error::Malformed),
            "no key, no token"
        );
        assert_eq!(
            verify(&token(&|claims| claims.exp = Some(NOW)), KEY, NOW),
            Err(Error::Expired)
        );
        assert_eq!(
            verify(&token(&|claims| claims.nbf = Some(NOW + 31)), KEY, NOW),
            Err(Error::Early)
        );
        assert_eq!(
            verify(&token(&|claims| claims.iat = Some(NOW + 31)), KEY, NOW),
            Err(Error::Early)
        );
        assert_eq!(
            verify(&token(&|claims| claims.iss = "dex".into()), KEY, NOW),
            Err(Error::Issuer)
        );
        assert_eq!(
            verify(&token(&|claims| claims.iss.clear()), KEY, NOW),
            Err(Error::Issuer)
        );
        assert_eq!(
            verify(&token(&|claims| claims.sub.clear()), KEY, NOW),
            Err(Error::Malformed)
        );
        assert_eq!(
            verify(&token(&|claims| claims.iat = None), KEY, NOW),
            Err(Error::Malformed)
        );
        assert!(
            verify(&token(&|claims| claims.exp = None), KEY, NOW).is_ok(),
            "tokens of accounts may have no end"
        );
    }

    #[test]
    fn what_is_not_a_token_is_malformed() {
        let good = sign(&claims(), KEY);
        let twice = raw(
            r#"{"alg":"HS256"}"#,
            r#"{"iss":"argocd","iss":"argocd","sub":"a","iat":1}"#,
            KEY,
        );
        let words = raw(
            r#"{"alg":"HS256"}"#,
            r#"{"iss":"argocd","sub":"a","iat":"1"}"#,
            KEY,
        );
        let list = raw(r#"{"alg":"HS256"}"#, "[]", KEY);
        for token in [
            "",
            ".",
            "..",
            "...",
            "a.b.c",
            &good[1..],
            &format!("{good}."),
            &format!("{good}a"),
            &format!(" {good}"),
            &twice,
            &words,
            &list,
            &"a".repeat(1 << 20),
        ] {
            assert!(
                verify(token, KEY, NOW).is_err(),
                "{}",
                &token[..token.len().min(60)]
            );
        }
        let (head, tail) = good.split_at(good.rfind('.').unwrap());
        let other = raw(
            r#"{"alg":"HS256"}"#,
            r#"{"iss":"argocd","sub":"admin:login","iat":1}"#,
            b"other",
        );
        let mixed = format!("{}{tail}", other.rsplit_once('.').unwrap().0);
        assert_eq!(
            verify(&mixed, KEY, NOW),
            Err(Error::Signature),
            "claims of one, signature of another"
        );
        assert!(verify(head, KEY, NOW).is_err());
    }
}
