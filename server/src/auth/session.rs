//! Sessions: tokens of people who logged in, their cookies, and their end.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use tonic::Status;

use super::jwt::{self, Claims};
use crate::state::ControlPlane;
use crate::state::write::Change;

/// Name of the cookie, or of its first piece.
pub(crate) const COOKIE: &str = "argocd.token";
/// The longest value of one piece, its name included.
const COOKIE_LEN_MAX: usize = 4093;
/// Pieces that are looked at.
const COOKIES_MAX: usize = 20;
/// The Secret that remembers which sessions were ended before their time. All servers of an installation follow it.
const REVOKED: &str = "argosy-revoked-sessions";

/// Random bytes as lower-case hexadecimal digits in the groups of a UUID of version 4.
pub(crate) fn uuid() -> Result<String, Status> {
    let mut bytes = random::<16>()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    ))
}

/// Bytes nobody can guess.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Status> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Status::internal("there is no randomness to be had"))?;
    Ok(bytes)
}

/// A token for `sub` that lasts `seconds`; None for ever.
pub(crate) fn issue(
    plane: &ControlPlane,
    sub: String,
    id: String,
    now: i64,
    seconds: Option<i64>,
) -> Result<String, Status> {
    let settings = plane.settings();
    if settings.signing_key.is_empty() {
        return Err(Status::unavailable(
            "the signing key of argocd-secret is not known yet",
        ));
    }
    let claims = Claims {
        iss: jwt::ISSUER.to_owned(),
        sub,
        nbf: Some(now),
        iat: Some(now),
        exp: seconds.map(|seconds| now.saturating_add(seconds)),
        jti: id,
    };
    Ok(jwt::sign(&claims, &settings.signing_key))
}

/// Was this session ended?
pub(crate) fn is_revoked(plane: &ControlPlane, id: &str) -> bool {
    !id.is_empty()
        && plane
            .own_secret(REVOKED)
            .is_some_and(|secret| secret.data.contains_key(&key(id)))
}

/// Ends a session for all servers. Those that are past their time are forgotten on the way. A token without an end is a key and no
/// session: it is taken back where it was made.
pub(crate) async fn end(plane: &ControlPlane, claims: &Claims, now: i64) -> Result<(), Status> {
    let Some(until) = claims.exp.filter(|_| !claims.jti.is_empty()) else {
        return Ok(());
    };
    plane
        .change_secret(REVOKED, |secret| {
            let past = |until: &i64| *until != 0 && *until <= now;
            let over = secret
                .data
                .keys()
                .filter(|key| secret.text(key).parse().is_ok_and(|until| past(&until)));
            let mut change: Change = over.map(|key| (key.clone(), None)).collect();
            change.insert(key(&claims.jti), Some(until.to_string()));
            Ok(change)
        })
        .await
}

/// Ids may be any text; keys of Secrets may not.
fn key(id: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, id.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `Set-Cookie` values that hold a token, in pieces if it is long. An empty token takes the cookie away.
pub(crate) fn split_cookies(token: &str, path: &str, secure: bool) -> Vec<String> {
    let secure = if secure { "; Secure" } else { "" };
    let attributes = format!("path={path}; SameSite=lax; httpOnly{secure}");
    if token.is_empty() {
        return vec![format!("{COOKIE}=; Max-Age=0; {attributes}")];
    }
    // Room for the name, its number, and the count before the first piece.
    let room = COOKIE_LEN_MAX - COOKIE.len() - "=20:".len() - "-20".len();
    let pieces: Vec<&[u8]> = token.as_bytes().chunks(room).collect();
    let count = pieces.len();
    let piece = |(at, piece): (usize, &&[u8])| {
        let text = String::from_utf8_lossy(piece);
        match at {
            0 => format!("{COOKIE}={count}:{text}; {attributes}"),
            at => format!("{COOKIE}-{at}={text}; {attributes}"),
        }
    };
    match count {
        1 => vec![format!("{COOKIE}={token}; {attributes}")],
        _ => pieces.iter().enumerate().map(piece).collect(),
    }
}

/// The token that cookies hold.
pub(crate) fn join_cookies(cookies: &[(&str, &str)]) -> Option<String> {
    let of = |name: &str| {
        cookies
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    };
    let first = of(COOKIE).filter(|value| !value.is_empty())?;
    let Some((count, data)) = first.split_once(':') else {
        return Some(first.to_owned());
    };
    let count: usize = count
        .parse()
        .ok()
        .filter(|count| (1..=COOKIES_MAX).contains(count))?;
    let mut token = data.to_owned();
    for at in 1..count {
        token.push_str(of(&format!("{COOKIE}-{at}"))?);
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn joined(values: &[String]) -> Option<String> {
        let pairs: Vec<_> = values
            .iter()
            .map(|value| value.split_once(';').unwrap().0.split_once('=').unwrap())
            .collect();
        join_cookies(&pairs)
    }

    #[test]
    fn a_long_token_goes_through_cookies_in_pieces() {
        for len in [10, 4000, 4070, 4093, 5000, 20_000] {
            let token = "a.b".repeat(len / 3);
            let cookies = split_cookies(&token, "/", true);
            assert!(
                cookies
                    .iter()
                    .all(|value| value.split(';').next().unwrap().len() <= COOKIE_LEN_MAX)
            );
            assert!(cookies[0].contains("SameSite=lax; httpOnly; Secure"));
            assert_eq!(joined(&cookies), Some(token));
        }
    }

    #[test]
    fn pieces_that_are_missing_or_miscounted_are_no_token() {
        assert_eq!(join_cookies(&[(COOKIE, "2:abc")]), None);
        assert_eq!(join_cookies(&[(COOKIE, "0:abc")]), None);
        assert_eq!(join_cookies(&[(COOKIE, "21:abc")]), None);
        assert_eq!(join_cookies(&[(COOKIE, "x:abc")]), None);
        assert_eq!(join_cookies(&[("other", "a")]), None);
        assert_eq!(join_cookies(&[(COOKIE, "")]), None);
    }

    #[test]
    fn ids_are_uuids_and_differ() {
        let (one, two) = (uuid().unwrap(), uuid().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
        assert_eq!(&one[14..15], "4");
    }
}
