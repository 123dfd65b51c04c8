//! The clock of tests: that of clients and of `memory:` stores, set ahead.

use leasehold_store::clock;
use pyo3::prelude::*;
use tokio::sync::Mutex;
use tokio::time;

use crate::args::duration;
use crate::op::{NOTHING, Op};

/// Lets so much time pass at once, for timers too. Then it runs on as before.
#[pyfunction]
pub(crate) fn advance(seconds: &Bound<'_, PyAny>) -> PyResult<Op> {
    /// Tokio's clock cannot be stopped twice.
    static ONE: Mutex<()> = Mutex::const_new(());
    let by = duration("seconds", seconds)?;
    // A task, which no interrupt ends halfway, and after which whoever drives looks at the timers.
    let set = async move {
        let _one = ONE.lock().await;
        time::pause();
        clock::advance(by);
        time::advance(by).await;
        time::resume();
    };
    Ok(Op::new(async move {
        let _it_is_set = tokio::spawn(set).await;
        Ok(NOTHING)
    }))
}
