//! A lock: keys, a mode and options. It is made anew for each claim, so that a forked child has one of
//! its own client.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    Any, ClaimContext, Client as CoreClient, Error, Invalid, Key, LeaseParts, Lock as CoreLock,
    LockOptions, Mode, MultiLease, Owner,
};
use leasehold_store::clock;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::args::{self, duration};
use crate::client::Connections;
use crate::failure::Failure;
use crate::lease::Lease;
use crate::op::Op;

/// A lock of a client.
#[pyclass(frozen)]
pub(crate) struct Lock(Arc<Inner>);

struct Inner {
    connections: Arc<Connections>,
    /// Several are taken together.
    keys: Vec<String>,
    mode: Mode,
    /// How long its claims wait, if their caller does not say.
    timeout: Option<Duration>,
    /// How long they wait before they look for deadlocks among the work of threads and tasks.
    deadlock_timeout: Option<Duration>,
    options: Vec<LockOption>,
}

type LockOption = Box<dyn Fn(CoreLock) -> Result<CoreLock, Error> + Send + Sync>;

/// How a lock gets an option with this value.
type Set<T> = fn(CoreLock, &T) -> Result<CoreLock, Error>;

/// Who acquires: the secret of an owner, who may have it already, and the number of the work.
#[derive(FromPyObject)]
pub(crate) struct Who(Option<String>, Option<u64>);

