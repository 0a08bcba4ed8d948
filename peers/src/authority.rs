//! The authority of an installation and what it issues: made once, kept long, replaced long before its end. All that is
//! decided here follows from a day and from what there is; only keys are drawn.
//!
//! An authority that is to be replaced is first joined by the next one, which issues nothing until every process has had a
//! day to learn of it; then they change places, and the old one is believed until its end.

use std::collections::BTreeMap;

use jiff::ToSpan as _;
use jiff::civil::Date;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use crate::{Component, Error};

/// An authority is valid for so many days, and is joined by the next after so many.
const AUTHORITY_DAYS: i32 = 3650;
const AUTHORITY_RENEWED_DAYS: i32 = 2920;
/// The next authority issues nothing for so many days: each process has read it by then.
const KNOWN_DAYS: i32 = 1;
/// A certificate of a component of ours is valid for so many days; all are made anew after so many.
const CERTIFICATE_DAYS: i32 = 90;
const CERTIFICATE_RENEWED_DAYS: i32 = 30;
/// Clocks may differ by so many days. What was made later than that was made by a clock that was wrong, and would stay fresh
/// beyond its end.
const CLOCKS_DAYS: i32 = 1;

/// What a Secret holds, as texts.
pub type Data = BTreeMap<String, String>;

/// Key of the day on which the certificates of a Secret were issued. Its absence says that somebody else made it.
const ISSUED: &str = "issued";
/// Key of what tells the certificate that Argo CD reads from others. If another one is there, somebody else made it: who writes
/// their own into a Secret of ours may leave the keys that are not theirs.
const MARK: &str = "issued.certificate";

/// A certificate and its key, in PEM, and the day on which they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    certificate: String,
    key: String,
    made: Date,
}

/// Who vouches for the components of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    current: Pair,
    next: Option<Pair>,
    /// Certificate of the one before.
    previous: Option<String>,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// When no key can be drawn.
    pub fn new(today: Date) -> Result<Authority, Error> {
        Ok(Authority {
            current: new_pair(today)?,
            next: None,
            previous: None,
        })
    }

    /// The one that a Secret holds.
    ///
    /// # Errors
    /// Names the key of the Secret that is not there or cannot be read.
    pub fn read(data: &Data) -> Result<Authority, Error> {
        let pair = |prefix: &str| -> Result<Pair, Error> {
            let get = |what: &str| {
                let key = format!("{prefix}.{what}");
                data.get(&key)
                    .cloned()
                    .ok_or_else(|| Error(format!("the key {key} is not there")))
            };
            let made = get("made")?;
            Ok(Pair {
                certificate: get("crt")?,
                key: get("key")?,
                made: made
                    .parse()
                    .map_err(|_| Error(format!("{prefix}.made is {made:?}, which is no date")))?,
            })
        };
        Ok(Authority {
            current: pair("ca")?,
            next: data.contains_key("next.crt").then(|| pair("next")).transpose()?,
            previous: data.get("previous.crt").cloned(),
        })
    }

    /// What a Secret holds of it.
    pub fn data(&self) -> Data {
        let mut data = Data::new();
        let mut put = |prefix: &str, pair: &Pair| {
            data.insert(format!("{prefix}.crt"), pair.certificate.clone());
            data.insert(format!("{prefix}.key"), pair.key.clone());
            data.insert(format!("{prefix}.made"), pair.made.to_string());
        };
        put("ca", &self.current);
        if let Some(next) = &self.next {
            put("next", next);
        }
        if let Some(previous) = &self.previous {
            data.insert("previous.crt".to_owned(), previous.clone());
        }
        data
    }

    /// What it should be today, if that is something else.
    ///
    /// # Errors
    /// When no key can be drawn.
    pub fn due(&self, today: Date) -> Result<Option<Authority>, Error> {
        let mut due = self.clone();
        match &self.next {
            Some(next) if days(next.made, today) >= KNOWN_DAYS => {
                due = Authority {
                    current: next.clone(),
                    next: None,
                    previous: Some(self.current.certificate.clone()),
                };
            }
            Some(next) if is_ahead(next.made, today) => due.next = Some(new_pair(today)?),
            None if days(self.current.made, today) >= AUTHORITY_RENEWED_DAYS
                || is_ahead(self.current.made, today) =>
            {
                due.next = Some(new_pair(today)?);
            }
            _ if days(self.current.made, today) > AUTHORITY_DAYS - AUTHORITY_RENEWED_DAYS => {
                due.previous = None
            }
            _ => {}
        }
        Ok((due != *self).then_some(due))
    }

    /// For how many days those have a certificate who read it once, at their start, as Argo CD's components do: until the end of
    /// the authority, since they would go on with one that has ended.
    fn left(&self, today: Date) -> i32 {
        (AUTHORITY_DAYS - days(self.current.made, today)).max(CERTIFICATE_DAYS)
    }

    /// All that is to be believed, in PEM.
    pub fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|next| &next.certificate);
        let all = [self.previous.as_ref(), Some(&self.current.certificate), next];
        all.into_iter().flatten().map(String::as_str).collect()
    }

    /// A certificate and key for a component, or for nobody by name, with these DNS names.
    fn issue(
        &self,
        common_name: &str,
        names: Vec<String>,
        today: Date,
        valid: i32,
    ) -> Result<(String, String), Error> {
        let issuer = Issuer::new(
            authority_params(self.current.made)?,
            KeyPair::from_pem(&self.current.key).map_err(failed("read the key of the authority"))?,
        );
        let mut params = CertificateParams::new(names).map_err(failed("name a certificate"))?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        validity(&mut params, today, valid)?;
        let key = KeyPair::generate().map_err(failed("draw a key"))?;
        let made = params
            .signed_by(&key, &issuer)
            .map_err(failed("sign a certificate"))?;
        Ok((made.pem(), key.serialize_pem()))
    }
}

