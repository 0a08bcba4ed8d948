//! The crate against answers of the reference.

mod document;
mod yaml;
