//! A lock on several keys. Most of its methods are in `verbs`.

mod lease;

use std::marker::PhantomData;

use futures_util::future::try_join_all;
use leasehold_core::{Deadlines, End, Invalid, Key, Mode};
use leasehold_store::debug;

pub use self::lease::MultiLease;
use self::lease::release_all;
use crate::clock;
use crate::error::{Error, Operation, check_key};
use crate::inspection::Inspection;
use crate::lease::{Any, Exclusive, Lease, LeaseKind, Shared, first_lost};
use crate::lock::Lock;
use crate::session::acquire::OnProgress;
use crate::session::request::{AcquireRequest, timed_out};
use crate::sync::timeout;
use crate::waiting::LockOptions;

/// A lock on several keys: all of them, or none.
///
/// If the store can do it (one server, or keys in one slot) and all keys are free, they are
/// acquired in a single atomic step. Otherwise they are acquired one after the other, sorted by
/// name, so that two multi-locks never deadlock. If a key fails, is cancelled or is lost, the
/// keys acquired before are released. An error names its key, and progress is that in the queue in
/// which it waits.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::connect("memory:").await?;
/// let transfer = client.multi(["account/2", "account/1"])?;
/// let lease = transfer.lock().await?;
/// assert!(client.mutex("account/1")?.try_lock().await?.is_none());
/// for (key, token) in lease.tokens() {
///     println!("write to {key} with {token}");
/// }
/// assert!(transfer.is_locked().await?);
/// assert_eq!(lease.release().await?, leasehold::Released::Held);
/// let sum = transfer.with_lock(async |_| 1 + 1).await?;
/// # assert_eq!(sum, 2);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a lock holds nothing until one of its methods has taken a lease"]
pub struct MultiLock<K: LeaseKind = Exclusive> {
    /// The lock on the key that was named first; the others are alike.
    pub(crate) lock: Lock,
    /// As they were named.
    keys: Vec<Key>,
    kind: PhantomData<fn() -> K>,
}

impl Lock {
    /// Makes one lock on these keys, with the same options. The key of this lock is included only
    /// if it is in the list.
    ///
    /// # Errors
    /// Same as [`Client::multi`](crate::Client::multi).
    pub fn on_all(
        &self,
        keys: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<MultiLock<Any>, Error> {
        MultiLock::new(keys, |first| {
            let mut lock = self.clone();
            lock.request.key = first.clone();
            lock
        })
    }
}

impl MultiLock {
    /// Converts to a lock that reads each key.
    pub fn shared(self) -> MultiLock<Shared> {
        MultiLock::of(self.lock.with_mode(Mode::SHARED), self.keys)
    }
}

impl<K: LeaseKind> MultiLock<K> {
    /// As `lock` makes it for the first of the keys. Whether `K` is its mode is for the caller
    /// to know.
    pub(crate) fn new(
        keys: impl IntoIterator<Item: AsRef<str>>,
        lock: impl FnOnce(&Key) -> Lock,
    ) -> Result<Self, Error> {
        let keys = keys.into_iter();
        let keys = keys.map(|key| check_key(Operation::Acquire, key));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let mut sorted = keys.clone();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let invalid = Invalid::new("the multi-lock names the key twice", "name each key once");
            return Err(Operation::Acquire.failed_on(&twice[0])(invalid.into()));
        }
        let Some(first) = keys.first() else {
            let invalid = Invalid::new("the multi-lock has no key", "name at least one key");
            return Err(Error::new(Operation::Acquire, None, invalid.into()));
        };
        Ok(Self::of(lock(first), keys))
    }

    fn of(lock: Lock, keys: Vec<Key>) -> Self {
        Self {
            lock,
            keys,
            kind: PhantomData,
        }
    }

    /// Converts to a lock whose mode is known only at run time.
    pub fn into_any(self) -> MultiLock<Any> {
        MultiLock::of(self.lock, self.keys)
    }

