//! Repository URLs in one spelling, for comparison and never for connecting.
//!
//! Argo CD compares repositories after lower-casing, folding `git@host:path` to `host/path`, cutting `.git`, and reading
//! the rest as Go's `net/url` does. The last step matters in two ways: a text that is no URL becomes empty and equals
//! nothing, and characters a path may not hold are percent-encoded, so that `{` in a pattern never is a brace.

use std::fmt::Write as _;

/// The spelling to compare by; empty for what is no URL.
pub fn normalize(repository: &str) -> String {
    let mut text = repository.trim().to_lowercase();
    if is_ssh(&text) && !text.starts_with("ssh://") {
        text = format!("ssh://{}", text.replacen(':', "/", 1));
    }
    if let Some(stem) = text.strip_suffix(".git") {
        text.truncate(stem.len());
    }
    let normal = reprint(&text).unwrap_or_default();
    match normal.strip_prefix("ssh://") {
        Some(rest) => rest.to_owned(),
        None => normal,
    }
}

/// Whether two texts name the same repository. Texts that are no URLs are compared as they are.
pub fn same(left: &str, right: &str) -> bool {
    let normal = |text: &str| {
        let normal = normalize(text);
        if normal.is_empty() {
            text.to_owned()
        } else {
            normal
        }
    };
    let left = normal(left);
    !left.is_empty() && left == normal(right)
}

/// `user@host…`, with or without `ssh://`.
pub fn is_ssh(text: &str) -> bool {
    let rest = text.strip_prefix("ssh://").unwrap_or(text);
    match rest.split_once('@') {
        Some((user, host)) => !user.contains(['/', ':']) && !host.is_empty() && !host.contains('@'),
        None => false,
    }
}

/// The URL as Go prints it after parsing, or nothing if Go does not parse it.
fn reprint(text: &str) -> Option<String> {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return None;
    }
    let (text, fragment) = match text.split_once('#') {
        Some((before, fragment)) => (before, Some(fragment)),
        None => (text, None),
    };
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = match rest.split_once('?') {
        Some((before, query)) => (before, Some(query)),
        None => (rest, None),
    };

    let mut printed = String::new();
    if !scheme.is_empty() {
        let _ = write!(printed, "{scheme}:");
    }
    if !scheme.is_empty() && !rest.starts_with('/') {
        printed.push_str(rest);
    } else {
        let has_authority = rest.starts_with("//") && (!scheme.is_empty() || !rest.starts_with("///"));
        let path = if has_authority {
            let end = rest[2..].find('/').map_or(rest.len(), |at| at + 2);
            printed.push_str("//");
            printed.push_str(authority(&rest[2..end])?);
            &rest[end..]
        } else {
            let first = rest.split('/').next().unwrap_or_default();
            if scheme.is_empty() && first.contains(':') {
                return None;
            }
            rest
        };
        printed.push_str(&encoded(path, is_path_char)?);
    }
    if let Some(query) = query {
        let _ = write!(printed, "?{query}");
    }
    if let Some(fragment) = fragment.filter(|fragment| !fragment.is_empty()) {
        let _ = write!(
            printed,
            "#{}",
            encoded(fragment, |b| is_path_char(b) || matches!(b, b'?' | b'#'))?
        );
    }
    Some(printed)
}

/// The scheme, without colon and perhaps empty, and what follows it.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

/// `user@host:port` if it is one.
fn authority(text: &str) -> Option<&str> {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", text),
    };
    let user_ok = user
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b));
    let host_ok = host
        .bytes()
        .all(|b| !b.is_ascii() || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b));
    let port = if host.starts_with('[') {
        host.rsplit_once(']')?.1
    } else {
        host
    };
    let port_ok = match port.split_once(':') {
        Some((_, port)) => port.bytes().all(|b| b.is_ascii_digit()),
        None => true,
    };
    (user_ok && host_ok && port_ok).then_some(text)
}

fn is_path_char(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]".contains(&b)
}

/// The text as it is if every character may stand in it, else with those encoded that may not.
fn encoded(text: &str, allowed: impl Fn(u8) -> bool) -> Option<String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = bytes.get(at + 1..at + 3)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            at += 3;
        } else {
            at += 1;
        }
    }
    if bytes.iter().all(|&b| b == b'%' || allowed(b)) {
        return Some(text.to_owned());
    }
    let mut out = String::new();
    for &b in bytes {
        if b == b'%' || (allowed(b) && !b"!'()*[]".contains(&b)) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_repository_are_equal() {
        for text in [
            "git@github.com:Argo/Demo.git",
            "ssh://git@github.com/argo/demo",
            "git@github.com:argo/demo",
            " git@github.com:argo/demo.git ",
        ] {
            assert_eq!(normalize(text), "git@github.com/argo/demo", "{text}");
        }
        assert!(same(
            "https://github.com/argo/demo",
            "HTTPS://GitHub.com/argo/Demo.git"
        ));
        assert!(!same("https://github.com/argo/demo", "git@github.com:argo/demo"));
        assert!(!same(
            "https://github.com/argo/demo",
            "http://github.com/argo/demo"
        ));
    }

    #[test]
    fn an_ssh_port_stays() {
        assert_eq!(normalize("ssh://git@host:2222/a/b.git"), "git@host:2222/a/b");
    }

    #[test]
    fn patterns_survive() {
        for text in [
            "*",
            "https://github.com/*",
            "https://*.example.com/**",
            "oci://registry.example.com/charts",
        ] {
            assert_eq!(normalize(text), text);
        }
        assert_eq!(
            normalize("https://github.com/{a,b}"),
            "https://github.com/%7Ba,b%7D"
        );
    }

    #[test]
    fn what_is_no_url_equals_only_itself() {
        assert_eq!(normalize("https://host:port/x"), "");
        assert_eq!(normalize("https://host/%zz"), "");
        assert!(same("https://host:port/x", "https://host:port/x"));
        assert!(!same("", ""));
    }
}
