//! A lease, and the end of it.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::{
    Any, Client as CoreClient, Error, Lease as CoreLease, LeaseParts, LossSignal, MultiLease,
    Released, background,
};
use leasehold_store::fork::Process;
use leasehold_store::sync::lock;
use pyo3::prelude::*;
use tokio::sync::RwLock;

use crate::args::duration;
use crate::client::Client;
use crate::failure::Failure;
use crate::op::{NOTHING, Op};

/// A lease on one key or several. What is dropped unreleased is released in the background.
#[pyclass(frozen)]
pub(crate) struct Lease(Arc<Inner>);

struct Inner {
    /// The keys with their tokens, which those who share a key do not have.
    tokens: Vec<(String, Option<u64>)>,
    signal: LossSignal,
    process: Process,
    /// Until its release begins, which waits for what was asked of it before.
    lease: RwLock<Option<MultiLease<Any>>>,
}

type Asked<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

impl Lease {
    pub(crate) fn new(lease: MultiLease<Any>) -> Self {
        let tokens = lease.leases().iter().map(|part| {
            let token = part.token().map(leasehold::Token::get);
            (part.key().to_string(), token)
        });
        Self(Arc::new(Inner {
            tokens: tokens.collect(),
            signal: lease.loss_signal(),
            process: Process::this(),
            lease: RwLock::new(Some(lease)),
        }))
    }
}

#[pymethods]
impl Lease {
    #[getter]
    fn tokens(&self) -> Vec<(String, Option<u64>)> {
        self.0.tokens.clone()
    }

