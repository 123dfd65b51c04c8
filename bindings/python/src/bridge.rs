//! The bridge from the runtime to one event loop.
//!
//! The thread of the loop drives its calls itself, as the face for threads does: a step that needs
//! no waiting crosses no thread, and what one task passes on reaches the next in the same turn of
//! the loop. The thread of the runtime never touches the interpreter. Where it has news of a call, it
//! lists the call, and wakes the loop by a socket once for all of them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::mem::{forget, take};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use leasehold::background;
use leasehold_store::fork::Process;
use leasehold_store::sync::lock;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use crate::failure::Failure;
use crate::op::{Answer, Op, Work, step};

/// How often the loop of a forked child looks at what is its parent's.
const CHILD_INTERVAL: Duration = Duration::from_millis(20);

/// Calls that can go on, which the loop has not taken.
struct Woken {
    list: Mutex<Vec<u64>>,
    wake: UnixStream,
}

struct Call(u64, Arc<Woken>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let mut list = lock(&self.1.list);
        list.push(self.0);
        // One byte for all until the loop has taken them. A socket that is full or closed wakes
        // nobody, and need not.
        if list.len() == 1 {
            let _ = (&self.1.wake).write(&[1]);
        }
    }
}

struct Pending {
    number: u64,
    future: Py<PyAny>,
    work: Work,
    waker: Waker,
}

/// The calls of one event loop.
#[pyclass(frozen)]
pub(crate) struct Bridge {
    woken: Arc<Woken>,
    socket: UnixStream,
    calls: Mutex<HashMap<u64, Pending>>,
    last: AtomicU64,
    /// Whether a call has begun since the loop has taken those that can go on.
    has_begun: AtomicBool,
    process: Process,
}

#[pymethods]
impl Bridge {
    #[new]
    fn new() -> PyResult<Self> {
        let (socket, wake) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        Ok(Self {
            woken: Arc::new(Woken {
                list: Mutex::default(),
                wake,
            }),
            socket,
            calls: Mutex::default(),
            last: AtomicU64::new(0),
            has_begun: AtomicBool::new(false),
            process: Process::this(),
        })
    }

    /// What the loop has to watch.
    fn fileno(&self) -> i32 {
        self.socket.as_raw_fd()
    }

    /// Begins a call. `future` gets its answer, at once or in `drain`. Returns a number for `cancel`.
    fn start(&self, py: Python<'_>, op: &Op, future: Py<PyAny>) -> PyResult<u64> {
        if self.process.has_forked() {
            return Err(Failure::forked().into());
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let call = Pending {
            number,
            future,
            work: op.take()?,
            waker: Waker::from(Arc::new(Call(number, self.woken.clone()))),
        };
        // Those that begin in the same turn of the loop go together.
        if self.has_begun.swap(true, Ordering::Relaxed) {
            call.waker.wake_by_ref();
            lock(&self.calls).insert(number, call);
        } else {
            self.drive(py, vec![call])?;
        }
        Ok(number)
    }

    /// Ends a call: nothing is held or waited for by it.
    fn cancel(&self, call: u64) {
        // Dropped without the lock.
        let _pending = lock(&self.calls).remove(&call);
    }

    /// Lets all calls go on that can.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        if self.process.has_forked() {
            return self.refuse(py);
        }
        // Before the calls are taken: those that come later wake the loop again.
        let _ = (&self.socket).read(&mut [0; 8]);
        self.has_begun.store(false, Ordering::Relaxed);
        let woken = take(&mut *lock(&self.woken.list));
        let calls = woken.iter().map(|call| lock(&self.calls).remove(call));
        self.drive(py, calls.flatten().collect())
    }

    /// Ends all calls.
    fn close(&self) {
        let pending = take(&mut *lock(&self.calls));
        // The calls of a parent go on there. Without the lock: futures may run code of Python.
        if self.process.has_forked() {
            forget(pending);
        }
    }

    // A loop that was not closed is garbage with its futures and its bridge.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let calls = self.calls.try_lock();
        let mut calls = calls.iter().flat_map(|calls| calls.values());
        calls.try_for_each(|call| visit.call(&call.future))
    }

    fn __clear__(&self) {
        self.close();
    }
}

impl Bridge {
    /// Ends the calls of a parent in its child. That shares the socket, and the parent would not
    /// hear of what was read here: until it reads it, the child's loop comes here in each turn.
    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        let pending = take(&mut *lock(&self.calls));
        if pending.is_empty() {
            py.detach(|| thread::park_timeout(CHILD_INTERVAL));
        }
        let ended = pending.into_values().map(|call| {
            forget(call.work);
            settle(call.future.bind(py), Err(Failure::forked()))
        });
        ended.fold(Ok(()), Result::and)
    }

    /// Takes a step of each. The interpreter is left to other threads meanwhile.
    fn drive(&self, py: Python<'_>, calls: Vec<Pending>) -> PyResult<()> {
        let runtime = background::enter().map_err(Failure::from);
        let steps: Vec<_> = py.detach(|| {
            let _timers = runtime.as_ref().map(|runtime| runtime.enter());
            let drive = |mut call: Pending| match &runtime {
                Ok(_) => (step(&mut call.work, &call.waker), call),
                // The bridge has the call no more, and its caller waits.
                Err(failure) => (Poll::Ready(Err(failure.clone())), call),
            };
            calls.into_iter().map(drive).collect()
        });
        let mut outcome = Ok(());
        for (step, call) in steps {
            match step {
                Poll::Ready(answer) => outcome = outcome.and(settle(call.future.bind(py), answer)),
                Poll::Pending => drop(lock(&self.calls).insert(call.number, call)),
            }
        }
        outcome
    }
}

/// Gives a future its answer, unless it was cancelled.
fn settle(future: &Bound<'_, PyAny>, answer: Answer) -> PyResult<()> {
    let (py, is_done) = (future.py(), future.call_method0("done")?);
    match answer {
        _ if is_done.is_truthy()? => is_done,
        Ok(output) => future.call_method1("set_result", (output(py)?,))?,
        Err(failure) => future.call_method1("set_exception", (failure.raise(py),))?,
    };
    Ok(())
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.close();
    }
}
