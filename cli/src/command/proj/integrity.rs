//! `proj source-integrity git policies`: which signatures a project demands of which Git repositories.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use argosy_api::services::gpgkey::GnuPgPublicKeyQuery;
use argosy_api::v1alpha1::{
    AppProject, SourceIntegrityGitPolicy, SourceIntegrityGitPolicyGpg, SourceIntegrityGitPolicyRepo,
};

use super::{get, put};
use crate::remote::{Remote, ask};
use crate::{input, output};

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    of: Of,
}

#[derive(clap::Subcommand)]
enum Of {
    /// Of Git repositories.
    Git(Git),
}

#[derive(clap::Args)]
struct Git {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Which commits must be signed by whom.
    Policies(Policies),
}

#[derive(clap::Args)]
struct Policies {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the policies of a project.
    List {
        /// Name of the project.
        project: String,
    },
    /// Add a policy.
    Add {
        /// Name of the project.
        project: String,
        /// Repositories that it is for; globs.
        #[arg(long, value_delimiter = ',')]
        repo_url: Vec<String>,
        /// What must be signed: all commits, the last one, or nothing.
        #[arg(long, value_parser = MODES)]
        gpg_mode: String,
        /// Keys that may sign: 16 or 40 hexadecimal digits.
        #[arg(long, value_delimiter = ',')]
        gpg_key: Vec<String>,
    },
    /// Change a policy.
    Update {
        /// Name of the project.
        project: String,
        /// Number of the policy, as `list` shows it.
        policy_id: usize,
        #[command(flatten)]
        change: Box<Change>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Delete policies.
    Delete {
        /// Name of the project.
        project: String,
        /// Numbers of the policies, as `list` shows them.
        #[arg(required = true, value_name = "POLICY_ID")]
        policy_ids: Vec<usize>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

/// How much must be signed.
const MODES: [&str; 3] = ["strict", "head", "none"];

/// What becomes of a policy.
#[derive(clap::Args, Default)]
struct Change {
    /// Repositories that it is for, in place of those before; globs.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["add_repo_url", "delete_repo_url"])]
    repo_url: Vec<String>,
    /// Further repositories.
    #[arg(long, value_delimiter = ',')]
    add_repo_url: Vec<String>,
    /// Repositories that it is for no longer.
    #[arg(long, value_delimiter = ',')]
    delete_repo_url: Vec<String>,
    /// What must be signed: all commits, the last one, or nothing.
    #[arg(long, value_parser = MODES)]
    gpg_mode: Option<String>,
    /// Keys that may sign, in place of those before.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["add_gpg_key", "delete_gpg_key"])]
    gpg_key: Vec<String>,
    /// Further keys.
    #[arg(long, value_delimiter = ',')]
    add_gpg_key: Vec<String>,
    /// Keys that may sign no longer.
    #[arg(long, value_delimiter = ',')]
    delete_gpg_key: Vec<String>,
}

impl Change {
    fn apply(&self, policy: &mut SourceIntegrityGitPolicy) -> Result<()> {
        if !self.repo_url.is_empty() {
            policy.repos = repos(&self.repo_url);
        }
        policy
            .repos
            .retain(|repo| !self.delete_repo_url.contains(&repo.url));
        for repo in repos(&self.add_repo_url) {
            if !policy.repos.contains(&repo) {
                policy.repos.push(repo);
            }
        }
        let gpg = policy.gpg.get_or_insert_default();
        if let Some(mode) = &self.gpg_mode {
            gpg.mode.clone_from(mode);
        }
        ensure!(!gpg.mode.is_empty(), "the policy has no mode: give --gpg-mode");
        if !self.gpg_key.is_empty() {
            gpg.keys = keys(&self.gpg_key)?;
        }
        let (gone, more) = (keys(&self.delete_gpg_key)?, keys(&self.add_gpg_key)?);
        // What somebody wrote by hand may be a fingerprint, which is the same key.
        let is_among = |keys: &[String], known: &str| key_id(known).is_ok_and(|known| keys.contains(&known));
        gpg.keys.retain(|known| !is_among(&gone, known));
        for key in more {
            if !gpg
                .keys
                .iter()
                .any(|known| key_id(known).is_ok_and(|known| known == key))
            {
                gpg.keys.push(key);
            }
        }
        Ok(())
    }
}

pub(super) async fn run(remote: &Remote, args: Args) -> Result<()> {
    let Of::Git(Git {
        what: What::Policies(Policies { command }),
    }) = args.of;
    match command {
        Command::List { project } => list(&mut get(remote, &project).await?),
        Command::Add {
            project,
            repo_url,
            gpg_mode,
            gpg_key,
        } => {
            let mut found = get(remote, &project).await?;
            let gpg = SourceIntegrityGitPolicyGpg {
                mode: gpg_mode,
                keys: keys(&gpg_key)?,
            };
            let policy = SourceIntegrityGitPolicy {
                repos: repos(&repo_url),
                gpg: Some(gpg),
            };
            warn(remote, &policy).await?;
            let integrity = found.spec.source_integrity.get_or_insert_default();
            integrity.git.get_or_insert_default().policies.push(policy);
            put(remote, found.clone()).await?;
            list(&mut found)
        }
        Command::Update {
            project,
            policy_id,
            change,
            yes,
        } => {
            let mut found = get(remote, &project).await?;
            let policies = policies(&mut found)?;
            check(policies, policy_id)?;
            change.apply(&mut policies[policy_id])?;
            warn(remote, &policies[policy_id]).await?;
            list(&mut found)?;
            let question =
                format!("Are you sure you want to update policy {policy_id} from project '{project}'?");
            if !input::asked(&question, yes)? {
                return output::text("Aborted by user.\n");
            }
            put(remote, found).await
        }
        Command::Delete {
            project,
            policy_ids,
            yes,
        } => {
            let mut found = get(remote, &project).await?;
            let policies = policies(&mut found)?;
            let gone: BTreeSet<usize> = policy_ids.into_iter().collect();
            gone.iter().try_for_each(|id| check(policies, *id))?;
            let named: Vec<_> = gone.iter().map(usize::to_string).collect();
            let named = named.join(", ");
            let question =
                format!("Are you sure you want to delete policies {named} from project '{project}'?");
            if !input::asked(&question, yes)? {
                return output::text("Aborted by user.\n");
            }
            let mut id = 0..;
            policies.retain(|_| !id.next().is_some_and(|id| gone.contains(&id)));
            if policies.is_empty() {
                found.spec.source_integrity = None;
            }
            put(remote, found).await
        }
    }
}

fn policies(project: &mut AppProject) -> Result<&mut Vec<SourceIntegrityGitPolicy>> {
    let name = project.metadata.name.clone();
    let integrity = project.spec.source_integrity.as_mut();
    let policies = integrity
        .and_then(|integrity| integrity.git.as_mut())
        .map(|git| &mut git.policies);
    policies
        .filter(|policies| !policies.is_empty())
        .with_context(|| format!("no source integrity git policies defined for project \"{name}\""))
}

fn check(policies: &[SourceIntegrityGitPolicy], id: usize) -> Result<()> {
    let last = policies.len() - 1;
    ensure!(id <= last, "the POLICY_ID {id} is out of range (0-{last})");
    Ok(())
}

fn repos(urls: &[String]) -> Vec<SourceIntegrityGitPolicyRepo> {
    let repo = |url: &String| SourceIntegrityGitPolicyRepo { url: url.clone() };
    urls.iter().map(repo).collect()
}

fn keys(texts: &[String]) -> Result<Vec<String>> {
    texts.iter().map(|text| key_id(text)).collect()
}

/// The id of a key by its id or fingerprint, which ends with it.
fn key_id(text: &str) -> Result<String> {
    ensure!(
        matches!(text.len(), 16 | 40) && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "'{text}' is not a valid GnuPG key ID: 16 or 40 hexadecimal digits are expected"
    );
    Ok(text[text.len() - 16..].to_uppercase())
}

/// Says what makes a policy useless.
async fn warn(remote: &Remote, policy: &SourceIntegrityGitPolicy) -> Result<()> {
    if policy.repos.is_empty() {
        eprintln!("Warning: Policy has no repository URLs and will never be used");
    }
    let Some(gpg) = &policy.gpg else { return Ok(()) };
    if gpg.keys.is_empty() {
        eprintln!("Warning: Policy has no GPG keys and will never validate any revision");
        return Ok(());
    }
    let known = ask!(remote, gpg_keys.list(GnuPgPublicKeyQuery::default()));
    let known: BTreeSet<String> = known.items.into_iter().map(|key| key.key_id).collect();
    let absent: BTreeSet<&str> = gpg
        .keys
        .iter()
        .map(String::as_str)
        .filter(|key| !known.contains(*key))
        .collect();
    if !absent.is_empty() {
        let absent = absent.into_iter().collect::<Vec<_>>().join(", ");
        eprintln!("Warning: Following GPG keys are not in repo-server keyring: {absent}");
    }
    Ok(())
}

fn list(project: &mut AppProject) -> Result<()> {
    let rows = policies(project)?.iter().enumerate().map(|(id, policy)| {
        let gpg = policy.gpg.as_ref();
        let urls: Vec<_> = policy.repos.iter().map(|repo| repo.url.as_str()).collect();
        vec![
            id.to_string(),
            gpg.map_or_else(|| "<none>".to_owned(), |gpg| gpg.mode.clone()),
            output::or_none(gpg.map(|gpg| gpg.keys.join(", ")).unwrap_or_default()),
            output::or_none(urls.join(", ")),
        ]
    });
    output::table(&["ID", "GPG-MODE", "GPG-KEYS", "REPO-URLS"], rows)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KEY: &str = "D56C4FCA57A46444";

    fn policy() -> SourceIntegrityGitPolicy {
        SourceIntegrityGitPolicy {
            repos: repos(&["https://a/*".to_owned(), "https://b/*".to_owned()]),
            gpg: Some(SourceIntegrityGitPolicyGpg {
                mode: "head".to_owned(),
                keys: vec![format!("{}{KEY}", "0".repeat(24))],
            }),
        }
    }

    #[test]
    fn what_is_given_replaces_and_what_is_added_or_deleted_leaves_the_rest() {
        let mut changed = policy();
        let change = Change {
            add_repo_url: vec!["https://c/*".into(), "https://b/*".into()],
            delete_repo_url: vec!["https://a/*".into()],
            // The same key as its fingerprint that is there.
            add_gpg_key: vec![KEY.to_lowercase(), "0123456789abcdef".into()],
            ..Change::default()
        };
        change.apply(&mut changed).unwrap();
        assert_eq!(
            changed.repos,
            repos(&["https://b/*".to_owned(), "https://c/*".to_owned()])
        );
        let gpg = changed.gpg.unwrap();
        assert_eq!((gpg.mode.as_str(), gpg.keys.len()), ("head", 2));
        assert_eq!(gpg.keys[1], "0123456789ABCDEF");

        let mut changed = policy();
        let change = Change {
            repo_url: vec!["https://d/*".into()],
            gpg_mode: Some("strict".into()),
            delete_gpg_key: vec![KEY.into()],
            ..Change::default()
        };
        change.apply(&mut changed).unwrap();
        assert_eq!(changed.repos, repos(&["https://d/*".to_owned()]));
        assert_eq!(
            changed.gpg.unwrap(),
            SourceIntegrityGitPolicyGpg {
                mode: "strict".into(),
                keys: vec![],
            }
        );

        let mut without = SourceIntegrityGitPolicy::default();
        let error = Change::default().apply(&mut without).unwrap_err().to_string();
        assert!(error.contains("--gpg-mode"), "{error}");
    }

    #[test]
    fn ids_are_the_ends_of_fingerprints() {
        assert_eq!(key_id(&KEY.to_lowercase()).unwrap(), KEY);
        assert_eq!(key_id(&format!("{}{KEY}", "A".repeat(24))).unwrap(), KEY);
        assert!(key_id("0xD56C4FCA57A46444").is_err());
        assert!(key_id("D56C").is_err());
    }
}
