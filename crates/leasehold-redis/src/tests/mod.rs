//! Unit tests: the scripts compared with the core, and others.

mod answers;
mod cost;
mod history;
mod options;
mod record;
mod replay;
mod twin;
