//! What can only be tested from within: the scripts against the core.

mod cost;
mod replay;
mod twin;
