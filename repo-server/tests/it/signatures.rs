//! Commits and tags that must be signed, with keys that the test makes.

use std::path::Path;
use std::process::Command;

use argosy_api::integrity::problems;
use argosy_api::repository::{GitFilesRequest, ManifestRequest, RepoServerRevisionMetadataRequest};
use argosy_api::v1alpha1::{
    SourceIntegrity, SourceIntegrityGit, SourceIntegrityGitPolicy, SourceIntegrityGitPolicyGpg,
    SourceIntegrityGitPolicyRepo,
};

use crate::service::{Running, manifests, repository, running_with};
use crate::support::{Repo, config_map, git};

/// A person with a key.
struct Signer {
    home: tempfile::TempDir,
    id: String,
}

impl Signer {
    fn new(name: &str) -> Signer {
        // Short: GnuPG puts sockets there.
        let home = tempfile::Builder::new().prefix("g").tempdir_in("/tmp").unwrap();
        let mut signer = Signer {
            home,
            id: String::new(),
        };
        signer.gpg(&[
            "--passphrase",
            "",
            "--quick-generate-key",
            &format!("{name} <{name}@example.com>"),
            "ed25519",
            "sign",
            "never",
        ]);
        let listed = signer.gpg(&["--list-keys", "--with-colons"]);
        let line = listed.lines().find(|line| line.starts_with("pub:")).unwrap();
        signer.id = line.split(':').nth(4).unwrap().to_owned();
        signer
    }

