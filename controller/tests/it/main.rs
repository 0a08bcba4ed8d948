//! The controller against a real kube-apiserver, etcd and kube-controller-manager, which the test starts itself.
#![allow(clippy::unwrap_used)]

mod clusters;
mod endpoints;
mod faults;
mod operations;
