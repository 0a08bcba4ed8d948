//! Config management plugins: sidecars of this pod, each behind a socket of its own, that make manifests of files.
//!
//! A plugin sees what it is sent and nothing else of a repository: to tell whether a source is its own, the source's directory;
//! to render it, the whole repository, or where an operator switched that on and the Application names paths
//! (`argocd.argoproj.io/manifest-generate-paths`), those and the directory. What a plugin makes of the files is its own
//! affair, so its output is not found again by their content; with named paths it is, because their author says so.

mod archive;
mod environment;
mod socket;

use crate::env::BuildEnv;
use crate::error::{Error, Result};
use crate::manifest;
use crate::path::TreePath;
use crate::source::detect::SourceType;
use crate::source::{Notes, Output, Reads};
use crate::tree::{Node, Tree};
use argosy_api::annotation;
use argosy_api::glob::Glob;
use argosy_api::services::plugin::EnvEntry;
use argosy_api::services::repository::ParameterAnnouncement;
use argosy_api::v1alpha1::ApplicationSource;
use socket::{Configuration, Files, Socket};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The plugins of this pod, and how they are asked.
#[derive(Clone, Debug)]
pub struct Plugins {
    /// Where their sockets are.
    pub folder: PathBuf,
    /// Names of all whose socket was there. One whose socket goes is down, not gone: its sources are no other tool's.
    pub seen: Arc<Mutex<BTreeSet<String>>>,
    /// What is never sent.
    pub exclusions: Vec<Glob>,
    /// Whether only the paths that an Application names are sent, if it names any.
    pub declared_paths: bool,
    /// Of one call.
    pub deadline: Duration,
    /// Bytes of one answer.
    pub max_output: usize,
    /// Where archives are made.
    pub scratch: PathBuf,
}

/// A source that may be a plugin's.
pub(crate) struct Request<'a> {
    /// Its files.
    pub(crate) tree: &'a Tree,
    /// Its directory.
    pub(crate) dir: &'a Node,
    /// The source, after overrides.
    pub(crate) source: &'a ApplicationSource,
    /// The Application.
    pub(crate) app: &'a str,
    /// The build environment.
    pub(crate) env: BuildEnv,
    /// The paths that the Application names, as annotated.
    pub(crate) paths: &'a str,
}

/// Whether a source is a plugin's.
#[derive(Default)]
pub(crate) struct Choice {
    /// The plugin.
    pub(crate) plugin: Option<Plugin>,
    /// Whether plugins looked at the files of the directory to say so.
    pub(crate) looked: bool,
}

/// A plugin that was chosen for a source.
pub(crate) struct Plugin {
    socket: Socket,
    configuration: Configuration,
}

impl Plugin {
    /// Whether it wants to know how to reach the repository.
    pub(crate) fn wants_git_credentials(&self) -> bool {
        self.configuration.git_credentials
    }
}

