//! What every kind of lock shares: a client, a key, and how to claim it.
//!
//! A kind is a thin face over this: it picks a mode, names its verbs, and
//! documents what it promises.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientInfo, Key, Mode, RenewalPolicy, Retry, Terms};

use crate::clock;
use crate::error::{Error, ErrorKind, Operation, StoreError};
use crate::inspection::Inspection;
use crate::lease::{Lease, LeaseKind};
use crate::session::Session;
use crate::session::wish::{Patience, Wish, timed_out};
use crate::settings::{MAX_TTL, check_ttl};
use crate::waiting::{Acquire, Progress, Wait};

#[derive(Debug, Clone)]
pub(crate) struct Face {
    pub(crate) session: Arc<Session>,
    pub(crate) wish: Wish,
}

impl Face {
    pub(crate) fn new(session: Arc<Session>, key: Key, owner: ClientInfo, mode: Mode) -> Self {
        let settings = &session.settings;
        let wish = Wish {
            key,
            mode,
            terms: Terms {
                ttl: settings.ttl,
                waiter_ttl: settings.waiter_ttl.min(settings.ttl),
                policy: RenewalPolicy::Automatic(settings.renew_at),
                hand_off: true,
                max_hold: None,
                rotate_every: settings.rotate_every,
                acknowledges: session.store.capabilities().acknowledges,
                guessable: session.may_be_guessed(),
            },
            ahead: false,
            retry: None,
            owner,
            secret: None,
            min_hold: Duration::ZERO,
            note: None,
            tells_position: false,
        };
        Self { session, wish }
    }

    /// The same lock, claimed in another mode.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        let mut face = self.clone();
        face.wish.mode = mode;
        face
    }

    pub(crate) fn set_ttl(&mut self, ttl: Duration) -> Result<(), Error> {
        check_ttl(ttl).map_err(|invalid| self.error(invalid.into()))?;
        let max_hold = self.wish.terms.max_hold;
        let ttl = max_hold.map_or(ttl, |max_hold| ttl.min(max_hold));
        self.wish.terms.ttl = ttl;
        self.wish.terms.waiter_ttl = self.session.settings.waiter_ttl.min(ttl);
        Ok(())
    }

    pub(crate) fn set_renewal(&mut self, policy: RenewalPolicy) -> Result<(), Error> {
        if let RenewalPolicy::Automatic(share) = policy
            && !(0.05..=0.8).contains(&share)
        {
            let message = format!("renewal at a share of {share} of the TTL is out of bounds");
            return Err(self.error(
                StoreError::new(ErrorKind::Invalid, message)
                    .with_hint("choose between 0.05 and 0.8"),
            ));
        }
        self.wish.terms.policy = policy;
        Ok(())
    }

    pub(crate) fn set_max_hold(&mut self, max_hold: Duration) -> Result<(), Error> {
        check_ttl(max_hold.min(MAX_TTL)).map_err(|invalid| self.error(invalid.into()))?;
        self.wish.terms.max_hold = Some(max_hold);
        self.set_ttl(self.wish.terms.ttl)
    }

    pub(crate) fn set_min_hold(&mut self, min_hold: Duration) -> Result<(), Error> {
        /// A year: longer ones are slips of the pen.
        const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
        if min_hold > LONGEST {
            return Err(self.error(
                StoreError::new(
                    ErrorKind::Invalid,
                    format!("a minimum hold of {min_hold:?} is out of bounds"),
                )
                .with_hint("choose 366 days or less"),
            ));
        }
        self.wish.min_hold = min_hold;
        Ok(())
    }

    pub(crate) fn set_label(&mut self, label: &str) {
        let owner = &self.wish.owner;
        self.wish.owner = ClientInfo::new(&owner.host, owner.pid, Some(label));
    }

    pub(crate) fn set_unfair(&mut self) {
        self.wish.ahead = true;
        self.wish.terms.hand_off = false;
    }

    pub(crate) fn set_retry(&mut self, retry: Retry) {
        self.wish.retry = Some(retry);
    }

    pub(crate) async fn acquire<K: LeaseKind>(
        &self,
        how: Acquire,
    ) -> Result<Option<Lease<K>>, Error> {
        let started = clock::now();
        let patience = patience(how.wait);
        let waited = || clock::now().since(started);
        let tell = |position, rejoined| {
            if let Some(progress) = &how.progress {
                progress(&Progress {
                    position,
                    waited: waited(),
                    rejoined,
                });
            }
        };
        let wish = Wish {
            tells_position: how.progress.is_some(),
            ..self.wish.clone()
        };
        wish.mode
            .check()
            .map_err(|invalid| self.error(invalid.into()))?;
        let grant = self.session.acquire(&wish, patience, tell).await;
        let grant = grant.map_err(|error| self.error(error))?;
        let lease = |grant| Lease::new(grant, &self.wish, waited());
        Ok(grant.map(|grant| lease(grant).hand_out()))
    }

    /// Acquires or fails: busy is a time-out here.
    pub(crate) async fn obtain<K: LeaseKind>(&self, wait: Wait) -> Result<Lease<K>, Error> {
        let lease = self.acquire(wait.into()).await?;
        lease.ok_or_else(|| self.error(timed_out()))
    }

    pub(crate) async fn attempt<K: LeaseKind>(&self) -> Result<Option<Lease<K>>, Error> {
        self.acquire(Wait::No.into()).await
    }

    /// Acquires, runs `work` until it is done or the lease is lost, and releases.
    pub(crate) async fn with<K: LeaseKind, T>(
        &self,
        work: impl AsyncFnOnce(&Lease<K>) -> T,
    ) -> Result<T, Error> {
        let lease = self.obtain(Wait::Forever).await?;
        let done = lease.run(work(&lease)).await?;
        lease.give_back(done).await
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        Inspection::of(&self.session, &self.wish.key).await
    }

    pub(crate) fn error(&self, error: StoreError) -> Error {
        Error::new(Operation::Acquire, Some(self.wish.key.clone()), error)
    }
}

