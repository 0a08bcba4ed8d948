//! Lists a page at a time, in an order.
//!
//! A page is told by what its predecessor ended with, not by a number: what comes and goes in between moves nothing
//! out of a page that is still to come.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use argosy_api::services::application::ApplicationQuery;
use argosy_api::v1alpha1::{Application, ApplicationList};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tonic::Status;

use super::select::unless_empty;
use crate::state::project_of;

/// What an order goes by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Name,
    Namespace,
    Project,
    Cluster,
    Health,
    Sync,
    CreatedAt,
    SyncedAt,
}

const ORDERS: [(&str, By); 8] = [
    ("name", By::Name),
    ("namespace", By::Namespace),
    ("project", By::Project),
    ("cluster", By::Cluster),
    ("health", By::Health),
    ("sync", By::Sync),
    ("createdAt", By::CreatedAt),
    ("syncedAt", By::SyncedAt),
];

impl By {
    /// What is compared, as a text that is in the same order.
    fn key<'a>(self, app: &'a Application) -> Cow<'a, str> {
        let (destination, status) = (&app.spec.destination, &app.status);
        // RFC 3339 in UTC and whole seconds is in order as a text.
        let time = |at: Option<argosy_api::meta::Time>| {
            at.map(|at| at.to_timestamp().to_string()).unwrap_or_default()
        };
        match self {
            By::Name => app.metadata.name.as_str().into(),
            By::Namespace => app.metadata.namespace.as_str().into(),
            By::Project => project_of(app).into(),
            By::Cluster if destination.name.is_empty() => destination.server.as_str().into(),
            By::Cluster => destination.name.as_str().into(),
            By::Health => unless_empty(&status.health.status).into(),
            By::Sync => unless_empty(&status.sync.status).into(),
            By::CreatedAt => time(app.metadata.creation_timestamp).into(),
            By::SyncedAt => {
                let state = status.operation_state.as_ref();
                time(state.and_then(|state| state.finished_at.or(state.started_at))).into()
            }
        }
    }
}

/// A place in a list: what its order compares, then name and namespace.
type Place<'a> = (Cow<'a, str>, Cow<'a, str>, Cow<'a, str>);

/// Which page of which order.
pub(super) struct Page {
    by: By,
    /// As it was asked for; it is in the token, so that a token is of one order.
    order: String,
    descending: bool,
    limit: usize,
    after: Option<Place<'static>>,
}

impl Page {
    pub(super) fn read(query: &ApplicationQuery) -> Result<Self, Status> {
        let order = match query.sort_by() {
            "" => "name",
            order => order,
        };
        let (plain, descending) = order
            .strip_prefix('-')
            .map_or((order, false), |plain| (plain, true));
        let by = ORDERS
            .iter()
            .find(|(name, _)| *name == plain)
            .map(|(_, by)| *by)
            .ok_or_else(|| {
                let known: Vec<_> = ORDERS.iter().map(|(name, _)| *name).collect();
                Status::invalid_argument(format!("sortBy: {plain:?} is none of {}", known.join(", ")))
            })?;
        let limit = usize::try_from(query.limit())
            .map_err(|_| Status::invalid_argument("limit: a number of 0 or more is expected"))?;
        let after = match query.r#continue() {
            "" => None,
            token => Some(place_of(token, order).ok_or_else(|| {
                Status::invalid_argument(
                    "continue: this is not metadata.continue of a list in this order: list from the start",
                )
            })?),
        };
        Ok(Page {
            by,
            order: order.to_owned(),
            descending,
            limit,
            after,
        })
    }

    /// The page out of what may be seen and was selected.
    pub(super) fn of(&self, apps: &[Arc<Application>]) -> ApplicationList {
        let mut places: Vec<(Place<'_>, &Arc<Application>)> =
            apps.iter().map(|app| (self.place(app), app)).collect();
        if let Some(after) = &self.after {
            places.retain(|(place, _)| self.compare(place, after) == Ordering::Greater);
        }
        places.sort_by(|(a, _), (b, _)| self.compare(a, b));
        let end = match self.limit {
            0 => places.len(),
            limit => limit.min(places.len()),
        };
        let mut list = ApplicationList {
            items: places[..end].iter().map(|(_, app)| (***app).clone()).collect(),
            ..ApplicationList::default()
        };
        if let Some((last, _)) = places[..end].last()
            && end < places.len()
        {
            list.metadata.r#continue = token_of(&self.order, last);
            list.metadata.remaining_item_count = i64::try_from(places.len() - end).ok();
        }
        list
    }

    fn place<'a>(&self, app: &'a Application) -> Place<'a> {
        (
            self.by.key(app),
            app.metadata.name.as_str().into(),
            app.metadata.namespace.as_str().into(),
        )
    }

    /// Equals stay in the order of their names, whichever way round the rest is.
    fn compare(&self, a: &Place<'_>, b: &Place<'_>) -> Ordering {
        let first = match self.descending {
            true => b.0.cmp(&a.0),
            false => a.0.cmp(&b.0),
        };
        first.then_with(|| (&a.1, &a.2).cmp(&(&b.1, &b.2)))
    }
}