/// What the Secret for clients should hold: the authorities, a certificate for each component of ours, and one without a name
/// for Argo CD's, which share one. Nothing if `now` is good, or somebody else's.
///
/// # Errors
/// When a certificate cannot be made.
pub fn client_secret(now: Option<&Data>, authority: &Authority, today: Date) -> Result<Option<Data>, Error> {
    if now.is_some_and(|now| !is_due(now, "client-ca.crt", authority, today)) {
        return Ok(None);
    }
    let mut data = Data::from([("client-ca.crt".to_owned(), authority.bundle())]);
    let mut put = |name: &str, (certificate, key): (String, String)| {
        data.insert(format!("{name}.crt"), certificate);
        data.insert(format!("{name}.key"), key);
    };
    let left = authority.left(today);
    put("client", authority.issue("argocd", Vec::new(), today, left)?);
    for component in [Component::Controller, Component::Server] {
        let name = component.name();
        let names = vec![name.to_owned()];
        put(name, authority.issue(name, names, today, CERTIFICATE_DAYS)?);
    }
    mark_issued(&mut data, today);
    Ok(Some(data))
}

/// What the Secret of the repo-server's own certificate should hold, as [`client_secret`] says it.
///
/// # Errors
/// When a certificate cannot be made.
pub fn server_secret(
    now: Option<&Data>,
    authority: &Authority,
    namespace: &str,
    today: Date,
) -> Result<Option<Data>, Error> {
    if now.is_some_and(|now| !is_due(now, "ca.crt", authority, today)) {
        return Ok(None);
    }
    let name = Component::RepoServer.name();
    let services = [name.to_owned(), format!("{name}-replicas")];
    let mut names = vec!["localhost".to_owned()];
    for service in services {
        for suffix in [
            String::new(),
            format!(".{namespace}"),
            format!(".{namespace}.svc"),
            format!(".{namespace}.svc.cluster.local"),
        ] {
            names.push(format!("{service}{suffix}"));
        }
    }
    let mut data = Data::from([("ca.crt".to_owned(), authority.bundle())]);
    let (certificate, key) = authority.issue(name, names, today, authority.left(today))?;
    data.insert("tls.crt".to_owned(), certificate);
    data.insert("tls.key".to_owned(), key);
    mark_issued(&mut data, today);
    Ok(Some(data))
}

/// Whether somebody else than us made what a Secret holds.
pub fn is_others(data: &Data) -> bool {
    // Without a certificate there is nothing of anybody's.
    let is_another = |known: &String| mark(data).is_some_and(|found| found != *known);
    !data.contains_key(ISSUED) || data.get(MARK).is_some_and(is_another)
}

/// The end of the signature of the certificate that Argo CD reads: no other certificate has it.
fn mark(data: &Data) -> Option<String> {
    const CHARS: usize = 32;
    let pem = ["tls.crt", "client.crt"]
        .into_iter()
        .find_map(|key| data.get(key))?;
    let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    Some(body.get(body.len().saturating_sub(CHARS)..)?.to_owned())
}

fn mark_issued(data: &mut Data, today: Date) {
    data.insert(ISSUED.to_owned(), today.to_string());
    if let Some(mark) = mark(data) {
        data.insert(MARK.to_owned(), mark);
    }
}

