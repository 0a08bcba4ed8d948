//! On which node a Pod is, and what it asks of it. Sums are kept for each node, so that nobody looks through a cluster's Pods to
//! tell how full one is.

use argosy_object::{Arrived, Document, Name, intern, quantity};

use crate::index::{RowId, token};
use crate::row::Row;
use crate::snapshot::Snapshot;

/// What of a node is counted.
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "storage"];

/// Amounts of [`RESOURCES`], each in thousandths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asks(pub [i64; RESOURCES.len()]);

impl Asks {
    /// What a Pod asks for, as the scheduler counts it: all its containers, or more while it is being initialised, and what
    /// its runtime takes besides.
    pub fn of(pod: &Arrived<'_>) -> Self {
        let containers = |list: &str| {
            let list = pod.at(&["spec", list]);
            list.into_iter().flat_map(|list| list.items())
        };
        let mut running = containers("containers").fold(Asks::default(), |sum, container| {
            sum.with(Asks::at(&container, &["resources", "requests"]))
        });
        let (mut sidecars, mut most) = (Asks::default(), Asks::default());
        for container in containers("initContainers") {
            let own = Asks::at(&container, &["resources", "requests"]);
            // What goes on running counts for all that follow.
            if container.str_at(&["restartPolicy"]) == Some("Always") {
                sidecars = sidecars.with(own);
                running = running.with(own);
                most = most.or(sidecars);
            } else {
                most = most.or(sidecars.with(own));
            }
        }
        running.or(most).with(Asks::at(pod, &["spec", "overhead"]))
    }

    /// The amounts in a map of quantities.
    pub fn at(object: &Arrived<'_>, path: &[&str]) -> Self {
        let Some(quantities) = object.at(path) else {
            return Asks::default();
        };
        let amount = |name: &str| {
            let text = quantities.str_at(&[name])?;
            Some(quantity::parse(text).ok()?.milli_value())
        };
        Asks(RESOURCES.map(|name| amount(name).unwrap_or_default()))
    }

    /// Both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        self.each(other, i64::saturating_add)
    }

    /// These without those.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.each(other, i64::saturating_sub)
    }

    /// Of each the larger.
    fn or(self, other: Self) -> Self {
        self.each(other, i64::max)
    }

    fn each(self, other: Self, of: impl Fn(i64, i64) -> i64) -> Self {
        Asks(std::array::from_fn(|at| of(self.0[at], other.0[at])))
    }
}

/// A Pod that is on a node and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The node.
    pub node: Name,
    /// What the Pod asks of it.
    pub asks: Asks,
}

impl Placement {
    /// Where a Pod is; nothing for other objects, and for Pods that are nowhere yet or take nothing any more.
    pub fn of(object: &Arrived<'_>) -> Option<Self> {
        if object.str_at(&["kind"]) != Some("Pod") || object.str_at(&["apiVersion"]) != Some("v1") {
            return None;
        }
        let node = object
            .str_at(&["spec", "nodeName"])
            .filter(|node| !node.is_empty())?;
        let ended = matches!(object.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
        (!ended).then(|| Placement {
            node: intern(node),
            asks: Asks::of(object),
        })
    }
}

/// A node that somebody is on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guests {
    len: usize,
    asks: Asks,
}

impl Snapshot {
    /// What all Pods on a node ask of it together, those that have ended aside.
    pub fn asked_of(&self, node: &str) -> Asks {
        self.guests
            .get(node)
            .map_or(Asks::default(), |guests| guests.asks)
    }

    /// Brings the sums up to date with a row that is about to change. Almost always the Pod is where it was and asks for the
    /// same, and one look into an index tells.
    pub(crate) fn exchange_placement(
        &mut self,
        id: RowId,
        old: Option<&Row>,
        new: Option<&Row>,
        placement: Option<Placement>,
    ) {
        let is_pod = old.or(new).is_some_and(|row| self.kind(row).is("", "Pod"));
        if !is_pod {
            return;
        }
        let read = |row: &Row| Document::view(&row.document.value(), |object| Placement::of(&object));
        // What is not news has not been looked at on its way in.
        let placement = placement.or_else(|| new.and_then(read));
        if placement
            .as_ref()
            .is_some_and(|placement| self.placed.contains(token(placement), id))
        {
            return;
        }
        if let Some(left) = old.and_then(read) {
            self.placed.remove(token(&left), id);
            let guests = self.guests.entry(left.node.clone()).or_default();
            *guests = Guests {
                len: guests.len.saturating_sub(1),
                asks: guests.asks.without(left.asks),
            };
            if guests.len == 0 {
                self.guests.remove(&left.node);
            }
        }
        if let Some(come) = placement {
            self.placed.insert(token(&come), id);
            let guests = self.guests.entry(come.node).or_default();
            *guests = Guests {
                len: guests.len + 1,
                asks: guests.asks.with(come.asks),
            };
        }
    }
}
