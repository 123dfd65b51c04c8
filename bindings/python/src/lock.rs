//! A lock: a key, a mode and options. It is made anew for each claim, so that a forked child has
//! one of its own client.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Any, Client as CoreClient, Lease, Lock as CoreLock, Mode};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::args::{duration, options};
use crate::client::Connections;
use crate::failure::Failure;
use crate::op::{Op, Output};

/// What a lock is made of.
pub(crate) struct LockSpec {
    key: String,
    mode: Mode,
    /// How long its claims wait, if their caller does not say.
    timeout: Option<Duration>,
    ttl: Option<Duration>,
    max_hold: Option<Duration>,
    min_hold: Option<Duration>,
    label: Option<String>,
    unfair: bool,
}

impl LockSpec {
    pub(crate) fn new(
        of: &str,
        key: &str,
        mode: Mode,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut spec = Self {
            key: key.to_owned(),
            mode,
            timeout: None,
            ttl: None,
            max_hold: None,
            min_hold: None,
            label: None,
            unfair: false,
        };
        options(of, given, |name, value| {
            match name {
                "timeout" => spec.timeout = Some(duration(name, value)?),
                "ttl" => spec.ttl = Some(duration(name, value)?),
                "max_hold" => spec.max_hold = Some(duration(name, value)?),
                "min_hold" => spec.min_hold = Some(duration(name, value)?),
                "label" => spec.label = Some(value.extract()?),
                "unfair" => spec.unfair = value.extract()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(spec)
    }

    /// The lock of this client. No I/O.
    pub(crate) fn lock(&self, client: &CoreClient) -> Result<CoreLock, Failure> {
        let mut lock = client.lock_of(&self.key, self.mode)?;
        if let Some(ttl) = self.ttl {
            lock = lock.with_ttl(ttl);
        }
        if let Some(max_hold) = self.max_hold {
            lock = lock.with_max_hold(max_hold);
        }
        if let Some(min_hold) = self.min_hold {
            lock = lock.with_min_hold(min_hold);
        }
        if let Some(label) = &self.label {
            lock = lock.with_label(label);
        }
        Ok(if self.unfair { lock.unfair() } else { lock })
    }
}

/// A lock of a client.
#[pyclass(frozen)]
pub(crate) struct Lock(Arc<Inner>);

struct Inner {
    connections: Arc<Connections>,
    spec: LockSpec,
}

impl Lock {
    pub(crate) fn new(connections: Arc<Connections>, spec: LockSpec) -> Self {
        Self(Arc::new(Inner { connections, spec }))
    }
}

#[pymethods]
impl Lock {
    #[getter]
    fn key(&self) -> &str {
        &self.0.spec.key
    }

    /// Waits for a lease: for a time, for ever (`None`), or as the lock does (-1). If the key is
    /// busy, it answers nothing with `or_none`, and fails otherwise.
    fn acquire(&self, timeout: &Bound<'_, PyAny>, or_none: bool) -> PyResult<Op> {
        let limit = if timeout.is_none() {
            None
        } else if timeout.eq(-1)? {
            self.0.spec.timeout
        } else {
            Some(duration("timeout", timeout)?)
        };
        let lock = self.0.clone();
        Ok(Op::new(async move {
            let acquired = lock.acquire(limit).await;
            match acquired {
                Ok(Some(lease)) => Ok(Output::Lease(lease)),
                Ok(None) if !or_none => Err(Failure::busy(&lock.spec.key)),
                Ok(None) => Ok(Output::Nothing),
                Err(failure) if or_none && failure.is_timeout() => Ok(Output::Nothing),
                Err(failure) => Err(failure),
            }
        }))
    }

    /// Whether anybody holds the key.
    fn locked(&self) -> Op {
        let lock = self.0.clone();
        Op::new(async move {
            let client = lock.connections.client().await?;
            let locked = lock.spec.lock(client)?.is_locked().await?;
            Ok(Output::Truth(locked))
        })
    }
}

impl Inner {
    async fn acquire(&self, limit: Option<Duration>) -> Result<Option<Lease<Any>>, Failure> {
        let client = self.connections.client().await?;
        let lock = self.spec.lock(client)?;
        Ok(match limit {
            None => Some(lock.lock().await?),
            Some(Duration::ZERO) => lock.try_lock().await?,
            Some(limit) => Some(lock.lock_within(limit).await?),
        })
    }
}