    /// Returns the keys, in the order in which they were given.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Returns whether any of the keys is held now, in any mode.
    ///
    /// The answer is a snapshot: it may be out of date when it arrives.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    ///
    /// # Errors
    /// Same as [`crate::Mutex::is_locked`], for the first key that fails.
    ///
    /// # Examples
    /// See [`MultiLock`].
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let seen = self.keys.iter();
        let seen = seen.map(|key| Inspection::of(&self.lock.session, key));
        let seen = try_join_all(seen).await?;
        Ok(seen.iter().any(|seen| !seen.holders.is_empty()))
    }

    pub(crate) async fn acquire_as(&self, how: LockOptions) -> Result<MultiLease<K>, Error> {
        let checked = how.check(&self.lock.request);
        checked.map_err(|error| self.lock.error(error))?;
        let session = &self.lock.session;
        let deadlines = how.wait.deadlines(session);
        let mut keys = self.keys.clone();
        keys.sort();
        let one = &self.lock.request;
        let with_key = |key| AcquireRequest { key, ..one.clone() };
        let requests: Vec<_> = keys.into_iter().map(with_key).collect();
        let together = session.acquire_all(&requests, deadlines).await;
        let failed = |part: usize| Operation::Acquire.failed_on(&requests[part].key);
        match together.map_err(|(part, error)| failed(part)(error))? {
            Ok(claims) => {
                let waited = clock::now().since(deadlines.began);
                let leases = claims.into_iter().map(|it| Lease::new(it, waited));
                return Ok(self.lease(leases.collect()));
            }
            Err(End::Busy(_)) if !deadlines.waits() => return Err(self.lock.error(timed_out())),
            Err(_) => {}
        }
        let mut begun_again = 0;
        loop {
            // In hand only when all are there: no minimum hold counts before.
            let mut leases = Vec::with_capacity(requests.len());
            let granted = self.one_by_one(&requests, deadlines, &how, begun_again, &mut leases);
            let granted = granted.await;
            if let Ok(true) = granted {
                return Ok(self.lease(leases));
            }
            // An error of a release is told by nobody: what failed first counts.
            let released = timeout(deadlines.left(clock::now()), release_all(leases));
            released.await.ok();
            granted?;
            begun_again += 1;
        }
    }

    /// Claims the keys in the order of their names, each while holding the previous ones. False if
    /// one was lost while waiting for the others: all must be claimed again.
    async fn one_by_one(
        &self,
        requests: &[AcquireRequest],
        deadlines: Deadlines,
        how: &LockOptions,
        begun_again: u32,
        leases: &mut Vec<Lease<K>>,
    ) -> Result<bool, Error> {
        let session = &self.lock.session;
        let waited = || clock::now().since(deadlines.began);
        let tell = |position, rejoined| how.tell(position, waited(), rejoined + begun_again);
        let progress: OnProgress<'_> = how.progress.as_ref().map(|_| &tell as _);
        for request in requests {
            let deadlocked = how.deadlocked(session, request);
            let acquired = tokio::select! {
                biased;
                _ = first_lost(leases) => return Ok(false),
                acquired = session.acquire(request, deadlines, progress, deadlocked) => acquired,
            };
            let claim = acquired.map_err(Operation::Acquire.failed_on(&request.key))?;
            leases.push(Lease::new(claim, waited()));
        }
        Ok(leases.iter().all(Lease::is_valid))
    }

    /// The lease of these parts, which are in the order of their names.
    fn lease(&self, mut leases: Vec<Lease<K>>) -> MultiLease<K> {
        let named = |lease: &Lease<K>| self.keys.iter().position(|key| key == lease.key());
        leases.sort_by_key(named);
        leases.iter().for_each(|lease| lease.claim.deliver());
        MultiLease::of(leases)
    }
}

debug!(MultiLock<K: LeaseKind>; |it| keys: it.keys);
