//! What a public key of OpenPGP says of itself: id, fingerprint, kind, owner. Nothing is verified here; keys are told
//! apart and stored.
//!
//! The little that is needed of RFC 9580: armour, the heads of packets, and the public key packet of version 4, which is
//! the version that Git signatures of today are made with. A library of the whole would bring its own cryptography along.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";
/// Characters of a line of armour.
const LINE_LEN: usize = 64;
/// Packets that a key consists of.
const PUBLIC_KEY: u8 = 6;
const USER_ID: u8 = 13;
/// A text of keys is at most so long.
const TEXT_LEN_MAX: usize = 1 << 20;

/// One public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey {
    /// Forty digits.
    pub fingerprint: String,
    /// Such as `rsa4096` or `ed25519`.
    pub kind: String,
    /// The first user id.
    pub owner: String,
    /// The key alone, armoured.
    pub armoured: String,
}

impl PublicKey {
    /// The last sixteen digits of the fingerprint.
    pub(crate) fn id(&self) -> &str {
        &self.fingerprint[self.fingerprint.len() - 16..]
    }
}

/// The keys of a text of armoured blocks.
///
/// # Errors
/// What is wrong, for whoever sent it.
pub(crate) fn read(text: &str) -> Result<Vec<PublicKey>, String> {
    if text.len() > TEXT_LEN_MAX {
        return Err(format!("a text of keys has at most {TEXT_LEN_MAX} bytes"));
    }
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let block = &rest[at + BEGIN.len()..];
        let end = block.find(END).ok_or("a key block has no end")?;
        keys.extend(of_block(&bytes_of(&block[..end])?)?);
        rest = &block[end + END.len()..];
    }
    match keys.is_empty() {
        true => Err(format!(
            "there is no armoured public key in it: {BEGIN} is expected"
        )),
        false => Ok(keys),
    }
}

/// The bytes of a block: headers up to an empty line, base64, a checksum that needs no look.
fn bytes_of(block: &str) -> Result<Vec<u8>, String> {
    let lines = block.trim_start_matches([' ', '\t']).lines().skip(1);
    let body = lines
        .skip_while(|line| line.contains(": "))
        .map(str::trim)
        .take_while(|line| !line.starts_with('='));
    STANDARD
        .decode(body.collect::<String>())
        .map_err(|_| "a key block is not base64".to_owned())
}

/// The keys of a block's packets: each begins with its public key packet.
fn of_block(bytes: &[u8]) -> Result<Vec<PublicKey>, String> {
    let mut keys: Vec<(PublicKey, usize)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (tag, body, next) = packet(bytes, at).ok_or("a key block is cut off")?;
        match (tag, keys.last_mut()) {
            (PUBLIC_KEY, _) => keys.push((public_key(body)?, at)),
            (USER_ID, Some((key, _))) if key.owner.is_empty() => {
                key.owner = String::from_utf8_lossy(body).into_owned()
            }
            _ => {}
        }
        at = next;
    }
    let ends: Vec<usize> = keys
        .iter()
        .skip(1)
        .map(|(_, at)| *at)
        .chain([bytes.len()])
        .collect();
    Ok(keys
        .into_iter()
        .zip(ends)
        .map(|((key, at), end)| PublicKey {
            armoured: armour(&bytes[at..end]),
            ..key
        })
        .collect())
}

/// The packet at a place: its tag, its body, and where the next one is.
fn packet(bytes: &[u8], at: usize) -> Option<(u8, &[u8], usize)> {
    let head = *bytes.get(at)?;
    let number = |from: usize, len: usize| {
        let bytes = bytes.get(from..from + len)?;
        Some(
            bytes
                .iter()
                .fold(0_usize, |number, byte| number << 8 | usize::from(*byte)),
        )
    };
    let (tag, from, len) = match (head & 0x80 != 0, head & 0x40 != 0) {
        (false, _) => return None,
        (true, true) => {
            let first = number(at + 1, 1)?;
            match first {
                0..=191 => (head & 0x3f, at + 2, first),
                192..=223 => (
                    head & 0x3f,
                    at + 3,
                    ((first - 192) << 8) + number(at + 2, 1)? + 192,
                ),
                255 => (head & 0x3f, at + 6, number(at + 2, 4)?),
                // Lengths in parts are for data only.
                _ => return None,
            }
        }
        (true, false) => match head & 0x03 {
            0 => ((head >> 2) & 0x0f, at + 2, number(at + 1, 1)?),
            1 => ((head >> 2) & 0x0f, at + 3, number(at + 1, 2)?),
            2 => ((head >> 2) & 0x0f, at + 5, number(at + 1, 4)?),
            _ => return None,
        },
    };
    let next = from.checked_add(len)?;
    Some((tag, bytes.get(from..next)?, next))
}

