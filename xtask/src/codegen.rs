//! The gRPC code of argosy-api, from its `.proto` files.
//!
//! Only services and their requests are generated. The messages of Argo CD's CRs are written by hand in `v1alpha1`,
//! because they are JSON as well; `generated.proto` is here for the compiler, and a test of argosy-api holds it against them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::shell;

/// Proto packages whose messages are hand-written, and where.
const BY_HAND: &[(&str, &str)] = &[
    (
        ".github.com.argoproj.argo_cd.v3.pkg.apis.application.v1alpha1",
        "crate::v1alpha1",
    ),
    (".k8s.io.api.core.v1", "crate::meta"),
    (".k8s.io.apimachinery.pkg.apis.meta.v1", "crate::meta"),
    (".k8s.io.apimachinery.pkg.runtime", "crate::meta"),
    (".k8s.io.apimachinery.pkg.util.intstr", "crate::meta"),
    (
        ".k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1",
        "crate::meta",
    ),
];

/// The services, by the package that names their file.
const SERVICES: &[(&str, &str)] = &[("repository", "repository/repository.proto")];

/// Writes `api/src/generated`, or with `check` compares and writes nothing.
///
/// # Errors
/// When a `.proto` file is wrong, or with `check` when a committed file differs from what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    let api = shell::root().join("api");
    let committed = api.join("src/generated");
    let fresh = tempfile::tempdir().context("make a folder for generated code")?;
    generate(&api.join("proto"), fresh.path())?;

    for (package, _) in SERVICES {
        let name = format!("{package}.rs");
        let code =
            fs::read_to_string(fresh.path().join(&name)).with_context(|| format!("read the new {name}"))?;
        let target = committed.join(&name);
        if !check {
            fs::create_dir_all(&committed)?;
            fs::write(&target, code).with_context(|| format!("write {}", target.display()))?;
        } else if fs::read_to_string(&target).ok().as_deref() != Some(&code) {
            bail!("api/src/generated/{name} is not what api/proto makes: run `cargo xtask codegen`");
        }
    }
    Ok(())
}

fn generate(protos: &Path, out: &Path) -> Result<()> {
    let files = SERVICES.iter().map(|(_, file)| file);
    let descriptors = protox::compile(files, [protos]).context("compile api/proto")?;
    let mut builder = tonic_prost_build::configure()
        .btree_map(".")
        .emit_rerun_if_changed(false)
        .out_dir(out);
    for (package, module) in BY_HAND {
        builder = builder.extern_path(*package, *module);
    }
    builder
        .compile_fds(descriptors)
        .context("generate Rust from api/proto")
}