fn is_due(now: &Data, bundle: &str, authority: &Authority, today: Date) -> bool {
    let Some(issued) = now.get(ISSUED).filter(|_| !is_others(now)) else {
        return false;
    };
    let fresh = issued
        .parse()
        .is_ok_and(|issued| days(issued, today) < CERTIFICATE_RENEWED_DAYS && !is_ahead(issued, today));
    !fresh
        || mark(now).as_ref() != now.get(MARK)
        || !now.contains_key(MARK)
        || now.get(bundle) != Some(&authority.bundle())
}

fn is_ahead(made: Date, today: Date) -> bool {
    days(today, made) > CLOCKS_DAYS
}

fn days(from: Date, to: Date) -> i32 {
    from.until(to).map_or(0, |span| span.get_days())
}

fn new_pair(today: Date) -> Result<Pair, Error> {
    let key = KeyPair::generate().map_err(failed("draw a key"))?;
    let made = authority_params(today)?
        .self_signed(&key)
        .map_err(failed("sign the authority"))?;
    Ok(Pair {
        certificate: made.pem(),
        key: key.serialize_pem(),
        made: today,
    })
}

fn authority_params(made: Date) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(failed("name the authority"))?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Argosy components {made}"));
    validity(&mut params, made, AUTHORITY_DAYS)?;
    Ok(params)
}

/// From the day before, since clocks differ.
fn validity(params: &mut CertificateParams, from: Date, days: i32) -> Result<(), Error> {
    let at = |days: i32| {
        from.checked_add(days.days())
            .map_err(|error| Error(format!("count {days} days from {from}: {error}")))
    };
    let time = |date: Date| date_time_ymd(date.year().into(), date.month() as u8, date.day() as u8);
    params.not_before = time(at(-1)?);
    params.not_after = time(at(days)?);
    Ok(())
}

