//! A directory of plain manifests and Jsonnet.

use super::{Notes, Output, Reads, jsonnet};
use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::manifest;
use crate::tree::{Node, Tree};
use crate::worker::Caller;
use argosy_api::v1alpha1::ApplicationSourceDirectory;
use globset::{GlobBuilder, GlobMatcher};
use serde_json::Value;

/// One file that will be read.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Where it is.
    pub node: Node,
    /// How to read it.
    pub format: Format,
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// YAML, several documents.
    Yaml,
    /// JSON, one object.
    Json,
    /// A Jsonnet program.
    Jsonnet,
}

/// Chooses the files of a directory source, sorted by path.
///
/// # Errors
/// [`Error::Source`] for a bad glob, [`Error::Path`] for a link that leaves the repository.
pub fn select(tree: &Tree, dir: &Node, options: &ApplicationSourceDirectory) -> Result<Vec<Candidate>> {
    let include = Glob::new(&options.include)?;
    let exclude = Glob::new(&options.exclude)?;
    let files = if options.recurse {
        tree.walk(dir)?
    } else {
        direct(tree, dir)?
    };
    let mut chosen = Vec::new();
    for node in files {
        let Some(relative) = node.path.relative_to(&dir.path) else {
            continue;
        };
        if exclude.as_ref().is_some_and(|glob| glob.matches(relative)) {
            continue;
        }
        if include.as_ref().is_some_and(|glob| !glob.matches(relative)) {
            continue;
        }
        let name = node.path.file_name();
        let format = match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("yaml" | "yml") => Format::Yaml,
            Some("json") => Format::Json,
            Some("jsonnet") => Format::Jsonnet,
            // Anything may be YAML once the filter is off.
            _ if options.disable_extension_filter => Format::Yaml,
            _ => continue,
        };
        chosen.push(Candidate { node, format });
    }
    Ok(chosen)
}

fn direct(tree: &Tree, dir: &Node) -> Result<Vec<Node>> {
    let mut files = Vec::new();
    for entry in tree.list(dir)?.iter() {
        let path = dir.path.child(&entry.name);
        if let Some(node) = tree.lookup(&path)?
            && !node.is_dir
        {
            files.push(Node { path, ..node });
        }
    }
    Ok(files)
}

/// Everything one render of a directory needs.
pub struct Request<'a> {
    /// The files.
    pub tree: &'a Tree,
    /// The source's directory.
    pub dir: &'a Node,
    /// The source's options.
    pub options: &'a ApplicationSourceDirectory,
    /// For variables of Jsonnet.
    pub env: &'a BuildEnv,
    /// Sum of all files, in bytes.
    pub max_bytes: u64,
    /// Where Jsonnet runs; programs are passed over without.
    pub jsonnet: Option<&'a jsonnet::Engine>,
    /// For whom it is.
    pub caller: Caller,
}

