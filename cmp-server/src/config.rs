//! `plugin.yaml`: what the plugin is called, which files it takes, and the commands that it consists of.

use std::path::{Path, PathBuf};

use argosy_api::meta::null_as_default;
use argosy_api::services::repository::ParameterAnnouncement;
use argosy_object::yaml;
use serde::Deserialize;

/// The name of the file in the configuration folder.
const FILE: &str = "plugin.yaml";
/// What it says it is.
const KIND: &str = "ConfigManagementPlugin";

/// A plugin as its author describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plugin {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Metadata,
    /// What it does.
    #[serde(default)]
    pub(crate) spec: Spec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(deserialize_with = "null_as_default")]
    version: String,
    /// Run before [`Spec::generate`], its output is dropped.
    pub(crate) init: Option<Command>,
    /// Prints the manifests.
    #[serde(deserialize_with = "null_as_default")]
    pub(crate) generate: Command,
    discover: Option<Discover>,
    parameters: Option<Parameters>,
    /// Whether files keep their execute bits.
    pub(crate) preserve_file_mode: bool,
    /// Whether the commands are told how to reach the repository.
    pub(crate) provide_git_creds: bool,
}

/// A program with its arguments, in two lists that are joined.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Command {
    #[serde(deserialize_with = "null_as_default")]
    command: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    args: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Discover {
    #[serde(deserialize_with = "null_as_default")]
    file_name: String,
    find: Option<Find>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Find {
    #[serde(flatten)]
    command: Command,
    #[serde(deserialize_with = "null_as_default")]
    glob: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Parameters {
    #[serde(rename = "static", deserialize_with = "null_as_default")]
    fixed: Vec<ParameterAnnouncement>,
    dynamic: Option<Command>,
}

/// How a plugin tells whether a folder is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Discovery<'a> {
    /// It does not; it must be asked for by name.
    None,
    /// A file that matches a shell pattern.
    FileName(&'a str),
    /// A file that matches a pattern whose `**` goes through folders.
    Glob(&'a str),
    /// A program that prints something.
    Command(&'a [String], &'a [String]),
}

/// Why a `plugin.yaml` cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("parse {}: {message}", .path.display())]
    Parse { path: PathBuf, message: String },
    #[error("invalid plugin configuration file. {0}")]
    Invalid(String),
}

impl Command {
    /// The program and all its arguments; `None` if there is no program.
    pub(crate) fn line(&self) -> Option<Vec<String>> {
        let line: Vec<String> = self.command.iter().chain(&self.args).cloned().collect();
        (!self.command.is_empty()).then_some(line)
    }
}

impl Plugin {
    /// Reads the file of a configuration folder.
    pub(crate) fn read(folder: &Path) -> Result<Plugin, Error> {
        let path = folder.join(FILE);
        let text = std::fs::read_to_string(&path).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        let parse = || {
            let documents = yaml::parse_all(text.as_bytes(), &yaml::Limits::default());
            let mut documents = documents.map_err(|error| error.to_string())?;
            if let [_, second, ..] = &documents[..] {
                return Err(format!(
                    "line {}: a second document begins, and a plugin is one",
                    second.line
                ));
            }
            let value = documents.pop().map(|document| document.value);
            serde_json::from_value::<Plugin>(value.unwrap_or_default()).map_err(|error| error.to_string())
        };
        let plugin = parse().map_err(|message| Error::Parse {
            path: path.clone(),
            message,
        })?;
        plugin.check()?;
        Ok(plugin)
    }

    fn check(&self) -> Result<(), Error> {
        let name = &self.metadata.name;
        let wrong = if name.is_empty() {
            "metadata.name should be non-empty.".to_owned()
        } else if name.contains('/') || self.spec.version.contains('/') {
            "metadata.name and spec.version must not contain a slash".to_owned()
        } else if name.starts_with('.') {
            // It becomes the name of a folder that is emptied.
            "metadata.name must not begin with a dot".to_owned()
        } else if self.kind != KIND {
            format!("kind should be {KIND}, found {}", self.kind)
        } else if self.spec.generate.command.is_empty() {
            "spec.generate command should be non-empty".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Invalid(wrong))
    }

    /// The name by which Applications ask for it: with its version, if it has one.
    pub(crate) fn name(&self) -> String {
        let Metadata { name } = &self.metadata;
        match self.spec.version.as_str() {
            "" => name.clone(),
            version => format!("{name}-{version}"),
        }
    }

    /// How it recognises its folders; the first way that is configured counts.
    pub(crate) fn discovery(&self) -> Discovery<'_> {
        let Some(discover) = &self.spec.discover else {
            return Discovery::None;
        };
        if !discover.file_name.is_empty() {
            return Discovery::FileName(&discover.file_name);
        }
        match &discover.find {
            Some(find) if !find.glob.is_empty() => Discovery::Glob(&find.glob),
            Some(find) if !find.command.command.is_empty() => {
                Discovery::Command(&find.command.command, &find.command.args)
            }
            _ => Discovery::None,
        }
    }

    /// Parameters that are always announced, and the program that prints more of them.
    pub(crate) fn parameters(&self) -> (Vec<ParameterAnnouncement>, Option<&Command>) {
        match &self.spec.parameters {
            Some(parameters) => (parameters.fixed.clone(), parameters.dynamic.as_ref()),
            None => (Vec::new(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<Plugin, Error> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        Plugin::read(folder.path())
    }

    const HEAD: &str =
        "apiVersion: argoproj.io/v1alpha1\nkind: ConfigManagementPlugin\nmetadata:\n  name: cue\n";

    #[test]
    fn the_name_carries_the_version() {
        let text =
            format!("{HEAD}spec:\n  version: v1.0\n  generate:\n    command: [cue, export]\n    args: [.]\n");
        let plugin = read(&text).unwrap();
        assert_eq!(plugin.name(), "cue-v1.0");
        assert_eq!(plugin.spec.generate.line().unwrap(), ["cue", "export", "."]);
        assert_eq!(plugin.discovery(), Discovery::None);
        let plain = read(&text.replace("  version: v1.0\n", "")).unwrap();
        assert_eq!(plain.name(), "cue");
    }

    #[test]
    fn a_key_without_a_value_is_not_there() {
        let text = format!(
            "{HEAD}spec:\n  version:\n  generate:\n    command: [cue]\n    args:\n  init:\n  discover:\n    fileName:\n  parameters:\n    static:\n"
        );
        let plugin = read(&text).unwrap();
        assert_eq!(plugin.name(), "cue");
        assert_eq!(plugin.spec.generate.line().unwrap(), ["cue"]);
        assert_eq!(plugin.discovery(), Discovery::None);
    }

    #[test]
    fn a_second_document_is_an_error_that_says_where() {
        let text = format!("{HEAD}spec:\n  generate:\n    command: [cue]\n");
        assert!(read(&format!("---\n{text}---\n# nothing more\n")).is_ok());
        let error = read(&format!("{text}---\n{text}")).unwrap_err().to_string();
        assert!(
            error.starts_with("parse ")
                && error.ends_with("line 9: a second document begins, and a plugin is one"),
            "{error}"
        );
    }

    #[test]
    fn a_name_that_leads_out_of_the_working_folder_is_refused() {
        for name in [".", "..", ".git"] {
            let text = format!("{HEAD}spec:\n  generate:\n    command: [cue]\n");
            let error = read(&text.replace("name: cue", &format!("name: '{name}'"))).unwrap_err();
            assert!(
                error.to_string().ends_with("must not begin with a dot"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_first_way_of_discovery_counts() {
        let with = |discover: &str| {
            read(&format!(
                "{HEAD}spec:\n  generate:\n    command: [cue]\n  discover: {discover}\n"
            ))
            .unwrap()
        };
        let all = with("{fileName: '*.cue', find: {glob: '**/*.cue', command: [find, .]}}");
        assert_eq!(all.discovery(), Discovery::FileName("*.cue"));
        let two = with("{find: {glob: '**/*.cue', command: [find, .]}}");
        assert_eq!(two.discovery(), Discovery::Glob("**/*.cue"));
        let one = with("{find: {command: [find], args: [.]}}");
        let (find, dot) = (["find".to_owned()], [".".to_owned()]);
        assert_eq!(one.discovery(), Discovery::Command(&find, &dot));
    }

    #[test]
    fn a_file_that_is_no_plugin_is_refused_in_argo_cds_words() {
        for (text, wrong) in [
            (
                "kind: ConfigManagementPlugin\n".to_owned(),
                "metadata.name should be non-empty.",
            ),
            (
                "kind: Pod\nmetadata: {name: x}\n".to_owned(),
                "kind should be ConfigManagementPlugin, found Pod",
            ),
            (
                format!("{HEAD}spec: {{}}\n"),
                "spec.generate command should be non-empty",
            ),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert_eq!(error, format!("invalid plugin configuration file. {wrong}"));
        }
        assert!(matches!(read("a: [\n"), Err(Error::Parse { .. })));
    }
}
