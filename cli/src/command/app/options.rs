//! The flags that say what an Application is made from, and how: of `app create`, `app set` and `app edit`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use argosy_api::meta::IntOrString;
use argosy_api::v1alpha1::{
    Application, ApplicationSource, ApplicationSourceDirectory, ApplicationSourceHelm,
    ApplicationSourceKustomize, ApplicationSourcePlugin, Backoff, EnvEntry, HelmFileParameter, HelmParameter,
    JsonnetVar, KustomizeReplica, RetryStrategy, SyncPolicy, SyncPolicyAutomated,
};

use crate::input;

/// The same in `create` and `set`. What is not given stays as it is.
#[derive(clap::Args)]
pub(super) struct Options {
    /// URL of the repository.
    #[arg(long)]
    repo: Option<String>,
    /// Folder in the repository.
    #[arg(long)]
    path: Option<String>,
    /// Chart of a Helm repository.
    #[arg(long)]
    helm_chart: Option<String>,
    /// Branch, tag, commit, or version of a chart.
    #[arg(long)]
    revision: Option<String>,
    /// Tags with this prefix alone are compared with a range of versions.
    #[arg(long)]
    tag_prefix: Option<String>,
    /// Name by which other sources refer to this one.
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// Entries of the history that are kept.
    #[arg(long)]
    revision_history_limit: Option<i64>,
    /// URL of the cluster.
    #[arg(long)]
    dest_server: Option<String>,
    /// Name of the cluster.
    #[arg(long, conflicts_with = "dest_server")]
    dest_name: Option<String>,
    /// Namespace in the cluster.
    #[arg(long)]
    dest_namespace: Option<String>,
    /// Project.
    #[arg(long)]
    project: Option<String>,
    /// none, manual, or auto, automated, automatic.
    #[arg(long, value_parser = ["none", "manual", "auto", "automated", "automatic"])]
    sync_policy: Option<String>,
    /// Option of every sync; a `!` before it takes it away.
    #[arg(long)]
    sync_option: Vec<String>,
    /// Automated syncs delete what left Git.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    auto_prune: Option<bool>,
    /// Automated syncs undo changes in the cluster.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    self_heal: Option<bool>,
    /// Automated syncs may leave nothing.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_empty: Option<bool>,
    /// Attempts of a sync; below 0 without end.
    #[arg(long, allow_negative_numbers = true)]
    sync_retry_limit: Option<i64>,
    /// Wait before the second attempt, such as 5s.
    #[arg(long)]
    sync_retry_backoff_duration: Option<String>,
    /// By how much the wait grows.
    #[arg(long)]
    sync_retry_backoff_factor: Option<i64>,
    /// The longest wait, such as 3m.
    #[arg(long)]
    sync_retry_backoff_max_duration: Option<String>,
    /// Attempts after the first look for the newest revision.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sync_retry_refresh: Option<bool>,
    #[command(flatten)]
    helm: Helm,
    #[command(flatten)]
    kustomize: Kustomize,
    #[command(flatten)]
    directory: Directory,
    /// Config management plugin.
    #[arg(long)]
    config_management_plugin: Option<String>,
    /// NAME=VALUE for the plugin.
    #[arg(long)]
    plugin_env: Vec<String>,
}

