//! What others see of these types: JSON, wire, and the definitions Kubernetes stores them by.
#![allow(missing_docs, clippy::unwrap_used)]

mod examples;
mod shapes;
mod wire;
