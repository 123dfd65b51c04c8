//! Errors on their way to Python: plain values, since they are made on threads without Python.

use leasehold::{ErrorKind, Invalid};
use pyo3::prelude::*;

/// An error of leasehold or of this binding.
#[derive(Debug, Clone)]
pub(crate) struct Failure(Box<Parts>);

/// What `make` of Python takes.
#[derive(Debug, Default, Clone, IntoPyObjectRef)]
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

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client is closed").hint("connect again")
    }

    pub(crate) fn forked() -> Self {
        let message = "this event loop belongs to the process from which this one was forked";
        Self::new(ErrorKind::Closed, message).hint("connect again, in a loop of this process")
    }

    pub(crate) fn unless_single<T>(keys: &[T]) -> Result<(), Self> {
        let message = "a lease on several keys cannot be handed over or recovered";
        match keys {
            [_] => Ok(()),
            _ => Err(Invalid::new(message, "lock each key by itself").into()),
        }
    }

    /// Of several keys, the library does not say which is busy.
    pub(crate) fn busy(keys: &[String]) -> Self {
        let message = match keys {
            [key] => format!("cannot acquire {key:?}: it is busy"),
            _ => format!("cannot acquire {keys:?} together: one of them is busy"),
        };
        Self::new(ErrorKind::Timeout, message).on(&keys[0], "acquire")
    }

    pub(crate) fn released(key: &str, operation: &str) -> Self {
        let message = format!("the lease of {key:?} was released");
        Self::new(ErrorKind::Lost, message).on(key, operation)
    }

    pub(crate) fn of_parent(key: &str, operation: &str) -> Self {
        let message = format!("this process was forked, and the lease of {key:?} is its parent's");
        let failure = Self::new(ErrorKind::Closed, message).on(key, operation);
        failure.hint("connect again in the forked process")
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
        // Nothing is kept, since a fork on another thread would leave its beginning to the child.
        let made = py.import("leasehold_lock._errors").and_then(|errors| {
            let parts = self.0.as_ref().into_pyobject(py)?;
            errors.call_method("make", (), Some(&parts))
        });
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Self {
        // In the words of the calls of Python: HandOver is of two, Proclaim has another.
        let operation = format!("{:?}", error.operation()).replace("dO", "d_o");
        let operation = operation.replace("Proclaim", "set_note");
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

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        let mut failure = Self::new(ErrorKind::Invalid, invalid.message);
        failure.0.hint = invalid.hint;
        failure
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.raise(py))
    }
}
