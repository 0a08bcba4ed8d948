//! What targets stand for, as the repo-server has just said. Applications of one repository are looked at one after the other,
//! and whoever has what a target stood for some seconds ago need not ask what it stands for now.

use std::collections::HashMap;
use std::time::Duration;

use argosy_api::v1alpha1::ApplicationSource;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest time for which an answer is good. It adds to the time after which a commit is seen without a webhook.
const GOOD_FOR_MAX: Duration = Duration::from_secs(10);
/// Answers that are too old are thrown away when there are so many.
const LEN_MAX: usize = 4096;

/// Revisions by project (whose credentials may be others) and target.
#[derive(Default)]
pub(crate) struct Resolved(Mutex<HashMap<Target, (Instant, String)>>);

#[derive(PartialEq, Eq, Hash)]
struct Target {
    project: String,
    repository: String,
    chart: String,
    revision: String,
}

impl Target {
    fn of(source: &ApplicationSource, project: &str) -> Self {
        Target {
            project: project.to_owned(),
            repository: source.repo_url.clone(),
            chart: source.chart.clone(),
            revision: source.target_revision.clone(),
        }
    }
}

impl Resolved {
    /// The repo-server has said what the target of a source stands for.
    pub(crate) fn note(&self, source: &ApplicationSource, project: &str, revision: &str) {
        let now = Instant::now();
        let mut known = self.0.lock();
        if known.len() >= LEN_MAX {
            known.retain(|_, (at, _)| now - *at < GOOD_FOR_MAX);
        }
        known.insert(Target::of(source, project), (now, revision.to_owned()));
    }

    /// Whether the targets of all these sources stand for these revisions, as far as has just been said. `resync` is the time
    /// between two looks at one Application; a twelfth of it is no long delay.
    pub(crate) fn are(
        &self,
        sources: &[ApplicationSource],
        project: &str,
        revisions: &[String],
        resync: Duration,
    ) -> bool {
        let good_for = GOOD_FOR_MAX.min(resync / 12);
        let known = self.0.lock();
        let is = |(source, revision): (&ApplicationSource, &String)| {
            let found = known.get(&Target::of(source, project));
            found.is_some_and(|(at, known)| at.elapsed() < good_for && known == revision)
        };
        sources.len() == revisions.len() && sources.iter().zip(revisions).all(is)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str, target: &str) -> ApplicationSource {
        ApplicationSource {
            repo_url: url.into(),
            target_revision: target.into(),
            ..ApplicationSource::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_serves_others_of_the_project_for_some_seconds() {
        let resolved = Resolved::default();
        let (one, two) = (source("one", "main"), source("two", "v1"));
        resolved.note(&one, "shop", "aaa");
        let are = |sources: &[ApplicationSource], project: &str, revisions: &[&str]| {
            let revisions: Vec<String> = revisions.iter().map(|text| (*text).to_owned()).collect();
            resolved.are(sources, project, &revisions, Duration::from_secs(60))
        };
        assert!(are(std::slice::from_ref(&one), "shop", &["aaa"]));
        assert!(
            !are(std::slice::from_ref(&one), "shop", &["bbb"]),
            "it stands for something else"
        );
        assert!(
            !are(std::slice::from_ref(&one), "other", &["aaa"]),
            "another project may see another repository"
        );
        assert!(!are(&[source("one", "v1")], "shop", &["aaa"]));
        assert!(
            !are(&[one.clone(), two.clone()], "shop", &["aaa", "bbb"]),
            "of one nothing is known"
        );
        assert!(!are(std::slice::from_ref(&one), "shop", &[]));
        resolved.note(&two, "shop", "bbb");
        assert!(are(&[one.clone(), two], "shop", &["aaa", "bbb"]));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!are(&[one], "shop", &["aaa"]));
    }
}