fn public_key(body: &[u8]) -> Result<PublicKey, String> {
    let [version, _, _, _, _, algorithm, material @ ..] = body else {
        return Err("a public key is cut off".to_owned());
    };
    if *version != 4 {
        return Err(format!(
            "a public key of version {version} is not known: those of version 4 are"
        ));
    }
    let len = u16::try_from(body.len()).map_err(|_| "a public key is too long")?;
    let hashed = [&[0x99], &len.to_be_bytes()[..], body].concat();
    let fingerprint = digest(&SHA1_FOR_LEGACY_USE_ONLY, &hashed);
    Ok(PublicKey {
        fingerprint: fingerprint
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect(),
        kind: kind(*algorithm, material),
        owner: String::new(),
        armoured: String::new(),
    })
}

/// The kind of a key, as `gpg` writes it.
fn kind(algorithm: u8, material: &[u8]) -> String {
    let bits = material
        .get(..2)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    // Curves are named by an object identifier after its length.
    let curve = || {
        let len = usize::from(material.first().copied().unwrap_or_default());
        match material.get(1..1 + len).unwrap_or_default() {
            [0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01] => "ed25519",
            [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07] => "nistp256",
            [0x2b, 0x81, 0x04, 0x00, 0x22] => "nistp384",
            [0x2b, 0x81, 0x04, 0x00, 0x23] => "nistp521",
            _ => "ecc",
        }
        .to_owned()
    };
    match algorithm {
        1..=3 => format!("rsa{bits}"),
        17 => format!("dsa{bits}"),
        19 | 22 => curve(),
        27 => "ed25519".to_owned(),
        28 => "ed448".to_owned(),
        other => format!("algorithm{other}"),
    }
}

fn armour(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let mut armoured = format!("{BEGIN}\n\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(LINE_LEN));
        armoured += &format!("{line}\n");
        rest = more;
    }
    let sum = crc24(bytes).to_be_bytes();
    armoured + &format!("={}\n{END}\n", STANDARD.encode(&sum[1..]))
}

/// The checksum of armour.
fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x00b7_04ce, |sum: u32, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 16, |sum, _| {
            let next = sum << 1;
            if next & 0x0100_0000 == 0 {
                next
            } else {
                next ^ 0x0186_4cfb
            }
        })
    }) & 0x00ff_ffff
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The sample key of RFC 9580, appendix A.1.
    const SAMPLE: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----

xjMEU/NfCxYJKwYBBAHaRw8BAQdAPwmJlL3ZFu1AUxl5NOSofIBzOhKA1i+AEJku
Q+47JAY=
-----END PGP PUBLIC KEY BLOCK-----
";

    #[test]
    fn the_sample_of_the_standard_is_read() {
        let keys = read(SAMPLE).unwrap();
        let [key] = &keys[..] else {
            panic!("one key is expected: {keys:?}")
        };
        // The fingerprint that the standard gives for it.
        assert_eq!(key.fingerprint, "C959BDBAFA32A2F89A153B678CFDE12197965A9A");
        assert_eq!((key.id(), key.kind.as_str()), ("8CFDE12197965A9A", "ed25519"));
        assert_eq!(
            read(&key.armoured).unwrap(),
            keys,
            "what is stored is the same key"
        );
    }

    #[test]
    fn several_keys_in_one_block_are_taken_apart() {
        let bytes = bytes_of(SAMPLE.split(BEGIN).nth(1).unwrap().split(END).next().unwrap()).unwrap();
        let user = [&[0xcd, 5][..], b"Alice"].concat();
        let keys = read(&armour(&[bytes.clone(), user, bytes].concat())).unwrap();
        let owners: Vec<_> = keys.iter().map(|key| key.owner.as_str()).collect();
        assert_eq!(owners, ["Alice", ""]);
        assert_eq!(keys[1].armoured, read(SAMPLE).unwrap()[0].armoured);
    }

    #[test]
    fn what_is_no_key_is_refused_and_nothing_of_it_is_taken_for_one() {
        for text in [
            "",
            "ssh-rsa AAAA",
            BEGIN,
            &format!("{BEGIN}\n\n!!!\n{END}"),
            &format!("{BEGIN}\n\n{}\n{END}", STANDARD.encode([0xc6, 200, 0])),
            &format!(
                "{BEGIN}\n\n{}\n{END}",
                STANDARD.encode([0xc6, 7, 6, 0, 0, 0, 0, 22, 0])
            ),
            &format!("{BEGIN}\n\n{}\n{END}", STANDARD.encode([0x00, 0x01])),
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
