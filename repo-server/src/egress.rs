//! Where the fetcher may connect to. Repositories, charts and redirects name hosts, and whoever writes them may name
//! the machine's own services: an address is looked at after the name was resolved, and the connection goes to that
//! very address.
//!
//! | address | named by the operator or an Application | named by content, or by a redirect |
//! |---|---|---|
//! | of this machine, link-local (metadata services), multicast, unspecified | refused | refused |
//! | private networks | allowed | refused |
//! | all others | allowed | allowed |
//!
//! What the operator lists in `--allow-inner-hosts` is allowed whoever names it; `file://` in that list allows
//! repositories that are directories of this machine.
//!
//! A repository's proxy resolves names and connects by its own rules; an address that content names is looked at here all the
//! same, and so is a name where some hosts are asked without the proxy.

use crate::error::{Error, Result};
use crate::git::Credentials;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Who named a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamedBy {
    /// A configured repository, or the source of an Application.
    Operator,
    /// A file of a repository, an index, a redirect.
    Content,
}

/// One entry of the operator's list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// `file://`
    Files,
    /// `*`
    Everything,
    /// A host name; with a dot in front, all below it.
    Host(String),
    /// An address with the length of its prefix.
    Network(IpAddr, u8),
}

/// The rules, and how names are resolved.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    allowed: Arc<Vec<Allowed>>,
}

impl Egress {
    /// Reads the operator's list: host names (`.example.com` for all below), addresses, networks, `file://`, `*`.
    ///
    /// # Errors
    /// A text for people that names the entry.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Egress, String> {
        let mut allowed = Vec::new();
        for entry in entries {
            let entry = entry.trim();
            allowed.push(match entry {
                "" => continue,
                "file://" => Allowed::Files,
                "*" => Allowed::Everything,
                _ => {
                    let (address, length) = match entry.split_once('/') {
                        Some((address, length)) => (address, Some(length)),
                        None => (entry, None),
                    };
                    match (address.trim_matches(['[', ']']).parse::<IpAddr>(), length) {
                        (Ok(address), None) => Allowed::Network(address, 128),
                        (Ok(address), Some(length)) => match length.parse() {
                            Ok(length) if length <= if address.is_ipv4() { 32 } else { 128 } => {
                                Allowed::Network(address, length)
                            }
                            _ => return Err(format!("{entry:?} is no network like 10.0.0.0/8")),
                        },
                        (Err(_), None) if entry.starts_with("*.") => {
                            return Err(format!("{entry:?}: all below a host are {:?}", &entry[1..]));
                        }
                        (Err(_), None) if is_host(entry) => Allowed::Host(entry.to_ascii_lowercase()),
                        _ => return Err(format!("{entry:?} is neither a host, an address nor a network")),
                    }
                }
            });
        }
        Ok(Egress {
            allowed: Arc::new(allowed),
        })
    }

    /// Allows all: a person's own command on a person's own machine.
    pub fn open() -> Egress {
        Egress {
            allowed: Arc::new(vec![Allowed::Everything, Allowed::Files]),
        }
    }

    /// Whether repositories may be directories of this machine.
    pub fn allows_files(&self) -> bool {
        self.allowed
            .iter()
            .any(|entry| matches!(entry, Allowed::Files | Allowed::Everything))
    }

    /// Resolves a host and keeps the addresses that may be connected to.
    ///
    /// # Errors
    /// [`Error::Fetch`] when the name cannot be resolved, [`Error::Repository`] when no address of it is allowed.
    pub async fn resolve(&self, host: &str, port: u16, named_by: NamedBy) -> Result<Vec<SocketAddr>> {
        let host = host.trim_matches(['[', ']']);
        let found: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => tokio::net::lookup_host((host, port))
                .await
                .map_err(|e| Error::Fetch {
                    attempted: "failed to resolve",
                    url: host.to_owned(),
                    message: e.to_string(),
                })?
                .collect(),
        };
        let allowed: Vec<SocketAddr> = found
            .into_iter()
            .filter(|address| self.allows(host, address.ip(), named_by))
            .collect();
        if allowed.is_empty() {
            return Err(refused(host));
        }
        Ok(allowed)
    }

    /// The addresses that a host may be connected to at, on the way that a repository's credentials say; none where a proxy
    /// connects.
    ///
    /// # Errors
    /// As [`Egress::resolve`].
    pub(crate) async fn addresses(
        &self,
        host: &str,
        port: u16,
        named_by: NamedBy,
        way: &Credentials,
        encrypted: bool,
    ) -> Result<Vec<SocketAddr>> {
        if way.proxy.is_empty() {
            return self
                .resolve_or_leave(host, port, named_by, has_proxy(encrypted))
                .await;
        }
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        if named_by == NamedBy::Content && (is_address || !way.no_proxy.is_empty()) {
            return self.resolve_or_leave(host, port, named_by, true).await;
        }
        Ok(Vec::new())
    }

    /// As [`Egress::resolve`]; with a proxy on the way (`proxied`), a name that is not known here is left to it: there are no
    /// addresses then.
    async fn resolve_or_leave(
        &self,
        host: &str,
        port: u16,
        named_by: NamedBy,
        proxied: bool,
    ) -> Result<Vec<SocketAddr>> {
        match self.resolve(host, port, named_by).await {
            Err(Error::Fetch { .. }) if proxied => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    /// Whether a host that resolved to an address may be connected to.
    pub fn allows(&self, host: &str, address: IpAddr, named_by: NamedBy) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = plain(address);
        let listed = self.allowed.iter().any(|entry| match entry {
            Allowed::Files => false,
            Allowed::Everything => true,
            Allowed::Host(name) => match name.strip_prefix('.') {
                Some(parent) => host.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.')),
                None => *name == host,
            },
            Allowed::Network(network, length) => within(address, plain(*network), *length),
        });
        listed
            || match reach(address) {
                Reach::Machine => false,
                Reach::Private => named_by == NamedBy::Operator,
                Reach::Public => true,
            }
    }
}

