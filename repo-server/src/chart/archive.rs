//! Unpacks a packed chart: regular files and directories below one directory, within budgets, nothing else.

use crate::error::{Error, Result};
use crate::materialise::write_file;
use crate::path::TreePath;
use std::io::Read;
use std::path::Path;

/// Budgets of one archive.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sum of the extracted files, in bytes.
    pub extracted: u64,
    /// Entries.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            extracted: 1 << 30,
            entries: 100_000,
        }
    }
}

/// Extracts a `.tgz` into an empty directory and returns the bytes written. Links and devices are refused, as
/// is a name that leaves the directory.
///
/// # Errors
/// [`Error::Limit`], [`Error::Source`] for an archive that is not what it should be, [`Error::Io`].
pub(crate) fn unpack(archive: &[u8], into: &Path, limits: Limits) -> Result<u64> {
    // One byte over the budget is enough to know; padding and headers are granted on top.
    let budget = limits.extracted + limits.entries as u64 * 1024;
    let gzip = archive.starts_with(&[0x1f, 0x8b]);
    let reader: Box<dyn Read> = if gzip {
        Box::new(flate2::read::MultiGzDecoder::new(archive).take(budget))
    } else {
        Box::new(archive)
    };
    let broken = |e: std::io::Error| Error::Source(format!("failed to read the archive: {e}"));
    let mut total = 0_u64;
    let mut count = 0_usize;
    let mut tar = tar::Archive::new(reader);
    for entry in tar.entries().map_err(broken)? {
        let entry = entry.map_err(broken)?;
        count += 1;
        if count > limits.entries {
            return Err(Error::Limit {
                which: "entries of the archive".into(),
                limit: limits.entries.to_string(),
            });
        }
        let name = entry.path_bytes().into_owned();
        let name = String::from_utf8(name)
            .map_err(|_| Error::Source("the archive holds a name that is not UTF-8".into()))?;
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            continue;
        }
        let path = TreePath::parse(&name).map_err(|_| {
            Error::Source(format!(
                "the archive holds the name {name:?}, which leaves its directory"
            ))
        })?;
        if path.is_root() {
            continue;
        }
        let target = into.join(path.as_str());
        let failed = |e: std::io::Error| Error::io(format!("failed to extract {path}"), e);
        if kind.is_dir() {
            std::fs::create_dir_all(&target).map_err(failed)?;
        } else if kind.is_file() {
            let size = entry.header().size().map_err(broken)?;
            total += size;
            if total > limits.extracted {
                return Err(Error::Limit {
                    which: "extracted size of the archive".into(),
                    limit: format!("{} bytes", limits.extracted),
                });
            }
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent).map_err(failed)?;
            }
            let mut data = Vec::new();
            entry.take(size).read_to_end(&mut data).map_err(broken)?;
            if data.len() as u64 != size {
                return Err(Error::Source("the archive ends too early".into()));
            }
            // A second entry of one name wins over the first, as with tar.
            if target.exists() {
                std::fs::remove_file(&target).map_err(failed)?;
            }
            write_file(&target, &data, 0o444).map_err(failed)?;
        } else {
            return Err(Error::Source(format!(
                "the archive holds {path}, which is neither a file nor a directory"
            )));
        }
    }
    Ok(total)
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write as _;

    pub(crate) fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, data) in files {
            let mut header = tar::Header::new_gnu();
            // Straight into the header: the builder would refuse hostile names.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append(&header, *data).unwrap();
        }
        gzip(&builder.into_inner().unwrap())
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_arrive_and_hostile_names_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("in");
        std::fs::create_dir(&inside).unwrap();
        unpack(
            &pack(&[("web/Chart.yaml", b"name: web")]),
            &inside,
            Limits::default(),
        )
        .unwrap();
        assert_eq!(
            std::fs::read(inside.join("web/Chart.yaml")).unwrap(),
            b"name: web"
        );
        for name in ["../evil", "/etc/evil", "web/../../evil"] {
            assert!(
                unpack(&pack(&[(name, b"x")]), &inside, Limits::default()).is_err(),
                "{name}"
            );
        }
        assert!(!dir.path().join("evil").exists());
    }

    #[test]
    fn links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for kind in [
            tar::EntryType::Symlink,
            tar::EntryType::Link,
            tar::EntryType::Fifo,
        ] {
            let mut builder = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            builder
                .append_link(&mut header, "web/link", "/etc/passwd")
                .unwrap();
            let archive = gzip(&builder.into_inner().unwrap());
            let text = unpack(&archive, dir.path(), Limits::default())
                .unwrap_err()
                .to_string();
            assert!(text.contains("neither a file nor a directory"), "{text}");
        }
    }

    #[test]
    fn a_bomb_stops_at_its_budget() {
        let dir = tempfile::tempdir().unwrap();
        let archive = pack(&[("a", &vec![0_u8; 4 << 20])]);
        assert!(archive.len() < 64 << 10);
        let limits = Limits {
            extracted: 1 << 20,
            entries: 10,
        };
        assert!(matches!(
            unpack(&archive, dir.path(), limits),
            Err(Error::Limit { .. })
        ));
        let many: Vec<String> = (0..20).map(|n| format!("f{n}")).collect();
        let many: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
        assert!(matches!(
            unpack(&pack(&many), dir.path(), limits),
            Err(Error::Limit { .. })
        ));
    }
}