impl Lock {
    pub(crate) fn new(
        connections: Arc<Connections>,
        of: &str,
        keys: Vec<String>,
        mode: Mode,
        given: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        if keys.is_empty() {
            let no_key = Invalid::new("the multi-lock has no key", "name at least one key");
            return Err(Failure::from(no_key).into());
        }
        for key in &keys {
            Key::new(key).map_err(Failure::from)?;
        }
        let mut made = Inner {
            connections,
            keys,
            mode,
            timeout: None,
            deadlock_timeout: None,
            options: Vec::new(),
        };
        args::options(of, given, |name, value| {
            let time = || duration(name, value);
            let text = || value.extract::<String>();
            match name {
                "timeout" => made.timeout = Some(time()?),
                "deadlock_timeout" => made.deadlock_timeout = Some(time()?),
                "ttl" => made.set(time()?, |lock, ttl| Ok(lock.with_ttl(*ttl))),
                "max_hold" => made.set(time()?, |lock, max| Ok(lock.with_max_hold(*max))),
                "min_hold" => made.set(time()?, |lock, min| Ok(lock.with_min_hold(*min))),
                "label" => made.set(text()?, |lock, label| Ok(lock.with_label(label))),
                "note" => made.set(text()?, |lock, note| lock.with_note(note)),
                "unfair" if value.is_truthy()? => made.set((), |lock, ()| Ok(lock.unfair())),
                "unfair" => {}
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        // A client that is not connected yet checks it with the first call.
        if let Some(client) = made.connections.connected() {
            let lock = made.of_client(client, &Who(None, None))?;
            lock.on_all(&made.keys).map(drop).map_err(Failure::from)?;
        }
        Ok(Self(Arc::new(made)))
    }

    fn limit(&self, timeout: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
        match timeout {
            forever if forever.is_none() => Ok(None),
            default if default.eq(-1)? => Ok(self.0.timeout),
            limit => duration("timeout", limit).map(Some),
        }
    }

    fn parts(&self, parts: &str) -> Result<LeaseParts<Any>, Failure> {
        Failure::unless_single(&self.0.keys)?;
        let read = serde_json::from_str(parts);
        let hint = "give what hand_over() or parts() has returned, unchanged";
        read.map_err(|_| Invalid::new("these are not the parts of a lease", hint).into())
    }
}

#[pymethods]
impl Lock {
    #[getter]
    fn keys(&self) -> &[String] {
        &self.0.keys
    }

    /// Whether its claims belong to the work of a thread or task.
    #[getter]
    fn detects_deadlocks(&self) -> bool {
        self.0.deadlock_timeout.is_some()
    }

    /// Waits for a lease: for a time, for ever (`None`), or as the lock does (-1). If a key is
    /// busy, it answers nothing with `or_none`, and fails otherwise.
    fn acquire(&self, timeout: &Bound<'_, PyAny>, or_none: bool, who: Who) -> PyResult<Op> {
        let (lock, limit) = (self.0.clone(), self.limit(timeout)?);
        Ok(Op::new(async move {
            match lock.acquire(limit, &who).await {
                Ok(None) if !or_none => Err(Failure::busy(&lock.keys)),
                Err(failure) if or_none && failure.is_timeout() => Ok(None),
                acquired => Ok(acquired?.map(Lease::new)),
            }
        }))
    }

    /// Goes on with the lease of these parts: one that was handed over, or with `force` any.
    fn adopt(&self, parts: &str, force: bool, who: Who) -> PyResult<Op> {
        let (lock, parts) = (self.0.clone(), self.parts(parts)?);
        Ok(Op::new(async move {
            let lock = lock.lock(&who).await?;
            let lease = match force {
                true => lock.adopt_by_force(&parts).await?,
                false => lock.adopt(&parts).await?,
            };
            Ok(Lease::new(lease.into()))
        }))
    }

    /// Goes on with the lease of these parts, or waits for a new one if there is no such lease.
    fn recover(&self, parts: &str, timeout: &Bound<'_, PyAny>, who: Who) -> PyResult<Op> {
        let (inner, parts, limit) = (self.0.clone(), self.parts(parts)?, self.limit(timeout)?);
        Ok(Op::new(async move {
            let (lock, how) = inner.begin(limit, &who).await?;
            let recovered = match limit {
                Some(Duration::ZERO) => {
                    let recovered = lock.try_recover(&parts).await?;
                    recovered.ok_or_else(|| Failure::busy(&inner.keys))?
                }
                _ => lock.recover(&parts, how).await?,
            };
            Ok((Lease::new(recovered.lease.into()), recovered.is_new))
        }))
    }
}

impl Inner {
    fn set<T: Send + Sync + 'static>(&mut self, value: T, set: Set<T>) {
        self.options.push(Box::new(move |lock| set(lock, &value)));
    }

    /// The lock of this client on the first key. No I/O.
    fn of_client(&self, client: &CoreClient, who: &Who) -> Result<CoreLock, Failure> {
        let (Who(owner, work), mut lock) = (who, client.lock_of(&self.keys[0], self.mode)?);
        for option in &self.options {
            lock = option(lock)?;
        }
        if let Some(work) = work {
            lock = lock.with_context(&ClaimContext::from_random(*work));
        }
        Ok(match owner {
            Some(owner) => lock.with_owner(&Owner::parse(owner)?)?,
            None => lock,
        })
    }

    async fn lock(&self, who: &Who) -> Result<CoreLock, Failure> {
        self.of_client(self.connections.client().await?, who)
    }

    /// The lock, and how its claim waits: for what connecting leaves of that time.
    async fn begin(
        &self,
        limit: Option<Duration>,
        who: &Who,
    ) -> Result<(CoreLock, LockOptions), Failure> {
        // Once connected, nothing is subtracted: messages name the limit as its caller does.
        let began = self.connections.connected().is_none().then(clock::now);
        let (lock, mut how) = (self.lock(who).await?, LockOptions::new());
        if let Some(limit) = limit {
            let connected = began.map(|began| clock::now().since(began));
            how = how.within(limit.saturating_sub(connected.unwrap_or_default()));
        }
        if let Some(after) = self.deadlock_timeout {
            how = how.deadlock_timeout(after);
        }
        Ok((lock, how))
    }

    async fn acquire(
        &self,
        limit: Option<Duration>,
        who: &Who,
    ) -> Result<Option<MultiLease<Any>>, Failure> {
        let (lock, how) = self.begin(limit, who).await?;
        let waits = limit != Some(Duration::ZERO);
        Ok(match &*self.keys {
            [_] if waits => Some(lock.lock_opts(how).await?.into()),
            [_] => lock.try_lock().await?.map(MultiLease::from),
            keys if waits => Some(lock.on_all(keys)?.lock_opts(how).await?),
            keys => lock.on_all(keys)?.try_lock().await?,
        })
    }
}