/// Reads and evaluates all files, in order of their paths.
///
/// # Errors
/// [`Error::Manifest`] with file and line, [`Error::Limit`], [`Error::Render`] from Jsonnet.
pub async fn render(request: Request<'_>) -> Result<Output> {
    let Request {
        tree,
        dir,
        options,
        env,
        max_bytes,
        jsonnet,
        caller,
    } = request;
    let mut left = max_bytes;
    let (mut objects, mut notes) = (Vec::new(), Notes::default());
    // The directory as a whole, for what is chosen in it, and what programs import from elsewhere.
    let mut reads = Reads {
        paths: vec![dir.path.clone()],
        ..Reads::default()
    };
    let candidates = select(tree, dir, options)?;
    tree.expect(candidates.iter().map(|candidate| &candidate.node), max_bytes);
    for Candidate { node, format } in candidates {
        let over = |_| Error::Limit {
            which: "combined size of the manifest files".into(),
            limit: format!("{max_bytes} bytes"),
        };
        // Programs have a budget of their own.
        let text = match (tree.read_node(&node, left), format) {
            (Err(Error::Limit { .. }), Format::Jsonnet) => tree.read_node(&node, jsonnet::MAX_IMPORT)?,
            (Err(error @ Error::Limit { .. }), _) => return Err(over(error)),
            (text, _) => text?,
        };
        let size = text.len() as u64;
        let text = manifest::plain(text);
        if manifest::skipped(&text) {
            continue;
        }
        let name = node.path.as_str();
        if format != Format::Jsonnet {
            left -= size;
        }
        match format {
            Format::Yaml => objects.extend(manifest::from_yaml(name, &text, &mut notes)?),
            Format::Json => objects.extend(manifest::from_json(name, &text)?),
            Format::Jsonnet => {
                let Some(jsonnet) = jsonnet else { continue };
                let program =
                    jsonnet::Program::new(node.path.clone(), text, &dir.path, &options.jsonnet, env)?;
                let (value, imported) = jsonnet.evaluate(&caller, program, tree.clone()).await?;
                reads.paths.extend(imported);
                match value {
                    Value::Array(items) => objects.extend(items),
                    object @ Value::Object(_) => objects.push(object),
                    Value::Null => {}
                    _ => {
                        return Err(Error::Manifest {
                            file: name.to_owned(),
                            line: None,
                            message: "the program gives neither an object nor a list of objects".into(),
                        });
                    }
                }
            }
        }
    }
    Ok(Output {
        objects,
        reads,
        commands: Vec::new(),
        notes,
    })
}

/// One glob, or a `{a,b}` set of them; `*` crosses directories, as in the reference.
struct Glob(GlobMatcher);

impl Glob {
    fn new(text: &str) -> Result<Option<Glob>> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > 4096 {
            return Err(Error::Limit {
                which: "length of a glob".into(),
                limit: "4096 bytes".into(),
            });
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(false)
            .backslash_escape(true)
            .build()
            .map_err(|e| Error::Source(format!("failed to parse the glob {text:?}: {}", e.kind())))?;
        Ok(Some(Glob(glob.compile_matcher())))
    }

    fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::path::TreePath;

    fn fixture() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("app/a.yaml", "apiVersion: v1\nkind: A\n"),
            ("app/b.json", "{\"apiVersion\": \"v1\", \"kind\": \"B\"}"),
            ("app/README.md", "kind: no"),
            ("app/sub/c.yml", "apiVersion: v1\nkind: C\n"),
            ("app/env-usw2/d.yaml", "apiVersion: v1\nkind: D\n"),
            ("app/plain", "apiVersion: v1\nkind: E\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let tree = Tree::disk(dir.path()).unwrap();
        (dir, tree)
    }

    fn names(options: ApplicationSourceDirectory) -> Vec<String> {
        let (_dir, tree) = fixture();
        let app = tree.app_dir(&TreePath::parse("app").unwrap()).unwrap();
        select(&tree, &app, &options)
            .unwrap()
            .iter()
            .map(|file| file.node.path.relative_to(&app.path).unwrap().to_owned())
            .collect()
    }

    #[test]
    fn files_are_chosen_by_extension_depth_and_globs() {
        let plain = ApplicationSourceDirectory::default();
        assert_eq!(names(plain.clone()), ["a.yaml", "b.json"]);
        let recurse = ApplicationSourceDirectory {
            recurse: true,
            ..plain.clone()
        };
        assert_eq!(
            names(recurse.clone()),
            ["a.yaml", "b.json", "env-usw2/d.yaml", "sub/c.yml"]
        );
        let include = ApplicationSourceDirectory {
            include: "{a.yaml,env-usw2/*}".into(),
            ..recurse.clone()
        };
        assert_eq!(names(include), ["a.yaml", "env-usw2/d.yaml"]);
        let exclude = ApplicationSourceDirectory {
            exclude: "*.y*ml".into(),
            ..recurse
        };
        assert_eq!(names(exclude), ["b.json"], "a star crosses directories");
        let any = ApplicationSourceDirectory {
            disable_extension_filter: true,
            ..plain
        };
        assert_eq!(names(any), ["README.md", "a.yaml", "b.json", "plain"]);
    }
}
