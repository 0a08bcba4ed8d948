//! The protocol and the balance, by their behaviour.
#![allow(clippy::unwrap_used)]

mod balance;
mod protocol;
