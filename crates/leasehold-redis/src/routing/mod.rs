//! The way from a key to its server, where there are many.

pub(crate) mod cluster;
pub(crate) mod names;
