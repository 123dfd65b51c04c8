//! The scripts against the core, and what else is tested from within.

mod answers;
mod cost;
mod history;
mod layers;
mod options;
mod record;
mod replay;
mod twin;