    /// How many seconds it is valid without another renewal. No round trip.
    #[getter]
    fn remaining(&self) -> f64 {
        let remaining = self.0.look(MultiLease::remaining);
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
    fn check(&self) -> Result<(), Failure> {
        let checked = self.0.look(|lease| self.0.check(lease));
        checked.unwrap_or_else(|| Err(self.0.released("hold")))
    }

    /// Waits until it is lost: no if it is released first, or this time is over.
    fn lost(&self, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Op> {
        let limit = timeout.map(|timeout| duration("timeout", timeout));
        let limit = limit.transpose()?.unwrap_or(Duration::MAX);
        let signal = self.0.signal.clone();
        Ok(Op::new(async move {
            let lost = tokio::time::timeout(limit, signal.lost()).await;
            Ok(matches!(lost, Ok(Some(_))))
        }))
    }

    /// Renews it, for its TTL or for this long from now.
    fn renew(&self, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<Op> {
        let ttl = ttl.map(|ttl| duration("ttl", ttl)).transpose()?;
        Ok(self.0.ask("renew", move |part| match ttl {
            None => Box::pin(part.renew()),
            Some(ttl) => Box::pin(part.renew_for(ttl)),
        }))
    }

    /// Replaces the id of its claim on each key.
    fn rotate(&self) -> Op {
        self.0.ask("rotate", |part| Box::pin(part.rotate()))
    }

    /// Replaces its note on each key.
    fn set_note(&self, note: String) -> Op {
        self.0.ask("set_note", move |part| {
            Box::pin(part.set_note(note.clone()))
        })
    }

    /// What another process needs to go on with it, which is a secret.
    fn parts(&self) -> Result<String, Failure> {
        Failure::unless_single(&self.0.tokens)?;
        let parts = self.0.look(|lease| lease.leases()[0].parts());
        let parts = parts.ok_or_else(|| self.0.released("hand_over"))?;
        Ok(written(&parts?))
    }

    /// Gives it away, by the client that has it.
    fn hand_over(&self, client: &Client) -> Result<Op, Failure> {
        Failure::unless_single(&self.0.tokens)?;
        let (inner, taken) = (self.0.clone(), self.0.take());
        let client = Mutex::new(client.0.connected().cloned());
        Ok(Op::new(async move {
            inner.check_process("hand_over")?;
            let lease = inner.taken(taken).await;
            let part = lease.and_then(|lease| lease.into_leases().pop());
            let part = part.ok_or_else(|| inner.released("hand_over"))?;
            let parts = part.into_parts().await?;
            Ok(HandedOver { parts, client })
        }))
    }

    /// Releases it. Answers whether it was held until now: no if it is released twice.
    fn release(&self) -> Op {
        let (inner, taken) = (self.0.clone(), self.0.take());
        Op::new(async move { inner.release(taken).await.unwrap_or(Ok(false)) })
    }

    /// Releases it after the work: fails if it was lost before. No answer to the release changes
    /// nothing about the work, since the lease was valid to its end.
    fn finish(&self) -> Op {
        let checked = self.0.look(|lease| self.0.check(lease));
        let checked = checked.unwrap_or_else(|| self.0.check_process("release"));
        let (inner, taken) = (self.0.clone(), self.0.take());
        Op::new(async move {
            checked?;
            match inner.release(taken).await {
                Some(Ok(false)) => Err(Failure::lost_at_release(inner.key())),
                None | Some(Ok(true) | Err(_)) => Ok(NOTHING),
            }
        })
    }
}

impl Inner {
    fn key(&self) -> &str {
        self.tokens.first().map_or("", |(key, _)| key)
    }

    fn released(&self, operation: &str) -> Failure {
        Failure::released(self.key(), operation)
    }

    /// What is seen of the lease until its release begins.
    fn look<T>(&self, look: impl FnOnce(&MultiLease<Any>) -> T) -> Option<T> {
        self.lease.try_read().ok()?.as_ref().map(look)
    }

    /// Asks this of the lease on each key, unless its release has begun.
    fn ask(
        self: &Arc<Self>,
        operation: &'static str,
        ask: impl Fn(&CoreLease<Any>) -> Asked<'_> + Send + Sync + 'static,
    ) -> Op {
        let inner = self.clone();
        Op::new(async move {
            inner.check_process(operation)?;
            let lease = inner.lease.read().await;
            let lease = lease.as_ref().ok_or_else(|| inner.released(operation))?;
            for part in lease.leases() {
                ask(part).await?;
            }
            Ok(NOTHING)
        })
    }

    /// Takes the lease, if nothing is asked of it at this time. Whoever drops it releases it: so a
    /// release that is cancelled before it has begun goes on all the same.
    fn take(&self) -> Option<MultiLease<Any>> {
        self.lease.try_write().ok()?.take()
    }

    /// The same, after what is asked of it at this time.
    async fn taken(&self, taken: Option<MultiLease<Any>>) -> Option<MultiLease<Any>> {
        match taken {
            None => self.lease.write().await.take(),
            taken => taken,
        }
    }

    /// Fails in a forked child that would wait for ever for a call of its parent.
    fn check_process(&self, operation: &str) -> Result<(), Failure> {
        match self.process.has_forked() && self.lease.try_write().is_err() {
            true => Err(Failure::of_parent(self.key(), operation)),
            false => Ok(()),
        }
    }

    /// Nothing if it was released before.
    async fn release(&self, taken: Option<MultiLease<Any>>) -> Option<Result<bool, Failure>> {
        if let Err(forked) = self.check_process("release") {
            return Some(Err(forked));
        }
        let released = self.taken(taken).await?.release().await;
        let held = released.map(|released| released == Released::Held);
        Some(held.map_err(Failure::from))
    }

    /// The error of a lease that is lost: the library words it for work under the lease.
    fn check(&self, lease: &MultiLease<Any>) -> Result<(), Failure> {
        if !self.signal.is_lost() {
            return Ok(());
        }
        let mut none = std::pin::pin!(lease.run(ready(())));
        match none.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(checked) => Ok(checked?),
            Poll::Pending => Ok(()),
        }
    }
}

/// A lease that was given away, until its caller takes what it is adopted by. A caller who was cancelled
/// with the answer does not, and then nobody can: so it is released.
#[pyclass(frozen)]
pub(crate) struct HandedOver {
    parts: LeaseParts<Any>,
    /// Until it is taken.
    client: Mutex<Option<CoreClient>>,
}

#[pymethods]
impl HandedOver {
    /// What another process needs to go on with it.
    fn take(&self) -> String {
        *lock(&self.client) = None;
        written(&self.parts)
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        if let Some(client) = lock(&self.client).take() {
            let parts = self.parts.clone();
            background::spawn(async move { client.release_by_parts(&parts).await });
        }
    }
}

/// Parts as text, which cannot fail for what they have.
fn written(parts: &LeaseParts<Any>) -> String {
    serde_json::to_string(parts).unwrap_or_default()
}
