//! Hand-over and recovery: a lease as data, and how another process takes it over.

use std::marker::PhantomData;

use leasehold_core::{ClaimId, Deadlines, Invalid, Key, Mode, Token};
use leasehold_store::debug;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::error::{Error, Operation, StoreError};
use crate::lease::{Any, Exclusive, Lease, LeaseKind, Shared};
use crate::lock::Lock;
use crate::session::request::call_unanswered;
use crate::sync::{sleep, timeout};
use crate::waiting::{LockOptions, Wait};

/// A lease as data, to hand it to another process or to recover it after a crash.
///
/// **It contains the claim id, which is a secret**: anyone who has it can take the lease.
/// Serialise it only to places that nobody else can read.
#[must_use = "a lease that was handed over keeps its key for the rest of its TTL"]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct LeaseParts<K: LeaseKind = Exclusive> {
    written: Written,
    kind: PhantomData<fn() -> K>,
}

/// What is written down.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    key: Key,
    claim: ClaimId,
    version: u64,
    token: Token,
    mode: Mode,
    /// Whether it belongs to an owner, who may enter again.
    #[serde(default)]
    reentrant: bool,
    /// Whether the giver's validity has ended.
    handed_over: bool,
}

impl<K: LeaseKind> From<LeaseParts<K>> for Written {
    fn from(parts: LeaseParts<K>) -> Self {
        parts.written
    }
}

impl Written {
    fn parts<K: LeaseKind>(self) -> LeaseParts<K> {
        LeaseParts {
            written: self,
            kind: PhantomData,
        }
    }
}

impl<K: LeaseKind> TryFrom<Written> for LeaseParts<K> {
    type Error = Invalid;

    fn try_from(written: Written) -> Result<Self, Invalid> {
        let mode = written.mode;
        if !K::is(mode) {
            return Err(Invalid::new(
                format!("these are the parts of another kind of lease ({mode})"),
                "read them as the same kind of lease as they were made from",
            ));
        }
        mode.check()?;
        Ok(written.parts())
    }
}

impl<K: LeaseKind> LeaseParts<K> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.written.key
    }

    /// Returns the claim id, which is a secret.
    #[must_use]
    pub fn claim(&self) -> &ClaimId {
        &self.written.claim
    }

    /// Returns how often the claim id was replaced.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.written.version
    }

    /// Returns the token of the lease. The process that takes it over gets a higher one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.written.token
    }

    /// Returns the mode of the lease.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.written.mode
    }

    /// Converts to parts whose mode is known only at run time.
    pub fn into_any(self) -> LeaseParts<Any> {
        self.written.parts()
    }

    /// Returns whether the former holder has given up the lease: true if made by
    /// [`Lease::into_parts`], false if made by [`Lease::parts`].
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.written.handed_over
    }
}

impl LeaseParts<Any> {
    /// Converts to the parts of a lease of kind `K`, if its mode is of that kind.
    ///
    /// # Errors
    /// The parts themselves, unchanged.
    pub fn downcast<K: LeaseKind>(self) -> Result<LeaseParts<K>, Self> {
        match K::is(self.mode()) {
            true => Ok(self.written.parts()),
            false => Err(self),
        }
    }
}

debug!(
    LeaseParts<K: LeaseKind>; |it| key: it.key(), claim: it.claim(), version: it.version(),
    token: it.token(), handed_over: it.is_handed_over()
);

impl<K: LeaseKind> Lease<K> {
    /// Returns a copy of the lease as data, to recover it after a crash. The lease is still held.
    /// A rotation of the claim id or a downgrade makes the copy useless.
    ///
    /// # Errors
    /// `Closed` in a forked process: the lease is its parent's.
    pub fn parts(&self) -> Result<LeaseParts<K>, Error> {
        let caller = self.claim.session.check_process();
        caller.map_err(|error| self.error(Operation::HandOver, error))?;
        Ok(self.written(self.claim.identity(), false).parts())
    }

    fn written(&self, (claim, version): (ClaimId, u64), handed_over: bool) -> Written {
        Written {
            key: self.key().clone(),
            claim,
            version,
            token: self.claim.slot.token(),
            mode: self.mode(),
            reentrant: self.claim.reentrant,
            handed_over,
        }
    }