/// Whether the environment names a proxy for requests in the clear, or encrypted ones.
fn has_proxy(encrypted: bool) -> bool {
    let own: &[&str] = if encrypted {
        &["https_proxy", "HTTPS_PROXY"]
    } else {
        &["http_proxy"]
    };
    own.iter()
        .chain(&["all_proxy", "ALL_PROXY"])
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().all(plain) && !text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

pub(crate) fn refused(host: &str) -> Error {
    Error::Repository {
        url: host.to_owned(),
        message: "its address is one of this machine or of an inner network; an operator can allow it".into(),
    }
}

/// How near an address is.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    Machine,
    Private,
    Public,
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            if v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || a == 0
                || a >= 240
                // Services for virtual machines of two clouds.
                || v4 == Ipv4Addr::new(100, 100, 100, 200)
                || v4 == Ipv4Addr::new(168, 63, 129, 16)
            {
                Reach::Machine
            } else if v4.is_private()
                || a == 100 && (64..128).contains(&b)
                || a == 192 && b == 0
                || a == 198 && (18..20).contains(&b)
            {
                Reach::Private
            } else {
                Reach::Public
            }
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            if v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || first & 0xffc0 == 0xfe80
                || v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
            {
                Reach::Machine
            } else if first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfec0 {
                Reach::Private
            } else {
                Reach::Public
            }
        }
    }
}

/// The IPv4 address that an IPv6 address stands for, if it does: mapped, translated (`64:ff9b::/96`) or 6to4.
fn plain(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let s = v6.segments();
    let low = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return IpAddr::V4(v4);
    }
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, high, last] => low(high, last),
        [0x2002, high, last, ..] => low(high, last),
        // The old form `::a.b.c.d`, but not `::` and `::1`.
        [0, 0, 0, 0, 0, 0, high, last] if high != 0 => low(high, last),
        _ => address,
    }
}

fn within(address: IpAddr, network: IpAddr, length: u8) -> bool {
    let (address, network, bits) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (
            u128::from(u32::from(a)) << 96,
            u128::from(u32::from(n)) << 96,
            length.min(32),
        ),
        (IpAddr::V6(a), IpAddr::V6(n)) => (u128::from(a), u128::from(n), length),
        _ => return false,
    };
    bits == 0 || (address ^ network) >> (128 - u32::from(bits)) == 0
}

/// Resolves names for an HTTP client, by the rules.
pub(crate) struct Resolver {
    pub(crate) egress: Egress,
    /// The host that the operator named; all others were named by content.
    pub(crate) trusted: Vec<String>,
}

impl reqwest::dns::Resolve for Resolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (egress, host) = (self.egress.clone(), name.as_str().to_owned());
        let named_by = named_by(&self.trusted, &host);
        Box::pin(async move {
            let found = egress.resolve(&host, 0, named_by).await?;
            Ok(Box::new(found.into_iter()) as reqwest::dns::Addrs)
        })
    }
}

impl Resolver {
    /// Whether a request may go to a URL whose host is an address: no name is resolved then.
    pub(crate) fn allows_url(egress: &Egress, trusted: &[String], url: &url::Url) -> bool {
        let address = match url.host() {
            Some(url::Host::Ipv4(v4)) => IpAddr::V4(v4),
            Some(url::Host::Ipv6(v6)) => IpAddr::V6(v6),
            Some(url::Host::Domain(_)) => return true,
            None => return false,
        };
        let host = url.host_str().unwrap_or_default();
        egress.allows(host, address, named_by(trusted, host))
    }
}