    fn gpg(&self, arguments: &[&str]) -> String {
        let output = Command::new("gpg")
            .args(["--batch", "--pinentry-mode", "loopback"])
            .args(arguments)
            .env("GNUPGHOME", self.home.path())
            .output()
            .expect("this test needs gpg");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Puts the public key where the repo-server looks for it.
    fn publish(&self, keys: &Path) {
        std::fs::write(keys.join(&self.id), self.gpg(&["--armor", "--export", &self.id])).unwrap();
    }

    /// Runs git so that what it makes is signed.
    fn git(&self, repo: &Repo, arguments: &[&str]) -> String {
        let script = self.home.path().join("sign");
        std::fs::write(
            &script,
            format!(
                "#!/bin/sh\nexport GNUPGHOME={}\nexec gpg --batch \"$@\"\n",
                self.home.path().display()
            ),
        )
        .unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
        let (program, key) = (
            format!("gpg.program={}", script.display()),
            format!("user.signingKey={}", self.id),
        );
        let mut all = vec!["-c", &program, "-c", &key];
        all.extend(arguments);
        git(repo.path(), &all)
    }

    fn commit(&self, repo: &Repo, message: &str) -> String {
        self.git(
            repo,
            &[
                "commit",
                "--quiet",
                "--allow-empty",
                "--gpg-sign",
                "--message",
                message,
            ],
        );
        git(repo.path(), &["rev-parse", "HEAD"])
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf")
            .args(["--kill", "all"])
            .env("GNUPGHOME", self.home.path())
            .status();
    }
}

fn demand(mode: &str, keys: &[&str]) -> Option<SourceIntegrity> {
    Some(SourceIntegrity {
        git: Some(SourceIntegrityGit {
            policies: vec![SourceIntegrityGitPolicy {
                repos: vec![SourceIntegrityGitPolicyRepo { url: "*".into() }],
                gpg: Some(SourceIntegrityGitPolicyGpg {
                    mode: mode.into(),
                    keys: keys.iter().map(|key| (*key).to_owned()).collect(),
                }),
            }],
        }),
    })
}

/// The problems of a source at a revision; nothing if it passes.
async fn verdict(
    running: &Running,
    repo: &Repo,
    revision: &str,
    integrity: Option<SourceIntegrity>,
) -> Option<String> {
    let mut request = ManifestRequest {
        source_integrity: integrity,
        no_revision_cache: true,
        ..manifests(repo, "app")
    };
    if let Some(source) = &mut request.application_source {
        source.target_revision = revision.to_owned();
    }
    let answer = running.client.generate_manifest(request).await.unwrap();
    assert_eq!(
        answer.manifests.len(),
        1,
        "what is rendered does not depend on it"
    );
    problems(&answer.source_integrity_result.expect("a demand has a result"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_project_demands_of_signatures_is_verified() {
    let keys = tempfile::tempdir().unwrap();
    let (ada, eve) = (Signer::new("ada"), Signer::new("eve"));
    ada.publish(keys.path());
    let running = running_with(true, |args| args.gpg_data_path = keys.path().to_owned()).await;
    let allowed = [ada.id.as_str()];

    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let unsigned = git(repo.path(), &["rev-parse", "HEAD"]);
    let told = verdict(&running, &repo, "main", demand("head", &allowed))
        .await
        .unwrap();
    assert_eq!(
        told,
        format!(
            "GIT/GPG: Failed verifying revision {unsigned} by 'Ada <ada@example.com>': unsigned (key_id=)"
        )
    );
    assert_eq!(
        verdict_none(&running, &repo).await,
        None,
        "nothing is demanded, nothing is verified"
    );

    let signed = ada.commit(&repo, "signed");
    assert_eq!(
        verdict(&running, &repo, "main", demand("head", &allowed)).await,
        None
    );
    // The whole history is not.
    let told = verdict(&running, &repo, "main", demand("strict", &allowed))
        .await
        .unwrap();
    assert!(
        told.contains(&unsigned) && told.contains("unsigned") && !told.contains(&signed),
        "{told}"
    );
    // A key of the ring that this project does not allow.
    let told = verdict(&running, &repo, "main", demand("head", &[&eve.id]))
        .await
        .unwrap();
    assert!(told.contains("signed with unallowed key"), "{told}");

    // A key that is not in the ring, and then is.
    eve.commit(&repo, "by another");
    let told = verdict(&running, &repo, "main", demand("head", &[&eve.id]))
        .await
        .unwrap();
    assert!(
        told.contains("signed with key not in keyring") && told.contains(&eve.id),
        "{told}"
    );
    eve.publish(keys.path());
    assert_eq!(
        verdict(&running, &repo, "main", demand("head", &[&eve.id])).await,
        None
    );

    // A seal vouches for what was before it; one that nobody signed does not.
    git(
        repo.path(),
        &[
            "commit",
            "--quiet",
            "--allow-empty",
            "-m",
            "x\n\nArgocd-gpg-seal: mine",
        ],
    );
    let both = [ada.id.as_str(), eve.id.as_str()];
    let told = verdict(&running, &repo, "main", demand("strict", &both))
        .await
        .unwrap();
    assert!(told.contains(&unsigned), "{told}");
    ada.commit(&repo, "y\n\nArgocd-gpg-seal: reviewed");
    assert_eq!(
        verdict(&running, &repo, "main", demand("strict", &both)).await,
        None,
        "on the seal"
    );
    ada.commit(&repo, "after the seal");
    assert_eq!(
        verdict(&running, &repo, "main", demand("strict", &both)).await,
        None,
        "after it"
    );

    // Of an annotated tag the tag must be signed.
    git(repo.path(), &["tag", "--annotate", "--message", "t", "v1"]);
    let told = verdict(&running, &repo, "v1", demand("head", &both))
        .await
        .unwrap();
    assert!(
        told.contains("revision v1 by") && told.contains("unsigned"),
        "{told}"
    );
    ada.git(&repo, &["tag", "--sign", "--message", "t", "v2"]);
    assert_eq!(verdict(&running, &repo, "v2", demand("head", &both)).await, None);
    git(repo.path(), &["tag", "v3"]);
    assert_eq!(
        verdict(&running, &repo, "v3", demand("head", &both)).await,
        None,
        "a light tag is its commit"
    );

    // A commit that somebody else pretends to have signed.
    let raw = git(repo.path(), &["cat-file", "commit", "HEAD"]).replace("after the seal", "something else");
    let file = keys.path().join("forged");
    std::fs::write(&file, raw).unwrap();
    let forged = git(
        repo.path(),
        &["hash-object", "-t", "commit", "-w", &file.display().to_string()],
    );
    git(repo.path(), &["update-ref", "refs/heads/forged", &forged]);
    let told = verdict(&running, &repo, "forged", demand("head", &both))
        .await
        .unwrap();
    assert!(told.contains("bad signature"), "{told}");
}

/// Without a demand there is no result.
async fn verdict_none(running: &Running, repo: &Repo) -> Option<String> {
    let answer = running
        .client
        .generate_manifest(manifests(repo, "app"))
        .await
        .unwrap();
    answer.source_integrity_result.map(|result| format!("{result:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_what_is_not_signed_are_not_handed_out_and_metadata_say_who_signed() {
    let keys = tempfile::tempdir().unwrap();
    let ada = Signer::new("ada");
    ada.publish(keys.path());
    let running = running_with(true, |args| args.gpg_data_path = keys.path().to_owned()).await;
    let repo = Repo::with(&[("app/a.yaml", &config_map("a", "1"))]);
    let files = |integrity| GitFilesRequest {
        repo: repository(&repo),
        revision: "main".into(),
        path: "**".into(),
        no_revision_cache: true,
        source_integrity: integrity,
        ..GitFilesRequest::default()
    };
    let error = running
        .client
        .get_git_files(files(demand("head", &[&ada.id])))
        .await
        .unwrap_err();
    assert!(error.message().contains("unsigned"), "{error}");
    let error = running
        .client
        .get_git_files(files(demand("heda", &[&ada.id])))
        .await
        .unwrap_err();
    assert!(error.message().contains("unknown GPG mode"), "{error}");

    let commit = ada.commit(&repo, "signed");
    let found = running
        .client
        .get_git_files(files(demand("head", &[&ada.id])))
        .await
        .unwrap();
    assert_eq!(found.map.len(), 1);
    let metadata = running
        .client
        .get_revision_metadata(RepoServerRevisionMetadataRequest {
            repo: repository(&repo),
            revision: commit,
            source_integrity: demand("head", &[&ada.id]),
            ..RepoServerRevisionMetadataRequest::default()
        })
        .await
        .unwrap();
    assert_eq!(
        metadata.signature_info,
        format!("Good signature from Ada <ada@example.com> key {}", ada.id)
    );
    assert_eq!(
        metadata
            .source_integrity_result
            .and_then(|result| problems(&result)),
        None
    );
}