    /// Turns the lease into data for another process, which has a whole TTL to take it over. The
    /// validity of this lease ends first, so exclusion holds. On `local:` keep this process and
    /// its client until then: a lock there ends with them.
    ///
    /// A store without adoption
    /// ([`Capabilities::exclusive_only`](crate::store::Capabilities::exclusive_only)) lets nobody take
    /// the lease over: there the data only renews and releases the claim
    /// ([`renew_by_parts`](crate::Client::renew_by_parts)).
    ///
    /// # Cancel safety
    /// Dropping the future releases the lease.
    ///
    /// # Errors
    /// Same as [`Lease::renew`], but the lease is not valid any more. After `Lost` there is nothing
    /// to hand over; otherwise the lease is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::connect("memory:").await?;
    /// let orders = client.mutex("orders/42")?;
    /// let lease = orders.lock().await?;
    /// let before = lease.token();
    /// let parts = lease.into_parts().await?;       // serialise it, send it
    /// let lease = orders.adopt(&parts).await?;     // there
    /// assert!(lease.token() > before);
    /// # Ok(()) }
    /// ```
    pub async fn into_parts(self) -> Result<LeaseParts<K>, Error> {
        let identity = self.hand_over().await?;
        Ok(self.written(identity, true).parts())
    }
}

/// A recovered lease: the result of [`crate::Mutex::recover`] and similar methods.
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "a lease that is dropped is released"]
pub struct Recovered<K: LeaseKind = Exclusive> {
    /// The lease.
    pub lease: Lease<K>,
    /// Whether the old claim was lost, so that this is a new one: another client may have held
    /// the key in between.
    pub is_new: bool,
}

