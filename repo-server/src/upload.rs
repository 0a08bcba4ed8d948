//! Sources that a caller sends along instead of naming a repository: a `.tgz` in chunks, with its digest.

use crate::chart::{archive, hex_sha256};
use crate::error::{Error, Result};
use crate::manifest;
use crate::manifest_cache::Rendered;
use crate::path::TreePath;
use crate::render::{Located, Renderer, Request, stamp};
use crate::tree::Tree;
use serde_json::Value;

/// Largest archive that is taken, packed.
pub(crate) const MAX_ARCHIVE: usize = 100 << 20;

/// What arrives, until it is whole.
#[derive(Default)]
pub(crate) struct Upload {
    data: Vec<u8>,
}

impl Upload {
    /// Takes one more chunk.
    ///
    /// # Errors
    /// [`Error::Limit`] when it becomes too much.
    pub(crate) fn take(&mut self, chunk: &[u8]) -> Result<()> {
        if self.data.len() + chunk.len() > MAX_ARCHIVE {
            return Err(Error::Limit {
                which: "size of the files that were sent".into(),
                limit: format!("{MAX_ARCHIVE} bytes"),
            });
        }
        self.data.extend_from_slice(chunk);
        Ok(())
    }

    /// The archive, if it is what its sender says.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub(crate) fn finish(self, checksum: &str) -> Result<Vec<u8>> {
        let found = hex_sha256(&self.data);
        if found != checksum.to_ascii_lowercase() {
            return Err(Error::Source(format!(
                "the files that were sent have the checksum {found}, and not {checksum} as announced"
            )));
        }
        Ok(self.data)
    }
}

impl Renderer {
    /// Renders the source of a request from an archive instead of its repository. Nothing of it is remembered.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn uploaded(&self, request: &Request, archive: Vec<u8>) -> Result<Rendered> {
        let limits = self.charts.limits();
        let name = format!("upload-{}", hex_sha256(&archive));
        let directory = self
            .files
            .directory(&name, move |path| archive::unpack(&archive, path, limits))
            .await?;
        let located = Located {
            tree: Tree::disk(directory.path())?,
            path: TreePath::parse(&request.source.path)?,
            revision: request.revision.clone(),
            id: name,
            on_disk: Some(directory),
            commit: None,
        };
        let refs = Box::pin(self.refs(request)).await?;
        let (source_type, output) = Box::pin(self.produce(request, &located, &refs)).await?;
        let mut objects = manifest::flatten(output.objects)?;
        let mut notes = output.notes;
        manifest::note_faults(&objects, &mut notes);
        if let Some(tracking) = &request.tracking {
            stamp(&mut objects, request, tracking)?;
        }
        let manifests = objects.iter().map(Value::to_string).collect();
        Ok(Rendered::new(manifests, source_type, output.commands, notes))
    }
}