#[derive(clap::Args)]
struct Helm {
    /// NAME=VALUE: a parameter of Helm.
    #[arg(long, short, value_name = "NAME=VALUE")]
    parameter: Vec<String>,
    /// Files of values.
    #[arg(long)]
    values: Vec<String>,
    /// A file whose content becomes values.
    #[arg(long)]
    values_literal_file: Option<PathBuf>,
    /// Files of values that are missing are passed over.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ignore_missing_value_files: Option<bool>,
    /// Name of the release.
    #[arg(long)]
    release_name: Option<String>,
    /// Version of Helm.
    #[arg(long)]
    helm_version: Option<String>,
    /// Namespace for templates.
    #[arg(long)]
    helm_namespace: Option<String>,
    /// Version of Kubernetes for templates.
    #[arg(long)]
    helm_kube_version: Option<String>,
    /// Versions of APIs for templates.
    #[arg(long)]
    helm_api_versions: Vec<String>,
    /// Credentials go to every host of a chart.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    helm_pass_credentials: Option<bool>,
    /// KEY=VALUE, as helm template takes it.
    #[arg(long)]
    helm_set: Vec<String>,
    /// KEY=VALUE whose value is a text.
    #[arg(long)]
    helm_set_string: Vec<String>,
    /// KEY=PATH whose value is a file.
    #[arg(long)]
    helm_set_file: Vec<String>,
    /// CRDs are left out.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    helm_skip_crds: Option<bool>,
    /// Values are not held against the chart's schema.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    helm_skip_schema_validation: Option<bool>,
    /// Tests are left out.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    helm_skip_tests: Option<bool>,
}

#[derive(clap::Args)]
struct Kustomize {
    /// Prefix of names.
    #[arg(long)]
    nameprefix: Option<String>,
    /// Suffix of names.
    #[arg(long)]
    namesuffix: Option<String>,
    /// Version of Kustomize.
    #[arg(long)]
    kustomize_version: Option<String>,
    /// Images, such as node:8.15.0 or mysql=mariadb.
    #[arg(long)]
    kustomize_image: Vec<String>,
    /// Replicas, such as web=3.
    #[arg(long)]
    kustomize_replica: Vec<String>,
    /// NAME=VALUE: labels of everything.
    #[arg(long)]
    kustomize_common_label: Vec<String>,
    /// NAME=VALUE: annotations of everything.
    #[arg(long)]
    kustomize_common_annotation: Vec<String>,
    /// Labels stay out of selectors.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kustomize_label_without_selector: Option<bool>,
    /// Labels go into templates.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kustomize_label_include_templates: Option<bool>,
    /// Labels that are there already are replaced.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kustomize_force_common_label: Option<bool>,
    /// Annotations that are there already are replaced.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kustomize_force_common_annotation: Option<bool>,
    /// Namespace of everything.
    #[arg(long)]
    kustomize_namespace: Option<String>,
    /// Version of Kubernetes for charts.
    #[arg(long)]
    kustomize_kube_version: Option<String>,
    /// Versions of APIs for charts.
    #[arg(long)]
    kustomize_api_versions: Vec<String>,
    /// Components that are missing are passed over.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ignore_missing_components: Option<bool>,
}

#[derive(clap::Args)]
struct Directory {
    /// Folders below count too.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    directory_recurse: Option<bool>,
    /// Glob of files that do not count.
    #[arg(long)]
    directory_exclude: Option<String>,
    /// Glob of files that count.
    #[arg(long)]
    directory_include: Option<String>,
    /// Files of every extension count.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    directory_disable_extension_filter: Option<bool>,
    /// NAME=VALUE: top level arguments that are texts.
    #[arg(long)]
    jsonnet_tla_str: Vec<String>,
    /// NAME=CODE: top level arguments that are code.
    #[arg(long)]
    jsonnet_tla_code: Vec<String>,
    /// NAME=VALUE: external variables that are texts.
    #[arg(long)]
    jsonnet_ext_var_str: Vec<String>,
    /// NAME=CODE: external variables that are code.
    #[arg(long)]
    jsonnet_ext_var_code: Vec<String>,
    /// Folders of libraries.
    #[arg(long)]
    jsonnet_libs: Vec<String>,
}

