//! A lock on several keys.

mod lease;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::future::select_all;
use leasehold_core::{Key, Mode, Moment};

pub use self::lease::MultiLease;
use self::lease::release_all;
use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::lease::{Any, Exclusive, Lease, LeaseKind, Shared};
use crate::lock::Lock;
use crate::session::acquire_all::Together;
use crate::session::request::{AcquireRequest, Patience, timed_out};
use crate::verbs::options;
use crate::waiting::{Acquire, Wait};

/// A lock on several keys: all of them, or none.
///
/// If the store can do it (one server, or keys in one slot) and all keys are free, they are
/// acquired in a single atomic step. Otherwise they are acquired one after the other, sorted by
/// name, so that two multi-locks never deadlock. If a key fails, is cancelled or is lost, the
/// keys acquired before are released.
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
/// assert_eq!(lease.release().await?, leasehold::Released::StillOurs);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MultiLock<K: LeaseKind = Exclusive> {
    /// The lock on the key that was named first; the others are alike.
    lock: Lock,
    /// As they were named.
    keys: Vec<Key>,
    kind: PhantomData<fn() -> K>,
}

options!(MultiLock<K>: lock, K: LeaseKind);

impl MultiLock {
    /// Converts to a lock that reads each key.
    #[must_use]
    pub fn shared(self) -> MultiLock<Shared> {
        MultiLock {
            lock: self.lock.with_mode(Mode::SHARED),
            keys: self.keys,
            kind: PhantomData,
        }
    }
}