impl Lock {
    /// Takes over a claim whose giver has ended its validity.
    pub(crate) async fn adopt_as<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
    ) -> Result<Lease<K>, Error> {
        if !parts.is_handed_over() {
            let invalid = Invalid::new(
                "the lease was not handed over: its holder may still rely on it",
                "let its holder hand it over, or adopt it by force if the holder is gone",
            );
            return Err(self.adopt_error(invalid.into()));
        }
        self.force_as(parts).await
    }

    pub(crate) async fn force_as<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
    ) -> Result<Lease<K>, Error> {
        let deadlines = Wait::No.deadlines(&self.session);
        let lease = self.take_over(parts, deadlines).await?;
        self.with_its_note(lease, deadlines).await
    }

    /// The lease of these parts if their claim exists, else a new one.
    pub(crate) async fn recover_as<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
        mut how: LockOptions,
    ) -> Result<Recovered<K>, Error> {
        let deadlines = how.wait.deadlines(&self.session);
        let mut taken = self.take_over(parts, deadlines).await;
        // A store that cannot do it now is waited for, as where a lease is acquired.
        while let Some(pause) = taken.as_ref().err().and_then(Error::retry_after) {
            let left = deadlines.left_to_wait(clock::now());
            if left.is_zero() || !deadlines.waits() {
                break;
            }
            let paused = self.session.while_open(async {
                sleep(pause.min(left)).await;
                Ok(())
            });
            paused.await.map_err(|error| self.adopt_error(error))?;
            taken = self.take_over(parts, deadlines).await;
        }
        if let Wait::For(limit) = &mut how.wait {
            *limit = deadlines.left_to_wait(clock::now());
        }
        let (lease, is_new) = match taken {
            Err(gone) if gone.is_lost() => (self.in_place_of(parts).acquire_as(how).await?, true),
            taken => (self.with_its_note(taken?, deadlines).await?, false),
        };
        Ok(Recovered { lease, is_new })
    }

    /// The lease; `Lost` if there is nothing to take.
    async fn take_over<K: LeaseKind>(
        &self,
        parts: &LeaseParts<K>,
        deadlines: Deadlines,
    ) -> Result<Lease<K>, Error> {
        let checked = self.request.check();
        let checked = checked.and_then(|()| Ok(self.check_parts(&parts.written)?));
        checked.map_err(|error| self.adopt_error(error))?;
        let mut request = self.request.clone();
        request.mode = parts.mode();
        let (id, version) = (parts.claim(), parts.version());
        let adopted = self.session.adopt(&request, id, version, deadlines).await;
        let claim = adopted.map_err(|error| self.adopt_error(error))?;
        let waited = clock::now().since(deadlines.began);
        Ok(Lease::new(claim, waited))
    }

    /// Has a lease that was taken over show the note of this lock, if it has one. Without an answer
    /// the lease is released: observers would be told that of the holder before, such as its address.
    async fn with_its_note<K: LeaseKind>(
        &self,
        lease: Lease<K>,
        deadlines: Deadlines,
    ) -> Result<Lease<K>, Error> {
        if let Some(note) = &self.request.note {
            let noted = lease.set_note(note.as_str());
            let noted = timeout(deadlines.left(clock::now()), noted).await;
            let late = || call_unanswered(&self.request.terms, deadlines, false);
            noted.unwrap_or_else(|_| Err(lease.error(Operation::Proclaim, late())))?;
        }
        Ok(lease)
    }

    /// Refuses parts that are not of a lease of this lock.
    fn check_parts(&self, parts: &Written) -> Result<(), Invalid> {
        if parts.key != self.request.key {
            let message = format!("these are the parts of a lease on {:?}", parts.key);
            return Err(Invalid::plain(message));
        }
        let mode = parts.mode;
        // Held alone, by readers, or with permits.
        let kind = |mode| (Exclusive::is(mode), Shared::is(mode));
        if kind(mode) != kind(self.request.mode) {
            return Err(Invalid::new(
                format!("these are the parts of another kind of lease ({mode})"),
                "take it over with a lock of that mode",
            ));
        }
        if parts.reentrant != self.request.secret.is_some() {
            let (of, with) = match parts.reentrant {
                true => ("a re-entrant lease", "Client::reentrant and the same owner"),
                false => ("a lease that is not re-entrant", "Client::mutex or rwlock"),
            };
            return Err(Invalid::new(
                format!("these are the parts of {of}"),
                format!("take it over with {with}"),
            ));
        }
        Ok(())
    }

    fn adopt_error(&self, error: StoreError) -> Error {
        Error::new(Operation::Adopt, Some(self.request.key.clone()), error)
    }

    /// For a new lease in place of these parts: one of a [`Semaphore`](crate::Semaphore) takes as many
    /// permits as before. A lock of any mode takes what that says.
    fn in_place_of<K: LeaseKind>(&self, parts: &LeaseParts<K>) -> Self {
        let capacity = self.request.mode.capacity();
        match K::is(Mode::EXCLUSIVE) {
            true => self.clone(),
            false => self.with_mode(Mode::new(capacity, parts.mode().weight())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use leasehold_core::{Claim, ClaimReply, Inbox};
    use leasehold_store::memory::MemoryStore;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::Verbs as _;
    use crate::{Client, Exclusive, Permits};

    fn read<K: LeaseKind>(mode: &str, claim: &str) -> Result<LeaseParts<K>, String> {
        let json = format!(
            r#"{{"key":"k","claim":{claim:?},"version":0,"token":1,"mode":{mode},"handed_over":true}}"#
        );
        serde_json::from_str(&json).map_err(|error| error.to_string())
    }

    /// As after a fail-over that has lost its grant.
    #[tokio::test]
    async fn a_claim_that_waits_is_no_lease() {
        let (store, key) = (MemoryStore::new(), Key::new("k").unwrap());
        let (ids, ttl) = ([1, 2].map(ClaimId::from_random), Duration::from_secs(60));
        for id in ids.clone() {
            let claim = Claim::new(id, Mode::EXCLUSIVE, ttl);
            store.claim(&key, &claim).await.unwrap();
        }
        let client = Client::builder().with_store(Arc::new(store));
        let client = client.connect().await.unwrap();
        let [holds, waits] =
            ids.map(|id| read::<Exclusive>(r#""Exclusive""#, id.expose()).unwrap());
        client.renew_by_parts(&holds, ttl).await.unwrap();
        let lost = client.renew_by_parts(&waits, ttl).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::Lost);
    }

    /// The release of the lease ahead in its run may still be under way.
    #[tokio::test]
    async fn a_lease_that_was_passed_on_is_one() {
        let (store, key) = (MemoryStore::new(), Key::new("k").unwrap());
        let (ids, ttl) = ([1, 2].map(ClaimId::from_random), Duration::from_secs(60));
        let mut given = Vec::new();
        for id in ids {
            let claim = Claim {
                inbox: Some(Inbox::from_random(1)),
                runs: true,
                ..Claim::new(id.clone(), Mode::EXCLUSIVE, ttl)
            };
            let answer = store.claim(&key, &claim).await.unwrap();
            let ClaimReply::Standing(standing) = answer.reply else {
                panic!("{answer:?}");
            };
            let mut parts = read::<Exclusive>(r#""Exclusive""#, id.expose()).unwrap();
            parts.written.token = standing.token.unwrap();
            given.push((standing.behind, parts));
        }
        let client = Client::builder().with_store(Arc::new(store));
        let client = client.connect().await.unwrap();
        let (behind, parts) = &given[1];
        assert!(behind.is_some());
        client.renew_by_parts(parts, ttl).await.unwrap();
    }

    #[test]
    fn parts_come_from_elsewhere() {
        assert!(read::<Exclusive>(r#""Exclusive""#, "ab").is_ok());
        for claim in ["", "\u{20ac}", "a b"] {
            let why = read::<Exclusive>(r#""Exclusive""#, claim).unwrap_err();
            assert!(why.contains("a claim id must be"), "{why}");
        }
        assert!(read::<Permits>(r#"{"Permits":{"of":3,"take":1}}"#, "ab").is_ok());
        let why = read::<Permits>(r#"{"Permits":{"of":3,"take":0}}"#, "ab").unwrap_err();
        assert!(why.contains("at least 1 permit"), "{why}");
    }
}
