//! The crate against answers of the reference.

mod yaml;