impl Options {
    /// Applies what is given to an Application; `position` is the source's, counted from 1, where there are several.
    ///
    /// # Errors
    /// When a flag is not of its form, or the source is not there.
    pub(super) fn apply(&self, app: &mut Application, position: Option<usize>) -> Result<()> {
        let spec = &mut app.spec;
        set(&mut spec.destination.namespace, &self.dest_namespace);
        if let Some(server) = &self.dest_server {
            (spec.destination.server, spec.destination.name) = (server.clone(), String::new());
        }
        if let Some(name) = &self.dest_name {
            (spec.destination.server, spec.destination.name) = (String::new(), name.clone());
        }
        set(&mut spec.project, &self.project);
        if self.revision_history_limit.is_some() {
            spec.revision_history_limit = self.revision_history_limit;
        }
        self.policy(app)?;
        match source_at(app, position) {
            Ok(source) => self.source(source)?,
            Err(which) => {
                // It matters only if a flag is about a source.
                let mut untouched = ApplicationSource::default();
                self.source(&mut untouched)?;
                if untouched != ApplicationSource::default() {
                    return Err(which);
                }
            }
        }
        app.spec.source = app
            .spec
            .source
            .take()
            .filter(|source| *source != ApplicationSource::default());
        Ok(())
    }

    /// Applies what is given to one source.
    ///
    /// # Errors
    /// When a flag is not of its form.
    fn source(&self, source: &mut ApplicationSource) -> Result<()> {
        set(&mut source.repo_url, &self.repo);
        set(&mut source.path, &self.path);
        set(&mut source.chart, &self.helm_chart);
        set(&mut source.target_revision, &self.revision);
        set(&mut source.tag_prefix, &self.tag_prefix);
        set(&mut source.r#ref, &self.reference);
        change(&mut source.helm, |helm| self.helm.apply(helm))?;
        change(&mut source.kustomize, |kustomize| self.kustomize.apply(kustomize))?;
        change(&mut source.directory, |directory| self.directory.apply(directory))?;
        change(&mut source.plugin, |plugin: &mut ApplicationSourcePlugin| {
            set(&mut plugin.name, &self.config_management_plugin);
            for (name, value) in pairs("--plugin-env", &self.plugin_env)? {
                plugin.env.retain(|entry| entry.name != name);
                plugin.env.push(EnvEntry { name, value });
            }
            Ok(())
        })
    }

    fn policy(&self, app: &mut Application) -> Result<()> {
        let mut policy = app.spec.sync_policy.clone().unwrap_or_default();
        match self.sync_policy.as_deref() {
            Some("none" | "manual") => policy.automated = None,
            Some(_) => {
                let automated = policy.automated.get_or_insert_default();
                automated.enabled = automated.enabled.filter(|enabled| *enabled);
            }
            None => {}
        }
        for (flag, name) in [
            (self.auto_prune, "auto-prune"),
            (self.self_heal, "self-heal"),
            (self.allow_empty, "allow-empty"),
        ] {
            let Some(value) = flag else { continue };
            let automated: &mut SyncPolicyAutomated = policy
                .automated
                .as_mut()
                .with_context(|| format!("cannot set --{name}: the Application is not synced automatically; give --sync-policy auto as well"))?;
            match name {
                "auto-prune" => automated.prune = Some(value),
                "self-heal" => automated.self_heal = Some(value),
                _ => automated.allow_empty = Some(value),
            }
        }
        for option in &self.sync_option {
            match option.strip_prefix('!') {
                Some(option) => policy.sync_options.retain(|known| known != option),
                None => {
                    let (name, _) = option
                        .split_once('=')
                        .with_context(|| format!("--sync-option {option}: NAME=VALUE is expected"))?;
                    policy
                        .sync_options
                        .retain(|known| known.split_once('=').is_none_or(|(known, _)| known != name));
                    policy.sync_options.push(option.clone());
                }
            }
        }
        change(&mut policy.retry, |retry: &mut RetryStrategy| {
            if let Some(limit) = self.sync_retry_limit {
                retry.limit = limit;
            }
            if let Some(refresh) = self.sync_retry_refresh {
                retry.refresh = refresh;
            }
            change(&mut retry.backoff, |backoff: &mut Backoff| {
                for (flag, text) in [
                    ("duration", &self.sync_retry_backoff_duration),
                    ("max-duration", &self.sync_retry_backoff_max_duration),
                ] {
                    if let Some(text) = text {
                        argosy_api::duration::parse(text)
                            .with_context(|| format!("--sync-retry-backoff-{flag} {text}"))?;
                    }
                }
                set(&mut backoff.duration, &self.sync_retry_backoff_duration);
                set(&mut backoff.max_duration, &self.sync_retry_backoff_max_duration);
                backoff.factor = self.sync_retry_backoff_factor.or(backoff.factor);
                Ok(())
            })
        })?;
        app.spec.sync_policy = (policy != SyncPolicy::default()).then_some(policy);
        Ok(())
    }
}

impl Helm {
    fn apply(&self, helm: &mut ApplicationSourceHelm) -> Result<()> {
        let texts = self.parameter.iter().map(|text| (text, "--parameter", false));
        let texts = texts.chain(self.helm_set.iter().map(|text| (text, "--helm-set", false)));
        for (text, flag, force_string) in texts.chain(
            self.helm_set_string
                .iter()
                .map(|text| (text, "--helm-set-string", true)),
        ) {
            let (name, value) = pair(flag, text)?;
            helm.parameters.retain(|known| known.name != name);
            helm.parameters.push(HelmParameter {
                name,
                value,
                force_string,
            });
        }
        for (name, path) in pairs("--helm-set-file", &self.helm_set_file)? {
            helm.file_parameters.retain(|known| known.name != name);
            helm.file_parameters.push(HelmFileParameter { name, path });
        }
        if !self.values.is_empty() {
            helm.value_files.clone_from(&self.values);
        }
        if let Some(file) = &self.values_literal_file {
            helm.values = input::text(file)?;
            helm.values_object = None;
        }
        set(&mut helm.release_name, &self.release_name);
        set(&mut helm.version, &self.helm_version);
        set(&mut helm.namespace, &self.helm_namespace);
        set(&mut helm.kube_version, &self.helm_kube_version);
        if !self.helm_api_versions.is_empty() {
            helm.api_versions.clone_from(&self.helm_api_versions);
        }
        flag(
            &mut helm.ignore_missing_value_files,
            self.ignore_missing_value_files,
        );
        flag(&mut helm.pass_credentials, self.helm_pass_credentials);
        flag(&mut helm.skip_crds, self.helm_skip_crds);
        flag(&mut helm.skip_schema_validation, self.helm_skip_schema_validation);
        flag(&mut helm.skip_tests, self.helm_skip_tests);
        Ok(())
    }
}

impl Kustomize {
    fn apply(&self, kustomize: &mut ApplicationSourceKustomize) -> Result<()> {
        set(&mut kustomize.name_prefix, &self.nameprefix);
        set(&mut kustomize.name_suffix, &self.namesuffix);
        set(&mut kustomize.version, &self.kustomize_version);
        set(&mut kustomize.namespace, &self.kustomize_namespace);
        set(&mut kustomize.kube_version, &self.kustomize_kube_version);
        if !self.kustomize_api_versions.is_empty() {
            kustomize.api_versions.clone_from(&self.kustomize_api_versions);
        }
        for image in &self.kustomize_image {
            let name = image_name(image).to_owned();
            kustomize.images.retain(|known| image_name(known) != name);
            kustomize.images.push(image.clone());
        }
        for (name, count) in pairs("--kustomize-replica", &self.kustomize_replica)? {
            let number: i32 = count
                .parse()
                .with_context(|| format!("--kustomize-replica {name}={count}: a number is expected"))?;
            kustomize.replicas.retain(|known| known.name != name);
            kustomize.replicas.push(KustomizeReplica {
                name,
                count: IntOrString::int(number),
            });
        }
        kustomize
            .common_labels
            .extend(pairs("--kustomize-common-label", &self.kustomize_common_label)?);
        kustomize.common_annotations.extend(pairs(
            "--kustomize-common-annotation",
            &self.kustomize_common_annotation,
        )?);
        flag(
            &mut kustomize.label_without_selector,
            self.kustomize_label_without_selector,
        );
        flag(
            &mut kustomize.label_include_templates,
            self.kustomize_label_include_templates,
        );
        flag(
            &mut kustomize.force_common_labels,
            self.kustomize_force_common_label,
        );
        flag(
            &mut kustomize.force_common_annotations,
            self.kustomize_force_common_annotation,
        );
        flag(
            &mut kustomize.ignore_missing_components,
            self.ignore_missing_components,
        );
        Ok(())
    }
}

impl Directory {
    fn apply(&self, directory: &mut ApplicationSourceDirectory) -> Result<()> {
        flag(&mut directory.recurse, self.directory_recurse);
        flag(
            &mut directory.disable_extension_filter,
            self.directory_disable_extension_filter,
        );
        set(&mut directory.exclude, &self.directory_exclude);
        set(&mut directory.include, &self.directory_include);
        let jsonnet = &mut directory.jsonnet;
        for (flag, texts, code) in [
            ("--jsonnet-tla-str", &self.jsonnet_tla_str, false),
            ("--jsonnet-tla-code", &self.jsonnet_tla_code, true),
        ] {
            variables(&mut jsonnet.tlas, pairs(flag, texts)?, code);
        }
        for (flag, texts, code) in [
            ("--jsonnet-ext-var-str", &self.jsonnet_ext_var_str, false),
            ("--jsonnet-ext-var-code", &self.jsonnet_ext_var_code, true),
        ] {
            variables(&mut jsonnet.ext_vars, pairs(flag, texts)?, code);
        }
        if !self.jsonnet_libs.is_empty() {
            jsonnet.libs.clone_from(&self.jsonnet_libs);
        }
        Ok(())
    }
}

/// The source that is meant: the only one, or the one at a position counted from 1.
pub(super) fn source_at(app: &mut Application, position: Option<usize>) -> Result<&mut ApplicationSource> {
    let count = app.spec.sources.len();
    match (count, position) {
        (0, None | Some(1)) => Ok(app.spec.source.get_or_insert_default()),
        (0, Some(_)) => bail!("--source-position: the Application has one source"),
        (1, None) => Ok(&mut app.spec.sources[0]),
        (_, None) => {
            bail!("the Application has {count} sources: say which with --source-position (from 1 to {count})")
        }
        (_, Some(at)) => {
            ensure!(
                (1..=count).contains(&at),
                "--source-position {at}: the Application has {count} sources"
            );
            Ok(&mut app.spec.sources[at - 1])
        }
    }
}

/// The name of an image in an entry: `old=new:tag`, `name:tag`, `name@digest`.
pub(super) fn image_name(entry: &str) -> &str {
    let (name, _) = entry.split_once('=').unwrap_or((entry, ""));
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    match name.rsplit_once(':') {
        // A colon before a slash is a port's.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    }
}

fn variables(known: &mut Vec<JsonnetVar>, more: Vec<(String, String)>, code: bool) {
    for (name, value) in more {
        known.retain(|variable| variable.name != name);
        known.push(JsonnetVar { name, value, code });
    }
}

/// Changes what may not be there; what was not there and is still empty stays away.
fn change<T: Default + PartialEq>(
    place: &mut Option<T>,
    change: impl FnOnce(&mut T) -> Result<()>,
) -> Result<()> {
    let mut value = place.take().unwrap_or_default();
    let outcome = change(&mut value);
    *place = (value != T::default()).then_some(value);
    outcome
}

fn set(place: &mut String, flag: &Option<String>) {
    if let Some(text) = flag {
        place.clone_from(text);
    }
}

fn flag(place: &mut bool, flag: Option<bool>) {
    *place = flag.unwrap_or(*place);
}

/// NAME=VALUE.
pub(super) fn pair(flag: &str, text: &str) -> Result<(String, String)> {
    let (name, value) = text
        .split_once('=')
        .with_context(|| format!("{flag} {text}: NAME=VALUE is expected"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Several NAME=VALUE.
pub(super) fn pairs(flag: &str, texts: &[String]) -> Result<Vec<(String, String)>> {
    texts.iter().map(|text| pair(flag, text)).collect()
}
