//! What a list tells of a certificate: whose it is and what kind of key it has, in the words of Go's `crypto/x509`.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xa0;

/// The attributes with a name of their own: the last byte of `2.5.4.x`, in the order in which they are told.
const NAMED: [(u8, &str); 9] = [
    (5, "SERIALNUMBER"),
    (3, "CN"),
    (17, "POSTALCODE"),
    (9, "STREET"),
    (8, "ST"),
    (7, "L"),
    (11, "OU"),
    (10, "O"),
    (6, "C"),
];

/// What is told of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub algorithm: &'static str,
    pub subject: String,
}

/// Reads a certificate; None if it is none.
pub(super) fn read(der: &[u8]) -> Option<Told> {
    let mut rest = der;
    let mut certificate = inside(&mut rest, SEQUENCE)?;
    let mut fields = inside(&mut certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        element(&mut fields)?;
    }
    // Its number, how it is signed, by whom and for how long.
    for _ in 0..4 {
        element(&mut fields)?;
    }
    let subject = inside(&mut fields, SEQUENCE)?;
    let mut key = inside(&mut fields, SEQUENCE)?;
    let mut algorithm = inside(&mut key, SEQUENCE)?;
    let algorithm = match inside(&mut algorithm, IDENTIFIER)? {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1] => "rsa",
        [0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1] => "dsa",
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1] => "ecdsa",
        [0x2b, 0x65, 0x70] => "ed25519",
        _ => "0",
    };
    Some(Told {
        algorithm,
        subject: name(subject)?,
    })
}

/// The first element of what is left: its tag and what is in it.
fn element<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&tag, after) = rest.split_first()?;
    let (&first, after) = after.split_first()?;
    let (len, after) = match first {
        0..=0x7f => (usize::from(first), after),
        0x81..=0x84 => {
            let (bytes, after) = after.split_at_checked(usize::from(first & 0x7f))?;
            let len = bytes.iter().fold(0, |len, byte| (len << 8) | usize::from(*byte));
            (len, after)
        }
        _ => return None,
    };
    let (content, after) = after.split_at_checked(len)?;
    *rest = after;
    Some((tag, content))
}

/// What is in the first element, which must have this tag.
fn inside<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    element(rest)
        .filter(|(found, _)| *found == tag)
        .map(|(_, content)| content)
}

/// A name as Go writes it: named attributes in an order of their own, then the others.
fn name(mut sets: &[u8]) -> Option<String> {
    let (mut named, mut others) = (Vec::new(), Vec::new());
    while !sets.is_empty() {
        let mut attributes = inside(&mut sets, SET)?;
        while !attributes.is_empty() {
            let mut attribute = inside(&mut attributes, SEQUENCE)?;
            let kind = inside(&mut attribute, IDENTIFIER)?;
            let (tag, content) = element(&mut attribute)?;
            let value = text(tag, content);
            match kind {
                [0x55, 4, kind] if NAMED.iter().any(|(known, _)| known == kind) => {
                    named.push((*kind, value));
                }
                _ => others.push(format!("{}={}", dotted(kind), hex(&value))),
            }
        }
    }
    let told = NAMED.iter().filter_map(|(kind, word)| {
        let values = named.iter().filter(|(found, _)| found == kind);
        let mut values: Vec<_> = values
            .map(|(_, value)| format!("{word}={}", escaped(value)))
            .collect();
        // Of these two a name has one.
        if matches!(kind, 3 | 5) {
            values.drain(..values.len().saturating_sub(1));
        }
        (!values.is_empty()).then(|| values.join("+"))
    });
    Some(told.chain(others.into_iter().rev()).collect::<Vec<_>>().join(","))
}

fn text(tag: u8, content: &[u8]) -> String {
    const BMP: u8 = 0x1e;
    match tag {
        BMP => {
            let pairs = content.chunks_exact(2);
            let units: Vec<u16> = pairs.map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16_lossy(&units)
        }
        _ => String::from_utf8_lossy(content).into_owned(),
    }
}

fn escaped(value: &str) -> String {
    let mut told = String::new();
    for (at, c) in value.char_indices() {
        let escape = match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => true,
            ' ' => at == 0 || at + 1 == value.len(),
            '#' => at == 0,
            _ => false,
        };
        if escape {
            told.push('\\');
        }
        told.push(c);
    }
    told
}

/// An object identifier in numbers.
fn dotted(identifier: &[u8]) -> String {
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    for byte in identifier {
        number = (number << 7) | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".")
}

/// A text in DER, in hexadecimal.
fn hex(value: &str) -> String {
    const PRINTABLE: u8 = 0x13;
    const UTF8: u8 = 0x0c;
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    let mut der = vec![match value.bytes().all(is_printable) {
        true => PRINTABLE,
        false => UTF8,
    }];
    let len = value.len().to_be_bytes();
    let len = &len[len.iter().take_while(|byte| **byte == 0).count()..];
    match len {
        [] => der.push(0),
        [short @ 0..=0x7f] => der.push(*short),
        long => {
            der.push(0x80 | long.len() as u8);
            der.extend_from_slice(long);
        }
    }
    der.extend_from_slice(value.as_bytes());
    der.iter().fold("#".to_owned(), |mut told, byte| {
        let _ = std::fmt::Write::write_fmt(&mut told, format_args!("{byte:02x}"));
        told
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn certificate(
        algorithm: &'static rcgen::SignatureAlgorithm,
        subject: &[(rcgen::DnType, &str)],
    ) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in subject {
            params.distinguished_name.push(kind.clone(), *value);
        }
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_is_told_as_go_tells_it() {
        use rcgen::DnType;
        let email = DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]);
        let der = certificate(
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &[
                (DnType::CountryName, "CH"),
                (email, "a@b"),
                (DnType::OrganizationName, "Shops, Inc."),
                (DnType::CommonName, " git.example.com"),
            ],
        );
        let told = read(&der).unwrap();
        assert_eq!(told.algorithm, "ecdsa");
        // What Go's `Certificate.Subject.String()` makes of it.
        assert_eq!(
            told.subject,
            r"CN=\ git.example.com,O=Shops\, Inc.,C=CH,1.2.840.113549.1.9.1=#0c03614062"
        );
        assert_eq!(
            read(&certificate(&rcgen::PKCS_ED25519, &[])).unwrap(),
            Told {
                algorithm: "ed25519",
                subject: String::new(),
            }
        );
    }

    #[test]
    fn what_is_no_certificate_is_none() {
        let der = certificate(&rcgen::PKCS_ECDSA_P256_SHA256, &[]);
        for len in 0..der.len().min(200) {
            assert_eq!(read(&der[..len]), None, "{len}");
        }
        assert_eq!(read(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(read(&[0x30, 0x80]), None);
    }
}
