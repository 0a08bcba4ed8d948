//! Repository URLs: which are allowed, which mean the same repository, and how they are shown.

use crate::error::{Error, Result};

/// A repository URL that may be handed to `git`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitUrl {
    /// The URL for `git`, without user information unless it is an SSH user name.
    fetch: String,
    /// The form under which equal repositories are equal.
    normal: String,
    /// Credentials that stood in the URL itself.
    embedded: Option<(String, String)>,
    scheme: Scheme,
    host: String,
}

/// The transports that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `https://`
    Https,
    /// `http://`
    Http,
    /// `ssh://` and `user@host:path`
    Ssh,
    /// `file://` and absolute paths
    File,
}

impl GitUrl {
    /// Reads a URL; anything but file, http, https and ssh is refused, as is what `git` could take for an option.
    ///
    /// # Errors
    /// [`Error::Repository`] that names the URL without user information.
    pub fn parse(text: &str) -> Result<GitUrl> {
        let text = text.trim();
        let refuse = |message: &str| {
            Err(Error::Repository {
                url: display(text),
                message: message.to_owned(),
            })
        };
        if text.is_empty() {
            return refuse("the URL is empty");
        }
        if text.starts_with('-') || text.chars().any(|c| c.is_control()) {
            return refuse("the URL is not valid");
        }
        if text.starts_with('/') {
            return Self::file(text, text);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let scheme = match scheme.to_ascii_lowercase().as_str() {
                "https" => Scheme::Https,
                "http" => Scheme::Http,
                "ssh" | "git+ssh" => Scheme::Ssh,
                "file" => return Self::file(text, rest),
                _ => return refuse("only https, http, ssh and file URLs are allowed"),
            };
            return Self::remote(text, scheme, rest);
        }
        // The scp form: [user@]host:path, without a slash before the colon and no `::` remote helper.
        if let Some((host, path)) = text.split_once(':')
            && !host.contains('/')
            && !path.starts_with(':')
            && !path.is_empty()
        {
            return Self::remote(
                text,
                Scheme::Ssh,
                &format!("{host}/{}", path.trim_start_matches('/')),
            )
            .map(|url| GitUrl {
                fetch: text.to_owned(),
                ..url
            });
        }
        refuse("only https, http, ssh and file URLs are allowed")
    }

