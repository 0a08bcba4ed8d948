//! Files that arrive: a `.tgz` in chunks becomes a folder of its own.

use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use argosy_api::services::plugin::app_stream_request::Request as Part;
use argosy_api::services::plugin::{AppStreamRequest, ManifestRequestMetadata};
use aws_lc_rs::digest;
use tonic::{Status, Streaming};

/// Limits of what is sent for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Packed.
    pub(crate) archive: u64,
    /// Unpacked.
    pub(crate) files: u64,
    /// Files, folders and links.
    pub(crate) entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            archive: 1 << 30,
            files: 4 << 30,
            entries: 1_000_000,
        }
    }
}

/// What was sent; the files are removed when this goes.
pub(crate) struct Received {
    pub(crate) metadata: ManifestRequestMetadata,
    /// Also a command's that is still at its end.
    pub(crate) files: Arc<tempfile::TempDir>,
}

impl Received {
    /// The folder of the source.
    pub(crate) fn source(&self) -> Result<PathBuf, Status> {
        let root = self.files.path();
        let Some(path) = below(Path::new(&self.metadata.app_rel_path)) else {
            return Err(Status::invalid_argument("illegal appPath: out of workDir bound"));
        };
        // A link among the files may lead out of them once it is followed.
        let found = root.join(path).canonicalize();
        match (found, root.canonicalize()) {
            (Ok(found), Ok(root)) if found.starts_with(&root) && found.is_dir() => Ok(found),
            _ => Err(Status::invalid_argument("illegal appPath: out of workDir bound")),
        }
    }
}

/// Takes a request to its end.
pub(crate) async fn receive(
    mut parts: Streaming<AppStreamRequest>,
    into: &Path,
    keep_modes: bool,
    limits: Limits,
) -> Result<Received, Status> {
    let first = parts.message().await?.and_then(|message| message.request);
    let Some(Part::Metadata(metadata)) = first else {
        return Err(Status::invalid_argument(
            "error getting stream metadata: metadata is nil",
        ));
    };
    let unusable = |error: std::io::Error| Status::internal(format!("error receiving tgz file: {error}"));
    let mut archive = tempfile::tempfile_in(into).map_err(unusable)?;
    let mut checksum = digest::Context::new(&digest::SHA256);
    let mut size = 0;
    while let Some(message) = parts.message().await? {
        let Some(Part::File(file)) = message.request else {
            return Err(Status::invalid_argument("stream request file is nil"));
        };
        size += file.chunk.len() as u64;
        if size > limits.archive {
            let text = format!("the files are more than {} bytes, packed", limits.archive);
            return Err(Status::resource_exhausted(text));
        }
        checksum.update(&file.chunk);
        archive.write_all(&file.chunk).map_err(unusable)?;
    }
    let found: String = checksum
        .finish()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if !found.eq_ignore_ascii_case(&metadata.checksum) {
        return Err(Status::invalid_argument("file checksum validation error"));
    }
    archive.rewind().map_err(unusable)?;
    let files = tempfile::tempdir_in(into).map_err(unusable)?;
    let unpacked = tokio::task::spawn_blocking(move || {
        unpack(archive, files.path(), keep_modes, limits).map(|()| files)
    });
    let files = unpacked
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    let files =
        files.map_err(|error| Status::invalid_argument(format!("error decompressing tgz file: {error}")))?;
    Ok(Received {
        metadata,
        files: Arc::new(files),
    })
}

