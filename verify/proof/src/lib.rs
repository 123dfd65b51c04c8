//! Evidence: what leasehold promises is tried where it could fail, and each way of
//! trying is shown to find what is broken on purpose.
//!
//! - [`faults`]: real servers and clients in processes of their own, faults from a
//!   seed, histories, and a checker that reads them afterwards.
//! - [`simulate`]: whole clients in a world of virtual time, from one seed.
//! - [`model`]: the core's queue, machines and votes inside a model checker, and the
//!   mutants of them that it has to find. `docs/proof/model.md` says what is modelled.
//!
//! Nothing depends on this crate. `leasehold-proof --help` says how to run it.

#[cfg(feature = "clients")]
pub mod faults;
#[cfg(feature = "clients")]
mod hearing;
pub mod model;
mod report;
#[cfg(feature = "clients")]
pub mod simulate;
mod split_mix;
mod value_name;