pub(crate) fn patience(wait: Wait) -> Patience {
    match wait {
        Wait::No => Patience::No,
        Wait::For(limit) => Patience::Until(clock::now() + limit),
        Wait::Forever => Patience::Forever,
    }
}

/// The options that every kind of lock has. `$lock` has a field `face`.
macro_rules! options {
    ($lock:ty $(, $kind:ident: $bound:ident)?) => {
        impl $(<$kind: $bound>)? $lock {
            /// The key.
            #[must_use]
            pub fn key(&self) -> &leasehold_core::Key {
                &self.face.wish.key
            }

            /// Another TTL than the client's.
            ///
            /// # Errors
            /// `Invalid` below 50 ms or above 24 h.
            pub fn with_ttl(mut self, ttl: std::time::Duration) -> Result<Self, crate::Error> {
                self.face.set_ttl(ttl)?;
                Ok(self)
            }

            /// Who renews the lease: the watchdog (the default), the caller, or nobody.
            ///
            /// # Errors
            /// `Invalid` for a share of the TTL outside 0.05 to 0.8.
            pub fn with_renewal(
                mut self,
                policy: leasehold_core::RenewalPolicy,
            ) -> Result<Self, crate::Error> {
                self.face.set_renewal(policy)?;
                Ok(self)
            }

            /// The longest that a lease is renewed, counted from its grant: then
            /// it is lost, with [`crate::Loss::MaxHold`]. A shorter one shortens
            /// the TTL too.
            ///
            /// # Errors
            /// `Invalid` below 50 ms.
            pub fn with_max_hold(
                mut self,
                max_hold: std::time::Duration,
            ) -> Result<Self, crate::Error> {
                self.face.set_max_hold(max_hold)?;
                Ok(self)
            }

            /// The least that the key stays taken, counted from the grant, even
            /// when the lease is released sooner or its holder dies: so that a
            /// short job does not run twice on machines whose clocks differ.
            ///
            /// # Errors
            /// `Invalid` above 366 days.
            pub fn with_min_hold(
                mut self,
                min_hold: std::time::Duration,
            ) -> Result<Self, crate::Error> {
                self.face.set_min_hold(min_hold)?;
                Ok(self)
            }

            /// How others see who holds or waits.
            #[must_use]
            pub fn with_label(mut self, label: impl AsRef<str>) -> Self {
                self.face.set_label(label.as_ref());
                self
            }
        }
    };
}

/// Looking at the key of a lock, without a claim.
macro_rules! looking {
    ($lock:ty) => {
        impl $lock {
            /// Whether anybody holds the key now, in whatever way: also a holder that has
            /// left or died, while its minimum hold or its lease is not over.
            ///
            /// A look, and no promise: it may be otherwise by the time of the answer.
            ///
            /// # Cancel safety
            /// Dropping the future costs nothing.
            ///
            /// # Errors
            /// `Unavailable`, `Refused`, `Corrupt`: see [`crate::ErrorKind`].
            ///
            /// # Examples
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), leasehold::Error> {
            /// let client = leasehold::connect("memory:").await?;
            /// let lock = client.mutex("orders/42")?.with_label("billing");
            /// assert!(!lock.is_locked().await?);
            /// let lease = lock.lock().await?;
            /// assert!(lock.is_locked().await?);
            /// assert_eq!(lock.holders().await?[0].owner.label.as_deref(), Some("billing"));
            /// # Ok(()) }
            /// ```
            pub async fn is_locked(&self) -> Result<bool, crate::Error> {
                Ok(!self.face.inspect().await?.holders.is_empty())
            }

            /// Who holds the key now, in order of their grants;
            /// [`crate::Client::inspect`] has also those who wait.
            ///
            /// A look, and no promise: it may be otherwise by the time of the answer.
            ///
            /// # Cancel safety
            /// Dropping the future costs nothing.
            ///
            /// # Errors
            /// As [`Self::is_locked`].
            ///
            /// # Examples
            /// See [`Self::is_locked`].
            pub async fn holders(&self) -> Result<Vec<crate::HolderInfo>, crate::Error> {
                Ok(self.face.inspect().await?.holders)
            }
        }
    };
}

/// Options for those that may give up the order of arrival.
macro_rules! unfair_options {
    ($lock:ty) => {
        impl $lock {
            /// Gives up fairness for throughput: the key may be taken ahead of those
            /// who wait, and a release leaves it free for whoever comes first. Waiters
            /// can starve. Those who claim the same key fairly keep their order among
            /// themselves.
            #[must_use]
            pub fn unfair(mut self) -> Self {
                self.face.set_unfair();
                self
            }

            /// Does not stand in the queue: asks again and again, after the pauses
            /// of `retry`, until the key is free and nobody waits for it. Unfair to
            /// whoever asks so: with [`Self::unfair`] it may also pass those who wait.
            ///
            /// Stores that cannot queue do so anyway, with [`crate::Retry::default`].
            #[must_use]
            pub fn retrying(mut self, retry: crate::Retry) -> Self {
                self.face.set_retry(retry);
                self
            }
        }
    };
}

pub(crate) use {looking, options, unfair_options};