fn unpack(archive: fs::File, root: &Path, keep_modes: bool, limits: Limits) -> std::io::Result<()> {
    let bad = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    // Headers and padding are granted on top.
    let packed = limits.files.saturating_add(limits.entries as u64 * 1024);
    let reader = flate2::read::GzDecoder::new(std::io::BufReader::new(archive)).take(packed);
    let mut tar = tar::Archive::new(reader);
    // Links come last, so that nothing is written through one.
    let mut links = Vec::new();
    let (mut bytes, mut count) = (0_u64, 0_usize);
    for entry in tar.entries()? {
        let mut entry = entry?;
        count += 1;
        if count > limits.entries {
            return Err(bad(format!("there are more than {} files", limits.entries)));
        }
        let name = entry.path()?.into_owned();
        let path =
            below(&name).ok_or_else(|| bad(format!("illegal filepath in archive: {}", name.display())))?;
        let target = root.join(&path);
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            fs::create_dir_all(&target)?;
        } else if kind.is_symlink() {
            let text = entry
                .link_name()?
                .map(|text| text.into_owned())
                .unwrap_or_default();
            let stays =
                !text.is_absolute() && below(&path.parent().unwrap_or(Path::new("")).join(&text)).is_some();
            if !stays {
                return Err(bad(format!(
                    "illegal filepath in symlink: {} to {}",
                    name.display(),
                    text.display()
                )));
            }
            links.push((target, text));
        } else if kind.is_file() {
            bytes += entry.header().size()?;
            if bytes > limits.files {
                return Err(bad(format!("the files are more than {} bytes", limits.files)));
            }
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent)?;
            }
            let mode = if keep_modes {
                entry.header().mode()? & 0o777
            } else {
                0o644
            };
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&target)?;
            std::io::copy(&mut entry, &mut file)?;
        }
    }
    for (path, text) in links {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        symlink(text, path)?;
    }
    Ok(())
}

/// A path without `.` and `..` that does not leave the folder it is relative to.
fn below(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !clean.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    enum Sent<'a> {
        File(&'a str, u32, &'a [u8]),
        Link(&'a str, &'a str),
    }

    fn pack(sent: &[Sent<'_>]) -> fs::File {
        let encoder =
            flate2::write::GzEncoder::new(tempfile::tempfile().unwrap(), flate2::Compression::fast());
        let mut builder = tar::Builder::new(encoder);
        for one in sent {
            let mut header = tar::Header::new_gnu();
            let (name, data) = match one {
                Sent::File(name, mode, data) => {
                    header.set_mode(*mode);
                    (name, *data)
                }
                Sent::Link(name, to) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_link_name_literal(to).unwrap();
                    (name, &b""[..])
                }
            };
            // Straight into the header: the builder would refuse hostile names.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data).unwrap();
        }
        let mut file = builder.into_inner().unwrap().finish().unwrap();
        file.rewind().unwrap();
        file
    }

    fn unpacked(sent: &[Sent<'_>], keep_modes: bool, limits: Limits) -> std::io::Result<tempfile::TempDir> {
        let outer = tempfile::tempdir().unwrap();
        let inside = outer.path().join("in");
        fs::create_dir(&inside).unwrap();
        let outcome = unpack(pack(sent), &inside, keep_modes, limits);
        assert_eq!(
            fs::read_dir(outer.path()).unwrap().count(),
            1,
            "something came out"
        );
        outcome.map(|()| outer)
    }

    #[test]
    fn modes_are_kept_only_where_the_plugin_asks() {
        let sent = [
            Sent::File("bin/run.sh", 0o755, b"#!/bin/sh\n"),
            Sent::Link("run", "bin/run.sh"),
        ];
        for (keep, mode) in [(true, 0o755), (false, 0o644)] {
            let dir = unpacked(&sent, keep, Limits::default()).unwrap();
            let found = fs::metadata(dir.path().join("in/run"))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(found & 0o777, mode);
        }
    }

    #[test]
    fn nothing_leaves_the_folder() {
        for sent in [
            vec![Sent::File("../evil", 0o644, b"x")],
            vec![Sent::File("/etc/evil", 0o644, b"x")],
            vec![Sent::Link("out", "../../evil")],
            vec![Sent::Link("out", "/etc/passwd")],
            // A folder that is a link is not written through: the link would come when the file is there.
            vec![
                Sent::Link("a", "b"),
                Sent::File("a/x", 0o644, b"x"),
                Sent::Link("b", "../in/../.."),
            ],
        ] {
            assert!(unpacked(&sent, false, Limits::default()).is_err());
        }
    }

    #[test]
    fn a_bomb_stops_at_its_budget() {
        let zeros = vec![0; 4 << 20];
        let limits = Limits {
            files: 1 << 20,
            entries: 3,
            ..Limits::default()
        };
        assert!(unpacked(&[Sent::File("a", 0o644, &zeros)], false, limits).is_err());
        let many = [
            Sent::File("a", 0o644, b""),
            Sent::File("b", 0o644, b""),
            Sent::File("c", 0o644, b""),
            Sent::File("d", 0o644, b""),
        ];
        assert!(unpacked(&many, false, limits).is_err());
    }
}