fn failed(what: &'static str) -> impl Fn(rcgen::Error) -> Error {
    move |error| Error(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn day(after: i32) -> Date {
        jiff::civil::date(2026, 11, 30).checked_add(after.days()).unwrap()
    }

    #[test]
    fn what_is_issued_is_made_anew_long_before_its_end_or_when_the_authority_changes() {
        let authority = Authority::new(day(0)).unwrap();
        let first = client_secret(None, &authority, day(0)).unwrap().unwrap();
        assert_eq!(client_secret(Some(&first), &authority, day(29)).unwrap(), None);
        let second = client_secret(Some(&first), &authority, day(30)).unwrap().unwrap();
        assert_eq!(second["client-ca.crt"], first["client-ca.crt"]);
        for key in [
            "client.crt",
            "argocd-server.crt",
            "argocd-application-controller.key",
        ] {
            assert_ne!(second[key], first[key]);
        }
        let other = Authority::new(day(0)).unwrap();
        assert!(client_secret(Some(&first), &other, day(1)).unwrap().is_some());
        let server = server_secret(None, &authority, "argocd", day(0))
            .unwrap()
            .unwrap();
        assert_eq!(
            server_secret(Some(&server), &authority, "argocd", day(1)).unwrap(),
            None
        );
    }

    #[test]
    fn who_reads_a_certificate_once_has_one_until_the_end_of_the_authority() {
        use crate::live::{Live, Material, certificates};
        use rustls::client::danger::ServerCertVerifier as _;
        use rustls::pki_types::{ServerName, UnixTime};

        let authority = Authority::new(day(0)).unwrap();
        let client = client_secret(None, &authority, day(10)).unwrap().unwrap();
        let server = server_secret(None, &authority, "argocd", day(10))
            .unwrap()
            .unwrap();
        let live = Live::of(Material {
            identity: None,
            authority: Some(authority.bundle().into_bytes()),
        })
        .unwrap();
        let state = live.state();
        let own = |pem: &str| certificates(pem.as_bytes()).unwrap().remove(0);
        let at = |after: i32| {
            let time = day(after).to_zoned(jiff::tz::TimeZone::UTC).unwrap();
            let seconds = time.timestamp().as_second().try_into().unwrap();
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
        };
        let called = |name: &str, after: i32| {
            let verifier = state.clients.as_ref().unwrap();
            let shown = own(&client[&format!("{name}.crt")]);
            verifier.verify_client_cert(&shown, &[], at(after)).is_ok()
        };
        let serves = |after: i32| {
            let verifier = state.servers.as_ref().unwrap();
            let name = ServerName::try_from("argocd-repo-server").unwrap();
            let shown = own(&server["tls.crt"]);
            verifier
                .verify_server_cert(&shown, &[], &name, &[], at(after))
                .is_ok()
        };
        assert!(called("client", 3649) && serves(3649));
        assert!(!called("client", 3651) && !serves(3651));
        assert!(called("argocd-server", 99) && !called("argocd-server", 101));
    }

    #[test]
    fn what_others_made_is_left_alone() {
        let authority = Authority::new(day(0)).unwrap();
        let theirs = Data::from([("client-ca.crt".to_owned(), "x".to_owned())]);
        assert!(is_others(&theirs));
        assert_eq!(client_secret(Some(&theirs), &authority, day(9999)).unwrap(), None);

        // Written over what we made, as by a merge: our key is still there.
        let other = Authority::new(day(0)).unwrap();
        let make = |authority, today| server_secret(None, authority, "argocd", today).unwrap().unwrap();
        let mut merged = make(&authority, day(0));
        assert!(!is_others(&merged));
        let of_others = make(&other, day(0));
        for key in ["tls.crt", "tls.key", "ca.crt"] {
            merged.insert(key.to_owned(), of_others[key].clone());
        }
        assert!(is_others(&merged));
        let due = |data: &Data| server_secret(Some(data), &authority, "argocd", day(40)).unwrap();
        assert_eq!(due(&merged), None);
        // What is gone is nobody's.
        merged.remove("tls.crt");
        assert!(!is_others(&merged) && due(&merged).is_some());
        // Of a day alone: it is ours, and is made anew.
        let mut old = make(&authority, day(0));
        old.remove(MARK);
        assert!(!is_others(&old));
        let due = server_secret(Some(&old), &authority, "argocd", day(0));
        assert!(due.unwrap().is_some());
    }

    #[test]
    fn an_authority_is_joined_by_the_next_then_replaced_then_forgotten() {
        let count = |authority: &Authority| authority.bundle().matches("BEGIN CERTIFICATE").count();
        let first = Authority::new(day(0)).unwrap();
        assert_eq!(first.due(day(2919)).unwrap(), None);
        let joined = first.due(day(2920)).unwrap().unwrap();
        assert_eq!((joined.current == first.current, count(&joined)), (true, 2));
        assert_eq!(joined.due(day(2920)).unwrap(), None, "not everybody knows it yet");
        let replaced = joined.due(day(2921)).unwrap().unwrap();
        assert_eq!(Some(&replaced.current), joined.next.as_ref());
        assert_eq!((replaced.next.is_none(), count(&replaced)), (true, 2));
        assert_eq!(
            replaced.due(day(3650)).unwrap(),
            None,
            "the first one is still valid"
        );
        let alone = replaced.due(day(3652)).unwrap().unwrap();
        assert_eq!((alone.current == replaced.current, count(&alone)), (true, 1));
        for authority in [first, joined, replaced, alone] {
            assert_eq!(Authority::read(&authority.data()).unwrap(), authority);
        }
    }

    #[test]
    fn what_a_wrong_clock_has_made_is_made_anew() {
        let authority = Authority::new(day(0)).unwrap();
        let ahead = client_secret(None, &authority, day(40)).unwrap().unwrap();
        let at = |today| client_secret(Some(&ahead), &authority, today).unwrap();
        assert_eq!(at(day(39)), None, "clocks differ a little");
        let anew = at(day(38)).unwrap();
        assert_eq!(anew["issued"], day(38).to_string());

        let ahead = Authority::new(day(400)).unwrap();
        assert_eq!(ahead.due(day(399)).unwrap(), None);
        let joined = ahead.due(day(0)).unwrap().unwrap();
        let next = joined.next.clone().unwrap();
        assert_eq!((&joined.current, next.made), (&ahead.current, day(0)));
        let replaced = joined.due(day(1)).unwrap().unwrap();
        assert_eq!(replaced.current, next);
        assert_eq!(replaced.due(day(2)).unwrap(), None);
        // A next one that is ahead would never take its turn.
        let joined = Authority {
            next: Some(ahead.current),
            ..authority
        };
        let due = joined.due(day(2)).unwrap().unwrap();
        assert_eq!(due.next.map(|next| next.made), Some(day(2)));
    }

    #[test]
    fn a_secret_that_cannot_be_read_says_which_key() {
        let mut data = Authority::new(day(0)).unwrap().data();
        data.insert("ca.made".into(), "soon".into());
        let error = Authority::read(&data).unwrap_err().to_string();
        assert_eq!(error, "ca.made is \"soon\", which is no date");
        assert_eq!(
            Authority::read(&Data::new()).unwrap_err().to_string(),
            "the key ca.made is not there"
        );
    }
}
