//! Several keys as one lock.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};
use leasehold_core::{Key, Loss, Mode, Owner, Token};

use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::face::{Face, options, patience};
use crate::hold::Released;
use crate::lease::{Exclusive, Lease, LeaseKind, Shared};
use crate::loss::LossSignal;
use crate::session::Session;
use crate::session::together::Together;
use crate::session::wish::{Patience, Wish, timed_out};
use crate::waiting::{Acquire, Progress, Wait};

/// Several keys as one lock: all of them, or none.
///
/// Where the store can (one server; keys in one slot), and all keys are free,
/// they are claimed in a single atomic step. Else they are claimed one after the
/// other in the order of their names, whatever order they were given in, so that
/// two multi-locks never wait for each other in a circle. What was got is given
/// back when another fails, is cancelled, or is lost on the way.
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
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MultiLock<K: LeaseKind = Exclusive> {
    /// The lock on the key that was named first; the others are alike.
    face: Face,
    /// As they were named.
    keys: Vec<Key>,
    kind: PhantomData<fn() -> K>,
}

options!(MultiLock<K>, K: LeaseKind);

impl MultiLock {
    pub(crate) fn new(
        session: &Arc<Session>,
        keys: Vec<Key>,
        owner: &Owner,
    ) -> Result<Self, Error> {
        let invalid = |key: Option<&Key>, message: &str, hint: &str| {
            let error = StoreError::new(ErrorKind::Invalid, message).with_hint(hint);
            Error::new(Operation::Acquire, key.cloned(), error)
        };
        let mut sorted = keys.clone();
        sorted.sort();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = "the key is named twice in one multi-lock";
            return Err(invalid(Some(&twice[0]), message, "name each key once"));
        }
        let Some(first) = keys.first() else {
            let hint = "name what is to be protected";
            return Err(invalid(None, "a multi-lock needs a key", hint));
        };
        let face = Face::new(
            session.clone(),
            first.clone(),
            owner.clone(),
            Mode::EXCLUSIVE,
        );
        Ok(Self {
            face,
            keys,
            kind: PhantomData,
        })
    }

    /// The same keys, as a reader of each.
    #[must_use]
    pub fn shared(self) -> MultiLock<Shared> {
        MultiLock {
            face: self.face.with_mode(Mode::SHARED),
            keys: self.keys,
            kind: PhantomData,
        }
    }
}

impl<K: LeaseKind> MultiLock<K> {
    /// The keys, as they were named.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Waits for all keys, as long as it takes.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all queues and releases what it has got, in
    /// the background.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`], for the key that is named in the error.
    ///
    /// # Examples
    /// See [`MultiLock`].
    pub async fn lock(&self) -> Result<MultiLease<K>, Error> {
        self.obtain(Wait::Forever).await
    }

    /// Takes all keys if all are free and nobody waits for them; `None` when any
    /// is busy.
    ///
    /// # Cancel safety
    /// As [`MultiLock::lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`].
    ///
    /// # Examples
    /// See [`crate::Mutex::try_lock`].
    pub async fn try_lock(&self) -> Result<Option<MultiLease<K>>, Error> {
        self.acquire(Wait::No.into()).await
    }

    /// Waits for all keys for so long at most.
    ///
    /// # Cancel safety
    /// As [`MultiLock::lock`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::lock_within`].
    pub async fn lock_within(&self, limit: Duration) -> Result<MultiLease<K>, Error> {
        self.obtain(Wait::For(limit)).await
    }

    async fn obtain(&self, wait: Wait) -> Result<MultiLease<K>, Error> {
        let lease = self.acquire(wait.into()).await?;
        lease.ok_or_else(|| self.face.error(timed_out()))
    }

    /// Waits for all keys, runs `work` under them, and releases them.
    ///
    /// The work is dropped the moment the lease is lost, as by [`crate::Lease::run`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the work, and releases in the background.
    ///
    /// # Errors
    /// As [`MultiLock::lock`]; `Lost` when the lease was lost before the work was done:
    /// another may hold the key, and what the work did last may have overlapped with it.
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

    /// The verb behind the others, with every option. `None`: busy, with
    /// [`Wait::No`]. Progress tells the place in the queue that is waited in.
    ///
    /// # Cancel safety
    /// As [`MultiLock::lock`].
    ///
    /// # Errors
    /// As [`MultiLock::lock_within`].
    ///
    /// # Examples
    /// See [`crate::Mutex::acquire`].
    pub async fn acquire(&self, how: Acquire) -> Result<Option<MultiLease<K>>, Error> {
        let started = clock::now();
        let patience = patience(how.wait);
        let session = &self.face.session;
        let mut keys = self.keys.clone();
        keys.sort();
        let wishes: Vec<_> = keys.into_iter().map(|key| self.wish(key, &how)).collect();
        let waited = || clock::now().since(started);
        let error =
            |wish: &Wish, error| Error::new(Operation::Acquire, Some(wish.key.clone()), error);
        let together = session.acquire_all(&wishes).await;
        match together.map_err(|(part, failed)| error(&wishes[part], failed))? {
            Together::Granted(grants) => {
                let leases = grants.into_iter().zip(&wishes);
                let leases = leases
                    .map(|(grant, wish)| Lease::new(grant, wish, waited()))
                    .collect();
                return Ok(Some(self.lease(leases)));
            }
            Together::Busy if matches!(patience, Patience::No) => return Ok(None),
            Together::Busy | Together::Apart => {}
        }
        let mut begun_again = 0;
        loop {
            // In hand only when all are there: no minimum hold counts before.
            let mut leases: Vec<Lease<K>> = Vec::with_capacity(wishes.len());
            for wish in &wishes {
                let tell = |position, rejoined| {
                    if let Some(progress) = &how.progress {
                        progress(&Progress {
                            position,
                            waited: waited(),
                            rejoined: rejoined + begun_again,
                        });
                    }
                };
                let next = session.acquire(wish, patience, tell);
                let granted = tokio::select! {
                    biased;
                    () = any_lost(&leases) => break,
                    granted = next => granted,
                };
                match granted {
                    Ok(Some(grant)) => {
                        leases.push(Lease::new(grant, wish, waited()));
                    }
                    Ok(None) => {
                        release_all(leases).await.ok();
                        return Ok(None);
                    }
                    Err(failed) => {
                        // Its own error is told by the one that failed.
                        release_all(leases).await.ok();
                        return Err(error(wish, failed));
                    }
                }
            }
            if leases.len() == wishes.len() && leases.iter().all(Lease::is_valid) {
                return Ok(Some(self.lease(leases)));
            }
            // One was lost while the others were waited for: all from the start.
            begun_again += 1;
            release_all(leases).await.ok();
        }
    }

