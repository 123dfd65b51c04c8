//! Python binding of leasehold: clients, locks and leases without a face.
//!
//! Each call that may wait returns an `Op`. The synchronous face waits for it on the calling thread,
//! and the asynchronous face starts it on the bridge of its event loop. Both faces are Python.

mod args;
mod bridge;
mod client;
mod failure;
mod fork;
mod lease;
mod lock;
mod op;
mod runtime;

use pyo3::prelude::*;

/// What `leasehold_lock` is made of. Not for users: no version of it is stable.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::bridge::Bridge;
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::fork::{fork_begins, forked_here, forked_there};
    #[pymodule_export]
    use crate::lease::Lease;
    #[pymodule_export]
    use crate::lock::Lock;
    #[pymodule_export]
    use crate::op::Op;

    /// Counts forks from the import on. It starts no thread.
    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        let _ = leasehold_store::fork::Process::this();
        Ok(())
    }
}
