//! The core's own functions in a model checker.
//!
//! - `queue`: one key's queue, and every order in which requests can reach it;
//! - `clients`: the clients' machines against the queue;
//! - `quorum`: votes of independent servers, with clocks and without;
//! - `catalogue`: the models by name; `checker`, `search`, `walk`: how they are run;
//! - `mutants`: the code under test, broken on purpose;
//! - `promise`: what must hold; `seen`: what must happen.

mod catalogue;
mod checker;
pub mod cli;
mod clients;
mod clock;
#[cfg(test)]
mod cross;
pub mod mutants;
mod promise;
mod queue;
mod quorum;
mod search;
mod seen;
mod walk;
mod words;

pub use checker::{Counterexample, Effort, Findings};
pub use promise::Promise;
