//! Files of this machine, sent to be rendered where Git's are.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use argosy_api::services::application::application_manifest_query_with_files_wrapper::Part;
use argosy_api::services::application::{
    ApplicationManifestQueryWithFiles, ApplicationManifestQueryWithFilesWrapper, FileChunk,
};
use argosy_object::Value;
use flate2::Compression;
use flate2::write::GzEncoder;
use globset::GlobSetBuilder;

use super::Named;
use crate::remote::{Remote, ask};

/// What is sent at a time.
const CHUNK: usize = 1024;

/// A `.tgz` of the files of a folder that match a pattern by their names or paths. What links lead to is not sent.
pub(super) fn pack(folder: &Path, include: &[String]) -> Result<Vec<u8>> {
    let mut patterns = GlobSetBuilder::new();
    for pattern in include {
        patterns.add(globset::Glob::new(pattern).context("read --local-include")?);
    }
    let patterns = patterns.build().context("read --local-include")?;
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    archive.follow_symlinks(false);
    let mut folders = vec![folder.to_owned()];
    while let Some(dir) = folders.pop() {
        let entries = std::fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("read {}", dir.display()))?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = path.strip_prefix(folder).unwrap_or(&path);
            if kind.is_dir() && entry.file_name() != ".git" {
                folders.push(path);
            } else if kind.is_file() && (patterns.is_match(name) || patterns.is_match(entry.file_name())) {
                archive
                    .append_path_with_name(&path, name)
                    .with_context(|| format!("pack {}", path.display()))?;
            }
        }
    }
    let mut zipped = archive.into_inner().context("pack the files")?;
    zipped.flush().context("pack the files")?;
    zipped.finish().context("pack the files")
}

/// What the server makes of the files as the source of an Application.
pub(super) async fn rendered(remote: &Remote, app: &Named, archive: Vec<u8>) -> Result<Vec<Value>> {
    let (namespace, name) = app.place();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &archive);
    let query = ApplicationManifestQueryWithFiles {
        name: name.to_owned(),
        app_namespace: Some(namespace.to_owned()),
        checksum: digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        project: None,
    };
    let chunks: Vec<Part> = archive
        .chunks(CHUNK)
        .map(|chunk| {
            Part::Chunk(FileChunk {
                chunk: chunk.to_vec(),
            })
        })
        .collect();
    let parts = std::iter::once(Part::Query(query)).chain(chunks);
    let parts = parts.map(|part| ApplicationManifestQueryWithFilesWrapper { part: Some(part) });
    let answer = ask!(
        remote,
        applications.get_manifests_with_files(tokio_stream::iter(parts.collect::<Vec<_>>()))
    );
    answer
        .manifests
        .iter()
        .map(|text| serde_json::from_str(text).context("read a manifest"))
        .collect()
}
