//! A lease, and the end of it.

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold::{Any, Lease as CoreLease, LeaseState, LossSignal, Released};
use pyo3::prelude::*;
use tokio::sync::RwLock;

use crate::args::duration;
use crate::failure::Failure;
use crate::op::{Op, Output};

/// A lease. What is dropped unreleased is released in the background.
#[pyclass(frozen)]
pub(crate) struct Lease(Arc<Inner>);

struct Inner {
    key: String,
    token: Option<u64>,
    signal: LossSignal,
    /// Until its release begins, which waits for what was asked of it before.
    lease: RwLock<Option<CoreLease<Any>>>,
}

impl Lease {
    pub(crate) fn new(lease: CoreLease<Any>) -> Self {
        Self(Arc::new(Inner {
            key: lease.key().to_string(),
            token: lease.token().map(leasehold::Token::get),
            signal: lease.loss_signal(),
            lease: RwLock::new(Some(lease)),
        }))
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn key(&self) -> &str {
        &self.0.key
    }

    /// The fencing token; nothing for those who share the key.
    #[getter]
    fn token(&self) -> Option<u64> {
        self.0.token
    }

    /// How many seconds it is valid without another renewal. No round trip.
    #[getter]
    fn remaining(&self) -> f64 {
        let remaining = self.0.look(CoreLease::remaining);
        remaining.unwrap_or_default().as_secs_f64()
    }

    /// Whether its release has not begun.
    #[getter]
    fn is_open(&self) -> bool {
        self.0.look(|_| ()).is_some()
    }

    #[getter]
    fn is_lost(&self) -> bool {
        self.0.signal.is_lost()
    }

    /// Fails if it is lost or released. No round trip.
    fn check(&self) -> PyResult<()> {
        let checked = self.0.look(check);
        let released = || Err(Failure::released(&self.0.key, "hold"));
        checked.unwrap_or_else(released).map_err(PyErr::from)
    }

    /// Waits until it is lost: no if it is released first, or this time is over.
    fn lost(&self, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Op> {
        let limit = timeout.map(|timeout| duration("timeout", timeout));
        let (limit, signal) = (limit.transpose()?, self.0.signal.clone());
        Ok(Op::new(async move {
            let lost = match limit {
                None => signal.lost().await.is_some(),
                Some(limit) => {
                    let lost = tokio::time::timeout(limit, signal.lost()).await;
                    lost.is_ok_and(|lost| lost.is_some())
                }
            };
            Ok(Output::Truth(lost))
        }))
    }

    /// Renews it, for its TTL or for this long from now.
    fn renew(&self, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<Op> {
        let ttl = ttl.map(|ttl| duration("ttl", ttl)).transpose()?;
        let inner = self.0.clone();
        Ok(Op::new(async move {
            let lease = inner.lease.read().await;
            let Some(lease) = lease.as_ref() else {
                return Err(Failure::released(&inner.key, "renew"));
            };
            match ttl {
                None => lease.renew().await?,
                Some(ttl) => lease.renew_for(ttl).await?,
            }
            Ok(Output::Nothing)
        }))
    }

    /// Releases it. Answers whether it was held until now: no if it is released twice.
    fn release(&self) -> Op {
        let (inner, taken) = (self.0.clone(), self.0.take());
        Op::new(async move {
            let held = inner.release(taken).await.unwrap_or(Ok(false))?;
            Ok(Output::Truth(held))
        })
    }

    /// Releases it after the work: fails if it was lost before. No answer to the release changes
    /// nothing about the work, since the lease was valid to its end.
    fn finish(&self) -> Op {
        let checked = self.0.look(check).unwrap_or(Ok(()));
        let (inner, taken) = (self.0.clone(), self.0.take());
        Op::new(async move {
            checked?;
            match inner.release(taken).await {
                Some(Ok(false)) => Err(Failure::lost_at_release(&inner.key)),
                None | Some(Ok(true) | Err(_)) => Ok(Output::Nothing),
            }
        })
    }
}

impl Inner {
    /// What is seen of the lease until its release begins.
    fn look<T>(&self, look: impl FnOnce(&CoreLease<Any>) -> T) -> Option<T> {
        self.lease.try_read().ok()?.as_ref().map(look)
    }

    /// Takes the lease, if nothing is asked of it at this time. Whoever drops it releases it: so a
    /// release that is cancelled before it has begun goes on all the same.
    fn take(&self) -> Option<CoreLease<Any>> {
        self.lease.try_write().ok()?.take()
    }

    /// Nothing if it was released before.
    async fn release(&self, taken: Option<CoreLease<Any>>) -> Option<Result<bool, Failure>> {
        let lease = match taken {
            Some(lease) => lease,
            None => self.lease.write().await.take()?,
        };
        let released = lease.release().await;
        let held = released.map(|released| released == Released::Held);
        Some(held.map_err(Failure::from))
    }
}

/// The error of a lease that is lost: the library words it for work under the lease.
fn check(lease: &CoreLease<Any>) -> Result<(), Failure> {
    if !matches!(lease.state(), LeaseState::Lost(_)) {
        return Ok(());
    }
    let mut none = std::pin::pin!(lease.run(ready(())));
    match none.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(checked) => Ok(checked?),
        Poll::Pending => Ok(()),
    }
}
