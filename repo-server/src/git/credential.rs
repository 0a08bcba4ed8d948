//! What a repository wants to see before it answers, and how `git` is given it: by files that only this
//! process and its child can read, never by argument, URL or environment value.

use super::url::{GitUrl, Scheme};
use crate::error::{Error, Result};
use crate::identity::Identity;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// A text that is never printed.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for the one place that hands it on.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "***" })
    }
}

/// Credentials and transport settings of one repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// User name for HTTP basic authentication.
    pub username: String,
    /// Password or token for HTTP basic authentication.
    pub password: Secret,
    /// Token for `Authorization: Bearer`.
    pub bearer_token: Secret,
    /// Private key in PEM for SSH.
    pub ssh_private_key: Secret,
    /// Client certificate in PEM.
    pub tls_client_cert: String,
    /// Key of the client certificate in PEM.
    pub tls_client_key: Secret,
    /// Skip the check of the server's certificate or host key.
    pub insecure: bool,
    /// Send basic credentials with the first request instead of after a challenge.
    pub force_basic: bool,
    /// Proxy URL.
    pub proxy: String,
    /// Hosts that are reached without the proxy, comma separated.
    pub no_proxy: String,
    /// An identity whose tokens are shown in place of a password.
    pub identity: Option<Identity>,
    /// Why these credentials cannot be used, if they cannot.
    pub unusable: Option<String>,
}

impl Credentials {
    /// A name for these credentials that says nothing about them; equal for equal ones. All of them are in it: what is
    /// remembered under the name would else be believed when they are changed.
    pub fn fingerprint(&self) -> String {
        let Credentials {
            username,
            password,
            bearer_token,
            ssh_private_key,
            tls_client_cert,
            tls_client_key,
            insecure,
            force_basic,
            proxy,
            no_proxy,
            identity,
            unusable,
        } = self;
        let identity = identity.as_ref().map(Identity::exposed);
        let mut hasher = blake3::Hasher::new();
        for part in [
            identity.as_deref().unwrap_or_default(),
            username,
            password.expose(),
            bearer_token.expose(),
            ssh_private_key.expose(),
            tls_client_cert,
            tls_client_key.expose(),
            if *insecure { "insecure" } else { "" },
            if *force_basic { "force" } else { "" },
            proxy,
            no_proxy,
            unusable.as_deref().unwrap_or_default(),
        ] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// The transport settings alone, for another origin.
    pub(crate) fn without_secrets(&self) -> Credentials {
        Credentials {
            proxy: self.proxy.clone(),
            no_proxy: self.no_proxy.clone(),
            ..Credentials::default()
        }
    }

    /// Everything that must not appear in a text that leaves this process.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        [
            &self.password,
            &self.bearer_token,
            &self.ssh_private_key,
            &self.tls_client_key,
        ]
        .into_iter()
        .map(Secret::expose)
        .chain((self.proxy.contains('@')).then_some(self.proxy.as_str()))
        .filter(|text| text.len() >= 3)
    }
}