    fn wish(&self, key: Key, how: &Acquire) -> Wish {
        Wish {
            key,
            tells_position: how.progress.is_some(),
            ..self.face.wish.clone()
        }
    }

    /// The lease of these parts, which are in the order of their names.
    fn lease(&self, mut leases: Vec<Lease<K>>) -> MultiLease<K> {
        let named = |lease: &Lease<K>| self.keys.iter().position(|key| key == lease.key());
        leases.sort_by_key(named);
        MultiLease {
            parts: leases.into_iter().map(Lease::hand_out).collect(),
        }
    }
}

/// Completes when one of them is lost; never for none.
async fn any_lost<K: LeaseKind>(leases: &[Lease<K>]) {
    if leases.is_empty() {
        return std::future::pending().await;
    }
    select_all(leases.iter().map(|lease| Box::pin(lease.lost()))).await;
}

async fn release_all<K: LeaseKind>(leases: Vec<Lease<K>>) -> Result<Released, Error> {
    let mut whole = Released::StillOurs;
    // All at once, and each is tried whatever becomes of the others.
    for released in join_all(leases.into_iter().map(Lease::release)).await {
        if released? == Released::AlreadyGone {
            whole = Released::AlreadyGone;
        }
    }
    Ok(whole)
}

impl<K: LeaseKind> fmt::Debug for MultiLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// A hold on several keys. Losing one part loses the whole.
///
/// Dropping it releases all parts in the background.
#[derive(Debug)]
#[must_use = "a lease that is dropped is released"]
pub struct MultiLease<K: LeaseKind = Exclusive> {
    /// As the keys were named; at least one.
    parts: Vec<Lease<K>>,
}

impl MultiLease {
    /// Each key with its own fencing token, as they were named.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.parts.iter().map(|part| (part.key(), part.token()))
    }
}

impl<K: LeaseKind> MultiLease<K> {
    /// The leases of the keys, as they were named.
    pub fn parts(&self) -> &[Lease<K>] {
        &self.parts
    }

    /// The leases of the keys, each on its own from now on.
    pub fn into_leases(self) -> Vec<Lease<K>> {
        self.parts
    }

    /// Whether all parts may be relied on now. Costs no round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.parts.iter().all(Lease::is_valid)
    }

    /// How long all parts may be relied on without another renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.parts.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// How long it took to get all.
    #[must_use]
    pub fn waited(&self) -> Duration {
        let waited = self.parts.iter().map(Lease::waited);
        waited.max().unwrap_or_default()
    }

    /// What other tasks watch all parts by: it tells the first loss.
    ///
    /// # Examples
    /// See [`LossSignal`].
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        let signals = self.parts.iter().map(|part| part.hold().signal().clone());
        LossSignal::of(signals)
    }

    /// As [`Lease::give_back`].
    pub(crate) async fn give_back<T>(self, done: T) -> Result<T, Error> {
        let given = self.parts.into_iter().map(|part| part.give_back(()));
        for part in join_all(given).await {
            part?;
        }
        Ok(done)
    }

    /// Completes when any part is lost: stop working then.
    ///
    /// # Cancel safety
    /// Dropping the future costs nothing.
    ///
    /// # Examples
    /// See [`Lease::lost`].
    pub async fn lost(&self) -> Loss {
        let lost = self.parts.iter().map(|part| Box::pin(part.lost()));
        select_all(lost).await.0
    }

    /// Runs `work`, and drops it the moment any part is lost.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`; the lease stays.
    ///
    /// # Errors
    /// `Lost`: as [`Lease::run`].
    ///
    /// # Examples
    /// See [`Lease::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            loss = self.lost() => {
                let hold = self.parts[0].hold();
                Err(hold.lost_error(Operation::Hold, loss))
            }
            done = work => Ok(done),
        }
    }

    /// Renews all parts now, by their whole TTL.
    ///
    /// # Cancel safety
    /// As [`Lease::renew`].
    ///
    /// # Errors
    /// As [`Lease::renew`], for the first part that fails.
    ///
    /// # Examples
    /// See [`Lease::renew`].
    pub async fn renew(&self) -> Result<(), Error> {
        let renewed = join_all(self.parts.iter().map(Lease::renew)).await;
        renewed.into_iter().collect()
    }

    /// Gives all keys back. `AlreadyGone` if any had gone before.
    ///
    /// # Cancel safety
    /// Dropping the future goes on releasing in the background.
    ///
    /// # Errors
    /// As [`Lease::release`], for the first part that fails; all are tried.
    ///
    /// # Examples
    /// See [`MultiLock`].
    pub async fn release(self) -> Result<Released, Error> {
        release_all(self.parts).await
    }
}
