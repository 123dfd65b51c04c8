//! The production client, whole, in a world that follows from one seed.
//!
//! Real are the client (its store adapters, batcher, watchdog and machines, and the redis
//! crate under them), the scripts in Lua, and the fenced register. Simulated are clocks,
//! sockets, processes and machines, and the server around the scripts.
//! `docs/proof/simulation.md` says what is disturbed, what must hold, and what a run
//! printed.

mod book;
mod chance;
mod client;
mod command;
mod entropy;
mod faults;
mod flaws;
mod invariants;
mod panics;
mod plan;
mod register;
mod run;
mod server;
mod stage;
mod trace;
mod work;
mod world;

pub use command::{Options, simulate};
pub use flaws::Flaw;
pub use invariants::Deployment;
