//! The gRPC code of argosy-api, from its `.proto` files.
//!
//! Only services and their requests are generated. The messages of Argo CD's CRs are written by hand in `v1alpha1`,
//! because they are JSON as well; `generated.proto` is here for the compiler, and a test of argosy-api holds it against them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorProto};
use tonic_prost_build::Builder;

use crate::shell;

/// Proto packages whose messages are hand-written, and where.
const BY_HAND: &[(&str, &str)] = &[
    (
        ".github.com.argoproj.argo_cd.v3.pkg.apis.application.v1alpha1",
        "crate::v1alpha1",
    ),
    (".events", "crate::events"),
    (".k8s.io.api.core.v1", "crate::meta"),
    (".k8s.io.apimachinery.pkg.apis.meta.v1", "crate::meta"),
    (".k8s.io.apimachinery.pkg.runtime", "crate::meta"),
    (".k8s.io.apimachinery.pkg.util.intstr", "crate::meta"),
    (
        ".k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1",
        "crate::meta",
    ),
];

/// The packages, each of which becomes one file, and where their services and requests are defined.
const PACKAGES: &[(&str, &[&str])] = &[
    ("account", &["account/account.proto"]),
    ("application", &["application/application.proto"]),
    ("applicationset", &["applicationset/applicationset.proto"]),
    ("argosy.tree.v1", &["argosy/tree/v1/tree.proto"]),
    ("certificate", &["certificate/certificate.proto"]),
    ("cluster", &["cluster/cluster.proto", "settings/settings.proto"]),
    ("gpgkey", &["gpgkey/gpgkey.proto"]),
    ("notification", &["notification/notification.proto"]),
    ("plugin", &["plugin/plugin.proto"]),
    ("project", &["project/project.proto"]),
    ("repocreds", &["repocreds/repocreds.proto"]),
    (
        "repository",
        &["repository/repository.proto", "repository/service.proto"],
    ),
    ("session", &["session/session.proto"]),
    ("version", &["version/version.proto"]),
];

/// What the API server tells of itself by gRPC's reflection: its services and all that they speak of.
const REFLECTED: &[&str] = &[
    "account/account.proto",
    "application/application.proto",
    "applicationset/applicationset.proto",
    "certificate/certificate.proto",
    "cluster/cluster.proto",
    "gpgkey/gpgkey.proto",
    "notification/notification.proto",
    "project/project.proto",
    "repocreds/repocreds.proto",
    "repository/service.proto",
    "session/session.proto",
    "settings/settings.proto",
    "version/version.proto",
];
const DESCRIPTORS: &str = "descriptors.bin";

/// Writes `api/src/generated`, or with `check` compares and writes nothing.
///
/// # Errors
/// When a `.proto` file is wrong, or with `check` when a committed file differs from what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let api = shell::root().join("api");
    let committed = api.join("src/generated");
    let fresh = tempfile::tempdir().context("make a folder for generated code")?;
    generate(&api.join("proto"), fresh.path())?;

    let mut made = vec![(DESCRIPTORS.to_owned(), descriptors(&api.join("proto"))?)];
    for (package, _) in PACKAGES {
        let name = format!("{package}.rs");
        let code = fs::read(fresh.path().join(&name)).with_context(|| format!("read the new {name}"))?;
        made.push((name, code));
    }
    for (name, bytes) in made {
        let target = committed.join(&name);
        if !check {
            fs::create_dir_all(&committed)?;
            fs::write(&target, bytes).with_context(|| format!("write {}", target.display()))?;
        } else if fs::read(&target).ok().as_deref() != Some(&bytes) {
            bail!("api/src/generated/{name} is not what api/proto makes: run `cargo xtask codegen`");
        }
    }
    Ok(())
}

fn descriptors(protos: &Path) -> Result<Vec<u8>> {
    let mut compiler = protox::Compiler::new([protos])?;
    compiler.include_imports(true).include_source_info(false);
    compiler.open_files(REFLECTED).context("compile api/proto")?;
    Ok(compiler.encode_file_descriptor_set())
}

fn generate(protos: &Path, out: &Path) -> Result<()> {
    let files = PACKAGES.iter().flat_map(|(_, files)| *files);
    let descriptors = protox::compile(files, [protos]).context("compile api/proto")?;
    let mut builder = tonic_prost_build::configure()
        .btree_map(".")
        .emit_rerun_if_changed(false)
        .out_dir(out);
    for (package, module) in BY_HAND {
        builder = builder.extern_path(*package, *module);
    }
    for file in &descriptors.file {
        if PACKAGES.iter().any(|(package, _)| *package == file.package()) {
            for message in &file.message_type {
                builder = as_go_json(builder, file, message);
            }
        }
    }
    builder
        .compile_fds(descriptors)
        .context("generate Rust from api/proto")
}

/// Gives a message the JSON that Go's `encoding/json` makes of the struct Argo CD has for it: fields by their proto
/// names, zero values left out unless the field is `required` or a pointer that is set.
fn as_go_json(mut builder: Builder, file: &FileDescriptorProto, message: &DescriptorProto) -> Builder {
    let path = format!(".{}.{}", file.package(), message.name());
    builder = builder.message_attribute(
        &path,
        "#[derive(serde::Serialize, serde::Deserialize)]\n#[serde(default)]",
    );
    for oneof in &message.oneof_decl {
        builder = builder.enum_attribute(
            format!("{path}.{}", oneof.name()),
            "#[derive(serde::Serialize, serde::Deserialize)]",
        );
    }
    let pointers = file.syntax() != "proto3";
    for field in &message.field {
        if field.oneof_index.is_some() && !field.proto3_optional() {
            continue;
        }
        let map = field.r#type() == Type::Message
            && message.nested_type.iter().any(|nested| {
                nested.options.as_ref().is_some_and(|options| options.map_entry())
                    && field.type_name().ends_with(&format!("{path}.{}", nested.name()))
            });
        let mut rules = vec![format!("rename = \"{}\"", field.name())];
        let skip = match (field.label(), field.r#type()) {
            (Label::Required, _) => None,
            (Label::Repeated, _) => {
                rules.push("deserialize_with = \"crate::meta::null_as_default\"".to_owned());
                Some(if map {
                    "std::collections::BTreeMap::is_empty"
                } else {
                    "Vec::is_empty"
                })
            }
            (Label::Optional, Type::Message) => Some("Option::is_none"),
            (Label::Optional, _) if pointers => Some("Option::is_none"),
            (Label::Optional, Type::Bytes) => Some("Vec::is_empty"),
            (Label::Optional, Type::String) => Some("String::is_empty"),
            (Label::Optional, _) => Some("crate::meta::is_default"),
        };
        if field.r#type() == Type::Bytes && field.label() != Label::Repeated {
            rules.push("with = \"crate::meta::base64_text\"".to_owned());
        }
        if let Some(skip) = skip {
            rules.push(format!("skip_serializing_if = \"{skip}\""));
        }
        builder = builder.field_attribute(
            format!("{path}.{}", field.name()),
            format!("#[serde({})]", rules.join(", ")),
        );
    }
    builder
}
