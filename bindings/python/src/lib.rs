//! Python binding of leasehold: clients, locks and leases without a face.
//!
//! Each call that may wait returns an `Op`. The synchronous face waits for it on the calling thread,
//! and the asynchronous face starts it on the bridge of its event loop. Both faces are Python.

mod args;
mod bridge;
mod client;
mod clock;
mod failure;
mod fork;
mod leaders;
mod lease;
mod lock;
mod logging;
mod op;

use nix::sys::signal::SigSet;
use pyo3::prelude::*;

/// What `leasehold_lock` is made of. Not for users: no version of it is stable.
#[pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::{
        args::duration,
        bridge::Bridge,
        client::Client,
        clock::advance,
        leaders::Leaders,
        lease::{HandedOver, Lease},
        lock::Lock,
        logging::{listen, records},
        op::Op,
    };

    /// Counts forks from the import on. It starts no thread.
    #[pymodule_init]
    fn init(_module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        let _ = leasehold_store::fork::Process::this();
        super::fork::rest_at_forks();
        leasehold::background::on_thread_start(super::leave_signals);
        Ok(())
    }
}

/// Signals are for the threads of the program: uWSGI ends a worker on the thread that gets one, which
/// then waits for the main thread.
fn leave_signals() {
    let _where_it_can: nix::Result<()> = SigSet::all().thread_block();
}
