//! Evidence: what leasehold promises is tried where it could fail, and each way of
//! trying is shown to find what is broken on purpose.
//!
//! - [`faults`]: real servers and clients in processes of their own, faults from a
//!   seed, histories, and a checker that reads them afterwards.
//! - [`simulate`]: whole clients in a world of virtual time, from one seed.
//!
//! Nothing depends on this crate. `leasehold-proof --help` says how to run it.

pub mod faults;
pub mod simulate;
