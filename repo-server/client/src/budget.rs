//! How many calls may be tried again: a share of those that are made, so that a storm of failures is not doubled.

use argosy_runtime::bounds::{self, Class};

/// Calls per retry.
const CALLS: f64 = 10.0;
/// Retries that may be saved up.
const SAVED: f64 = 10.0;

/// What is left of the retries.
pub(crate) struct Budget(f64);

impl Default for Budget {
    fn default() -> Budget {
        Budget(SAVED)
    }
}

impl Budget {
    /// A call was made.
    pub(crate) fn earn(&mut self) {
        self.0 = (self.0 + 1.0 / CALLS).min(SAVED);
    }

    /// Takes a retry, if there is one.
    pub(crate) fn spend(&mut self) -> bool {
        let enough = self.0 >= 1.0;
        if enough {
            self.0 -= 1.0;
        } else {
            bounds::shed(Class::Retry);
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_ten_may_be_tried_again() {
        let mut budget = Budget::default();
        while budget.spend() {}
        let retries = (0..1000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert!((99..=101).contains(&retries.count()));
    }
}
