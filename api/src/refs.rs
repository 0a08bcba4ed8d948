//! `$name` in a source's value files: another source of the same Application, which says `ref: name`.

use std::collections::BTreeMap;

use crate::v1alpha1::{ApplicationSource, RefTarget, Repository};

/// Sources that cannot be referred to as they say.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that is no name.
    #[error("sources.ref {0} cannot contain any special characters except '_' and '-'")]
    Name(String),
    /// Which of them is meant?
    #[error("invalid sources: multiple sources had the same `ref` key")]
    Twice,
}

/// `$name` → where its files are, for each source that has a name: at its exact revision where `revisions`, which go by position, give
/// one, so that a rollback takes the files of then. Of one source alone nobody takes files, whatever it is called.
///
/// # Errors
/// When a name is none, or two sources have the same.
pub fn targets(
    sources: &[ApplicationSource],
    revisions: &[String],
    repository: impl Fn(&str) -> Repository,
) -> Result<BTreeMap<String, RefTarget>, Error> {
    let mut targets = BTreeMap::new();
    if sources.len() < 2 {
        return Ok(targets);
    }
    let named = sources.iter().enumerate();
    for (index, source) in named.filter(|(_, source)| !source.r#ref.is_empty()) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if !source.r#ref.chars().all(allowed) {
            return Err(Error::Name(source.r#ref.clone()));
        }
        let exact = revisions.get(index).filter(|revision| !revision.is_empty());
        let target = RefTarget {
            repo: repository(&source.repo_url),
            target_revision: exact.unwrap_or(&source.target_revision).clone(),
            chart: source.chart.clone(),
        };
        if targets.insert(format!("${}", source.r#ref), target).is_some() {
            return Err(Error::Twice);
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn source(url: &str, name: &str, revision: &str) -> ApplicationSource {
        ApplicationSource {
            repo_url: url.into(),
            r#ref: name.into(),
            target_revision: revision.into(),
            ..ApplicationSource::default()
        }
    }

    fn of(sources: &[ApplicationSource], revisions: &[&str]) -> Result<BTreeMap<String, RefTarget>, Error> {
        let revisions: Vec<String> = revisions.iter().map(|text| (*text).to_owned()).collect();
        targets(sources, &revisions, |url| Repository {
            repo: url.to_owned(),
            ..Repository::default()
        })
    }

    #[test]
    fn files_of_another_source_are_those_of_its_exact_revision_where_that_is_known() {
        let sources = [source("charts", "", "1.*"), source("values", "values", "main")];
        let told = |revisions: &[&str]| {
            let targets = of(&sources, revisions).unwrap();
            assert_eq!(targets.len(), 1);
            let target = &targets["$values"];
            assert_eq!(target.repo.repo, "values");
            target.target_revision.clone()
        };
        assert_eq!(told(&[]), "main");
        assert_eq!(told(&["1.2.3", "abc"]), "abc");
        assert_eq!(told(&["1.2.3", ""]), "main");
        assert_eq!(told(&["1.2.3"]), "main");
    }

    #[test]
    fn a_name_is_one_and_means_one_source() {
        let error = |sources: &[ApplicationSource]| of(sources, &[]).unwrap_err();
        assert_eq!(
            error(&[source("a", "values", ""), source("b", "values", "")]),
            Error::Twice
        );
        for name in ["a/b", "$a", "a b", "ä", "a."] {
            assert_eq!(
                error(&[source("a", name, ""), source("b", "", "")]),
                Error::Name(name.into())
            );
            assert!(of(&[source("a", name, "")], &[]).unwrap().is_empty());
        }
        assert!(
            of(
                &[
                    source("a", "Values_2-x", ""),
                    source("b", "", ""),
                    source("c", "", "")
                ],
                &[]
            )
            .is_ok()
        );
    }
}