    fn file(text: &str, path: &str) -> Result<GitUrl> {
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(Error::Repository {
                url: text.into(),
                message: "a file URL wants an absolute path".into(),
            });
        }
        Ok(GitUrl {
            fetch: format!("file://{path}"),
            normal: format!(
                "file://{}",
                path.trim_end_matches('/')
                    .trim_end_matches(".git")
                    .trim_end_matches('/')
            ),
            embedded: None,
            scheme: Scheme::File,
            host: String::new(),
        })
    }

    fn remote(text: &str, scheme: Scheme, rest: &str) -> Result<GitUrl> {
        let refuse = |message: &str| {
            Err(Error::Repository {
                url: display(text),
                message: message.to_owned(),
            })
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.is_empty() || host.starts_with('-') || user_info.is_some_and(|user| user.starts_with('-')) {
            return refuse("the URL has no valid host");
        }
        let host = host.to_ascii_lowercase();
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let plain = path
            .trim_matches('/')
            .trim_end_matches(".git")
            .trim_end_matches('/');
        let (prefix, user, embedded) = match scheme {
            Scheme::Ssh => {
                let user = user_info.map(|user| user.split(':').next().unwrap_or(user));
                (
                    "ssh",
                    user.map(|user| format!("{user}@")).unwrap_or_default(),
                    None,
                )
            }
            _ => {
                let embedded = user_info.map(|info| {
                    let (user, password) = info.split_once(':').unwrap_or((info, ""));
                    (percent_decode(user), percent_decode(password))
                });
                (
                    if scheme == Scheme::Https { "https" } else { "http" },
                    String::new(),
                    embedded,
                )
            }
        };
        Ok(GitUrl {
            fetch: format!("{prefix}://{user}{host}/{path}"),
            normal: match scheme {
                // Over SSH the port may be in the host; the user is part of who asks, not of what is asked for.
                Scheme::Ssh => format!("ssh://{host}/{plain}"),
                _ => format!("{prefix}://{host}/{plain}"),
            },
            embedded,
            scheme,
            host: host
                .rsplit_once(':')
                .map_or(host.as_str(), |(name, port)| {
                    if port.bytes().all(|b| b.is_ascii_digit()) {
                        name
                    } else {
                        host.as_str()
                    }
                })
                .to_owned(),
        })
    }

    /// What `git` is given.
    pub fn as_fetch(&self) -> &str {
        &self.fetch
    }

    /// The name of the repository: equal for equal repositories, free of credentials.
    pub fn normal(&self) -> &str {
        &self.normal
    }

    /// User and password that stood in the URL.
    pub fn embedded(&self) -> Option<&(String, String)> {
        self.embedded.as_ref()
    }

    /// The transport.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Host name without port; empty for files.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, by default that of the transport; 0 for files.
    pub fn port(&self) -> u16 {
        let authority = self
            .fetch
            .split_once("://")
            .and_then(|(_, rest)| rest.split('/').next())
            .unwrap_or_default();
        let written = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        written.unwrap_or(match self.scheme {
            Scheme::Https => 443,
            Scheme::Http => 80,
            Scheme::Ssh => 22,
            Scheme::File => 0,
        })
    }

    /// What decides whether two repositories are of one server: the origin, or the host over SSH.
    pub(crate) fn origin_or_host(&self) -> String {
        match self.scheme {
            Scheme::Ssh => self.host.clone(),
            _ => self.origin(),
        }
    }

    /// `scheme://host[:port]` for HTTP transports.
    pub fn origin(&self) -> String {
        let end = self.fetch.find("://").map_or(0, |at| at + 3);
        let host_end = self.fetch[end..]
            .find('/')
            .map_or(self.fetch.len(), |at| end + at);
        self.fetch[..host_end].to_owned()
    }
}

/// Shows a URL without user information; total.
pub fn display(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let end = rest.find('/').unwrap_or(rest.len());
            match rest[..end].rfind('@') {
                Some(at) if scheme != "ssh" => format!("{scheme}://{}", &rest[at + 1..]),
                Some(at) => {
                    let user = rest[..at].split(':').next().unwrap_or_default();
                    format!("{scheme}://{user}@{}", &rest[at + 1..])
                }
                None => text.to_owned(),
            }
        }
        None => text.to_owned(),
    }
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn spellings_of_one_repository_are_one() {
        for text in [
            "https://GitHub.com/argoproj/argocd-example-apps",
            "https://github.com/argoproj/argocd-example-apps.git",
            "https://user:pass@github.com/argoproj/argocd-example-apps/",
        ] {
            assert_eq!(
                GitUrl::parse(text).unwrap().normal(),
                "https://github.com/argoproj/argocd-example-apps"
            );
        }
        let scp = GitUrl::parse("git@github.com:argoproj/argocd-example-apps.git").unwrap();
        let ssh = GitUrl::parse("ssh://git@github.com/argoproj/argocd-example-apps").unwrap();
        assert_eq!(scp.normal(), ssh.normal());
        assert_eq!(scp.as_fetch(), "git@github.com:argoproj/argocd-example-apps.git");
    }

    #[test]
    fn hostile_urls_are_refused() {
        for text in [
            "ext::sh -c id",
            "-oProxyCommand=id",
            "--upload-pack=id",
            "git://example.com/x",
            "ssh://-oProxyCommand=id/x",
            "file://../x",
            "ftp://example.com/x",
            "https:///x",
            "",
            "https://example.com/a\nb",
        ] {
            assert!(GitUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_of_a_url_are_never_shown() {
        let url = GitUrl::parse("https://me:s3cr%2ft@example.com:8443/a.git").unwrap();
        assert_eq!(url.embedded().unwrap(), &("me".to_owned(), "s3cr/t".to_owned()));
        assert_eq!(url.as_fetch(), "https://example.com:8443/a.git");
        assert_eq!(url.origin(), "https://example.com:8443");
        assert_eq!(url.host(), "example.com");
        assert_eq!(display("https://me:s3cr@example.com/a"), "https://example.com/a");
    }
}
