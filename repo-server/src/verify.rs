//! Whether what a request is made from is signed as its project demands.

use crate::access::{self, RepoKind};
use crate::error::{Error, Result};
use crate::git::{Access, Resolved};
use crate::render::{Renderer, Request};
use argosy_api::integrity::{self, Demand, Signature};
use argosy_api::v1alpha1::{Repository, SourceIntegrity, SourceIntegrityCheckResult};

impl Renderer {
    /// Checks a request that was rendered from a revision, and the sources that it refers to; nothing where nothing is demanded.
    ///
    /// # Errors
    /// [`Error::Source`] for a demand that contradicts itself, and those of fetching.
    pub(crate) async fn verify(
        &self,
        request: &Request,
        revision: &str,
        integrity: &SourceIntegrity,
    ) -> Result<Option<SourceIntegrityCheckResult>> {
        let source = &request.source;
        let mut whole: Option<SourceIntegrityCheckResult> = None;
        if access::kind(&request.repo, &source.chart) == RepoKind::Git {
            let named = (source.target_revision.as_str(), source.tag_prefix.as_str());
            let found = self.check(&request.repo, revision, named, integrity).await?;
            whole = found.map(|(result, _)| result);
        }
        for (name, target) in &request.ref_sources {
            if !target.chart.is_empty() || !refers_to(request, name) {
                continue;
            }
            let access = access::git(&target.repo)?;
            let commit = self.commit(&access, &target.target_revision, false).await?.sha();
            let named = (target.target_revision.as_str(), "");
            if let Some((result, _)) = self.check(&target.repo, &commit, named, integrity).await? {
                whole.get_or_insert_default().checks.extend(result.checks);
            }
        }
        Ok(whole)
    }

    /// As [`Renderer::verify`], for a call that hands out files: problems are its failure.
    pub(crate) async fn require(
        &self,
        repo: &Repository,
        revision: &str,
        named: &str,
        integrity: &SourceIntegrity,
    ) -> Result<()> {
        let found = self.check(repo, revision, (named, ""), integrity).await?;
        match found.and_then(|(result, _)| integrity::problems(&result)) {
            Some(problems) => Err(Error::Source(problems)),
            None => Ok(()),
        }
    }

    /// What the signatures of a commit are worth; `named` is the revision as a person wrote it, with the prefix of its tags.
    pub(crate) async fn check(
        &self,
        repo: &Repository,
        revision: &str,
        named: (&str, &str),
        integrity: &SourceIntegrity,
    ) -> Result<Option<(SourceIntegrityCheckResult, Vec<Signature>)>> {
        let demand = integrity::demand(integrity, &repo.repo).map_err(|e| Error::Source(e.to_string()))?;
        let Some(Demand { extent, keys }) = demand else {
            return Ok(None);
        };
        let access = access::git(repo)?;
        let resolved = self.as_named(&access, revision, named).await?;
        let commit = self.git.commit(&access, &resolved).await?;
        let signatures = self.git.signatures(&access, &resolved, &commit, extent).await?;
        Ok(Some((integrity::judge(&keys, &signatures), signatures)))
    }

    /// The commit as the tag that it was asked for by, if it is what the tag means now.
    async fn as_named(&self, access: &Access, revision: &str, named: (&str, &str)) -> Result<Resolved> {
        let plain = self.git.resolve(access, revision, "", false).await?;
        Ok(match self.git.resolve(access, named.0, named.1, false).await {
            Ok(tag) if tag.commit == plain.commit => tag,
            _ => plain,
        })
    }
}

/// Whether a value file or parameter lies in another source.
fn refers_to(request: &Request, name: &str) -> bool {
    let Some(helm) = &request.source.helm else {
        return false;
    };
    let texts = helm
        .value_files
        .iter()
        .chain(helm.file_parameters.iter().map(|parameter| &parameter.path));
    texts
        .filter_map(|text| text.split('/').next())
        .any(|first| first == name)
}
