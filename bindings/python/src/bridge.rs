//! The bridge from the runtime to one event loop.
//!
//! The thread of the runtime never touches the interpreter: it leaves answers in a list, and wakes
//! the loop by a socket once. The thread of the loop then takes all answers that are there. A
//! hand-over of the interpreter for each answer costs ten times as much.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::mem::take;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_store::fork::Process;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use tokio::task::AbortHandle;

use crate::op::{Answer, Op};
use crate::runtime;

/// Answers that the loop has not taken.
struct Answers {
    list: Mutex<Vec<(u64, Answer)>>,
    wake: UnixStream,
}

impl Answers {
    fn push(&self, call: u64, answer: Answer) {
        let mut list = lock(&self.list);
        list.push((call, answer));
        // One byte for all until the loop has taken them. A socket that is full or closed wakes
        // nobody, and need not.
        if list.len() == 1 {
            let _ = (&self.wake).write(&[1]);
        }
    }
}

struct Pending {
    future: Py<PyAny>,
    task: AbortHandle,
}

#[derive(Default)]
struct Calls {
    last: u64,
    pending: HashMap<u64, Pending>,
}

/// The calls of one event loop.
#[pyclass(frozen)]
pub(crate) struct Bridge {
    answers: Arc<Answers>,
    woken: UnixStream,
    calls: Mutex<Calls>,
    process: Process,
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        Ok(Self {
            answers: Arc::new(Answers {
                list: Mutex::default(),
                wake,
            }),
            woken,
            calls: Mutex::default(),
            process: Process::this(),
        })
    }

    /// What the loop has to watch.
    fn fileno(&self) -> i32 {
        self.woken.as_raw_fd()
    }

    /// Begins a call. `future` gets its answer from `drain`. Returns a number for `cancel`.
    fn start(&self, op: &Op, future: Py<PyAny>) -> PyResult<u64> {
        if self.process.has_forked() {
            let message = "this event loop belongs to the process from which this one was forked";
            return Err(PyRuntimeError::new_err(message));
        }
        let work = op.take()?;
        let runtime = runtime::handle()?;
        let answers = self.answers.clone();
        let mut calls = lock(&self.calls);
        calls.last += 1;
        let call = calls.last;
        let task = runtime.spawn(async move { answers.push(call, work.await) });
        let task = task.abort_handle();
        calls.pending.insert(call, Pending { future, task });
        Ok(call)
    }

    /// Ends a call: nothing is held or waited for by it. An answer that was under way is dropped,
    /// which releases its lease.
    fn cancel(&self, call: u64) {
        let pending = lock(&self.calls).pending.remove(&call);
        if let Some(pending) = pending {
            pending.task.abort();
        }
    }

    /// Takes all answers that are there.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.forget_wakes();
        let answers = take(&mut *lock(&self.answers.list));
        for (call, answer) in answers {
            let Some(pending) = lock(&self.calls).pending.remove(&call) else {
                continue;
            };
            let future = pending.future.bind(py);
            if future.call_method0("done")?.is_truthy()? {
                continue;
            }
            match answer {
                Ok(output) => future.call_method1("set_result", (output.into_python(py)?,))?,
                Err(failure) => future.call_method1("set_exception", (failure.raise(py),))?,
            };
        }
        Ok(())
    }

    /// Ends all calls.
    fn close(&self) {
        let pending = take(&mut lock(&self.calls).pending);
        for call in pending.values() {
            call.task.abort();
        }
        let answers = take(&mut *lock(&self.answers.list));
        // Without the lock: leases in it are released, and futures may run code of Python.
        drop((answers, pending));
    }

    // A loop that was not closed is garbage with its futures and its bridge.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let calls = self.calls.try_lock();
        let mut calls = calls.iter().flat_map(|calls| calls.pending.values());
        calls.try_for_each(|call| visit.call(&call.future))
    }

    fn __clear__(&self) {
        self.close();
    }
}

impl Bridge {
    /// Reads what has woken the loop, before the answers are taken: those that come later wake it
    /// again.
    fn forget_wakes(&self) {
        let mut bytes = [0; 64];
        loop {
            match (&self.woken).read(&mut bytes) {
                Ok(64) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // The calls of a parent go on there.
        if !self.process.has_forked() {
            self.close();
        }
    }
}

/// Whoever panics leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
