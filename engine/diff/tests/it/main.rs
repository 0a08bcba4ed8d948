//! Tests of the comparison as others see it.
#![allow(clippy::unwrap_used, missing_docs)]

mod cases;
mod properties;
mod server;