fn token_of(order: &str, place: &Place<'_>) -> String {
    let parts = [order, &place.0, &place.1, &place.2];
    URL_SAFE_NO_PAD.encode(serde_json::json!(parts).to_string())
}

fn place_of(token: &str, order: &str) -> Option<Place<'static>> {
    let text = URL_SAFE_NO_PAD.decode(token).ok()?;
    let [of, key, name, namespace]: [String; 4] = serde_json::from_slice(&text).ok()?;
    (of == order).then_some((key.into(), name.into(), namespace.into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn app(name: &str, health: &str) -> Arc<Application> {
        let mut app = Application::default();
        app.metadata.name = name.to_owned();
        app.status.health.status = health.to_owned();
        Arc::new(app)
    }

    /// All pages of an order, by the names in them.
    fn pages(apps: &[Arc<Application>], sort_by: &str, limit: i64) -> Vec<String> {
        let mut query = ApplicationQuery {
            sort_by: Some(sort_by.to_owned()),
            limit: Some(limit),
            ..ApplicationQuery::default()
        };
        let mut pages = Vec::new();
        loop {
            let list = Page::read(&query).unwrap().of(apps);
            pages.push(
                list.items
                    .iter()
                    .map(|app| app.metadata.name.as_str())
                    .collect::<Vec<_>>()
                    .join(""),
            );
            match list.metadata.r#continue.as_str() {
                "" => return pages,
                token => query.r#continue = Some(token.to_owned()),
            }
            assert!(list.metadata.remaining_item_count.unwrap() > 0);
        }
    }

    #[test]
    fn pages_are_the_whole_list_in_its_order() {
        let apps = [
            app("c", "Healthy"),
            app("a", "Degraded"),
            app("d", "Healthy"),
            app("b", "Healthy"),
            app("e", ""),
        ];
        assert_eq!(pages(&apps, "", 0), ["abcde"]);
        assert_eq!(pages(&apps, "name", 2), ["ab", "cd", "e"]);
        assert_eq!(pages(&apps, "-name", 2), ["ed", "cb", "a"]);
        assert_eq!(pages(&apps, "health", 2), ["ab", "cd", "e"]);
        assert_eq!(pages(&apps, "-health", 3), ["ebc", "da"]);
        assert_eq!(
            pages(&apps, "name", 5),
            ["abcde"],
            "a page that holds all is the last one"
        );
    }

    #[test]
    fn what_comes_and_goes_moves_nothing_out_of_the_next_page() {
        let mut apps = vec![app("b", ""), app("c", ""), app("d", ""), app("e", "")];
        let mut query = ApplicationQuery {
            limit: Some(2),
            ..ApplicationQuery::default()
        };
        let first = Page::read(&query).unwrap().of(&apps);
        apps.retain(|app| app.metadata.name != "c");
        apps.push(app("a", ""));
        query.r#continue = Some(first.metadata.r#continue);
        let second = Page::read(&query).unwrap().of(&apps);
        let names: Vec<_> = second
            .items
            .iter()
            .map(|app| app.metadata.name.as_str())
            .collect();
        assert_eq!(names, ["d", "e"]);
    }

    #[test]
    fn wrong_questions_are_named() {
        let refused = |query: ApplicationQuery| Page::read(&query).err().unwrap().message().to_owned();
        let sort = ApplicationQuery {
            sort_by: Some("size".into()),
            ..ApplicationQuery::default()
        };
        assert!(refused(sort).contains("createdAt"));
        let limit = ApplicationQuery {
            limit: Some(-1),
            ..ApplicationQuery::default()
        };
        assert!(refused(limit).contains("limit"));
        let of_another = Page::read(&ApplicationQuery {
            sort_by: Some("sync".into()),
            limit: Some(1),
            ..ApplicationQuery::default()
        })
        .unwrap();
        let token = of_another.of(&[app("a", ""), app("b", "")]).metadata.r#continue;
        for token in ["x", &token] {
            let page = ApplicationQuery {
                r#continue: Some(token.to_owned()),
                ..ApplicationQuery::default()
            };
            assert!(refused(page).contains("continue"), "{token}");
        }
    }
}
