//! A Git repository on disk whose commits are made by the `git` program, as a person would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A repository with a work tree on branch `main`.
pub struct Repository {
    dir: PathBuf,
}

impl Repository {
    /// An empty repository in `dir`, which is created.
    ///
    /// # Errors
    /// When `git` is missing or fails.
    pub fn init(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        let repository = Self { dir };
        repository.git(&["init", "--quiet", "--initial-branch=main"])?;
        Ok(repository)
    }

    /// The work tree.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `file:///…`, as an Application names it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("file://{}", self.dir.display())
    }

    /// Writes one file of the work tree; commits nothing.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &str, content: &str) -> Result<()> {
        let file = self.dir.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, content).with_context(|| format!("write {}", file.display()))
    }

    /// Removes one file or folder of the work tree; commits nothing.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn remove(&self, path: &str) -> Result<()> {
        self.git(&["rm", "-r", "--quiet", "--", path]).map(drop)
    }

    /// Copies a folder into the work tree; commits nothing.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn copy_in(&self, from: &Path, to: &str) -> Result<()> {
        copy(from, &self.dir.join(to)).with_context(|| format!("copy {} into the repository", from.display()))
    }

    /// Commits all changes of the work tree and returns the full SHA.
    ///
    /// # Errors
    /// When `git` fails, also when there is nothing to commit.
    pub fn commit(&self, message: &str) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", message])?;
        self.head()
    }

    /// The full SHA of HEAD.
    ///
    /// # Errors
    /// When `git` fails.
    pub fn head(&self) -> Result<String> {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs `git` in the work tree and returns what it printed.
    ///
    /// # Errors
    /// When `git` is missing or fails; its own words are part of the text.
    pub fn git(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("git")
            .args(args)
            .current_dir(&self.dir)
            // Neither the person's settings nor their name decide what a test does.
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "Sample Author")
            .env("GIT_AUTHOR_EMAIL", "author@example.com")
            .env("GIT_COMMITTER_NAME", "Sample Author")
            .env("GIT_COMMITTER_EMAIL", "author@example.com")
            .output()
            .context("run git")?;
        if !output.status.success() {
            bail!(
                "git {} failed: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
