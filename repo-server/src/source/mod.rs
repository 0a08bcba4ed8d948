//! How each kind of source becomes objects.

pub mod detect;
pub mod directory;
pub mod helm;
pub mod jsonnet;
pub mod kustomize;
pub mod overrides;
pub mod plugin;
pub mod remote;

use crate::error::Error;
use crate::path::TreePath;
use crate::worker::wire;

/// What a render used, as paths of the trees that it was given. Equal content at these paths gives equal output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Paths in the source's own tree.
    pub paths: Vec<TreePath>,
    /// Paths in the trees of other sources, with the name (`$values`) of the source.
    pub refs: Vec<(String, TreePath)>,
    /// Why the output may differ although the inputs are equal; such output is not found again by content.
    pub open: Vec<String>,
}

impl Reads {
    /// Notes a path of the source's own tree, or of that of the source `$name`.
    pub(crate) fn note(&mut self, of: Option<&str>, path: &TreePath) {
        match of {
            None => self.paths.push(path.clone()),
            Some(name) => self.refs.push((name.to_owned(), path.clone())),
        }
    }
}

/// The objects of one source.
#[derive(Debug)]
pub struct Output {
    /// In the tool's order, Lists not expanded.
    pub objects: Vec<serde_json::Value>,
    /// What was used.
    pub reads: Reads,
    /// The commands that would give the same, for people.
    pub commands: Vec<String>,
    /// What is to be said about the files.
    pub notes: Notes,
}

/// What is to be said about files and objects that were rendered all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Notes {
    /// What a reader should know.
    pub warnings: Vec<String>,
    /// What is wrong with single objects, so that nothing may be synced.
    pub faults: Vec<String>,
    /// Why the output is made anew at each commit, as [`Reads::open`] says.
    #[serde(default)]
    pub open: Vec<String>,
}

impl Notes {
    /// Of very many warnings the first are enough.
    const WARNINGS_MAX: usize = 50;

    /// For callers who would sync what was rendered: nothing, if something in it is wrong.
    ///
    /// # Errors
    /// The first fault.
    pub fn faultless(&self) -> Result<(), Error> {
        match self.faults.first() {
            None => Ok(()),
            Some(fault) => Err(Error::Source(fault.clone())),
        }
    }

    pub(crate) fn warn(&mut self, warning: String) {
        if self.warnings.len() < Self::WARNINGS_MAX {
            self.warnings.push(warning);
        }
    }
}

/// The worker's error as ours.
pub(crate) fn worker_error(tool: &'static str, error: wire::WorkerError) -> Error {
    use wire::ErrorKind;
    let place = match (error.file.is_empty(), error.line) {
        (true, _) => String::new(),
        // The tool's own message mostly names the file already.
        (false, _) if error.message.contains(&error.file) => String::new(),
        (false, 0) => format!("{}: ", error.file),
        (false, line) => format!("{}:{line}: ", error.file),
    };
    let message = format!("{place}{}", error.message);
    match ErrorKind::try_from(error.kind).unwrap_or(ErrorKind::Unspecified) {
        ErrorKind::Internal => Error::Worker {
            what: tool.into(),
            message,
        },
        ErrorKind::Limit => Error::Limit {
            which: format!("output of {tool}"),
            limit: message,
        },
        ErrorKind::Refused => Error::Unsupported(message),
        _ => Error::Render { tool, message },
    }
}

/// The objects of a reply.
pub(crate) fn objects(tool: &'static str, rendered: wire::Rendered) -> Result<Vec<serde_json::Value>, Error> {
    rendered
        .objects
        .into_iter()
        .map(|object| {
            serde_json::from_slice(&object.json).map_err(|e| Error::Worker {
                what: tool.into(),
                message: format!("it sent what is not JSON: {e}"),
            })
        })
        .collect()
}

/// Turns the absolute paths that a worker read below `directory` into paths of the tree, of which `directory` holds
/// the part below `base`. Paths outside are of the machine (fetched dependencies) and named by the key already.
pub(crate) fn read_paths(
    reads: &wire::ReadSet,
    directory: &std::path::Path,
    base: &TreePath,
) -> Vec<TreePath> {
    reads
        .files
        .iter()
        .chain(&reads.trees)
        .chain(&reads.absent)
        .filter_map(|path| {
            let relative = std::path::Path::new(path).strip_prefix(directory).ok()?;
            base.join(relative.to_str()?).ok()
        })
        .collect()
}