fn named_by(trusted: &[String], host: &str) -> NamedBy {
    if trusted.iter().any(|one| one.eq_ignore_ascii_case(host)) {
        NamedBy::Operator
    } else {
        NamedBy::Content
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_judged_by_where_it_leads_and_who_named_it() {
        use NamedBy::{Content, Operator};
        let rules = Egress::default();
        for (address, operator, content) in [
            ("127.0.0.1", false, false),
            ("127.8.9.1", false, false),
            ("0.0.0.0", false, false),
            ("169.254.169.254", false, false),
            ("100.100.100.200", false, false),
            ("168.63.129.16", false, false),
            ("224.0.0.1", false, false),
            ("255.255.255.255", false, false),
            ("::1", false, false),
            ("::", false, false),
            ("fe80::1", false, false),
            ("fd00:ec2::254", false, false),
            ("::ffff:127.0.0.1", false, false),
            ("::ffff:169.254.169.254", false, false),
            ("64:ff9b::7f00:1", false, false),
            ("2002:7f00:1::", false, false),
            ("::127.0.0.1", false, false),
            ("10.0.0.1", true, false),
            ("172.16.3.4", true, false),
            ("192.168.1.1", true, false),
            ("100.64.0.1", true, false),
            ("fd12::1", true, false),
            ("::ffff:10.0.0.1", true, false),
            ("8.8.8.8", true, true),
            ("172.32.0.1", true, true),
            ("2606:4700::1", true, true),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(rules.allows("h", address, Operator), operator, "{address}");
            assert_eq!(rules.allows("h", address, Content), content, "{address}");
        }
    }

    #[tokio::test]
    async fn what_only_a_proxy_can_resolve_is_left_to_it() {
        let rules = Egress::default();
        for (host, proxied, reached) in [
            ("no-such-host.invalid", false, false),
            ("no-such-host.invalid", true, true),
            // What is known here is looked at all the same.
            ("localhost", true, false),
            ("169.254.169.254", true, false),
        ] {
            let found = rules.resolve_or_leave(host, 443, NamedBy::Content, proxied).await;
            assert_eq!(
                found.is_ok_and(|found| found.is_empty()),
                reached,
                "{host} {proxied}"
            );
        }
    }

    #[tokio::test]
    async fn a_proxy_of_a_repository_is_no_way_inside_for_content() {
        use NamedBy::{Content, Operator};
        let rules = Egress::default();
        for (host, no_proxy, named_by, reached) in [
            // The proxy has its own rules.
            ("localhost", "", Content, true),
            // Some hosts are asked without it.
            ("localhost", "localhost", Content, false),
            ("no-such-host.invalid", "localhost", Content, true),
            ("10.1.2.3", "", Content, false),
            ("[::1]", "", Content, false),
            ("10.1.2.3", "", Operator, true),
        ] {
            let way = Credentials {
                proxy: "http://proxy.example.com:3128".into(),
                no_proxy: no_proxy.into(),
                ..Credentials::default()
            };
            let found = rules.addresses(host, 443, named_by, &way, true).await;
            assert_eq!(found.is_ok(), reached, "{host} {no_proxy:?} {named_by:?}");
        }
    }

    #[test]
    fn the_operator_can_allow_hosts_and_networks() {
        let rules = Egress::new(["git.inner", ".corp.example", "10.1.0.0/16", "::1"]).unwrap();
        let allows =
            |host: &str, address: &str| rules.allows(host, address.parse().unwrap(), NamedBy::Content);
        assert!(allows("git.inner", "127.0.0.1") && allows("GIT.inner.", "10.9.9.9"));
        assert!(allows("a.corp.example", "10.9.9.9") && !allows("corp.example", "10.9.9.9"));
        assert!(!allows("evilcorp.example", "10.9.9.9"));
        assert!(allows("x", "10.1.2.3") && !allows("x", "10.2.0.1"));
        assert!(allows("x", "::1") && !allows("x", "127.0.0.1"));
        assert!(!rules.allows_files() && Egress::open().allows_files());
        for nonsense in [
            "10.0.0.0/200",
            "10.0.0.0/99",
            "::/129",
            "10.0.0.0/",
            "a:b",
            "*.corp.example",
            "10.0.0",
            "a b",
        ] {
            assert!(Egress::new([nonsense]).is_err(), "{nonsense}");
        }
    }
}
