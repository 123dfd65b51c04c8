//! A call that may wait, and how a thread waits for it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use leasehold::background;
use leasehold::{Any, ClientInfo, Inspection, Leader, MultiLease};
use leasehold_store::sync::lock;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::Failure;
use crate::fork;
use crate::lease::Lease;
use crate::logging::Record;

/// How long the main thread waits before it looks for signals: Ctrl-C has to be noticed within
/// 50 ms.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);

/// What a call answers. It has nothing of Python, since it is made on threads without Python.
pub(crate) enum Output {
    Nothing,
    Truth(bool),
    Count(u64),
    Text(String),
    Lease(MultiLease<Any>),
    /// A lease, and whether it is a new one.
    Recovered(MultiLease<Any>, bool),
    Seen(Inspection),
    Leader(Option<Leader>),
    Records(Vec<Record>),
}

pub(crate) type Answer = Result<Output, Failure>;
pub(crate) type Work = Pin<Box<dyn Future<Output = Answer> + Send>>;

impl Output {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Truth(truth) => truth.into_py_any(py),
            Self::Count(count) => count.into_py_any(py),
            Self::Text(text) => text.into_py_any(py),
            Self::Lease(lease) => Lease::new(lease).into_py_any(py),
            Self::Recovered(lease, is_new) => (Lease::new(lease), is_new).into_py_any(py),
            Self::Seen(seen) => claims(&seen).into_py_any(py),
            Self::Records(records) => records.into_py_any(py),
            Self::Leader(leader) => leader.as_ref().map(leads).into_py_any(py),
        }
    }
}

/// Who holds a key and who waits for it: a row for each, which Python gives its names.
type Claim<'a> = (&'a str, u32, Option<&'a str>, u64, f64, Option<&'a str>);

fn claims(seen: &Inspection) -> (Vec<Claim<'_>>, Vec<Claim<'_>>) {
    let holders = seen.holders.iter();
    let holders = holders.map(|it| claim(&it.owner, it.token.get(), it.expires_in, &it.note));
    let waiters = seen.waiters.iter();
    let waiters = waiters.map(|it| claim(&it.owner, it.position, it.expires_in, &None));
    (holders.collect(), waiters.collect())
}

fn leads(it: &Leader) -> Claim<'_> {
    claim(&it.owner, it.term.get(), it.expires_in, &it.note)
}

fn claim<'a>(
    owner: &'a ClientInfo,
    number: u64,
    left: Duration,
    note: &'a Option<String>,
) -> Claim<'a> {
    let (label, left) = (owner.label.as_deref(), left.as_secs_f64());
    (&owner.host, owner.pid, label, number, left, note.as_deref())
}

/// A call that has not begun.
#[pyclass(frozen)]
pub(crate) struct Op(Mutex<Option<Work>>);

impl Op {
    pub(crate) fn new(work: impl Future<Output = Answer> + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::pin(work))))
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
            Ok(output) => output.into_python(py),
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