/// Variables by which another `git` asks an origin, or a host over SSH, as whom we are. Nothing of ours has to be in reach of it.
pub(super) fn environment(
    url: &GitUrl,
    credentials: &Credentials,
    trust: &TrustStore,
) -> Vec<(String, String)> {
    let mut variables = vec![("GIT_TERMINAL_PROMPT", "0".to_owned())];
    match url.scheme() {
        Scheme::Http | Scheme::Https => http_environment(url, credentials, &mut variables),
        Scheme::Ssh => ssh_environment(url, credentials, trust, &mut variables),
        Scheme::File => variables.clear(),
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn http_environment(url: &GitUrl, credentials: &Credentials, variables: &mut Vec<(&'static str, String)>) {
    let header = if !credentials.bearer_token.is_empty() {
        Some(format!("Bearer {}", credentials.bearer_token.expose()))
    } else if !credentials.password.is_empty() {
        Some(basic(&credentials.username, credentials.password.expose()))
    } else {
        None
    };
    if let Some(header) = header {
        variables.push(("GIT_CONFIG_COUNT", "1".into()));
        variables.push(("GIT_CONFIG_KEY_0", format!("http.{}/.extraHeader", url.origin())));
        variables.push(("GIT_CONFIG_VALUE_0", format!("Authorization: {header}")));
    }
    if credentials.insecure {
        variables.push(("GIT_SSL_NO_VERIFY", "true".into()));
    }
}

/// The key and the hosts come as variables, which the command writes down for as long as it runs. The key is for the one host.
fn ssh_environment(
    url: &GitUrl,
    credentials: &Credentials,
    trust: &TrustStore,
    variables: &mut Vec<(&'static str, String)>,
) {
    let host = url.host().trim_matches(['[', ']']);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return;
    }
    let known = if credentials.insecure {
        "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    } else {
        "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=\"$d/known_hosts\""
    };
    // A function, as git puts its arguments behind the text; in a shell of its own, so that the trap ends with it.
    let command = format!(
        "argosy_ssh() (\n\
         umask 077\n\
         d=$(mktemp -d) || exit 255\n\
         trap 'rm -rf \"$d\"' EXIT\n\
         trap 'exit 255' HUP INT TERM\n\
         printf '%s\\n' \"$ARGOSY_GIT_SSH_KEY\" >\"$d/key\"\n\
         printf '%s\\n' \"$ARGOSY_GIT_KNOWN_HOSTS\" >\"$d/known_hosts\"\n\
         printf 'Host %s\\nIdentityFile \"%s\"\\n' '{host}' \"$d/key\" >\"$d/config\"\n\
         ssh -F \"$d/config\" -o BatchMode=yes -o ConnectTimeout=15 -o IdentitiesOnly=yes -o IdentityAgent=none \
         -o GlobalKnownHostsFile=/dev/null -o UpdateHostKeys=no {known} \"$@\"\n\
         )\n\
         argosy_ssh"
    );
    let key = credentials.ssh_private_key.expose().replace("\r\n", "\n");
    let hosts = std::fs::read_to_string(&trust.known_hosts).unwrap_or_default();
    variables.push(("GIT_SSH_COMMAND", command));
    variables.push(("GIT_SSH_VARIANT", "ssh".into()));
    variables.push(("ARGOSY_GIT_SSH_KEY", key.trim_end().to_owned()));
    variables.push(("ARGOSY_GIT_KNOWN_HOSTS", hosts));
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Basic {pair}")
}

/// Where administrators put certificates and host keys (mounted from `argocd-tls-certs-cm` and
/// `argocd-ssh-known-hosts-cm`).
#[derive(Clone, Debug)]
pub struct TrustStore {
    /// Directory with one PEM bundle per server name.
    pub tls_dir: PathBuf,
    /// The `ssh_known_hosts` file.
    pub known_hosts: PathBuf,
}

impl Default for TrustStore {
    fn default() -> Self {
        let dir = |variable: &str, fallback: &str| {
            std::env::var_os(variable)
                .filter(|v| !v.is_empty())
                .map_or_else(|| fallback.into(), PathBuf::from)
        };
        TrustStore {
            tls_dir: dir("ARGOCD_TLS_DATA_PATH", "/app/config/tls"),
            known_hosts: dir("ARGOCD_SSH_DATA_PATH", "/app/config/ssh").join("ssh_known_hosts"),
        }
    }
}

impl TrustStore {
    /// The administrator's certificates for a host, in PEM.
    pub fn ca_bundle(&self, host: &str) -> Option<PathBuf> {
        if host.is_empty() || host.contains('/') || host.starts_with('.') {
            return None;
        }
        let path = self.tls_dir.join(host);
        path.is_file().then_some(path)
    }
}

/// A private directory with everything one `git` process needs; it vanishes when dropped.
pub(super) struct Session {
    dir: tempfile::TempDir,
    /// Environment of the child, complete: nothing is inherited but `PATH`.
    pub(super) env: Vec<(String, String)>,
}

impl Session {
    pub(super) fn new(
        base: &Path,
        url: Option<&GitUrl>,
        addresses: &[SocketAddr],
        credentials: &Credentials,
        trust: &TrustStore,
    ) -> Result<Session> {
        if let Some(reason) = &credentials.unusable {
            return Err(Error::Repository {
                url: url.map(|url| url.normal().to_owned()).unwrap_or_default(),
                message: reason.clone(),
            });
        }
        let dir = tempfile::Builder::new()
            .prefix("git-")
            .tempdir_in(base)
            .map_err(|e| Error::io("failed to create a private directory for git", e))?;
        let mut session = Session { dir, env: Vec::new() };
        session.base_environment();
        let mut config = String::from(
            "[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n\
             [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[credential]\n\thelper =\n\
             [protocol]\n\tversion = 2\n[fetch]\n\twriteCommitGraph = false\n\tunpackLimit = 1\n[safe]\n\tdirectory = *\n\
             [transfer]\n\tcredentialsInUrl = die\n[http]\n\tlowSpeedLimit = 1\n\tlowSpeedTime = 60\n\
             \tfollowRedirects = false\n",
        );
        if let Some(url) = url {
            match url.scheme() {
                Scheme::Https | Scheme::Http => {
                    session.http(url, credentials, trust, &mut config)?;
                    // The headers of answers, without secrets: only there a server says when to come again.
                    let trace = session.trace().display().to_string();
                    session.set("GIT_TRACE_CURL", trace);
                    session.set("GIT_TRACE_CURL_NO_DATA", "1");
                    session.set("GIT_TRACE_REDACT", "1");
                    // The name is not resolved again: it might then lead elsewhere.
                    let list: Vec<String> = addresses.iter().map(|address| bracketed(address.ip())).collect();
                    if !list.is_empty()
                        && url.host().parse::<IpAddr>().is_err()
                        && !url.host().starts_with('[')
                    {
                        let entry = format!("{}:{}:{}", url.host(), url.port(), list.join(","));
                        config.push_str(&format!("[http]\n\tcurloptResolve = {}\n", quote(&entry)));
                    }
                }
                Scheme::Ssh => session.ssh(credentials, trust)?,
                Scheme::File => {}
            }
        }
        let file = session.write("gitconfig", &config)?;
        session.set("GIT_CONFIG_GLOBAL", file);
        Ok(session)
    }

    fn trace(&self) -> PathBuf {
        self.dir.path().join("trace")
    }

    /// The last `Retry-After` that the server has sent.
    pub(super) fn retry_after(&self) -> Option<String> {
        let trace = std::fs::read(self.trace()).ok()?;
        let trace = String::from_utf8_lossy(&trace);
        let mut headers = trace
            .lines()
            .rev()
            .filter_map(|line| line.split_once("<= Recv header: ")?.1.split_once(':'));
        let told = headers.find(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
        told.map(|(_, value)| value.trim().to_owned())
    }

    fn base_environment(&mut self) {
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        self.set("PATH", path);
        let home = self.dir.path().display().to_string();
        self.set("HOME", home);
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_ALLOW_PROTOCOL", "file:https:http:ssh"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_LFS_SKIP_SMUDGE", "1"),
            ("GIT_ADVICE", "0"),
        ] {
            self.set(name, value);
        }
    }

    fn http(
        &mut self,
        url: &GitUrl,
        credentials: &Credentials,
        trust: &TrustStore,
        config: &mut String,
    ) -> Result<()> {
        let (user, password) = (
            credentials.username.clone(),
            credentials.password.expose().to_owned(),
        );
        if user.contains(['\n', '\0']) || password.contains(['\n', '\0']) {
            return Err(Error::Repository {
                url: url.normal().into(),
                message: "the user name or password holds a line break".into(),
            });
        }
        let header = if !credentials.bearer_token.is_empty() {
            Some(format!("Bearer {}", credentials.bearer_token.expose()))
        } else if credentials.force_basic && !password.is_empty() {
            Some(basic(&user, &password))
        } else {
            None
        };
        if let Some(header) = header {
            let value = quote(&format!("Authorization: {header}"));
            config.push_str(&format!(
                "[http {}]\n\textraHeader = {value}\n",
                quote(&url.origin())
            ));
        }
        // Always our own helper, so that git never looks for another way to ask.
        self.write(
            "username",
            &if user.is_empty() && !password.is_empty() {
                "git".to_owned()
            } else {
                user
            },
        )?;
        self.write("password", &password)?;
        let askpass = self.write(
            "askpass",
            "#!/bin/sh\n# Answers one question of git from the files beside it.\n\
             dir=$(dirname \"$0\")\ncase \"$1\" in\n[Uu]sername*) exec cat \"$dir/username\" ;;\n*) exec cat \"$dir/password\" ;;\nesac\n",
        )?;
        set_mode(Path::new(&askpass), 0o700)?;
        self.set("GIT_ASKPASS", askpass);

        if credentials.insecure {
            config.push_str("[http]\n\tsslVerify = false\n");
        } else if let Some(bundle) = trust.ca_bundle(url.host()) {
            config.push_str(&format!(
                "[http]\n\tsslCAInfo = {}\n",
                quote(&bundle.display().to_string())
            ));
        }
        if !credentials.tls_client_cert.is_empty() {
            let cert = self.write("client.crt", &credentials.tls_client_cert)?;
            let key = self.write("client.key", credentials.tls_client_key.expose())?;
            config.push_str(&format!(
                "[http]\n\tsslCert = {}\n\tsslKey = {}\n",
                quote(&cert),
                quote(&key)
            ));
        }
        if !credentials.proxy.is_empty() {
            config.push_str(&format!("[http]\n\tproxy = {}\n", quote(&credentials.proxy)));
            if !credentials.no_proxy.is_empty() {
                self.set("no_proxy", credentials.no_proxy.clone());
            }
        } else {
            for name in [
                "http_proxy",
                "https_proxy",
                "HTTPS_PROXY",
                "no_proxy",
                "NO_PROXY",
                "all_proxy",
                "ALL_PROXY",
            ] {
                if let Ok(value) = std::env::var(name) {
                    self.set(name, value);
                }
            }
        }
        Ok(())
    }

    fn ssh(&mut self, credentials: &Credentials, trust: &TrustStore) -> Result<()> {
        let mut command = String::from(
            "ssh -F /dev/null -o BatchMode=yes -o ConnectTimeout=15 -o IdentitiesOnly=yes -o IdentityAgent=none \
             -o GlobalKnownHostsFile=/dev/null -o UpdateHostKeys=no -o PermitLocalCommand=no -o ClearAllForwardings=yes",
        );
        if credentials.insecure {
            command
                .push_str(" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR");
        } else {
            // A copy, so that the path needs no quoting and a missing file means that no host is known.
            let known = std::fs::read_to_string(&trust.known_hosts).unwrap_or_default();
            let file = self.write("known_hosts", &known)?;
            command.push_str(&format!(
                " -o StrictHostKeyChecking=yes -o UserKnownHostsFile={}",
                shell_quote(&file)
            ));
        }
        if !credentials.ssh_private_key.is_empty() {
            let mut key = credentials.ssh_private_key.expose().replace("\r\n", "\n");
            if !key.ends_with('\n') {
                key.push('\n');
            }
            let file = self.write("identity", &key)?;
            command.push_str(&format!(" -i {}", shell_quote(&file)));
        }
        self.set("GIT_SSH_COMMAND", command);
        self.set("GIT_SSH_VARIANT", "ssh");
        Ok(())
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.env.push((name.to_owned(), value.into()));
    }

    /// Writes a file only we can read; the directory is already private (0700).
    fn write(&self, name: &str, text: &str) -> Result<String> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.dir.path().join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|e| Error::io(format!("failed to write {name} for git"), e))?;
        Ok(path.display().to_string())
    }
}

fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(|e| Error::io("failed to set the mode of a file for git", e))
}

/// Quotes a value or subsection for a git configuration file.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

pub(super) fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_changed_gives_credentials_another_name() {
        let changes: [fn(&mut Credentials); 11] = [
            |c| c.username = "x".into(),
            |c| c.password = Secret::new("x"),
            |c| c.bearer_token = Secret::new("x"),
            |c| c.ssh_private_key = Secret::new("x"),
            |c| c.tls_client_cert = "x".into(),
            |c| c.tls_client_key = Secret::new("x"),
            |c| c.insecure = true,
            |c| c.force_basic = true,
            |c| c.proxy = "x".into(),
            |c| c.no_proxy = "x".into(),
            |c| c.unusable = Some("x".into()),
        ];
        let mut names = vec![Credentials::default().fingerprint()];
        for change in changes {
            let mut credentials = Credentials::default();
            change(&mut credentials);
            names.push(credentials.fingerprint());
        }
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