impl<K: LeaseKind> MultiLock<K> {
    /// As `lock` makes it for the first of the keys. Whether `K` is its mode is for the caller
    /// to know.
    pub(crate) fn new(keys: Vec<Key>, lock: impl FnOnce(&Key) -> Lock) -> Result<Self, Error> {
        let invalid = |key: Option<&Key>, message: &str, hint: &str| {
            let error = StoreError::new(ErrorKind::Invalid, message).with_hint(hint);
            Error::new(Operation::Acquire, key.cloned(), error)
        };
        let mut sorted = keys.clone();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = "the multi-lock names the key twice";
            return Err(invalid(Some(&twice[0]), message, "name each key once"));
        }
        let Some(first) = keys.first() else {
            let hint = "name at least one key";
            return Err(invalid(None, "the multi-lock has no key", hint));
        };
        Ok(Self {
            lock: lock(first),
            keys,
            kind: PhantomData,
        })
    }

    /// Converts to a lock whose mode is known only at run time.
    #[must_use]
    pub fn into_any(self) -> MultiLock<Any> {
        MultiLock {
            lock: self.lock,
            keys: self.keys,
            kind: PhantomData,
        }
    }

    /// Returns the keys, in the order in which they were given.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Waits for all keys without a time limit.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all queues and releases the acquired keys in the background.
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock`], for the key that is named in the error.
    ///
    /// # Examples
    /// See [`MultiLock`].
    pub async fn lock(&self) -> Result<MultiLease<K>, Error> {
        self.obtain(Wait::Forever).await
    }

    /// Acquires all keys if all are free and nobody waits for them; `None` if any is busy.
    ///
    /// # Cancel safety
    /// Same as [`MultiLock::lock`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::try_lock`].
    ///
    /// # Examples
    /// See [`crate::Mutex::try_lock`].
    pub async fn try_lock(&self) -> Result<Option<MultiLease<K>>, Error> {
        self.acquire(Wait::No.into()).await
    }

    /// Waits for all keys for at most `limit`.
    ///
    /// # Cancel safety
    /// Same as [`MultiLock::lock`].
    ///
    /// # Errors
    /// Same as [`crate::Mutex::lock_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_within`].
    pub async fn lock_within(&self, limit: Duration) -> Result<MultiLease<K>, Error> {
        self.obtain(Wait::For(limit)).await
    }

    async fn obtain(&self, wait: Wait) -> Result<MultiLease<K>, Error> {
        let lease = self.acquire(wait.into()).await?;
        lease.ok_or_else(|| self.lock.error(timed_out()))
    }

    /// Waits for all keys, runs `work` under them, and releases them.
    ///
    /// The work is dropped as soon as the lease is lost, as in [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases the lease in the background.
    ///
    /// # Errors
    /// Same as [`MultiLock::lock`]; `Lost` if the lease was lost before the work finished: another
    /// client may hold the key, and the last actions of the work may have overlapped with its
    /// own.
    ///
    /// # Examples
    /// See [`crate::Mutex::with_lock`].
    pub async fn with_lock<T>(
        &self,
        work: impl AsyncFnOnce(&MultiLease<K>) -> T,
    ) -> Result<T, Error> {
        let lease = self.obtain(Wait::Forever).await?;
        let done = lease.run(work(&lease)).await?;
        lease.give_back(done).await
    }

    /// Acquires with every option; the other methods call this one. Returns `None` if a key is
    /// busy and the caller does not wait ([`Wait::No`]). Progress reports the position in the
    /// queue in which it currently waits.
    ///
    /// # Cancel safety
    /// Same as [`MultiLock::lock`].
    ///
    /// # Errors
    /// Same as [`MultiLock::lock_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn acquire(&self, how: Acquire) -> Result<Option<MultiLease<K>>, Error> {
        let started = clock::now();
        let patience = self.lock.session.patience(how.wait);
        let mut keys = self.keys.clone();
        keys.sort();
        let checked = self.lock.checked(&how);
        let request = checked.as_ref().unwrap_or(&self.lock.request);
        let with_key = |key| AcquireRequest {
            key,
            ..request.clone()
        };
        let requests: Vec<_> = keys.into_iter().map(with_key).collect();
        let together = self.lock.session.acquire_all(&requests, patience).await;
        match together.map_err(|(part, failed)| error(&requests[part], failed))? {
            Together::Granted(grants) => {
                let waited = clock::now().since(started);
                let leases = grants.into_iter().zip(&requests);
                let leases = leases.map(|(grant, request)| Lease::new(grant, request, waited));
                return Ok(Some(self.lease(leases.collect())));
            }
            Together::Busy if matches!(patience, Patience::No(_)) => return Ok(None),
            Together::Busy | Together::Unsupported => {}
        }
        let mut begun_again = 0;
        loop {
            let tell = |position, rejoined| {
                how.tell(
                    position,
                    clock::now().since(started),
                    rejoined + begun_again,
                );
            };
            let tells = how.progress.is_some();
            let claimed = self.one_by_one(&requests, patience, started, tells, tell);
            match claimed.await? {
                OneByOne::All(leases) => return Ok(Some(self.lease(leases))),
                OneByOne::Busy => return Ok(None),
                OneByOne::Lost => begun_again += 1,
            }
        }
    }

    /// Claims the keys in the order of their names, each while holding the previous ones.
    /// Releases them again unless all were granted.
    async fn one_by_one(
        &self,
        requests: &[AcquireRequest],
        patience: Patience,
        started: Moment,
        tells: bool,
        tell: impl Fn(u64, u32),
    ) -> Result<OneByOne<K>, Error> {
        // In hand only when all are there: no minimum hold counts before.
        let mut leases = Vec::with_capacity(requests.len());
        for request in requests {
            let granted = tokio::select! {
                biased;
                () = any_lost(&leases) => break,
                granted = self.lock.session.acquire(request, patience, tells, &tell) => granted,
            };
            match granted {
                Ok(Some(grant)) => {
                    leases.push(Lease::new(grant, request, clock::now().since(started)));
                }
                // An error of a release is told by nobody: what failed first counts.
                Ok(None) => {
                    patience.within(release_all(leases)).await;
                    return Ok(OneByOne::Busy);
                }
                Err(failed) => {
                    patience.within(release_all(leases)).await;
                    return Err(error(request, failed));
                }
            }
        }
        if leases.len() == requests.len() && leases.iter().all(Lease::is_valid) {
            return Ok(OneByOne::All(leases));
        }
        patience.within(release_all(leases)).await;
        Ok(OneByOne::Lost)
    }

    /// The lease of these parts, which are in the order of their names.
    fn lease(&self, mut leases: Vec<Lease<K>>) -> MultiLease<K> {
        let named = |lease: &Lease<K>| self.keys.iter().position(|key| key == lease.key());
        leases.sort_by_key(named);
        MultiLease::of(leases.into_iter().map(Lease::deliver).collect())
    }
}

/// The result of claiming the keys one by one.
enum OneByOne<K: LeaseKind> {
    /// In the order of their names.
    All(Vec<Lease<K>>),
    /// A key is held by another client, and the caller does not wait.
    Busy,
    /// A key was lost while waiting for the others: all must be claimed again.
    Lost,
}

fn error(request: &AcquireRequest, error: StoreError) -> Error {
    Error::new(Operation::Acquire, Some(request.key.clone()), error)
}

/// Completes when one of them is lost; never for none.
async fn any_lost<K: LeaseKind>(leases: &[Lease<K>]) {
    if leases.is_empty() {
        return std::future::pending().await;
    }
    select_all(leases.iter().map(|lease| Box::pin(lease.lost()))).await;
}

impl<K: LeaseKind> fmt::Debug for MultiLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}
