//! Errors on their way to Python: plain values, since they are made on threads without Python.

use leasehold::ErrorKind;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// An error of leasehold or of this binding.
#[derive(Debug)]
pub(crate) struct Failure(Box<Parts>);

/// What `make` of Python takes.
#[derive(Debug, Default, IntoPyObjectRef)]
struct Parts {
    kind: String,
    message: String,
    hint: Option<String>,
    key: Option<String>,
    operation: Option<String>,
    retry_after: Option<f64>,
}

impl Failure {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            kind: format!("{kind:?}"),
            message: message.into(),
            ..Parts::default()
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn no_thread(error: &std::io::Error) -> Self {
        let message = format!("the thread of leasehold cannot be started: {error}");
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client is closed").hint("connect again")
    }

    pub(crate) fn several_keys() -> Self {
        let failure = Self::invalid("a lease on several keys cannot be handed over or recovered");
        failure.hint("lock each key by itself")
    }

    pub(crate) fn busy(key: &str) -> Self {
        let message = format!("cannot acquire {key:?}: it is busy");
        Self::new(ErrorKind::Timeout, message).on(key, "acquire")
    }

    pub(crate) fn released(key: &str, operation: &str) -> Self {
        let message = format!("the lease of {key:?} was released");
        Self::new(ErrorKind::Lost, message).on(key, operation)
    }

    /// Lost, and nobody noticed before its release.
    pub(crate) fn lost_at_release(key: &str) -> Self {
        let message = format!("cannot release {key:?}: the lease was lost before");
        let failure = Self::new(ErrorKind::Lost, message).on(key, "release");
        failure.hint("look at the result of the work: another may have held the key")
    }

    fn on(mut self, key: &str, operation: &str) -> Self {
        self.0.key = Some(key.into());
        self.0.operation = Some(operation.into());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Whether the key did not become free in time.
    pub(crate) fn is_timeout(&self) -> bool {
        self.0.kind == "Timeout"
    }

    /// The exception of it.
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let made = MAKE
            .import(py, "leasehold_lock._errors", "make")
            .and_then(|make| make.call((), Some(&self.0.as_ref().into_pyobject(py)?)));
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Self {
        // The only one of two words is HandOver.
        let operation = format!("{:?}", error.operation()).replace("dO", "d_o");
        Self(Box::new(Parts {
            kind: format!("{:?}", error.kind()),
            message: error.to_string(),
            hint: error.hint().map(str::to_owned),
            key: error.key().map(ToString::to_string),
            operation: Some(operation.to_lowercase()),
            retry_after: error.retry_after().map(|after| after.as_secs_f64()),
        }))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.raise(py))
    }
}
