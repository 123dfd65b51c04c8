//! A lock: keys, a mode and options. It is made anew for each claim, so that a forked child has one of
//! its own client.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    Any, Client as CoreClient, Error, Invalid, Key, LeaseParts, Lock as CoreLock, LockOptions,
};
use leasehold::{Mode, MultiLease, Owner};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::args::{self, duration};
use crate::client::Connections;
use crate::failure::Failure;
use crate::op::{Op, Output};

/// What a lock is made of.
pub(crate) struct LockSpec {
    /// Several are taken together.
    keys: Vec<String>,
    mode: Mode,
    /// How long its claims wait, if their caller does not say.
    timeout: Option<Duration>,
    options: Vec<LockOption>,
}

type LockOption = Box<dyn Fn(CoreLock) -> Result<CoreLock, Error> + Send + Sync>;

impl LockSpec {
    pub(crate) fn new(
        of: &str,
        keys: Vec<String>,
        mode: Mode,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if keys.is_empty() {
            let no_key = Invalid::new("the multi-lock has no key", "name at least one key");
            return Err(Failure::from(no_key).into());
        }
        for key in &keys {
            Key::new(key).map_err(Failure::from)?;
        }
        let (mut timeout, mut options) = (None, Vec::<LockOption>::new());
        args::options(of, given, |name, value| {
            let time = || duration(name, value);
            let text = || value.extract::<String>();
            options.push(match name {
                "timeout" => {
                    timeout = Some(time()?);
                    return Ok(true);
                }
                "ttl" => option(time()?, |lock, ttl| Ok(lock.with_ttl(*ttl))),
                "max_hold" => option(time()?, |lock, max| Ok(lock.with_max_hold(*max))),
                "min_hold" => option(time()?, |lock, min| Ok(lock.with_min_hold(*min))),
                "label" => option(text()?, |lock, label| Ok(lock.with_label(label))),
                "note" => option(text()?, |lock, note| lock.with_note(note)),
                "unfair" if value.is_truthy()? => option((), |lock, ()| Ok(lock.unfair())),
                "unfair" => return Ok(true),
                _ => return Ok(false),
            });
            Ok(true)
        })?;
        Ok(Self {
            keys,
            mode,
            timeout,
            options,
        })
    }

    pub(crate) fn check(&self, client: &CoreClient) -> Result<(), Failure> {
        Ok(self.lock(client, None)?.on_all(&self.keys).map(drop)?)
    }

    /// The lock of this client on the first key, for an owner that may have it already. No I/O.
    fn lock(&self, client: &CoreClient, owner: Option<&str>) -> Result<CoreLock, Failure> {
        let mut lock = client.lock_of(&self.keys[0], self.mode)?;
        for option in &self.options {
            lock = option(lock)?;
        }
        Ok(match owner {
            Some(owner) => lock.with_owner(&Owner::parse(owner)?)?,
            None => lock,
        })
    }
}

fn option<T: Send + Sync + 'static>(
    value: T,
    set: fn(CoreLock, &T) -> Result<CoreLock, Error>,
) -> LockOption {
    Box::new(move |lock| set(lock, &value))
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
    fn keys(&self) -> Vec<&str> {
        self.0.spec.keys.iter().map(String::as_str).collect()
    }

    /// Waits for a lease: for a time, for ever (`None`), or as the lock does (-1). If a key is
    /// busy, it answers nothing with `or_none`, and fails otherwise.
    fn acquire(
        &self,
        timeout: &Bound<'_, PyAny>,
        or_none: bool,
        owner: Option<String>,
    ) -> PyResult<Op> {
        let (lock, limit) = (self.0.clone(), self.limit(timeout)?);
        Ok(Op::new(async move {
            let acquired = lock.acquire(limit, owner.as_deref()).await;
            match acquired {
                Ok(Some(lease)) => Ok(Output::Lease(lease)),
                Ok(None) if !or_none => Err(Failure::busy(&lock.spec.keys[0])),
                Ok(None) => Ok(Output::Nothing),
                Err(failure) if or_none && failure.is_timeout() => Ok(Output::Nothing),
                Err(failure) => Err(failure),
            }
        }))
    }

    /// Goes on with the lease of these parts: one that was handed over, or with `force` any.
    fn adopt(&self, parts: &str, force: bool, owner: Option<String>) -> PyResult<Op> {
        let (lock, parts) = (self.0.clone(), self.parts(parts)?);
        Ok(Op::new(async move {
            let lock = lock.lock(owner.as_deref()).await?;
            let lease = match force {
                true => lock.adopt_by_force(&parts).await?,
                false => lock.adopt(&parts).await?,
            };
            Ok(Output::Lease(lease.into()))
        }))
    }

    /// Goes on with the lease of these parts, or waits for a new one if there is no such lease.
    fn recover(
        &self,
        parts: &str,
        timeout: &Bound<'_, PyAny>,
        owner: Option<String>,
    ) -> PyResult<Op> {
        let (inner, parts, limit) = (self.0.clone(), self.parts(parts)?, self.limit(timeout)?);
        Ok(Op::new(async move {
            let lock = inner.lock(owner.as_deref()).await?;
            let how = LockOptions::new();
            let recovered = match limit {
                None => lock.recover(&parts, how).await?,
                Some(Duration::ZERO) => {
                    let recovered = lock.try_recover(&parts).await?;
                    recovered.ok_or_else(|| Failure::busy(&inner.spec.keys[0]))?
                }
                Some(limit) => lock.recover(&parts, how.within(limit)).await?,
            };
            Ok(Output::Recovered(recovered.lease.into(), recovered.is_new))
        }))
    }
}

impl Lock {
    fn limit(&self, timeout: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
        match timeout {
            forever if forever.is_none() => Ok(None),
            default if default.eq(-1)? => Ok(self.0.spec.timeout),
            limit => duration("timeout", limit).map(Some),
        }
    }

    fn parts(&self, parts: &str) -> Result<LeaseParts<Any>, Failure> {
        if self.0.spec.keys.len() > 1 {
            return Err(Failure::several_keys());
        }
        let read = serde_json::from_str(parts);
        let hint = "give what hand_over() or parts() has returned, unchanged";
        read.map_err(|_| Invalid::new("these are not the parts of a lease", hint).into())
    }
}

/// Waits for a lease of that lock, whatever its leases are.
macro_rules! acquire {
    ($lock:expr, $limit:expr) => {
        match $limit {
            None => Some($lock.lock().await?),
            Some(Duration::ZERO) => $lock.try_lock().await?,
            Some(limit) => Some($lock.lock_within(limit).await?),
        }
    };
}

impl Inner {
    async fn lock(&self, owner: Option<&str>) -> Result<CoreLock, Failure> {
        self.spec.lock(self.connections.client().await?, owner)
    }

    async fn acquire(
        &self,
        limit: Option<Duration>,
        owner: Option<&str>,
    ) -> Result<Option<MultiLease<Any>>, Failure> {
        let lock = self.lock(owner).await?;
        if self.spec.keys.len() == 1 {
            return Ok(acquire!(lock, limit).map(MultiLease::from));
        }
        let lock = lock.on_all(&self.spec.keys)?;
        Ok(acquire!(lock, limit))
    }
}
