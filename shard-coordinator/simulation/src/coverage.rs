//! Which faults have met which writes.

use std::collections::BTreeMap;
use std::fmt;

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum WriteKind {
    TakeLease,
    RenewLease,
    GiveBackLease,
    EndLease,
    StandIn,
    ForgetLease,
    Elect,
    RenewElection,
    GiveUpElection,
    CreateRecord,
    Assign,
    AskToRelease,
    CallOff,
    SayWarm,
    Give,
    Free,
    Adopt,
    RemoveRecord,
}

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Fate {
    Done,
    Conflict,
    LostOnTheWay,
    AnswerLost,
    CrashBefore,
    CrashAfter,
}

/// All kinds.
pub const KINDS: [WriteKind; 18] = {
    use WriteKind::*;
    [
        TakeLease,
        RenewLease,
        GiveBackLease,
        EndLease,
        StandIn,
        ForgetLease,
        Elect,
        RenewElection,
        GiveUpElection,
        CreateRecord,
        Assign,
        AskToRelease,
        CallOff,
        SayWarm,
        Give,
        Free,
        Adopt,
        RemoveRecord,
    ]
};
/// All fates.
pub const FATES: [Fate; 6] = [
    Fate::Done,
    Fate::Conflict,
    Fate::LostOnTheWay,
    Fate::AnswerLost,
    Fate::CrashBefore,
    Fate::CrashAfter,
];

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    writes: BTreeMap<(WriteKind, Fate), u64>,
    faults: BTreeMap<&'static str, u64>,
}

/// Faults that are not about a write of the protocol.
pub const FAULTS: [&str; 19] = [
    "process started again in its pod",
    "process started in a new pod",
    "process told to end",
    "process frozen",
    "process frozen between check and send",
    "cut off from the store",
    "store unreachable for all",
    "watch lags",
    "watch goes back in time",
    "watch loses changes",
    "list of the past",
    "lease deleted by a person",
    "all leases deleted by a person",
    "coordinator's lease edited by a person",
    "shard drained by a person",
    "cluster pinned by a person",
    "cluster added or removed",
    "late write of an old owner refused",
    "shards with unequal times",
];

impl Coverage {
    /// Counts a write.
    pub fn write(&mut self, kind: WriteKind, fate: Fate) {
        *self.writes.entry((kind, fate)).or_default() += 1;
    }

    /// Counts another fault.
    pub fn fault(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Coverage) {
        for (point, count) in &other.writes {
            *self.writes.entry(*point).or_default() += count;
        }
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }

    /// What has never happened.
    pub fn unhit(&self) -> Vec<String> {
        let points = KINDS
            .into_iter()
            .flat_map(|kind| FATES.into_iter().map(move |fate| (kind, fate)));
        let writes = points
            .filter(|point| !self.writes.contains_key(point))
            .map(|(kind, fate)| format!("{kind:?} {fate:?}"));
        let faults = FAULTS
            .into_iter()
            .filter(|fault| !self.faults.contains_key(fault))
            .map(str::to_owned);
        writes.chain(faults).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16}", "write")?;
        for fate in FATES {
            write!(f, "{:>14}", format!("{fate:?}"))?;
        }
        writeln!(f)?;
        for kind in KINDS {
            write!(f, "{:<16}", format!("{kind:?}"))?;
            for fate in FATES {
                write!(f, "{:>14}", self.writes.get(&(kind, fate)).copied().unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        for fault in FAULTS {
            writeln!(
                f,
                "{:<44}{:>14}",
                fault,
                self.faults.get(fault).copied().unwrap_or(0)
            )?;
        }
        Ok(())
    }
}