impl Plugins {
    /// Names of the plugins, with their versions; they decide what becomes of sources that name no tool.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(socket::names(&self.folder));
        seen.iter().cloned().collect()
    }

    /// The plugin that a source names; else, if it names no other tool, the first whose discovery takes its directory.
    ///
    /// # Errors
    /// [`Error::Plugin`] when the source wants a plugin and none takes it. [`Error::Io`] or [`Error::Deadline`] when one that might
    /// take it does not answer: another tool would make something else of the same files.
    pub(crate) async fn choose(&self, explicit: Option<SourceType>, request: &Request<'_>) -> Result<Choice> {
        let named = request
            .source
            .plugin
            .as_ref()
            .map_or("", |plugin| plugin.name.as_str());
        match explicit {
            Some(SourceType::Plugin) if !named.is_empty() => self.named(named, request).await,
            Some(SourceType::Plugin) => {
                let choice = self.discovered(request).await?;
                match choice.plugin {
                    Some(_) => Ok(choice),
                    None => Err(failed(
                        request.app,
                        "could not find plugin supporting the given repository",
                    )),
                }
            }
            None => self.discovered(request).await,
            Some(_) => Ok(Choice::default()),
        }
    }

    async fn named(&self, name: &str, request: &Request<'_>) -> Result<Choice> {
        let unsupported = |why: &str| {
            let text = format!(
                "could not find cmp-server plugin with name {name:?} supporting the given repository{why}"
            );
            failed(request.app, text)
        };
        if !self.names().iter().any(|known| known == name) {
            return Err(unsupported(""));
        }
        let socket = self.socket(name);
        let configuration = socket.configuration().await?;
        let looked = configuration.discovers;
        if looked {
            match socket.matches(self.directory(request).await?).await? {
                Ok(true) => {}
                Ok(false) => return Err(unsupported("")),
                Err(status) => {
                    let said = format!(
                        ": error checking repository support for plugin {name}.sock: {}",
                        status.message()
                    );
                    return Err(unsupported(&said));
                }
            }
        }
        Ok(Choice {
            plugin: Some(Plugin {
                socket,
                configuration,
            }),
            looked,
        })
    }

    async fn discovered(&self, request: &Request<'_>) -> Result<Choice> {
        let mut choice = Choice::default();
        let mut directory = None;
        for name in self.names() {
            let socket = self.socket(&name);
            let configuration = socket.configuration().await?;
            if !configuration.discovers {
                continue;
            }
            choice.looked = true;
            let packed = match directory.take() {
                Some(packed) => packed,
                None => self.pack(request, vec![request.dir.path.clone()]).await?,
            };
            let files = self.files(request, Arc::clone(&packed));
            directory = Some(packed);
            match socket.matches(files).await? {
                Ok(true) => {
                    choice.plugin = Some(Plugin {
                        socket,
                        configuration,
                    });
                    break;
                }
                Ok(false) => {}
                Err(status) => {
                    tracing::info!(
                        plugin = name,
                        app = request.app,
                        error = status.message(),
                        "a plugin failed to tell whether a source is its own"
                    );
                }
            }
        }
        Ok(choice)
    }

    /// Renders a source; `git` are variables by which the plugin reaches its repository.
    ///
    /// # Errors
    /// [`Error::Plugin`] with the plugin's words, [`Error::Limit`], [`Error::Deadline`], [`Error::Io`] when it is not reached.
    pub(crate) async fn render(
        &self,
        plugin: &Plugin,
        request: &Request<'_>,
        git: Vec<EnvEntry>,
    ) -> Result<Output> {
        let (parts, reads) = self.closure(request);
        let mut files = self.files(request, self.pack(request, parts).await?);
        files.env.extend(git);
        let told = plugin.socket.generate(files).await?;
        let texts = told.map_err(|status| {
            let text = format!(
                "error generating manifests in cmp: rpc error: code = {:?} desc = {}",
                status.code(),
                status.message()
            );
            failed(request.app, text)
        })?;
        let mut objects = Vec::new();
        for text in texts {
            objects.extend(manifest::from_output(&text).map_err(|message| {
                failed(
                    request.app,
                    format!("failed to convert CMP manifests to unstructured objects: {message}"),
                )
            })?);
        }
        Ok(Output {
            objects,
            reads,
            commands: Vec::new(),
            notes: Notes::default(),
        })
    }

    /// The parameters that a plugin takes for a source.
    ///
    /// # Errors
    /// As [`Plugins::render`].
    pub(crate) async fn announce(
        &self,
        plugin: &Plugin,
        request: &Request<'_>,
    ) -> Result<Vec<ParameterAnnouncement>> {
        let (parts, _) = self.closure(request);
        let files = self.files(request, self.pack(request, parts).await?);
        let told = plugin.socket.announce(files).await?;
        told.map_err(|status| {
            let text = format!("error getting parameter announcement: {}", status.message());
            failed(request.app, text)
        })
    }

    /// What is sent to render a source, and what that says about its output.
    fn closure(&self, request: &Request<'_>) -> (Vec<TreePath>, Reads) {
        let declared = if self.declared_paths {
            annotation::manifest_generate_paths(request.paths, request.dir.path.as_str())
        } else {
            Vec::new()
        };
        if declared.is_empty() {
            let open = vec!["config management plugin".into()];
            let reads = Reads {
                open,
                ..Reads::default()
            };
            return (vec![TreePath::root()], reads);
        }
        let named = declared
            .iter()
            .filter_map(|text| TreePath::parse(&before_pattern(text)).ok());
        let mut parts: Vec<TreePath> = named.chain([request.dir.path.clone()]).collect();
        parts.sort();
        parts.dedup();
        let reads = Reads {
            paths: parts.clone(),
            ..Reads::default()
        };
        (parts, reads)
    }

    async fn directory(&self, request: &Request<'_>) -> Result<Files> {
        let packed = self.pack(request, vec![request.dir.path.clone()]).await?;
        Ok(self.files(request, packed))
    }

    async fn pack(&self, request: &Request<'_>, parts: Vec<TreePath>) -> Result<Arc<archive::Packed>> {
        let (tree, exclusions, scratch) = (
            request.tree.clone(),
            self.exclusions.clone(),
            self.scratch.clone(),
        );
        let packed = tokio::task::spawn_blocking(move || archive::pack(&tree, &parts, &exclusions, &scratch));
        let packed = packed
            .await
            .unwrap_or_else(|e| Err(Error::io("failed to write an archive", e)));
        packed.map(Arc::new)
    }

    fn files(&self, request: &Request<'_>, packed: Arc<archive::Packed>) -> Files {
        Files {
            packed,
            path: request.dir.path.clone(),
            env: environment::variables(&request.env, request.source.plugin.as_ref()),
        }
    }

    fn socket(&self, name: &str) -> Socket {
        Socket {
            name: name.to_owned(),
            path: self.folder.join(format!("{name}.sock")),
            deadline: self.deadline,
            max_output: self.max_output,
        }
    }
}

/// The directories of a pattern that stand before its first wildcard.
fn before_pattern(text: &str) -> String {
    let plain = text
        .split('/')
        .take_while(|part| !part.contains(['*', '?', '[', '{']));
    plain.collect::<Vec<_>>().join("/")
}

fn failed(app: &str, message: impl Into<String>) -> Error {
    Error::Plugin {
        app: app.to_owned(),
        message: message.into(),
    }
}
