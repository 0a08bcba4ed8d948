//! Tests of the simulated API server: against a real one, with `kubectl`, and by itself.
#![allow(clippy::unwrap_used, missing_docs)]

mod changing_hands;
mod client_go;
mod conformance;
mod faults;
mod fleet;
mod kubectl;
mod looking_after;
mod support;
mod watching;
