//! The scripts against the core, and what else is tested from within.

mod cost;
mod options;
mod replay;
mod twin;
