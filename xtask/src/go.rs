//! The Go programs: the render worker that ships, and the servers that tests and demo run on.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// The version that programs of Kubernetes report: that of the module in tests/tools/go.mod.
const KUBERNETES_MODULE: &str = "k8s.io/kubernetes";

/// Builds everything that is written in Go.
///
/// # Errors
/// When a build fails.
pub(crate) fn build_all() -> Result<()> {
    build_servers()?;
    build_kubectl()?;
    build_nodes()?;
    build_promtool()?;
    build_oracle()?;
    build_render_worker()
}

/// Builds the oracle, the reference implementations that the engine is tested against, and what is made of Argo CD's own
/// types and client, which needs other versions of the same modules.
///
/// # Errors
/// When a build fails.
pub(crate) fn build_oracle() -> Result<()> {
    build(&oracle_dir(), ".", &tools_dir().join("argosy-oracle"), "-s -w")?;
    let argocd = oracle_dir().join("argocd");
    build(&argocd, ".", &tools_dir().join("argosy-apiclient"), "-s -w")
}

/// Builds etcd, kube-apiserver and kube-controller-manager into target/tools. Some seven minutes of two cores the first time;
/// afterwards Go's build cache answers.
///
/// # Errors
/// When a build fails.
pub(crate) fn build_servers() -> Result<()> {
    let module = shell::root().join("tests/tools");
    let kubernetes = kubernetes_flags(&module)?;
    let programs = [
        ("etcd", "go.etcd.io/etcd/server/v3", "-s -w"),
        (
            "kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-apiserver",
            &kubernetes,
        ),
        (
            "kube-controller-manager",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            &kubernetes,
        ),
    ];
    if programs
        .iter()
        .any(|(name, ..)| !tools_dir().join(name).is_file())
    {
        eprintln!("Building a Kubernetes control plane from its Go modules: some minutes, once.");
    }
    for (name, package, flags) in programs {
        build(&module, package, &tools_dir().join(name), flags)?;
    }
    Ok(())
}

/// Builds kubectl, which tests use as people do. Of the version of the servers, so that Go's build cache has most of it.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_kubectl() -> Result<()> {
    let module = shell::root().join("tests/tools");
    build(
        &module,
        "k8s.io/kubernetes/cmd/kubectl",
        &tools_dir().join("kubectl"),
        &kubernetes_flags(&module)?,
    )
}

/// Builds kwok, which plays nodes for tests whose Pods are to run. Most of what it is made of is part of the servers too.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_nodes() -> Result<()> {
    let module = shell::root().join("tests/tools");
    build(
        &module,
        "sigs.k8s.io/kwok/cmd/kwok",
        &tools_dir().join("kwok"),
        "-s -w",
    )
}

/// Builds promtool, which checks and tests the alert rules. Without the libraries of the clouds in which Prometheus would look for
/// targets, which are most of it: a minute and a half of CPU the first time.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_promtool() -> Result<()> {
    let mut command = go_build(
        &shell::root().join("tests/tools/promtool"),
        "github.com/prometheus/prometheus/cmd/promtool",
        &tools_dir().join("promtool"),
        "-s -w",
    );
    shell::run(command.env("GOFLAGS", "-tags=remove_all_sd"))
}

/// Builds the render worker (Helm and Kustomize as libraries) beside the `argosy` program of both profiles. Without cgo, as
/// in the image: behind its fence it cannot load libraries.
///
/// # Errors
/// When the build fails.
pub(crate) fn build_render_worker() -> Result<()> {
    let mut command = go_build(
        &worker_dir(),
        "./cmd/argosy-render-worker",
        &render_worker(),
        "-s -w",
    );
    shell::run(command.env("CGO_ENABLED", "0"))
}

/// Where the servers are built to.
pub(crate) fn tools_dir() -> PathBuf {
    shell::root().join("target/tools")
}

/// Where the render worker is built to.
pub(crate) fn render_worker() -> PathBuf {
    tools_dir().join("argosy-render-worker")
}

/// The render worker's module.
pub(crate) fn worker_dir() -> PathBuf {
    shell::root().join("repo-server/render-worker")
}

/// The oracle's module.
pub(crate) fn oracle_dir() -> PathBuf {
    shell::root().join("tests/oracle")
}

/// What the linker is told for programs of Kubernetes, so that they tell their version.
fn kubernetes_flags(module: &Path) -> Result<String> {
    let mut list = Command::new("go");
    list.args(["list", "-m", "-f", "{{.Version}}", KUBERNETES_MODULE])
        .current_dir(module);
    let version = shell::output(&mut list)?;
    Ok(format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={}",
        version.trim()
    ))
}

fn build(module: &Path, package: &str, output: &Path, flags: &str) -> Result<()> {
    shell::run(&mut go_build(module, package, output, flags))
}

fn go_build(module: &Path, package: &str, output: &Path, flags: &str) -> Command {
    let mut command = Command::new("go");
    command
        .args(["build", "-trimpath", "-ldflags", flags, "-o"])
        .arg(output)
        .arg(package)
        .current_dir(module);
    command
}
