//! A call that may wait, and how a thread waits for it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use leasehold::background;
use leasehold::{ClientInfo, Inspection, Leader};
use leasehold_store::sync::lock;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::fork;

/// How long the main thread waits before it looks for signals: Ctrl-C has to be noticed within
/// 50 ms.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);

/// What makes the answer of a call in Python. It has nothing of Python before, since calls are driven on
/// threads without Python.
pub(crate) type Output = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;
pub(crate) type Answer = Result<Output, Failure>;
pub(crate) type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The answer of a call that has none: `None` in Python.
pub(crate) const NOTHING: Option<()> = None;

/// Who holds a key or waits for it: a row, which Python gives its names.
pub(crate) type Claim = (String, u32, Option<String>, u64, f64, Option<String>);

/// Who holds a key, and who waits for it.
pub(crate) fn claims(seen: Inspection) -> (Vec<Claim>, Vec<Claim>) {
    let holders = seen.holders.into_iter();
    let holders = holders.map(|it| claim(it.owner, it.token.get(), it.expires_in, it.note));
    let waiters = seen.waiters.into_iter();
    let waiters = waiters.map(|it| claim(it.owner, it.position, it.expires_in, None));
    (holders.collect(), waiters.collect())
}

pub(crate) fn leads(it: Leader) -> Claim {
    claim(it.owner, it.term.get(), it.expires_in, it.note)
}

fn claim(owner: ClientInfo, number: u64, left: Duration, note: Option<String>) -> Claim {
    let left = match left {
        Duration::MAX => f64::INFINITY,
        left => left.as_secs_f64(),
    };
    (owner.host, owner.pid, owner.label, number, left, note)
}

/// A call that has not begun.
#[pyclass(frozen)]
pub(crate) struct Op(Mutex<Option<Work>>);

impl Op {
    pub(crate) fn new<T>(work: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        let answer = async move {
            let answer = work.await;
            answer.map(|it| -> Output { Box::new(move |py| it.into_py_any(py)) })
        };
        Self(Mutex::new(Some(Box::pin(answer))))
    }

    /// Its work, once.
    pub(crate) fn take(&self) -> PyResult<Work> {
        let begun = || PyRuntimeError::new_err("this call has begun already");
        lock(&self.0).take().ok_or_else(begun)
    }
}

#[pymethods]
impl Op {
    /// Waits for the answer on this thread, without the interpreter. A signal ends it: then the
    /// work is dropped, which leaves the queue.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match drive(py, self.take()?)? {
            Ok(output) => output(py),
            Err(failure) => Err(failure.raise(py)),
        }
    }
}

fn drive(py: Python<'_>, mut work: Work) -> PyResult<Answer> {
    background::enter().map_err(Failure::from)?;
    // The answer; `None` if there is none after this time.
    let mut within = |limit| {
        py.detach(|| {
            let answer = poll_fn(|context| step(&mut work, context.waker()));
            background::block_within(limit, answer)
        })
    };
    // Most answers come before that: then nobody has to ask which thread this is.
    if let Some(answer) = within(SIGNAL_INTERVAL) {
        return Ok(answer);
    }
    let interval = match is_main_thread(py)? {
        true => SIGNAL_INTERVAL,
        false => Duration::MAX,
    };
    loop {
        py.check_signals()?;
        if let Some(answer) = within(interval) {
            return Ok(answer);
        }
    }
}

/// Handlers of signals run on the main thread only.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?;
    Ok(main.is(&threading.call_method0("current_thread")?))
}

/// Drives work on this thread, which does not have the interpreter, as far as it gets.
pub(crate) fn step(work: &mut Work, waker: &Waker) -> Poll<Answer> {
    let Some(_no_fork) = fork::driving() else {
        // The runtime, which this thread may drive too, is to come to rest.
        waker.wake_by_ref();
        thread::yield_now();
        return Poll::Pending;
    };
    work.as_mut().poll(&mut Context::from_waker(waker))
}
